//! State that callbacks use one after another.
//!
//! QEMU calls the plugin back with no context of its own, so that the state is a static. Each callback enters it once, at its
//! start, and passes it down by `&mut`; there is no other way to it, and hence never a second reference.
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
    /// Somebody uses it: what finds a callback within a callback.
    entered: AtomicBool,
    /// Keeps other threads out, if there are some.
    lock: Option<Mutex<()>>,
}

// SAFETY: `enter` hands the value to one thread at a time: by the lock, or by what its caller promises.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// A value that several threads enter, or one alone.
    pub fn new(state: T, several_threads: bool) -> Exclusive<T> {
        let lock = several_threads.then(|| Mutex::new(()));
        Exclusive { state: UnsafeCell::new(state), entered: AtomicBool::new(false), lock }
    }

    /// Has the value until what is returned is dropped. Waits for other threads, if there are several.
    ///
    /// # Safety
    /// All callers are on one thread, unless the value was made for several.
    ///
    /// # Panics
    /// If the calling thread has it already, and the value was made for one thread; with several it waits for ever.
    #[inline]
    pub unsafe fn enter(&self) -> Entered<'_, T> {
        let lock = self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        // No read-modify-write, which would take longer than all the rest: other threads are kept out already.
        assert!(!self.entered.load(Ordering::Relaxed), "a callback within a callback");
        self.entered.store(true, Ordering::Relaxed);
        // SAFETY: a cell's address is not null.
        let state = unsafe { NonNull::new_unchecked(self.state.get()) };
        Entered { state, entered: &self.entered, _lock: lock }
    }

    /// Whether somebody uses it just now.
    pub fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Relaxed)
    }
}

/// The value, for one user.
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
        // SAFETY: as long as this lives, nobody else enters.
        unsafe { self.state.as_ref() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as long as this lives, nobody else enters, and it is borrowed mutably.
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
    fn callbacks_of_one_thread_follow_each_other() {
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
    fn a_callback_within_a_callback_is_caught() {
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
