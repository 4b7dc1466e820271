//! Chains of dependent loads by closed form, and random programs against an interpreter that follows every
//! access.

use std::collections::BTreeMap;

use memtide_dataflow::{self as dataflow, bits};

use super::*;
use crate::op::Blocks;

/// Time of a miss.
const MISS: Time = Time(300_000);

/// A CPU that executes blocks, at no time of its own.
struct Cpu {
    blocks: Blocks,
    flow: Flow,
    now: Time,
    /// Accesses so far.
    accesses: u64,
}

/// An instruction with accesses, as translated and as analysed.
type Both = (NonNull<Op>, dataflow::Op);

/// An access, and when it began.
#[derive(Debug, PartialEq)]
struct Began {
    begin: Time,
    write: bool,
}

impl Cpu {
    fn new() -> Cpu {
        Cpu { blocks: Blocks::default(), flow: Flow::new(), now: Time(1), accesses: 0 }
    }

    /// Executes a block of instructions; each access takes what `access` says for its number: the word, and
    /// the time of a miss or `None` for a hit of the first cache.
    fn run(&mut self, code: &[&[u8]], access: impl Fn(u64) -> (u64, Option<Time>)) -> Vec<Began> {
        let (block, ops) = self.add(code, code.len() as u32);
        // SAFETY: blocks live until they are cleared.
        self.flow.block(unsafe { block.as_ref() }, self.now);
        ops.into_iter().flatten().flat_map(|op| self.perform(op, &access)).collect()
    }

    /// As [`Cpu::run`], where QEMU serves each access as a device's: it leaves the block before the access,
    /// repeats that instruction as a block that it does not announce, and goes on with the next block.
    fn run_with_devices(
        &mut self,
        code: &[&[u8]],
        access: impl Fn(u64) -> (u64, Option<Time>),
    ) -> Vec<Began> {
        let (mut began, mut rest) = (Vec::new(), code);
        loop {
            let (block, ops) = self.add(rest, 0);
            // SAFETY: as in `run`.
            self.flow.block(unsafe { block.as_ref() }, self.now);
            let Some(at) = ops.iter().position(Option::is_some) else { return began };
            let (_, again) = self.add(&rest[at..=at], 0);
            began.extend(again.into_iter().flatten().flat_map(|op| self.perform(op, &access)));
            rest = &rest[at + 1..];
        }
    }

    /// Translates a block.
    fn add(&mut self, code: &[&[u8]], counted: u32) -> (NonNull<Block>, Vec<Option<Both>>) {
        let code = code.iter().enumerate().map(|(i, &bytes)| (0x1000 + 16 * i as u64, bytes));
        let kinds = dataflow::analyse(code.clone()).1;
        let (block, ops) = self.blocks.add(code, 1, counted);
        (block, ops.into_iter().zip(kinds).map(|(op, kind)| op.zip(kind)).collect())
    }

    /// The accesses of an instruction.
    fn perform(&mut self, (op, kind): Both, access: &impl Fn(u64) -> (u64, Option<Time>)) -> Vec<Began> {
        // SAFETY: as in `run`.
        let op = unsafe { op.as_ref() };
        let (word, takes) = access(self.accesses);
        self.accesses += 1;
        let writes = [false, true].into_iter();
        let made = writes.filter(|&write| if write { kind.store_address != 0 } else { kind.loads });
        let perform = |write| {
            let place = Place { word, write };
            let begin = self.flow.address(op, write).max(self.now);
            match takes {
                Some(takes) => {
                    let end = begin + takes;
                    self.flow.ends(op, place, Took { now: self.now, end, missed: true });
                }
                None if self.flow.is_busy() => self.flow.hits(op, place),
                None => {}
            }
            Began { begin, write }
        };
        made.map(perform).collect()
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        self.flow.reset();
        // SAFETY: the flow is reset, and no address is in use.
        unsafe { self.blocks.clear() }
    }
}

/// Executes blocks in turn, many times; an access misses if its word is 0. Returns how long after the
/// previous miss each miss begins, in misses: 1 if it depends on it, 0 if not.
fn distances(blocks: &[&[&[u8]]], words: &[u64]) -> Vec<f64> {
    let mut cpu = Cpu::new();
    let mut begins = Vec::new();
    for round in 0..20 * blocks.len() {
        let access = |number: u64| match words[number as usize % words.len()] {
            0 => (1000 * number, Some(MISS)),
            word => (word, None),
        };
        let first = cpu.accesses;
        let began = cpu.run(blocks[round % blocks.len()], access);
        let misses = (first..).zip(began).filter(|(number, _)| access(*number).1.is_some());
        begins.extend(misses.map(|(_, began)| began.begin));
    }
    let share = |pair: &[Time]| pair[1].since(pair[0]).0 as f64 / MISS.0 as f64;
    begins.windows(2).map(share).collect()
}

const LOAD_RAX: &[u8] = &[0x48, 0x8b, 0x00]; // mov rax, [rax]

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn chase_is_as_slow_through_any_number_of_registers() {
    assert!(distances(&[&[LOAD_RAX]], &[0]).iter().all(|&share| share == 1.0));
    // mov rax, [r15]; mov rbx, rax; mov rcx, rax; mov rdx, rax; mov r15, rax
    let copies: &[&[u8]] = &[
        &[0x49, 0x8b, 0x07],
        &[0x48, 0x89, 0xc3],
        &[0x48, 0x89, 0xc1],
        &[0x48, 0x89, 0xc2],
        &[0x49, 0x89, 0xc7],
    ];
    assert!(distances(&[copies], &[0]).iter().all(|&share| share == 1.0));
    // mov rcx, [rax] | mov rdx, rcx | mov rbx, rdx; mov ecx, 0 | mov rax, rbx, in a block each
    let blocks: [&[&[u8]]; 4] = [
        &[&[0x48, 0x8b, 0x08]],
        &[&[0x48, 0x89, 0xca]],
        &[&[0x48, 0x89, 0xd3], &[0xb9, 0, 0, 0, 0]],
        &[&[0x48, 0x89, 0xd8]],
    ];
    assert!(distances(&blocks, &[0]).iter().all(|&share| share == 1.0));
}

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn chase_over_device_memory_is_as_slow() {
    // mov rcx, [rax]; lea rax, [rcx+rbx]; mov rdx, [rax]; mov rax, rdx
    let code: &[&[u8]] =
        &[&[0x48, 0x8b, 0x08], &[0x48, 0x8d, 0x04, 0x19], &[0x48, 0x8b, 0x10], &[0x48, 0x89, 0xd0]];
    let mut cpu = Cpu::new();
    let mut begins = Vec::new();
    for _ in 0..20 {
        let began = cpu.run_with_devices(code, |number| (1000 * number, Some(MISS)));
        begins.extend(began.into_iter().map(|began| began.begin));
    }
    assert_eq!(begins.len(), 40);
    assert!(begins.windows(2).all(|pair| pair[1].since(pair[0]) == MISS), "{begins:?}");
}

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn chase_is_as_slow_through_memory_and_hits() {
    // mov rax, [rax]; push rax; pop rcx; mov rax, rcx: the stack's word hits
    let stack: &[&[u8]] = &[LOAD_RAX, &[0x50], &[0x59], &[0x48, 0x89, 0xc8]];
    assert!(distances(&[stack], &[0, 7, 7]).iter().all(|&share| share == 1.0));
    assert!(distances(&[stack], &[0, 7, 15]).iter().all(|&share| share == 0.0), "another word");
    // Ten loads that depend on each other; only the first misses.
    let chain = [LOAD_RAX; 10];
    assert!(distances(&[&chain], &[0, 1, 2, 3, 4, 5, 6, 8, 9, 10]).iter().all(|&share| share == 1.0));
}

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn chase_is_as_slow_through_flags() {
    // mov rcx, [rbx+rax]; neg rcx; sbb rax, rax
    let carry: &[&[u8]] = &[&[0x48, 0x8b, 0x0c, 0x03], &[0x48, 0xf7, 0xd9], &[0x48, 0x19, 0xc0]];
    assert!(distances(&[carry], &[0]).iter().all(|&share| share == 1.0));
}

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn independent_loads_overlap() {
    // mov rcx, [rax]; mov rdx, [rax] in one block; then rax is overwritten.
    let both: &[&[u8]] = &[&[0x48, 0x8b, 0x08], &[0x48, 0x8b, 0x10]];
    assert!(distances(&[both], &[0]).iter().all(|&share| share == 0.0));
    // mov rax, [rax]; mov eax, 5
    let cut: &[&[u8]] = &[LOAD_RAX, &[0xb8, 5, 0, 0, 0]];
    assert!(distances(&[cut], &[0]).iter().all(|&share| share == 0.0));
    // mov rdi, rsi; mov rsi, [rsi]; mov rcx, [rdi+8]: the next node, and this one's line.
    let walk: &[&[u8]] = &[&[0x48, 0x89, 0xf7], &[0x48, 0x8b, 0x36], &[0x48, 0x8b, 0x4f, 0x08]];
    let shares = distances(&[walk], &[0]);
    assert!(shares.iter().step_by(2).all(|&share| share == 0.0), "{shares:?}");
    assert!(shares.iter().skip(1).step_by(2).all(|&share| share == 1.0), "{shares:?}");
}

/// Follows every access from the data flow of single instructions.
struct Interpreter {
    registers: [Time; REGISTERS],
    words: BTreeMap<u64, Time>,
    lines: BTreeMap<u64, Time>,
    accesses: u64,
}

impl Interpreter {
    fn new() -> Interpreter {
        let registers = [Time::ZERO; REGISTERS];
        Interpreter { registers, words: BTreeMap::new(), lines: BTreeMap::new(), accesses: 0 }
    }

    fn run(&mut self, code: &[&[u8]], now: Time, access: impl Fn(u64) -> (u64, Option<Time>)) -> Vec<Began> {
        let mut began = Vec::new();
        for &instruction in code {
            let (block, ops) = dataflow::analyse([(0x1000, instruction)].into_iter());
            if let Some(op) = &ops[0] {
                let (word, takes) = access(self.accesses);
                self.accesses += 1;
                let mut loaded = Time::ZERO;
                if op.loads {
                    let begin = self.latest(op.load_address).max(now);
                    began.push(Began { begin, write: false });
                    let end = self.end(word, begin, takes);
                    let stored = self.words.get(&word).copied().unwrap_or_default();
                    loaded = end.max(stored).max(self.latest(op.combined));
                }
                if op.store_address != 0 {
                    let begin = self.latest(op.store_address).max(now);
                    began.push(Began { begin, write: true });
                    self.end(word, begin, takes);
                    let own = if op.stores_loaded { loaded } else { Time::ZERO };
                    self.words.insert(word, own.max(self.latest(op.stored)));
                }
                bits(op.loaded).for_each(|register| self.registers[register] = loaded);
            }
            let before = self.registers;
            for transfer in &block.tail {
                let from = bits(transfer.from).map(|register| before[register]);
                self.registers[usize::from(transfer.to)] = from.max().unwrap_or_default();
            }
        }
        began
    }

    fn end(&mut self, word: u64, begin: Time, takes: Option<Time>) -> Time {
        let line = word >> 3;
        match takes {
            Some(takes) => {
                self.lines.insert(line, begin + takes);
                begin + takes
            }
            None => begin.max(self.lines.get(&line).copied().unwrap_or_default()),
        }
    }

    fn latest(&self, set: u64) -> Time {
        bits(set).map(|register| self.registers[register]).max().unwrap_or_default()
    }
}

/// Instructions with loads, stores, both and none, through general and vector registers and flags.
const INSTRUCTIONS: [&[u8]; 20] = [
    LOAD_RAX,
    &[0x48, 0x8b, 0x0c, 0x10],       // mov rcx, [rax+rdx]
    &[0x48, 0x8b, 0x51, 0x08],       // mov rdx, [rcx+8]
    &[0x48, 0x03, 0x03],             // add rax, [rbx]
    &[0x48, 0x01, 0x13],             // add [rbx], rdx
    &[0x48, 0x89, 0x08],             // mov [rax], rcx
    &[0x48, 0x89, 0x1c, 0x11],       // mov [rcx+rdx], rbx
    &[0x48, 0x89, 0xc3],             // mov rbx, rax
    &[0x48, 0x89, 0xd8],             // mov rax, rbx
    &[0x48, 0x8d, 0x0c, 0x13],       // lea rcx, [rbx+rdx]
    &[0x31, 0xc0],                   // xor eax, eax
    &[0xba, 1, 0, 0, 0],             // mov edx, 1
    &[0x48, 0xf7, 0xd9],             // neg rcx
    &[0x48, 0x19, 0xd2],             // sbb rdx, rdx
    &[0x48, 0x0f, 0x45, 0xc1],       // cmovne rax, rcx
    &[0x66, 0x48, 0x0f, 0x6e, 0xc0], // movq xmm0, rax
    &[0x66, 0x48, 0x0f, 0x7e, 0xc2], // movq rdx, xmm0
    &[0x50],                         // push rax
    &[0x5b],                         // pop rbx
    &[0x48, 0x87, 0x0b],             // xchg [rbx], rcx
];

#[test]
#[cfg_attr(miri, ignore = "iced-x86 does not keep to Stacked Borrows")]
fn random_programs_begin_accesses_when_interpreter_does() {
    for seed in 1..60 {
        let mut state = u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15);
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut cpu = Cpu::new();
        let mut interpreter = Interpreter::new();
        for _ in 0..60 {
            let length = 1 + random(50);
            let code: Vec<&[u8]> = (0..length).map(|_| INSTRUCTIONS[random(20) as usize]).collect();
            let salt = random(1 << 20);
            // A word out of 64, often the same; one access of eight misses.
            let access = |number: u64| {
                let hash = (number + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                (hash % 64, (hash >> 6).is_multiple_of(8).then_some(MISS))
            };
            let expected = interpreter.run(&code, cpu.now, access);
            let began =
                if seed % 2 == 0 { cpu.run(&code, access) } else { cpu.run_with_devices(&code, access) };
            assert_eq!(began, expected, "seed {seed}");
            // Now and then everything has come.
            cpu.now += [Time::ZERO, Time(70_000), Time(1_000_000)][random(3) as usize];
        }
    }
}
