//! State with exclusive access per callback.
//!
//! QEMU calls the plugin back without a context pointer, so the state is a static. Each callback enters it
//! once, at its start, and passes it down by `&mut`; there is no other access, hence never a second
//! reference.
//!
//! ```text
//! thread=single                       thread=multi
//! vCPU thread  --[on_a]--[on_b]-->    vCPU 0  --[on_a]-----------[on_b]-->
//!                                     vCPU 1  --------[on_c]------------->    [...]: holds the lock
//! ```

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value with one user at a time.
#[derive(Debug)]
pub struct Exclusive<T> {
    state: UnsafeCell<T>,
    /// In use: detects a callback within a callback.
    entered: AtomicBool,
    /// Excludes other threads, if there are any.
    lock: Option<Mutex<()>>,
}

// SAFETY: `enter` hands the value to one thread at a time: by the lock, or by what its caller promises.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// A value for several threads, or for one.
    pub fn new(state: T, several_threads: bool) -> Exclusive<T> {
        let lock = several_threads.then(|| Mutex::new(()));
        Exclusive { state: UnsafeCell::new(state), entered: AtomicBool::new(false), lock }
    }

    /// Exclusive access until the guard is dropped. Waits for other threads, if there are several.
    ///
    /// # Safety
    /// All callers are on one thread, unless the value was made for several.
    ///
    /// # Panics
    /// If the calling thread already has it and the value is for one thread; with several it deadlocks.
    #[inline]
    pub unsafe fn enter(&self) -> Entered<'_, T> {
        let lock = self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        // No read-modify-write, which would dominate the cost: other threads are already excluded.
        assert!(!self.entered.load(Ordering::Relaxed), "a callback within a callback");
        self.entered.store(true, Ordering::Relaxed);
        // SAFETY: a cell's address is not null.
        let state = unsafe { NonNull::new_unchecked(self.state.get()) };
        Entered { state, entered: &self.entered, _lock: lock }
    }

    /// Whether it is in use.
    pub fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }
}

/// Guard with exclusive access to the value.
#[derive(Debug)]
pub struct Entered<'a, T> {
    state: NonNull<T>,
    entered: &'a AtomicBool,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard excludes other users.
        unsafe { self.state.as_ref() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard excludes other users, and is borrowed mutably.
        unsafe { self.state.as_mut() }
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.entered.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_of_one_thread_run_in_sequence() {
        let state = Exclusive::new(vec![1], false);
        {
            // SAFETY: this thread alone enters.
            let mut entered = unsafe { state.enter() };
            entered.push(2);
            let inner: &mut Vec<i32> = &mut entered;
            inner.push(3);
            assert!(state.is_entered());
        }
        assert!(!state.is_entered());
        // SAFETY: as above.
        assert_eq!(*unsafe { state.enter() }, [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "a callback within a callback")]
    fn nested_callback_panics() {
        let state = Exclusive::new(0, false);
        // SAFETY: this thread alone enters.
        let (_first, _second) = unsafe { (state.enter(), state.enter()) };
    }

    #[test]
    fn threads_wait_for_each_other() {
        let state = Exclusive::new(0_u64, true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // SAFETY: made for several threads.
                        *unsafe { state.enter() } += 1;
                    }
                });
            }
        });
        // SAFETY: as above.
        assert_eq!(*unsafe { state.enter() }, 200);
    }
}
