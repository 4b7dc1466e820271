//! Marks: an instruction that the lab's clock plugin recognises and that is a no-op elsewhere.

/// The region of interest begins: the machine is modelled from here on.
pub const BEGIN: u64 = 1;

/// The region of interest ends.
pub const END: u64 = 2;

/// The calling process is the lab's agent, not part of the program.
pub const AGENT: u64 = 3;

/// The machine is modelled from here on; the region of interest begins later.
pub const WARM_UP: u64 = 4;

/// Executes a mark: `xchg bx, bx` with the command in RAX and its argument in RDI.
#[allow(unsafe_code, reason = "an instruction that Rust has no name for")]
pub fn mark(command: u64, argument: u64) {
    // SAFETY: a register is exchanged with itself; no register and no flag changes.
    unsafe {
        std::arch::asm!(
            "xchg bx, bx",
            in("rax") command,
            in("rdi") argument,
            options(nostack, preserves_flags)
        );
    }
}
