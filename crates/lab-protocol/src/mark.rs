//! Marks: an instruction that the lab's clock plugin recognises and that is a no-op elsewhere.

/// The region of interest begins: the machine is modelled from here on.
pub const BEGIN: u64 = 1;

/// The region of interest ends.
pub const END: u64 = 2;

/// The calling process is the lab's agent, not part of the program.
pub const AGENT: u64 = 3;

/// The machine is modelled from here on; the region of interest begins later.
pub const WARM_UP: u64 = 4;

/// Accesses that miss all caches are sampled from here on, one of as many as the argument says; none if it is
/// 0.
pub const SAMPLE: u64 = 5;

/// Executes a mark: `xchg bx, bx` with the command in RAX and its argument in RDI.
///
/// The three marks of regions load their command as a constant just before, in the same 8 bytes: the recorder
/// of `memtide record` sees instructions, but no registers.
pub fn mark(command: u64, argument: u64) {
    match command {
        BEGIN => constant::<BEGIN>(argument),
        END => constant::<END>(argument),
        WARM_UP => constant::<WARM_UP>(argument),
        _ => any(command, argument),
    }
}

#[allow(unsafe_code, reason = "an instruction that Rust has no name for")]
fn constant<const COMMAND: u64>(argument: u64) {
    // SAFETY: RAX, which is declared, gets a number; BX is exchanged with itself; no flag changes.
    unsafe {
        std::arch::asm!(
            ".p2align 3",
            "mov eax, {command}",
            "xchg bx, bx",
            command = const COMMAND,
            out("rax") _,
            in("rdi") argument,
            options(nostack, preserves_flags)
        );
    }
}

#[allow(unsafe_code, reason = "an instruction that Rust has no name for")]
fn any(command: u64, argument: u64) {
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
