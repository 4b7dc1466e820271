//! Parallel map.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maps items in parallel, with at most one thread per core; results keep the order of items.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    map_some(items, cores(), work)
}

/// As [`map`], with at most `at_once` threads: for items that use several cores each.
pub fn map_some<T: Sync, R: Send>(
    items: &[T],
    at_once: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..at_once.min(items.len()) {
            scope.spawn(|| {
                while let Some(index) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < items.len())
                {
                    let result = work(index, &items[index]);
                    *results[index].lock().expect("only this thread has it") = Some(result);
                }
            });
        }
    });
    results
        .into_iter()
        .map(|r| r.into_inner().expect("no holder panicked").expect("every item was done"))
        .collect()
}

/// Number of cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_items() {
        let items: Vec<u64> = (0..100).collect();
        let results = map(&items, |index, item| {
            thread::sleep(std::time::Duration::from_micros(100 - item));
            (index as u64, item * 2)
        });
        assert_eq!(results, items.iter().map(|i| (*i, i * 2)).collect::<Vec<_>>());
    }
}
