//! QEMU internals used in addition to its plugin interface. The only module that uses them.
//!
//! With `-icount`, QEMU's accelerator has a table of operations. In QEMU 10.0 it contains
//! `get_virtual_clock`, `set_virtual_clock` and `get_elapsed_ticks` in sequence, the first and the last being
//! `icount_get`. If the table does not match, nothing is replaced.

use std::ffi::{CStr, c_void};
use std::mem::transmute;

type Clock = unsafe extern "C" fn() -> i64;

/// Functions of QEMU that its binary exports.
pub struct Internals {
    icount_get: Clock,
    icount_get_raw: Clock,
    icount_to_ns: unsafe extern "C" fn(i64) -> i64,
    cpu_exit: unsafe extern "C" fn(*mut c_void),
    cflags_set: unsafe extern "C" fn(*mut c_void, u32),
    flush_page: unsafe extern "C" fn(*mut c_void, u64),
    physical_memory: unsafe extern "C" fn(u64, *mut c_void, u64, bool),
    get_accel: unsafe extern "C" fn() -> *mut *const c_void,
}

/// Number of entries of the accelerator's table that are searched.
const ENTRIES: usize = 64;

/// Blocks that may run in parallel (`CF_PARALLEL`): without it plugins crash when one thread runs several
/// virtual CPUs.
const PARALLEL: u32 = 0x8000;

fn symbol(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a look-up by name in this process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        Err(format!("this QEMU does not export {}", name.to_string_lossy()))
    } else {
        Ok(found)
    }
}

/// The virtual CPU that the calling thread runs; null in other threads.
pub fn current_cpu() -> *mut c_void {
    thread_local! {
        // The address of a thread-local variable, resolved by the dynamic linker for the calling thread.
        static ADDRESS: *mut *mut c_void =
            symbol(c"current_cpu").map_or(std::ptr::null_mut(), |address| address.cast());
    }
    ADDRESS.with(|&address| {
        if address.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: QEMU's `__thread CPUState *current_cpu`, of this thread.
        unsafe { *address }
    })
}

impl Internals {
    /// Finds all functions.
    pub fn find() -> Result<Internals, String> {
        symbol(c"current_cpu")?;
        // SAFETY: functions of QEMU 10.0, with the types that they have there.
        unsafe {
            Ok(Internals {
                icount_get: transmute::<*mut c_void, Clock>(symbol(c"icount_get")?),
                icount_get_raw: transmute::<*mut c_void, Clock>(symbol(c"icount_get_raw")?),
                icount_to_ns: transmute::<*mut c_void, unsafe extern "C" fn(i64) -> i64>(symbol(
                    c"icount_to_ns",
                )?),
                cpu_exit: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(symbol(c"cpu_exit")?),
                cflags_set: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, u32)>(symbol(
                    c"tcg_cflags_set",
                )?),
                flush_page: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, u64)>(symbol(
                    c"tlb_flush_page",
                )?),
                physical_memory: transmute::<*mut c_void, unsafe extern "C" fn(u64, *mut c_void, u64, bool)>(
                    symbol(c"cpu_physical_memory_rw")?,
                ),
                get_accel: transmute::<*mut c_void, unsafe extern "C" fn() -> *mut *const c_void>(symbol(
                    c"cpus_get_accel",
                )?),
            })
        }
    }

    /// Replaces the accelerator's clock functions.
    pub fn replace_clock(&self, get: extern "C" fn() -> i64, set: extern "C" fn(i64)) -> Result<(), String> {
        let original = self.icount_get as *const c_void;
        // SAFETY: the table is longer than what is lookup at, and writable; what is replaced was checked to
        // be a clock.
        unsafe {
            let table = (self.get_accel)();
            if table.is_null() {
                return Err("QEMU has no accelerator yet".to_owned());
            }
            let at = (0..ENTRIES).find(|&entry| *table.add(entry) == original);
            let Some(at) = at.filter(|at| *table.add(at + 2) == original) else {
                return Err(
                    "the accelerator's clock is not where QEMU 10.0 has it, or -icount is not on".to_owned()
                );
            };
            *table.add(at) = get as *const c_void;
            *table.add(at + 1) = set as *const c_void;
            *table.add(at + 2) = get as *const c_void;
        }
        Ok(())
    }

    /// Time skipped by QEMU while all virtual CPUs slept, in ns.
    pub fn skipped_ns(&self) -> i64 {
        // SAFETY: called where QEMU reads its clock.
        unsafe { (self.icount_get)() - (self.icount_to_ns)((self.icount_get_raw)()) }
    }

    /// Ends the calling thread's virtual CPU's turn.
    pub fn end_turn(&self) {
        // SAFETY: the calling thread runs a virtual CPU.
        unsafe { (self.cpu_exit)(current_cpu()) }
    }

    /// Drops QEMU's own translation of a page on the calling thread's virtual CPU: of the whole huge page if
    /// it is of one.
    pub fn flush_page(&self, address: u64) {
        // SAFETY: the calling thread runs a virtual CPU.
        unsafe { (self.flush_page)(current_cpu(), address) }
    }

    /// A word of guest-physical memory; 0 where there is none.
    pub fn word(&self, physical: u64) -> u64 {
        let mut word = [0; 8];
        // SAFETY: the calling thread runs a virtual CPU, and QEMU reads as many bytes as the buffer has.
        unsafe { (self.physical_memory)(physical, word.as_mut_ptr().cast(), word.len() as u64, false) };
        u64::from_le_bytes(word)
    }

    /// Makes the calling thread's virtual CPU translate blocks as parallel ones.
    pub fn share_blocks(&self) {
        // SAFETY: the calling thread initialises a virtual CPU.
        unsafe { (self.cflags_set)(current_cpu(), PARALLEL) }
    }
}
