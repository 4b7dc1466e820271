//! Shared by the simulator's tests: machines from text, and programs from lists of batches.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;

use memtide_core::{
    Access, Batch, Machine, Mapping, PageSize, Program, ProgramError, Then, ThreadId, VirtAddr,
};

/// A machine of 2 GHz cores that retire one instruction per cycle; private caches of 2 and 8 KiB.
pub struct MachineText {
    text: String,
}

impl MachineText {
    /// A machine whose kernel costs nothing, except for the given lines, such as `swap_ns = 100`.
    pub fn new(kernel: &str) -> MachineText {
        let free = [
            "fault_ns",
            "huge_fault_ns",
            "hint_fault_ns",
            "marked_miss_ns",
            "unmap_ns",
            "shootdown_ns",
            "remap_ns",
            "swap_ns",
            "sample_ns",
            "walk_entry_ns",
        ];
        let given = |name: &str| kernel.lines().any(|line| line.split(" =").next() == Some(name));
        let zeros: String =
            free.iter().filter(|name| !given(name)).map(|name| format!("{name} = 0\n")).collect();
        let watermarks =
            if kernel.contains("watermark") { "" } else { "watermark_low_bp = 0\nwatermark_high_bp = 0\n" };
        let text = format!(
            "name = \"test\"\nsummary = \"a test's\"\nsources.default = \"assumed: a test's\"\n[core]\n\
             clock_mhz = 2000\ninstructions_per_cycle = 1\nreorder_buffer = 256\noutstanding_misses = 10\n\
             [kernel]\n{zeros}{watermarks}{kernel}\n[[cache]]\nname = \"L1\"\ncapacity_kib = 2\nways = 4\n\
             latency_cycles = 4\n[[cache]]\nname = \"L2\"\ncapacity_kib = 8\nways = 8\nlatency_cycles = 14\n"
        );
        MachineText { text }
    }

    /// Adds lines.
    pub fn with(mut self, lines: &str) -> MachineText {
        self.text.push_str(lines);
        self
    }

    /// A last cache level for each socket.
    pub fn last_level(self, kib: u64, shared_by: u16) -> MachineText {
        self.with(&format!(
            "[[cache]]\nname = \"L3\"\ncapacity_kib = {kib}\nways = 16\nlatency_cycles = 40\n\
             shared_by = {shared_by}\n"
        ))
    }

    /// One TLB level, whose misses cost `walk_cycles`.
    pub fn tlb(self, entries: u32, walk_cycles: u32) -> MachineText {
        self.with(&format!(
            "[[tlb]]\nname = \"L1\"\nentries = {entries}\nways = 4\nwalk_cycles = {walk_cycles}\n"
        ))
    }

    /// A socket.
    pub fn socket(self, name: &str, cpus: u16) -> MachineText {
        self.with(&format!("[[initiator]]\nname = \"{name}\"\ncpus = {cpus}\n"))
    }

    /// A fixed node, attached to a socket or, without one, behind a link.
    pub fn node(
        self,
        name: &str,
        tier: u8,
        beside: &str,
        mib: u64,
        latency_ns: f64,
        mbps: f64,
    ) -> MachineText {
        let beside = if beside.is_empty() { String::new() } else { format!("initiator = \"{beside}\"\n") };
        self.with(&format!(
            "[[node]]\nname = \"{name}\"\ntier = {tier}\ncapacity_mib = {mib}\n{beside}\
             given = {{ read_latency_ns = {latency_ns:?}, read_bandwidth_mbps = {mbps:?} }}\n"
        ))
    }

    /// A link.
    pub fn link(self, a: &str, b: &str, latency_ns: f64, mbps: f64) -> MachineText {
        self.with(&format!(
            "[[link]]\nbetween = [\"{a}\", \"{b}\"]\nlatency_ns = {latency_ns:?}\nbandwidth_mbps = {mbps:?}\n"
        ))
    }

    /// The machine.
    pub fn machine(self) -> Machine {
        Machine::parse("test.toml", &self.text).unwrap_or_else(|error| panic!("{error}\n{}", self.text))
    }
}

/// A script that announces a region of interest.
pub struct Marked(pub Script);

impl Program for Marked {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        self.0.next(thread, batch)
    }

    fn has_region(&self) -> bool {
        true
    }
}

/// Two sockets of `cpus` CPUs with a node of 100 ns each, in tiers 0 and 1.
pub fn two_sockets(kernel: &str, cpus: u16, mib: [u64; 2], mbps: [f64; 2]) -> Machine {
    MachineText::new(kernel)
        .last_level(64, cpus.max(2))
        .socket("s0", cpus)
        .socket("s1", cpus)
        .node("fast", 0, "s0", mib[0], 100.0, mbps[0])
        .node("slow", 1, "s1", mib[1], 100.0, mbps[1])
        .link("s0", "s1", 20.0, 1e6)
        .machine()
}

/// A program with these batches per thread; each thread ends after its last one.
pub struct Script(pub Vec<VecDeque<Batch>>);

impl Program for Script {
    fn threads(&self) -> usize {
        self.0.len()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        let end = Batch { accesses: Vec::new(), then: Then::End };
        *batch = self.0[thread.index()].pop_front().unwrap_or(end);
        Ok(())
    }
}

/// A program of one thread.
pub fn alone(batches: impl IntoIterator<Item = Batch>) -> Script {
    Script(vec![batches.into_iter().collect()])
}

/// A program whose first thread starts all others; `of` returns the batches of each.
pub fn together(threads: usize, of: impl Fn(usize) -> Vec<Batch>) -> Script {
    let starts = (1..threads).map(|other| after([], Then::Spawn(ThreadId::from(other))));
    let first = starts.chain(of(0)).collect();
    Script(std::iter::once(first).chain((1..threads).map(|thread| of(thread).into())).collect())
}

/// Accesses and what follows them.
pub fn after(accesses: impl IntoIterator<Item = Access>, then: Then) -> Batch {
    Batch { accesses: accesses.into_iter().collect(), then }
}

/// Accesses alone.
pub fn doing(accesses: impl IntoIterator<Item = Access>) -> Batch {
    after(accesses, Then::Continue)
}

/// A load of 8 bytes.
pub fn load(address: u64) -> Access {
    let address = VirtAddr(address);
    Access { address, instructions: 1, producer: 0, size: 8, write: false, non_temporal: false }
}

/// A store of 8 bytes.
pub fn store(address: u64) -> Access {
    Access { write: true, ..load(address) }
}

/// A non-temporal store of 8 bytes.
pub fn store_past(address: u64) -> Access {
    Access { non_temporal: true, ..store(address) }
}

/// A load whose address depends on the previous load.
pub fn follow(address: u64) -> Access {
    Access { producer: 1, ..load(address) }
}

/// A store to each of this many pages.
pub fn touch(first_page: u64, pages: u64) -> Batch {
    doing((first_page..first_page + pages).map(|page| store(page * 4096)))
}

/// Maps memory with pages of this size.
pub fn map(start: u64, bytes: u64, page: PageSize) -> Batch {
    after([], Then::Map(Mapping { start: VirtAddr(start), bytes, page, name: "test".into() }))
}

/// Unmaps bytes.
pub fn unmap(start: u64, bytes: u64) -> Batch {
    after([], Then::Unmap { start: VirtAddr(start), bytes })
}

/// Pseudo-random numbers (SplitMix64).
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
