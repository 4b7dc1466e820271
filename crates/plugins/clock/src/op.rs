//! Instructions that access memory, and which loads their addresses come from.

use std::cell::Cell;
use std::ptr::null;

use memtide_core::{CpuId, Time};
use memtide_dataflow::{self as dataflow, Set, bits};
use memtide_lab_model::Curve;

/// Most virtual CPUs of a machine.
pub const MAX_VCPUS: usize = 8;

/// General registers: only these make addresses that are followed.
pub const REGISTERS: usize = 16;

/// How many loads back a chain of hits is followed to a miss.
const DEPTH: u32 = 4;

/// The load that last fed each general register of a CPU, null if none is known, and a place for what feeds none.
pub type Writers = [*const Op; REGISTERS + 1];

/// No load is known.
pub const NO_WRITERS: Writers = [null(); REGISTERS + 1];

/// Registers that a load is followed to; of more, the last ones are left out.
const FEEDS: usize = 2;

/// An instruction that accesses memory, as one translation of its block has it.
#[derive(Debug)]
pub struct Op {
    /// Instructions of the block from this one on.
    pub left: u32,
    /// Line that it accessed last, on each CPU.
    last_line: [Cell<u64>; MAX_VCPUS],
    /// Loads of the block that its address comes from.
    loads: Vec<*const Op>,
    /// Registers whose value at the block's start its address comes from.
    live_ins: u16,
    /// Registers that hold something made of what it loaded at the block's end, or [`REGISTERS`].
    feeds: [u8; FEEDS],
}

/// Where an access's address comes from, and where what it loads goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sources {
    loads: u64,
    live_ins: u16,
    feeds: u16,
}

/// A value in terms of a block's start: registers, and loads of the block by their number.
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

/// The ops of a block, in order; none for an instruction that accesses no memory.
pub fn of_block<'a>(code: impl Iterator<Item = (u64, &'a [u8])>) -> Vec<Option<Box<Op>>> {
    let (block, ops) = dataflow::analyse(code);
    let sources = sources(&ops, &block.tail);
    let mut made: Vec<Option<Box<Op>>> = ops
        .iter()
        .zip(&sources)
        .map(|(op, sources)| {
            op.as_ref().map(|op| {
                Box::new(Op {
                    left: block.instructions + 1 - op.position,
                    last_line: [const { Cell::new(u64::MAX) }; MAX_VCPUS],
                    loads: Vec::new(),
                    live_ins: sources.live_ins,
                    feeds: first_registers(sources.feeds),
                })
            })
        })
        .collect();
    let address = |op: &Option<Box<Op>>| op.as_deref().map_or(null(), std::ptr::from_ref);
    let addresses: Vec<*const Op> = made.iter().map(address).filter(|op| !op.is_null()).collect();
    for (op, sources) in made.iter_mut().zip(&sources) {
        if let Some(op) = op {
            op.loads = bits(sources.loads).filter_map(|load| addresses.get(load).copied()).collect();
        }
    }
    made
}

fn first_registers(set: u16) -> [u8; FEEDS] {
    let mut registers = [REGISTERS as u8; FEEDS];
    for (place, register) in registers.iter_mut().zip(bits(set.into())) {
        *place = register as u8;
    }
    registers
}

/// Sources of each instruction's access; loads are numbered among the accesses, those from the 64th on are not followed.
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
    /// Notes what it accessed.
    #[inline(always)]
    pub fn accessed(&self, cpu: usize, line: u64, writers: &mut Writers) {
        self.last_line[cpu].set(line);
        for register in self.feeds {
            writers[usize::from(register)] = self;
        }
    }

    /// When the loads that its address comes from have ended, or are to end.
    pub fn address_ready(&self, cpu: CpuId, writers: &Writers, curve: &Curve) -> Time {
        self.address_ready_within(DEPTH, cpu, writers, curve)
    }

    fn address_ready_within(&self, depth: u32, cpu: CpuId, writers: &Writers, curve: &Curve) -> Time {
        if depth == 0 {
            return Time::ZERO;
        }
        let live_ins = bits(self.live_ins.into()).map(|register| writers[register]);
        let all = self.loads.iter().copied().chain(live_ins);
        let ends = all.filter(|load| !load.is_null()).map(|load| {
            // SAFETY: ops live until QEMU flushes all blocks, and then `writers` are forgotten with them.
            let load = unsafe { &*load };
            let line = load.last_line[cpu.index()].get();
            curve.line_came(cpu, line).max(load.address_ready_within(depth - 1, cpu, writers, curve))
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
    fn a_chase_comes_from_its_register_and_feeds_it() {
        // mov rax, [rax]
        assert_eq!(of(&[&[0x48, 0x8b, 0x00]])[0], Sources { loads: 0, live_ins: RAX, feeds: RAX });
    }

    #[test]
    fn an_address_made_of_a_loaded_value_comes_from_its_load() {
        // mov rcx, [rax]; lea rdx, [rcx*8]; mov rax, [rdx]
        let s = of(&[&[0x48, 0x8b, 0x08], &[0x48, 0x8d, 0x14, 0xcd, 0, 0, 0, 0], &[0x48, 0x8b, 0x02]]);
        assert_eq!(s[0], Sources { loads: 0, live_ins: RAX, feeds: RCX | RDX });
        assert_eq!(s[2], Sources { loads: 1, live_ins: 0, feeds: RAX });
    }

    #[test]
    fn what_is_overwritten_feeds_nothing() {
        // mov rcx, [rax]; xor ecx, ecx
        assert_eq!(of(&[&[0x48, 0x8b, 0x08], &[0x31, 0xc9]])[0].feeds, 0);
    }

    #[test]
    fn a_store_comes_from_its_address_and_feeds_nothing() {
        // mov [rax], rcx
        assert_eq!(of(&[&[0x48, 0x89, 0x08]])[0], Sources { loads: 0, live_ins: RAX, feeds: 0 });
    }
}
