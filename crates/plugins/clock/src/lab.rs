//! The modelled machine and its virtual CPUs.

use memtide_core::machine::Machine;
use memtide_core::{CpuId, LINE_BYTES, PAGE_BYTES, Time};
use memtide_lab_model::{Access, CacheAccess, Curve, Reads, Touched};
use memtide_lab_protocol::clock::{Config, RegionTotals, Results, Timeline};
use memtide_lab_protocol::counters::Writer;
use memtide_lab_protocol::samples::{self, Sample};
use memtide_lab_protocol::{Counts, Process, between};

use crate::clocks::guest_time;
use crate::first::First;
use crate::ledger::Ledger;
use crate::op::MAX_VCPUS;
use crate::shared_memory;
use crate::vcpu::Vcpu;

/// Time slice of a virtual CPU.
pub const QUANTUM: Time = Time::from_us(20);

/// Interval of writing the counters page, which costs as much as some hundred modelled accesses.
const PUBLISH_INTERVAL: Time = Time::from_us(200);

/// The plugin's state, independent of QEMU.
#[derive(Debug)]
pub struct Lab {
    pub config: Config,
    pub curve: Curve,
    /// Empty first cache of a virtual CPU, if the machine has one of a common geometry.
    first: Option<First>,
    pub ledger: Ledger,
    pub results: Results,
    counters: Writer<'static>,
    samples: samples::Writer<'static>,
    /// Misses per sampled access; 0 if none are sampled.
    period: u32,
    /// Misses until the next sample.
    until_sample: u32,
    /// Time that a sample takes.
    sample_cost: Time,
    shown: Time,
    /// Whether the model is on: a region of interest is active.
    pub on: bool,
    /// Time of an instruction on the modelled core, in ps.
    model_ps: f64,
    begun: Option<Begun>,
    /// When the agent started the program.
    program: Time,
}

/// State at the start of the active region of interest.
#[derive(Debug)]
struct Begun {
    time: Time,
    host_cpu_ns: u64,
    processes: Vec<Process>,
    timeline: Timeline,
}

/// Progress of a virtual CPU.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    /// Instructions.
    pub instructions: u64,
    /// User instructions among them.
    pub user_instructions: u64,
    /// Accesses to memory while the model was on.
    pub accesses: u64,
}

/// A line that a virtual CPU accesses.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub line: u64,
    pub write: bool,
    /// Stores that the CPU has executed, itself included.
    pub stores: u64,
    /// Whether its line need not be fetched, as a stream of stores overwrites it.
    pub overwritten: bool,
    /// Time of its translation; zero if it is cached.
    pub translation: Time,
    /// What the first cache said; `None` if there is none.
    pub first: Option<CacheAccess>,
    /// When its address is known.
    pub ready: Time,
    /// When its line arrives, if it is in flight.
    pub arrival: Time,
    /// Virtual address.
    pub address: u64,
}

/// An access that took time.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The CPU's time after it.
    pub now: Time,
    /// When its value or line is there.
    pub end: Time,
    /// Whether it fetches its line: it missed the private caches.
    pub missed: bool,
}

impl Lab {
    /// Reads a configuration and the machine in it.
    pub fn read(file: &str) -> Result<Lab, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let config = Config::from_json(text.as_bytes()).map_err(|error| format!("{file}: {error}"))?;
        let machine = Machine::parse(file, &config.machine).map_err(|error| error.to_string())?;
        let count = config.vcpu_initiators.len();
        if count == 0 || count > MAX_VCPUS {
            return Err(format!("{file}: 1 to {MAX_VCPUS} virtual CPUs are allowed, not {count}"));
        }
        if machine.nodes.iter().any(|node| node.fixed.is_none()) {
            return Err(format!("{file}: every node must be `fixed`"));
        }
        let nodes = machine.nodes.len();
        let memory = shared_memory::map(&config.counters);
        let memory = memory.map_err(|error| format!("{}: {error}", config.counters.display()))?;
        if config.guest_nodes.len() != nodes || (memory.len() as u64) < samples::device_bytes(nodes) / 8 {
            return Err(format!("{file}: the counters are not those of {nodes} nodes"));
        }
        Ok(Lab {
            counters: Writer::new(memory, &config.guest_nodes),
            samples: samples::Writer::new(memory),
            period: 0,
            until_sample: 0,
            sample_cost: Time::from_ns(machine.kernel.access_sample_ns),
            shown: Time::ZERO,
            curve: Curve::new(&machine, &config),
            first: machine.caches.first().filter(|cache| !cache.is_shared()).and_then(First::new),
            ledger: Ledger::new(count, nodes),
            results: Results::default(),
            on: false,
            model_ps: 1e6 / (machine.core.clock_mhz * machine.core.instructions_per_cycle),
            begun: None,
            program: Time::ZERO,
            config,
        })
    }

    /// Number of virtual CPUs.
    pub fn vcpus(&self) -> usize {
        self.config.vcpu_initiators.len()
    }

    /// A virtual CPU's first cache, which the model has no more; `None` if the model keeps it, or there is
    /// none.
    pub fn take_first_cache(&mut self, cpu: CpuId) -> Option<First> {
        self.first.as_ref()?;
        self.curve.take_first_cache(cpu)?;
        self.first.clone()
    }

    /// Time of an instruction at present, in ps.
    pub fn instruction_ps(&self) -> f64 {
        if self.on { self.model_ps } else { self.config.boot_ps as f64 }
    }

    /// Turns the model on or off, given each virtual CPU's executed instructions. False if nothing changes.
    pub fn turn(&mut self, on: bool, executed: &[Executed]) -> bool {
        if self.on == on {
            return false;
        }
        self.on = on;
        let ps = self.instruction_ps();
        for (cpu, &Executed { instructions, .. }) in executed.iter().enumerate() {
            let cpu = CpuId::from(cpu);
            self.curve.drain(cpu, instructions);
            self.curve.change_rate(cpu, instructions, ps);
        }
        true
    }

    /// A virtual CPU's counters up to now.
    fn counts(&self, cpu: usize, executed: Executed) -> Counts {
        let Executed { instructions, user_instructions, accesses } = executed;
        Counts { instructions, user_instructions, accesses, ..self.curve.counts(CpuId::from(cpu)) }
    }

    /// Starts a region of interest.
    pub fn begin(&mut self, time: Time, executed: &[Executed]) {
        for (cpu, &executed) in executed.iter().enumerate() {
            self.ledger.skip(cpu, self.counts(cpu, executed));
        }
        let processes = self.ledger.processes().to_vec();
        let timeline = Timeline::new(self.bytes());
        self.begun = Some(Begun { time, host_cpu_ns: thread_cpu_ns(), processes, timeline });
    }

    /// Whether one is active.
    pub fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Switches a virtual CPU to the process with this page table.
    pub fn enter(&mut self, cpu: usize, root: u64, executed: Executed) {
        self.curve.send_stores(CpuId::from(cpu), executed.instructions);
        if self.has_begun() {
            self.ledger.settle(cpu, self.counts(cpu, executed));
        }
        self.ledger.enter(cpu, root);
    }

    /// Bytes that each node has moved since the start.
    fn bytes(&self) -> Vec<u64> {
        let cpus = (0..self.vcpus()).map(|cpu| self.curve.counts(CpuId::from(cpu)));
        let cpus: Vec<Counts> = cpus.collect();
        let sum = Counts::sum(self.config.guest_nodes.len(), cpus.iter());
        sum.nodes.into_iter().map(|node| node.bytes()).collect()
    }

    /// Marks a virtual CPU's process as the lab's agent, which starts the program.
    pub fn is_agent(&mut self, cpu: usize, time: Time) {
        self.ledger.is_agent(cpu);
        self.program = time;
    }

    /// Whether the counters page is due for an update.
    pub fn is_due(&self, time: Time) -> bool {
        self.has_begun() && time >= self.shown + PUBLISH_INTERVAL
    }

    /// Updates the counters page. Called when all virtual CPUs' turns have ended.
    pub fn show(&mut self, time: Time, executed: &[Executed]) {
        if self.has_begun() {
            self.settle(executed);
        }
        self.record(time);
        self.shown = time;
        self.counters.write(time.0 / 1000, self.has_begun(), self.ledger.processes());
    }

    fn record(&mut self, time: Time) {
        let bytes = self.bytes();
        if let Some(begun) = &mut self.begun {
            begun.timeline.record(time.since(begun.time).0 / 1000, bytes);
        }
    }

    fn settle(&mut self, executed: &[Executed]) {
        for (cpu, &executed) in executed.iter().enumerate() {
            self.ledger.settle(cpu, self.counts(cpu, executed));
        }
    }

    /// A program starts in a virtual CPU's address space.
    pub fn start(&mut self, cpu: usize, name: &str, executed: Executed) {
        if self.has_begun() {
            self.ledger.settle(cpu, self.counts(cpu, executed));
        }
        self.ledger.start(cpu, name);
    }

    /// Ends the region of interest and writes results.
    pub fn end(&mut self, time: Time, executed: &[Executed]) {
        self.record(time);
        let Some(begun) = self.begun.take() else { return };
        self.settle(executed);
        let processes = between(&begun.processes, self.ledger.processes());
        let nodes = self.config.guest_nodes.len();
        self.results.regions.push(RegionTotals {
            start_ns: begun.time.since(self.program).as_ns(),
            guest_ns: time.since(begun.time).as_ns(),
            timeline: begun.timeline,
            host_cpu_ns: thread_cpu_ns() - begun.host_cpu_ns,
            total: Counts::sum(nodes, processes.iter().map(|process| &process.counts)),
            processes,
        });
        self.write();
    }

    /// Writes the results atomically.
    pub fn write(&self) {
        let file = &self.config.results;
        let new = file.with_extension("new");
        let written = std::fs::write(&new, self.results.to_json()).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = written {
            eprintln!("memtide clock: {}: {error}", file.display());
        }
    }

    /// Performs an access that may miss the first cache, or whose translation is not cached (`translation`
    /// above zero). `instruction` returns, on demand, how many the CPU has executed before it. `None` if it
    /// took no time.
    #[inline]
    pub fn access(&mut self, cpu: CpuId, touch: Touch, instruction: impl FnOnce() -> u64) -> Option<Took> {
        let Touch { line, write, stores, overwritten, translation, first, ready, arrival, .. } = touch;
        let touched = match first {
            Some(CacheAccess::Hit) => Touched::First,
            Some(CacheAccess::Miss(victim)) => self.curve.missed_first(cpu, line, victim),
            None => self.curve.touch(cpu, line, write),
        };
        if touched == Touched::First && translation == Time::ZERO {
            return None;
        }
        let instruction = instruction();
        let access = Access { instruction, stores, line, write, overwritten, ready, arrival, translation };
        let before = (self.period > 0).then(|| self.curve.reads(cpu, line)).flatten();
        let end = self.curve.open(cpu, access, touched);
        if let Some(before) = before {
            self.count_miss(cpu, touch, instruction, before);
        }
        let now = self.curve.clock_as_is(cpu).at(instruction);
        Some(Took { now, end, missed: touched == Touched::Missed && !overwritten })
    }
}

impl Lab {
    /// Samples one of `period` misses from here on; none if it is 0.
    pub fn sample(&mut self, period: u64) {
        self.period = u32::try_from(period).unwrap_or(u32::MAX);
        self.until_sample = self.period;
    }

    /// Counts an access of a program if it has read its line from a node, and samples it if it is due.
    /// `before` is what the CPU had read from the node.
    fn count_miss(&mut self, cpu: CpuId, touch: Touch, instruction: u64, before: Reads) {
        let Some(after) = self.curve.reads(cpu, touch.line).filter(|after| after.lines > before.lines) else {
            return;
        };
        if Vcpu::is_kernel(touch.address) {
            return;
        }
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return;
        }
        self.until_sample = self.period;
        let now = self.curve.clock_as_is(cpu).at(instruction);
        self.samples.write(&Sample {
            root: self.ledger.root(cpu.index()),
            address: touch.address,
            frame: touch.line / (PAGE_BYTES / LINE_BYTES),
            node: self.config.guest_nodes[after.node.index()],
            guest_ns: guest_time(now).0 / 1000,
            latency: after.latency.since(before.latency),
            period: self.period,
            write: touch.write,
        });
        self.curve.idle_until(cpu, instruction, now + self.sample_cost);
    }
}

/// Processor time of the thread that runs the virtual CPUs, in ns.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
