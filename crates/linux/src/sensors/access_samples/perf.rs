//! Samples of the processor or the kernel, by perf_event_open(2): a ring per CPU.

use std::io;
use std::path::Path;

use memtide_core::{NodeId, PAGE_BYTES, ThreadId, Time, VirtAddr};
use perf_event::data::{MemOp, Record, Sample};
use perf_event::{SampleFlag, Sampler};
use procfs::{CpuInfo, Current};
use rustix::process::Pid;

use super::clock::Clock;
use super::pmu::SampledEvent;
use super::{Sampled, Source};
use crate::processes::Process;
use crate::sensors::Watched;
use crate::sys::perf::{not_opened, set_sample_period};
use crate::topology::FrameNodes;
use crate::topology::sysfs::Sysfs;

/// What each sample says. Not its period: with that, the kernel samples every event that it counts itself.
const WHAT: [SampleFlag; 6] = [
    SampleFlag::TID,
    SampleFlag::TIME,
    SampleFlag::ADDR,
    SampleFlag::WEIGHT,
    SampleFlag::DATA_SRC,
    SampleFlag::PHYS_ADDR,
];

/// Bytes of the rings of all CPUs together; of one at least and at most, so that users other than root have
/// them, too (`/proc/sys/kernel/perf_event_mlock_kb` is 516).
const RINGS_BYTES: usize = 4 << 20;
const RING_BYTES_MIN: usize = 16 << 10;
const RING_BYTES_MAX: usize = 512 << 10;

/// Minimum size of a record, which limits the number in a ring.
const RECORD_BYTES: usize = 16;

/// Intel's base frequency.
const BASE_KHZ: &str = "devices/system/cpu/cpu0/cpufreq/base_frequency";

/// Time between two readings of the nodes of page frames, if there are frames on none.
const FRAMES_REREAD: Time = Time::from_ms(60_000);

/// Addresses from here on are the kernel's (x86-64, AArch64).
const KERNEL: u64 = 1 << 63;

/// The machine's number of a node of the system.
type Number<'n> = dyn Fn(NodeId) -> Option<NodeId> + 'n;

/// Sampled accesses of all processes.
pub struct Perf {
    event: SampledEvent,
    period: u32,
    rings: Vec<Sampler>,
    /// The CPUs that have a ring, one each.
    cpus: Vec<u16>,
    taken: u64,
    nodes: FrameNodes,
    nodes_read: Time,
    clock: Clock,
    cycle: Option<Time>,
}

impl Perf {
    /// Opens the rings, and samples one of `period` events from here on.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub fn open(event: SampledEvent, period: u32) -> io::Result<Perf> {
        let nodes = FrameNodes::read().unwrap_or_default();
        if nodes.is_empty() {
            let why = "the nodes of page frames are unknown: this kernel lists no memory blocks in sysfs";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut perf = Perf {
            event,
            period: event.first_period(period),
            rings: Vec::new(),
            cpus: Vec::new(),
            taken: 0,
            nodes,
            nodes_read: Time::ZERO,
            clock: Clock::default(),
            cycle: cycle(),
        };
        perf.follow_cpus()?;
        Ok(perf)
    }

    /// The samples of these processes, which are sorted by id, since the last call, oldest first, whose times
    /// are by a clock that shows `now`; nodes get the numbers that `number` says.
    ///
    /// # Errors
    /// If CPUs came online, and their rings cannot be opened.
    pub fn samples(
        &mut self,
        processes: &[Process],
        number: &Number<'_>,
        now: Time,
    ) -> io::Result<Vec<Sampled>> {
        self.follow_cpus()?;
        self.taken = 0;
        let (mut sampled, mut has_unknown) = (Vec::new(), false);
        let mut rings = std::mem::take(&mut self.rings);
        for ring in &mut rings {
            // The kernel may write as fast as records are read.
            for _ in 0..RING_BYTES_MAX / RECORD_BYTES {
                let Some(record) = ring.next_record() else { break };
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        self.taken += 1;
                        has_unknown |=
                            frame(&sample).is_some_and(|frame| self.nodes.node_of(frame).is_none());
                        self.clock.see(sample.time(), now);
                        sampled.extend(self.sampled(&sample, processes, number));
                    }
                    Ok(Record::Lost(lost)) => self.taken += lost.lost,
                    _ => {}
                }
            }
        }
        self.rings = rings;
        if has_unknown && now.since(self.nodes_read) >= FRAMES_REREAD {
            if let Ok(nodes) = FrameNodes::read() {
                self.nodes = nodes;
            }
            self.nodes_read = now;
        }
        sampled.sort_by_key(|sample| sample.time);
        Ok(sampled)
    }

    /// Samples one of this many events from here on, or as near to that as can be had; returns the period.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_period(&mut self, period: u32) -> io::Result<u32> {
        let period = self.event.valid_period(period);
        if period != self.period {
            self.rings.iter().try_for_each(|ring| set_sample_period(ring.as_counter(), period.into()))?;
            self.period = period;
        }
        Ok(period)
    }

    /// Opens rings if the set of online CPUs has changed.
    fn follow_cpus(&mut self) -> io::Result<()> {
        let sysfs = Sysfs(Path::new("/sys"));
        let list = |file| sysfs.list(file).map_err(io::Error::other);
        let mut cpus = sysfs.online_cpus().map_err(io::Error::other)?;
        if let Some(having) = self.event.cpus().map(list).transpose()?.flatten() {
            cpus.retain(|cpu| having.contains(cpu));
        }
        if cpus == self.cpus {
            return Ok(());
        }
        // If one cannot be opened, all are tried again.
        self.rings.clear();
        self.cpus.clear();
        let bytes = (RINGS_BYTES / cpus.len().max(1)).clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        self.rings = cpus.iter().map(|&cpu| self.ring(cpu, bytes)).collect::<io::Result<_>>()?;
        self.cpus = cpus;
        Ok(())
    }

    fn ring(&self, cpu: u16, bytes: usize) -> io::Result<Sampler> {
        let mut builder = self.event.builder(self.period);
        WHAT.iter().for_each(|what| _ = builder.sample(*what));
        let opened = builder.any_pid().one_cpu(cpu.into()).build().and_then(|mut counter| {
            counter.enable()?;
            counter.sampled(bytes)
        });
        opened.map_err(|error| not_opened(&format!("perf_event_open on CPU {cpu}"), &error))
    }

    /// An access of a watched process; `None` if it did not wait for memory, or is not known well enough.
    fn sampled(&self, sample: &Sample<'_>, processes: &[Process], number: &Number<'_>) -> Option<Sampled> {
        // That of a process that has ended is -1.
        let pid = Pid::from_raw(sample.pid()?.cast_signed().max(0))?;
        let raw = |pid: Pid| pid.as_raw_nonzero();
        processes.binary_search_by_key(&raw(pid), |process| raw(process.pid)).ok()?;
        let address = sample.addr().filter(|&address| address != 0 && address < KERNEL)?;
        let source = sample.data_src()?;
        if !self.event.missed(source) {
            return None;
        }
        let node = number(self.nodes.node_of(frame(sample)?)?)?;
        let cycles = sample.weight().filter(|&cycles| cycles > 0);
        Some(Sampled {
            pid,
            thread: ThreadId(sample.tid()?),
            address: VirtAddr(address),
            time: self.clock.own(sample.time()?),
            node,
            latency: cycles.zip(self.cycle).map(|(cycles, cycle)| cycle * cycles),
            period: self.period,
            write: source.mem_op().contains(MemOp::STORE),
        })
    }
}

impl Source for Perf {
    fn describe(&self) -> String {
        self.event.name().replace("{}", &self.period.to_string())
    }

    fn first_period(&self, misses: u32) -> u32 {
        self.event.first_period(misses)
    }

    fn set_period(&mut self, period: u32) -> io::Result<u32> {
        Perf::set_period(self, period)
    }

    fn taken(&self) -> u64 {
        self.taken
    }

    fn read(&mut self, watched: &Watched) -> io::Result<Vec<Sampled>> {
        self.samples(&watched.processes, &|node| watched.number(node), watched.now)
    }
}

/// The page frame of a sample, if it has one.
fn frame(sample: &Sample<'_>) -> Option<u64> {
    sample.phys_addr().filter(|&address| address != 0).map(|address| address / PAGE_BYTES)
}

/// Time of a cycle of the first CPU at its base frequency, or as it runs now if the kernel does not say that.
fn cycle() -> Option<Time> {
    let base_khz = Sysfs(Path::new("/sys")).value::<f64>(BASE_KHZ).ok().flatten();
    let now_mhz = || CpuInfo::current().ok()?.get_field(0, "cpu MHz")?.parse().ok();
    let mhz: f64 = base_khz.map(|khz| khz / 1000.0).or_else(now_mhz)?;
    (mhz > 0.0).then(|| Time::from_ns(1000.0 / mhz))
}

impl std::fmt::Debug for Perf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (event, period, cpus) = (&self.event, &self.period, &self.cpus);
        out.debug_struct("Perf")
            .field("event", event)
            .field("period", period)
            .field("cpus", cpus)
            .finish_non_exhaustive()
    }
}
