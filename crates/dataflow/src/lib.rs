//! Register data flow of a block of machine code: which loads feed which registers. Computed once, when an
//! emulator translates the block.
//!
//! The work left for run time is one list of [`Transfer`]s before each instruction that accesses memory, and
//! one at the block's end.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod marks;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits,
};

pub use self::marks::marks;

/// General registers, vector registers 0 to 15, and the arithmetic flags as one register.
pub const REGISTERS: usize = 33;

/// A set of registers: bit i is register i.
pub type Set = u64;

const FLAGS: Set = 1 << 32;

/// The latest load that feeds any of `from` feeds `to` from now on; no load if `from` is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Register number.
    pub to: u8,
    /// Registers, with their values before any transfer of the same list.
    pub from: Set,
}

/// An instruction that accesses memory.
#[derive(Debug)]
pub struct Op {
    /// Its address.
    pub pc: u64,
    /// Its position in the block, from 1.
    pub position: u32,
    /// Transfers before it.
    pub before: Box<[Transfer]>,
    /// Registers that its load address depends on.
    pub load_address: Set,
    /// Registers that its store address depends on.
    pub store_address: Set,
    /// Whether it loads.
    pub loads: bool,
    /// Registers that receive the loaded value.
    pub loaded: Set,
    /// Registers whose previous values go into the new ones of `loaded`, beside the loaded value.
    pub combined: Set,
    /// Registers whose values go into the stored one.
    pub stored: Set,
    /// Whether the loaded value does, too.
    pub stores_loaded: bool,
    /// Bytes per operand: QEMU reports wider ones in pieces.
    pub width: u16,
    /// Whether it loads and stores the same bytes.
    pub modifies: bool,
    /// Whether its stores are non-temporal: they go past the caches.
    pub non_temporal: bool,
}

/// A translated block.
#[derive(Debug, Default)]
pub struct Block {
    /// Number of instructions.
    pub instructions: u32,
    /// Transfers at its end.
    pub tail: Box<[Transfer]>,
    /// Address of its first instruction if that is a repeated string instruction.
    pub repeats: Option<u64>,
    /// Address of its last instruction if that is a repeated string instruction: QEMU executes it again for
    /// each item.
    pub ends_in_repeat: Option<u64>,
}

/// Contents of registers, in terms of those at the previous list of transfers.
struct Flow {
    from: [Set; REGISTERS],
}

impl Flow {
    fn new() -> Flow {
        Flow { from: std::array::from_fn(|register| 1 << register) }
    }

    fn union(&self, of: Set) -> Set {
        bits(of).fold(0, |set, register| set | self.from[register])
    }

    fn assign(&mut self, to: Set, from: Set) {
        bits(to).for_each(|register| self.from[register] = from);
    }

    fn take(&mut self) -> Box<[Transfer]> {
        let changed = |(register, &from): (usize, &Set)| {
            (from != 1 << register).then_some(Transfer { to: register as u8, from })
        };
        let transfers = self.from.iter().enumerate().filter_map(changed).collect();
        *self = Flow::new();
        transfers
    }
}

/// The registers in a set.
pub fn bits(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let register = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (register < 64).then_some(register)
    })
}

/// Analyses a block, given each instruction's address and bytes. Returns one op per instruction, in order;
/// `None` for an instruction without memory access.
pub fn analyse<'a>(code: impl Iterator<Item = (u64, &'a [u8])>) -> (Block, Vec<Option<Op>>) {
    let mut factory = InstructionInfoFactory::new();
    let mut flow = Flow::new();
    let mut block = Block::default();
    let mut ops = Vec::new();
    for (pc, bytes) in code {
        let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        block.instructions += 1;
        let repeat = is_repeat(&instruction).then_some(pc);
        if block.instructions == 1 {
            block.repeats = repeat;
        }
        block.ends_in_repeat = repeat;
        let effect = Effect::of(&instruction, factory.info(&instruction));
        ops.push(effect.accesses.then(|| effect.op(pc, block.instructions, flow.take())));
        if !effect.loads {
            let from = flow.union(effect.read);
            flow.assign(effect.written, from);
        }
    }
    block.tail = flow.take();
    (block, ops)
}

fn is_repeat(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Whether an instruction stores with a non-temporal hint: Intel SDM volume 1, 10.4.6.2, with SSE4a's of AMD
/// and the forms of AVX and AVX-512.
fn is_non_temporal(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movnti
            | Movntq
            | Movntdq
            | Movntps
            | Movntpd
            | Movntss
            | Movntsd
            | Maskmovq
            | Maskmovdqu
            | Vmovntdq
            | Vmovntps
            | Vmovntpd
            | Vmaskmovdqu
    )
}

/// Registers read and written by an instruction.
#[derive(Default)]
struct Effect {
    accesses: bool,
    loads: bool,
    stores: bool,
    load_address: Set,
    store_address: Set,
    read: Set,
    written: Set,
    combined: Set,
    stored: Set,
    stores_loaded: bool,
    width: u16,
    non_temporal: bool,
}

impl Effect {
    fn of(instruction: &Instruction, info: &InstructionInfo) -> Effect {
        let mut effect = Effect::default();
        effect.memory(info);
        effect.registers(instruction, info);
        // Stack and string instructions step their own pointers, which do not depend on the loaded value.
        if effect.accesses && instruction.is_stack_instruction() {
            effect.written &= !set(Register::RSP);
        }
        if effect.accesses && instruction.is_string_instruction() {
            effect.written &= !(set(Register::RSI) | set(Register::RDI) | set(Register::RCX));
        }
        if instruction.mnemonic() == Mnemonic::Syscall {
            effect.read = 0;
            effect.written = set(Register::RAX) | set(Register::RCX) | set(Register::R11);
        }
        effect.non_temporal = is_non_temporal(instruction.mnemonic());
        effect.values(instruction, info);
        effect
    }

    fn memory(&mut self, info: &InstructionInfo) {
        for memory in info.used_memory() {
            let (reads, writes) = access(memory.access());
            let address = set(memory.base()) | set(memory.index());
            if reads {
                self.load_address |= address;
            }
            if writes {
                self.store_address |= address;
            }
            self.loads |= reads;
            self.stores |= writes;
            self.width = self.width.max(memory.memory_size().size() as u16);
        }
        self.accesses = self.loads || self.stores;
    }

    fn registers(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        for used in info.used_registers() {
            let register = set(used.register());
            let (reads, writes) = access(used.access());
            let keeps = matches!(used.access(), OpAccess::CondWrite | OpAccess::ReadCondWrite)
                || (writes && used.register().is_gpr() && used.register().size() < 4);
            if reads || keeps {
                self.read |= register;
            }
            if writes {
                self.written |= register;
            }
        }
        const ARITHMETIC: u32 = RflagsBits::OF
            | RflagsBits::SF
            | RflagsBits::ZF
            | RflagsBits::AF
            | RflagsBits::CF
            | RflagsBits::PF;
        if instruction.rflags_read() & ARITHMETIC != 0 {
            self.read |= FLAGS;
        }
        if instruction.rflags_modified() & ARITHMETIC != 0 {
            self.written |= FLAGS;
        }
    }

    /// What loaded registers and stored values are made of. To exchange is to take the other's value alone.
    fn values(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        let exchanges = instruction.mnemonic() == Mnemonic::Xchg;
        if self.loads && !exchanges {
            self.combined = self.read;
        }
        if !self.stores {
            return;
        }
        // A call stores its return address.
        self.stores_loaded = self.loads && !exchanges && instruction.flow_control() == FlowControl::Next;
        for operand in 0..instruction.op_count() {
            let (reads, _) = access(info.op_access(operand));
            if reads && instruction.op_kind(operand) == OpKind::Register {
                self.stored |= set(instruction.op_register(operand));
            }
        }
        self.stored |= self.read & FLAGS;
    }

    fn op(&self, pc: u64, position: u32, before: Box<[Transfer]>) -> Op {
        Op {
            pc,
            position,
            before,
            load_address: self.load_address,
            store_address: self.store_address,
            loads: self.loads,
            combined: self.combined,
            stored: self.stored,
            stores_loaded: self.stores_loaded,
            loaded: if self.loads { self.written } else { 0 },
            width: self.width,
            modifies: self.loads && self.stores && self.load_address == self.store_address,
            non_temporal: self.non_temporal,
        }
    }
}

fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
    }
}

fn set(register: Register) -> Set {
    let number = register.full_register().number();
    match register {
        _ if register.is_gpr() => 1 << number,
        _ if register.is_vector_register() && number < 16 => 1 << (16 + number),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const RAX: u8 = 0;
    const RCX: u8 = 1;
    const RDX: u8 = 2;

    fn block(code: &[&[u8]]) -> (Block, Vec<Option<Op>>) {
        analyse(code.iter().enumerate().map(|(i, &bytes)| (0x1000 + 16 * i as u64, bytes)))
    }

    fn transfer(transfers: &[Transfer], to: u8) -> Option<Set> {
        transfers.iter().find(|transfer| transfer.to == to).map(|transfer| transfer.from)
    }

    #[test]
    fn chase_load_feeds_its_own_address() {
        // mov rax, [rax]
        let (_, ops) = block(&[&[0x48, 0x8b, 0x00]]);
        let op = ops[0].as_ref().unwrap();
        assert_eq!((op.load_address, op.loaded, op.width, op.modifies), (1, 1, 8, false));
    }

    #[test]
    fn moves_and_arithmetic_are_condensed() {
        // mov rcx, rax; lea rdx, [rcx+rdx*8]; xor eax, eax; mov rcx, [rdx]
        let (_, ops) =
            block(&[&[0x48, 0x89, 0xc1], &[0x48, 0x8d, 0x14, 0xd1], &[0x31, 0xc0], &[0x48, 0x8b, 0x0a]]);
        assert!(ops[..3].iter().all(Option::is_none));
        let op = ops[3].as_ref().unwrap();
        assert_eq!(transfer(&op.before, RCX), Some(1 << RAX));
        assert_eq!(transfer(&op.before, RDX), Some(1 << RAX | 1 << RDX));
        assert_eq!(transfer(&op.before, RAX), Some(0), "a register set to zero depends on nothing");
        assert_eq!(op.load_address, 1 << RDX);
    }

    #[test]
    fn part_of_a_register_keeps_the_rest() {
        // mov al, cl
        let (block, _) = block(&[&[0x88, 0xc8]]);
        assert_eq!(transfer(&block.tail, RAX), Some(1 << RAX | 1 << RCX));
    }

    #[test]
    fn conditional_move_depends_on_flags() {
        // cmovne rax, rcx
        let (block, _) = block(&[&[0x48, 0x0f, 0x45, 0xc1]]);
        assert_eq!(transfer(&block.tail, RAX), Some(FLAGS | 1 << RAX | 1 << RCX));
    }

    #[test]
    fn stack_pointer_does_not_depend_on_popped_value() {
        // pop rax
        let (_, ops) = block(&[&[0x58]]);
        assert_eq!(ops[0].as_ref().unwrap().loaded, 1 << RAX);
    }

    #[test]
    fn read_modify_write_differs_from_copy() {
        // add [rax], ecx; movsb
        let (_, ops) = block(&[&[0x01, 0x08], &[0xa4]]);
        assert!(ops[0].as_ref().unwrap().modifies);
        assert!(!ops[1].as_ref().unwrap().modifies);
    }

    #[test]
    fn loaded_and_stored_values_name_their_registers() {
        // add rax, [rbx]; mov rcx, [rbx]; mov [rbx], rcx; add [rbx], rcx; xchg [rbx], rcx; push rcx;
        // call [rbx]
        let code: [&[u8]; 7] = [
            &[0x48, 0x03, 0x03],
            &[0x48, 0x8b, 0x0b],
            &[0x48, 0x89, 0x0b],
            &[0x48, 0x01, 0x0b],
            &[0x48, 0x87, 0x0b],
            &[0x51],
            &[0xff, 0x13],
        ];
        let (_, ops) = block(&code);
        let ops: Vec<&Op> = ops.iter().map(|op| op.as_ref().unwrap()).collect();
        const RBX: u8 = 3;
        assert_eq!(ops[0].combined, 1 << RAX | 1 << RBX, "a value is never there before its address");
        assert_eq!((ops[1].combined, ops[1].stored), (1 << RBX, 0));
        assert_eq!(ops[4].combined, 0, "an exchange loads the other's value alone");
        let stored: Vec<_> = ops[2..].iter().map(|op| (op.stored, op.stores_loaded)).collect();
        const VALUE: Set = 1 << RCX;
        assert_eq!(stored, [(VALUE, false), (VALUE, true), (VALUE, false), (VALUE, false), (0, false)]);
        assert!(!ops[2].loads && ops[3].loads);
    }

    #[test]
    fn repeated_instructions_are_known_at_both_ends() {
        // rep movsb
        let (block, ops) = block(&[&[0xf3, 0xa4]]);
        assert_eq!((block.repeats, block.ends_in_repeat), (Some(0x1000), Some(0x1000)));
        assert_eq!(ops[0].as_ref().unwrap().loaded, 0);
    }

    #[test]
    fn non_temporal_stores_are_known_in_every_encoding() {
        let stores: [(&str, &[u8], u16); 15] = [
            ("movnti [rax], ecx", &[0x0f, 0xc3, 0x08], 4),
            ("movnti [rax], rcx", &[0x48, 0x0f, 0xc3, 0x08], 8),
            ("movntq [rax], mm1", &[0x0f, 0xe7, 0x08], 8),
            ("movntdq [rax], xmm1", &[0x66, 0x0f, 0xe7, 0x08], 16),
            ("movntps [rax], xmm1", &[0x0f, 0x2b, 0x08], 16),
            ("movntpd [rax], xmm1", &[0x66, 0x0f, 0x2b, 0x08], 16),
            ("movntss [rax], xmm1", &[0xf3, 0x0f, 0x2b, 0x08], 4),
            ("movntsd [rax], xmm1", &[0xf2, 0x0f, 0x2b, 0x08], 8),
            ("maskmovq mm1, mm2", &[0x0f, 0xf7, 0xca], 8),
            ("maskmovdqu xmm1, xmm2", &[0x66, 0x0f, 0xf7, 0xca], 16),
            ("vmaskmovdqu xmm1, xmm2", &[0xc5, 0xf9, 0xf7, 0xca], 16),
            ("vmovntdq [rax], ymm1", &[0xc5, 0xfd, 0xe7, 0x08], 32),
            ("vmovntps [rax], ymm1", &[0xc5, 0xfc, 0x2b, 0x08], 32),
            ("vmovntpd [rax], zmm1", &[0x62, 0xf1, 0xfd, 0x48, 0x2b, 0x08], 64),
            ("vmovntdq [rax], zmm1", &[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x08], 64),
        ];
        for (text, code, width) in stores {
            let (_, ops) = block(&[code]);
            let op = ops[0].as_ref().expect(text);
            assert_eq!((op.non_temporal, op.width), (true, width), "{text}");
        }
        // mov [rax], rcx; movaps [rax], xmm1; and movntdqa xmm1, [rax], a load
        for code in [&[0x48, 0x89, 0x08][..], &[0x0f, 0x29, 0x08], &[0x66, 0x0f, 0x38, 0x2a, 0x08]] {
            assert!(!block(&[code]).1[0].as_ref().unwrap().non_temporal);
        }
    }

    #[test]
    fn addresses_without_access_need_no_op() {
        // lea rax, [rcx]; nop [rax]; prefetcht0 [rax]
        let (_, ops) = block(&[&[0x48, 0x8d, 0x01], &[0x0f, 0x1f, 0x00], &[0x0f, 0x18, 0x08]]);
        assert!(ops.iter().all(Option::is_none));
    }

    proptest! {
        #[test]
        fn any_bytes_are_analysed(code in vec(vec(any::<u8>(), 0..16), 0..20)) {
            let code: Vec<&[u8]> = code.iter().map(Vec::as_slice).collect();
            let (block, ops) = block(&code);
            prop_assert_eq!((block.instructions as usize, ops.len()), (code.len(), code.len()));
            let registers = block.tail.iter().chain(ops.iter().flatten().flat_map(|op| &op.before));
            prop_assert!(registers.clone().all(|transfer| usize::from(transfer.to) < REGISTERS));
            prop_assert!(registers.clone().all(|transfer| transfer.from >> REGISTERS == 0));
        }
    }
}
