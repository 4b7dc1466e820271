//! Guest registers and memory, read in callbacks.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null_mut;

use qemu_plugin_sys as sys;

/// Handles of the general registers, in numeric order, and a buffer for a value.
pub(super) struct Registers {
    handles: [*mut sys::qemu_plugin_register; 16],
    value: *mut sys::GByteArray,
}

unsafe extern "C" {
    fn g_byte_array_new() -> *mut sys::GByteArray;
    fn g_byte_array_set_size(array: *mut sys::GByteArray, size: c_uint) -> *mut sys::GByteArray;
    fn g_array_free(array: *mut sys::GArray, free_segment: c_int) -> *mut c_char;
}

impl Registers {
    pub(super) fn new() -> Registers {
        // SAFETY: it makes an empty array.
        Registers { handles: [null_mut(); 16], value: unsafe { g_byte_array_new() } }
    }

    /// Finds the registers' handles, which are the same for all virtual CPUs. Called while one is
    /// initialised.
    pub(super) fn find(&mut self) {
        const NAMES: [&CStr; 16] = [
            c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11",
            c"r12", c"r13", c"r14", c"r15",
        ];
        // SAFETY: the array holds `len` descriptors, and is the caller's to free.
        unsafe {
            let array = sys::qemu_plugin_get_registers();
            let found = (*array).data.cast::<sys::qemu_plugin_reg_descriptor>();
            for i in 0..(*array).len as usize {
                let descriptor = *found.add(i);
                if let Some(number) = NAMES.iter().position(|&name| name == CStr::from_ptr(descriptor.name)) {
                    self.handles[number] = descriptor.handle;
                }
            }
            g_array_free(array, 1);
        }
    }

    /// The value of a general register. Only in a callback that may read registers.
    pub(super) fn value(&self, number: u8) -> u64 {
        let handle = self.handles[usize::from(number)];
        if handle.is_null() {
            return 0;
        }
        // SAFETY: the array is this value's; QEMU makes it as long as what it reads.
        unsafe {
            g_byte_array_set_size(self.value, 0);
            if sys::qemu_plugin_read_register(handle, self.value) < 8 {
                return 0;
            }
            (*self.value).data.cast::<u64>().read_unaligned()
        }
    }

    /// A word of guest memory in the current address space. Only in a callback that may read registers.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        // SAFETY: as in `value`.
        unsafe {
            let read = sys::qemu_plugin_read_memory_vaddr(address, self.value, size_of::<u64>());
            read.then(|| (*self.value).data.cast::<u64>().read_unaligned())
        }
    }
}

// SAFETY: the array is this value's alone, and the handles are the same for all threads.
unsafe impl Send for Registers {}
