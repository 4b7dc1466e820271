//! Instructions that access memory, and the values that their addresses and data are made of.
//!
//! A block of guest code is cut into segments of at most [`LOADS`] loads. Inside a segment a value is a set
//! of *slots*: the registers at the segment's start, and the segment's loads in order. So everything that
//! instructions without memory access do with registers is condensed when QEMU translates the block:
//!
//! ```text
//! mov rcx, [rax+rdx]      load 0: address {rax, rdx}
//! lea rbx, [rcx+rsi]
//! mov rax, [rbx]          load 1: address {rsi, load 0}
//!                         changes: rax = {load 1}, rbx = {rsi, load 0}, rcx = {load 0}
//! ```
//!
//! [`crate::flow`] keeps the time at which each slot's value is known.

use std::ptr::NonNull;

use memtide_dataflow::{self as dataflow, REGISTERS, Set, bits};

/// Maximum number of virtual CPUs.
pub const MAX_VCPUS: usize = 8;

/// Slots of values: registers at a segment's start, then its loads.
pub const SLOTS: usize = 64;

/// Maximum number of loads in a segment.
const LOADS: usize = SLOTS - REGISTERS;

/// Slot of no load.
const NO_SLOT: u8 = u8::MAX;

/// A set of slots: bit i is slot i.
pub type Slots = u64;

/// The slots of registers.
pub const REGISTER_SLOTS: Slots = (1 << REGISTERS) - 1;

/// An instruction that accesses memory, in one translation of its block.
#[derive(Debug)]
pub struct Op {
    /// Instructions of the block from this one on.
    pub left: u32,
    /// Slot of the value that it loads, or [`NO_SLOT`].
    load: u8,
    /// Whether its stores are non-temporal.
    pub non_temporal: bool,
    /// Aligned words of eight bytes per operand, at most two.
    pub words: u8,
    /// Its segment.
    pub segment: NonNull<Segment>,
    /// What its load address is made of.
    pub load_address: Slots,
    /// What the registers that it loads are made of, beside the loaded value.
    pub combined: Slots,
    /// What its store address is made of.
    pub store_address: Slots,
    /// What the stored value is made of.
    pub stored: Slots,
}

/// A part of a block.
#[derive(Debug, Default)]
pub struct Segment {
    /// Registers that it changes.
    pub changed: Slots,
    /// What their values at its end are made of.
    pub made_of: Slots,
    /// The same for each of them, in order.
    pub changes: Box<[Slots]>,
}

/// A translated block.
#[derive(Debug)]
pub struct Block {
    /// Instructions that QEMU counts at its start.
    pub counted: u32,
    /// Instructions after which a turn ends.
    pub turn: u64,
    /// Its first segment.
    pub first: NonNull<Segment>,
}

impl Op {
    /// Slot of the value that it loads.
    #[inline]
    pub fn load(&self) -> Option<usize> {
        (self.load != NO_SLOT).then_some(self.load.into())
    }
}

/// All translated blocks. QEMU and [`crate::flow::Flow`] refer to them and their parts by address.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: Vec<NonNull<Block>>,
    segments: Vec<NonNull<Segment>>,
    /// Of each block, together: the accesses of a block follow each other.
    ops: Vec<NonNull<[Op]>>,
}

// SAFETY: it owns what it has the addresses of, which refer to each other alone.
unsafe impl Send for Blocks {}

impl Blocks {
    /// Adds a block whose turn ends after `turn` instructions; returns it and its ops in order, `None` for an
    /// instruction without memory access. QEMU counts `counted` instructions at the block's start; or, if
    /// that is 0, one by one: then it may leave the block at any access, so each begins a segment.
    pub fn add<'a>(
        &mut self,
        code: impl Iterator<Item = (u64, &'a [u8])>,
        turn: u64,
        counted: u32,
    ) -> (NonNull<Block>, Vec<Option<NonNull<Op>>>) {
        let (block, ops) = dataflow::analyse(code);
        let by_instruction = counted == 0;
        let mut cutter = Cutter::new(by_instruction);
        let first = cutter.segment;
        let made = ops.iter().flatten().map(|op| {
            // When counted one by one, this instruction is already counted, and later ones are not.
            let left = if by_instruction { 1 } else { block.instructions + 1 - op.position };
            let (op, closed) = cutter.add(op, left);
            self.segments.extend(closed);
            op
        });
        let made = NonNull::from(Box::leak(made.collect::<Box<[Op]>>()));
        self.ops.push(made);
        let mut number = 0;
        let ops = ops.iter().map(|op| {
            op.as_ref()?;
            number += 1;
            // SAFETY: there is an op for each that is not `None`.
            Some(unsafe { made.cast::<Op>().add(number - 1) })
        });
        let ops = ops.collect();
        cutter.transfer(&block.tail);
        self.segments.push(cutter.close());
        let block = leak(Block { counted, turn, first });
        self.blocks.push(block);
        (block, ops)
    }

    /// Frees all blocks.
    ///
    /// # Safety
    /// QEMU has dropped all blocks, and no [`crate::flow::Flow`] is busy.
    pub unsafe fn clear(&mut self) {
        // SAFETY: they were boxes, and nobody uses their addresses any more.
        unsafe {
            self.blocks.drain(..).for_each(|block| drop(Box::from_raw(block.as_ptr())));
            self.segments.drain(..).for_each(|segment| drop(Box::from_raw(segment.as_ptr())));
            self.ops.drain(..).for_each(|op| drop(Box::from_raw(op.as_ptr())));
        }
    }
}

fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

/// Cuts a block into segments.
struct Cutter {
    /// Whether each access begins a segment, so that none contains an access that QEMU may not reach.
    at_accesses: bool,
    /// The open segment, not filled in yet.
    segment: NonNull<Segment>,
    loads: usize,
    /// What each register is made of.
    values: [Slots; REGISTERS],
}

impl Cutter {
    fn new(at_accesses: bool) -> Cutter {
        let segment = leak(Segment::default());
        Cutter { at_accesses, segment, loads: 0, values: std::array::from_fn(|slot| 1 << slot) }
    }

    /// Adds an access; returns it, and the previous segment if it begins another one.
    fn add(&mut self, op: &dataflow::Op, left: u32) -> (Op, Option<NonNull<Segment>>) {
        self.transfer(&op.before);
        let closed = (self.at_accesses || self.loads == LOADS).then(|| {
            let closed = self.close();
            *self = Cutter::new(self.at_accesses);
            closed
        });
        let slot = REGISTERS + self.loads;
        let loaded: Slots = if op.loads { 1 << slot } else { 0 };
        let made = Op {
            left,
            load: if op.loads { slot as u8 } else { NO_SLOT },
            non_temporal: op.non_temporal,
            words: if op.width > 8 { 2 } else { 1 },
            segment: self.segment,
            load_address: self.union(op.load_address),
            combined: self.union(op.load_address | op.combined),
            store_address: self.union(op.store_address),
            stored: self.union(op.stored) | if op.stores_loaded { loaded } else { 0 },
        };
        bits(op.loaded).for_each(|register| self.values[register] = loaded);
        self.loads += usize::from(op.loads);
        (made, closed)
    }

    /// Ends the open segment.
    fn close(&mut self) -> NonNull<Segment> {
        let changes = self.values.iter().enumerate().filter(|(register, value)| **value != 1 << register);
        let changed = changes.clone().fold(0, |changed, (register, _)| changed | 1 << register);
        let made_of = changes.clone().fold(0, |made_of, (_, value)| made_of | value);
        let changes = changes.map(|(_, &value)| value).collect();
        // SAFETY: the cutter made it, and nobody else knows it yet.
        unsafe { *self.segment.as_ptr() = Segment { changed, made_of, changes } };
        self.segment
    }

    fn union(&self, of: Set) -> Slots {
        bits(of).fold(0, |slots, register| slots | self.values[register])
    }

    fn transfer(&mut self, transfers: &[dataflow::Transfer]) {
        let new: Vec<Slots> = transfers.iter().map(|transfer| self.union(transfer.from)).collect();
        for (transfer, value) in transfers.iter().zip(new) {
            self.values[usize::from(transfer.to)] = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: Slots = 1;
    const RCX: Slots = 2;
    const RDX: Slots = 4;
    const RBX: Slots = 8;
    const FLAGS: Slots = 1 << 32;

    /// The slot of a load of the segment.
    fn load(number: usize) -> Slots {
        1 << (REGISTERS + number)
    }

    /// Runs a check on a block of these instructions.
    fn with<R>(code: &[&[u8]], counted: u32, check: impl FnOnce(&Block, &[Option<&Op>]) -> R) -> R {
        let mut blocks = Blocks::default();
        let code = code.iter().enumerate().map(|(i, &bytes)| (0x1000 + 16 * i as u64, bytes));
        let (block, ops) = blocks.add(code, 1, counted);
        // SAFETY: they live until they are cleared.
        let checked = unsafe {
            let ops: Vec<Option<&Op>> = ops.iter().map(|op| op.map(|op| op.as_ref())).collect();
            check(block.as_ref(), &ops)
        };
        // SAFETY: no address is in use.
        unsafe { blocks.clear() };
        checked
    }

    /// What a segment's end makes of a register.
    fn change(segment: NonNull<Segment>, register: u8) -> Option<Slots> {
        // SAFETY: the block lives.
        let segment = unsafe { segment.as_ref() };
        let number = bits(segment.changed).position(|changed| changed == usize::from(register))?;
        Some(segment.changes[number])
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn computed_address_is_made_of_load_and_registers() {
        // mov rcx, [rax]; lea rdx, [rcx+rbx*8]; mov rax, [rdx]
        with(&[&[0x48, 0x8b, 0x08], &[0x48, 0x8d, 0x14, 0xd9], &[0x48, 0x8b, 0x02]], 3, |block, ops| {
            let (first, second) = (ops[0].unwrap(), ops[2].unwrap());
            assert_eq!((first.load_address, first.load()), (RAX, Some(REGISTERS)));
            assert_eq!(second.load_address, load(0) | RBX);
            assert_eq!((first.left, second.left), (3, 1));
            assert_eq!(change(block.first, 0), Some(load(1)));
            assert_eq!(change(block.first, 1), Some(load(0)));
            assert_eq!(change(block.first, 2), Some(load(0) | RBX));
            assert_eq!(change(block.first, 3), None);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn sum_is_made_of_all_its_loads() {
        // add rax, [rbx]; add rax, [rcx]; mov rdx, rax
        with(&[&[0x48, 0x03, 0x03], &[0x48, 0x03, 0x01], &[0x48, 0x89, 0xc2]], 3, |block, ops| {
            assert_eq!(ops[0].unwrap().combined & RAX, RAX);
            assert_eq!(ops[1].unwrap().combined & load(0), load(0));
            assert_eq!(change(block.first, 2), Some(load(1)));
            assert_eq!(change(block.first, 32), Some(load(1)), "flags");
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn overwritten_register_is_made_of_nothing() {
        // mov rcx, [rax]; mov ecx, 5
        with(&[&[0x48, 0x8b, 0x08], &[0xb9, 5, 0, 0, 0]], 2, |block, _| {
            assert_eq!(change(block.first, 1), Some(0));
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn stored_value_is_not_made_of_its_address() {
        // mov [rax], rcx; add [rax], rcx; push rdx; setc [rbx]; call [rax]; xchg [rax], rcx
        let code: [&[u8]; 6] = [
            &[0x48, 0x89, 0x08],
            &[0x48, 0x01, 0x08],
            &[0x52],
            &[0x0f, 0x92, 0x03],
            &[0xff, 0x10],
            &[0x48, 0x87, 0x08],
        ];
        with(&code, 6, |_, ops| {
            let stored: Vec<Slots> = ops.iter().map(|op| op.unwrap().stored).collect();
            assert_eq!(stored, [RCX, RCX | load(0), RDX, load(0), 0, RCX]);
            assert_eq!(ops[0].unwrap().store_address, RAX);
            assert_eq!(ops[3].unwrap().load(), None);
        });
        assert_eq!(with(&[&[0x0f, 0x92, 0x03]], 1, |_, ops| ops[0].unwrap().stored), FLAGS);
    }

    #[test]
    #[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
    fn block_is_cut_into_segments() {
        // mov rax, [rax]: as many as a segment has, and one more
        let chase: [&[u8]; LOADS + 1] = [&[0x48, 0x8b, 0x00]; LOADS + 1];
        with(&chase, LOADS as u32 + 1, |block, ops| {
            let last = ops[LOADS].unwrap();
            assert_ne!(last.segment, block.first);
            assert_eq!((last.load_address, last.load()), (RAX, Some(REGISTERS)));
            assert_eq!(change(block.first, 0), Some(load(LOADS - 1)));
            assert_eq!(change(last.segment, 0), Some(load(0)));
        });
        // mov rax, [rax]; mov [rax], rcx; mov rax, [rax], counted one by one
        let code: [&[u8]; 3] = [&[0x48, 0x8b, 0x00], &[0x48, 0x89, 0x08], &[0x48, 0x8b, 0x00]];
        with(&code, 0, |_, ops| {
            let segments: Vec<_> = ops.iter().map(|op| op.unwrap().segment).collect();
            assert!(segments[0] != segments[1] && segments[1] != segments[2]);
            assert!(ops.iter().all(|op| op.unwrap().left == 1));
        });
    }
}
