//! Instructions that access memory, and the loads that their addresses depend on.

use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicU64, Ordering};

use memtide_core::Time;
use memtide_dataflow::{self as dataflow, Set, bits};

/// Maximum number of virtual CPUs.
pub const MAX_VCPUS: usize = 8;

/// General registers: only dependences through these are tracked.
pub const REGISTERS: usize = 16;

/// Maximum number of loads between an access and a miss that it depends on.
const DEPTH: u32 = 4;

/// The load that last fed each general register of a CPU, null if unknown, and an unused slot for loads that
/// feed no register.
#[derive(Clone, Copy, Debug)]
pub struct Writers([*const Op; REGISTERS + 1]);

impl Writers {
    /// No loads known.
    pub const NONE: Writers = Writers([null(); REGISTERS + 1]);
}

/// Maximum number of registers that a load feeds; further ones are ignored.
const FEEDS: usize = 2;

/// An instruction that accesses memory, in one translation of its block.
#[derive(Debug)]
pub struct Op {
    /// Instructions of the block from this one on.
    pub left: u32,
    /// The last line that it accessed, per CPU.
    last_line: [AtomicU64; MAX_VCPUS],
    /// Earlier loads of the block that its address depends on.
    loads: Vec<*const Op>,
    /// Registers at the block's start that its address depends on.
    live_ins: u16,
    /// Registers at the block's end that depend on the loaded value, or [`REGISTERS`].
    feeds: [u8; FEEDS],
}

/// Dependences of an access's address, and registers fed by the loaded value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sources {
    loads: u64,
    live_ins: u16,
    feeds: u16,
}

/// A value's dependences: registers at the block's start, and loads of the block by number.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    live_ins: u16,
    loads: u64,
}

impl Value {
    fn and(self, other: Value) -> Value {
        Value { live_ins: self.live_ins | other.live_ins, loads: self.loads | other.loads }
    }
}

/// All ops of translated blocks. QEMU, other ops and [`Writers`] refer to them by address.
#[derive(Debug, Default)]
pub struct Ops(Vec<NonNull<Op>>);

// SAFETY: it owns its ops, which hold addresses of each other alone and whose lines are atomic.
unsafe impl Send for Ops {}

impl Ops {
    /// Adds the ops of a block; returns them in order, `None` for an instruction without memory access. QEMU
    /// counts a block's instructions at its start, or one by one (`by_instruction`).
    pub fn add_block<'a>(
        &mut self,
        code: impl Iterator<Item = (u64, &'a [u8])>,
        by_instruction: bool,
    ) -> Vec<Option<NonNull<Op>>> {
        let (block, ops) = dataflow::analyse(code);
        let sources = sources(&ops, &block.tail);
        let first = self.0.len();
        let accesses = ops.iter().zip(&sources);
        let accesses = accesses.map(|(op, sources)| {
            // When counted one by one, this instruction is already counted, and later ones are not.
            let left = |position: u32| if by_instruction { 1 } else { block.instructions + 1 - position };
            op.as_ref().map(|op| self.add(left(op.position), sources, first))
        });
        accesses.collect()
    }

    /// Adds an op of the block whose first op has index `first`.
    fn add(&mut self, left: u32, sources: &Sources, first: usize) -> NonNull<Op> {
        // Loads precede the ops that they feed, so all of them exist.
        let before = &self.0[first..];
        debug_assert!(bits(sources.loads).all(|load| load < before.len()), "a load after its use");
        let op = Box::new(Op {
            left,
            last_line: [const { AtomicU64::new(u64::MAX) }; MAX_VCPUS],
            loads: bits(sources.loads).map(|load| before[load].as_ptr().cast_const()).collect(),
            live_ins: sources.live_ins,
            feeds: first_registers(sources.feeds),
        });
        let op = NonNull::from(Box::leak(op));
        self.0.push(op);
        op
    }

    /// Frees all ops.
    ///
    /// # Safety
    /// QEMU has dropped all blocks, and all [`Writers`] are [`Writers::NONE`].
    pub unsafe fn clear(&mut self) {
        for op in self.0.drain(..) {
            // SAFETY: it was a box, and only ops freed here still have its address.
            drop(unsafe { Box::from_raw(op.as_ptr()) });
        }
    }
}

fn first_registers(set: u16) -> [u8; FEEDS] {
    let mut registers = [REGISTERS as u8; FEEDS];
    for (place, register) in registers.iter_mut().zip(bits(set.into())) {
        *place = register as u8;
    }
    registers
}

/// Sources of each instruction's access. Loads are numbered among the accesses; those from the 64th on are
/// not tracked.
fn sources(ops: &[Option<dataflow::Op>], tail: &[dataflow::Transfer]) -> Vec<Sources> {
    let mut values: Vec<Value> = (0..dataflow::REGISTERS)
        .map(|register| Value { live_ins: if register < REGISTERS { 1 << register } else { 0 }, loads: 0 })
        .collect();
    let mut all: Vec<Sources> = Vec::new();
    let mut number = 0;
    for op in ops {
        let Some(op) = op else {
            all.push(Sources::default());
            continue;
        };
        transfer(&mut values, &op.before);
        let address = union(&values, op.load_address | op.store_address);
        all.push(Sources { loads: address.loads, live_ins: address.live_ins, feeds: 0 });
        let load = if number < 64 { 1 << number } else { 0 };
        bits(op.loaded).for_each(|register| values[register] = Value { live_ins: 0, loads: load });
        number += 1;
    }
    transfer(&mut values, tail);
    for (load, sources) in all.iter_mut().zip(ops).filter(|(_, op)| op.is_some()).enumerate().take(64) {
        let fed = values[..REGISTERS].iter().enumerate().filter(|(_, value)| value.loads >> load & 1 == 1);
        sources.0.feeds = fed.fold(0, |set, (register, _)| set | 1 << register);
    }
    all
}

fn union(values: &[Value], of: Set) -> Value {
    bits(of).fold(Value::default(), |value, register| value.and(values[register]))
}

fn transfer(values: &mut [Value], transfers: &[dataflow::Transfer]) {
    let new: Vec<Value> = transfers.iter().map(|transfer| union(values, transfer.from)).collect();
    for (transfer, value) in transfers.iter().zip(new) {
        values[usize::from(transfer.to)] = value;
    }
}

impl Op {
    /// Records the accessed line.
    #[inline(always)]
    pub fn accessed(&self, cpu: usize, line: u64, writers: &mut Writers) {
        self.last_line[cpu].store(line, Ordering::Relaxed);
        for register in self.feeds {
            writers.0[usize::from(register)] = self;
        }
    }

    /// When the loads that its address depends on have ended or will end: the latest of `line_arrival` for
    /// the lines that they accessed last on that CPU.
    pub fn address_ready(&self, cpu: usize, writers: &Writers, line_arrival: impl Fn(u64) -> Time) -> Time {
        self.address_ready_within(DEPTH, cpu, writers, &line_arrival)
    }

    fn address_ready_within(
        &self,
        depth: u32,
        cpu: usize,
        writers: &Writers,
        line_arrival: &impl Fn(u64) -> Time,
    ) -> Time {
        if depth == 0 {
            return Time::ZERO;
        }
        let live_ins = bits(self.live_ins.into()).map(|register| writers.0[register]);
        let all = self.loads.iter().copied().chain(live_ins);
        let ends = all.filter(|load| !load.is_null()).map(|load| {
            // SAFETY: ops live until `Ops::clear`, when `writers` have been forgotten and this op goes with
            // the others.
            let load = unsafe { &*load };
            let line = load.last_line[cpu].load(Ordering::Relaxed);
            line_arrival(line).max(load.address_ready_within(depth - 1, cpu, writers, line_arrival))
        });
        ends.max().unwrap_or(Time::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: u16 = 1;
    const RCX: u16 = 2;
    const RDX: u16 = 4;

    fn of(code: &[&[u8]]) -> Vec<Sources> {
        let code = code.iter().enumerate().map(|(i, &bytes)| (0x1000 + 16 * i as u64, bytes));
        let (block, ops) = dataflow::analyse(code);
        sources(&ops, &block.tail)
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn chase_depends_on_and_feeds_its_register() {
        // mov rax, [rax]
        assert_eq!(of(&[&[0x48, 0x8b, 0x00]])[0], Sources { loads: 0, live_ins: RAX, feeds: RAX });
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn computed_address_depends_on_its_load() {
        // mov rcx, [rax]; lea rdx, [rcx*8]; mov rax, [rdx]
        let s = of(&[&[0x48, 0x8b, 0x08], &[0x48, 0x8d, 0x14, 0xcd, 0, 0, 0, 0], &[0x48, 0x8b, 0x02]]);
        assert_eq!(s[0], Sources { loads: 0, live_ins: RAX, feeds: RCX | RDX });
        assert_eq!(s[2], Sources { loads: 1, live_ins: 0, feeds: RAX });
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn overwritten_load_feeds_nothing() {
        // mov rcx, [rax]; xor ecx, ecx
        assert_eq!(of(&[&[0x48, 0x8b, 0x08], &[0x31, 0xc9]])[0].feeds, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn store_depends_on_address_and_feeds_nothing() {
        // mov [rax], rcx
        assert_eq!(of(&[&[0x48, 0x89, 0x08]])[0], Sources { loads: 0, live_ins: RAX, feeds: 0 });
    }

    /// Lines 1 to 9 arrive at 100 ps times their number, others at once.
    fn line_arrival(line: u64) -> Time {
        if line < 10 { Time(100 * line) } else { Time::ZERO }
    }

    #[test]
    fn address_waits_for_loads_across_blocks_until_flush() {
        let mut ops = Ops::default();
        // mov rcx, [rax]; lea rdx, [rcx*8]; mov rax, [rdx]
        let first = Sources { loads: 0, live_ins: RAX, feeds: RCX | RDX };
        let second = Sources { loads: 1, live_ins: 0, feeds: RAX };
        let [a, b] = [(3, first), (1, second)].map(|(left, sources)| ops.add(left, &sources, 0).as_ptr());
        // mov rax, [rax], in another block
        let c = ops.add(1, &Sources { loads: 0, live_ins: RAX, feeds: RAX }, 2).as_ptr();
        let mut writers = Writers::NONE;
        // SAFETY: QEMU hands addresses of ops over in the same way; they live until they are cleared below.
        unsafe {
            (*a).accessed(0, 7, &mut writers);
            assert_eq!((*b).address_ready(0, &writers, line_arrival), Time(700));
            assert_eq!(
                (*b).address_ready(1, &writers, line_arrival),
                Time::ZERO,
                "another CPU accessed nothing"
            );
            (*b).accessed(0, 3, &mut writers);
            assert_eq!((*c).address_ready(0, &writers, line_arrival), Time(700), "two loads back");
            (*c).accessed(0, 100, &mut writers);
            (*c).accessed(0, 100, &mut writers);
            assert_eq!((*c).address_ready(0, &writers, line_arrival), Time::ZERO, "it feeds itself alone");
        }
        writers = Writers::NONE;
        // SAFETY: no op's address is in use.
        unsafe { ops.clear() };
        assert!(writers.0.iter().all(|writer| writer.is_null()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn remaining_instructions_count_by_block_or_by_op() {
        let code = [(0x1000, [0x48, 0x8b, 0x08].as_slice()), (0x1003, [0x48, 0x8b, 0x11].as_slice())];
        let mut ops = Ops::default();
        for (by_instruction, left) in [(false, [2, 1]), (true, [1, 1])] {
            let made = ops.add_block(code.iter().copied(), by_instruction);
            // SAFETY: they live until they are cleared.
            let found = made.iter().map(|op| unsafe { op.expect("an access").as_ref() }.left);
            assert_eq!(found.collect::<Vec<_>>(), left);
        }
        // SAFETY: no op's address is in use.
        unsafe { ops.clear() };
    }
}
