//! Sampled accesses that miss all caches: by the processor, or by the lab in place of one.

mod clock;
mod lab;
pub mod perf;
pub mod pmu;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;

use memtide_core::policy::{AccessSample, AccessSampling, Answer, Event, Sensor, View};
use memtide_core::{NodeId, PageSize, TaskId, ThreadId, Time, VirtAddr};
use rustix::process::Pid;

use self::lab::Lab;
use self::perf::Perf;
use self::pmu::SampledEvent;
use super::{Sense, SensorSetup, Watched, task};
use crate::counters::CountersError;
use crate::sys::pagemap::{self, is_huge};
use crate::sys::time::thread_time;

/// Time that a sample takes the processor: 200 to 300 ns for Intel's PEBS (Akiyama and Hirofuchi, ROSS 2017).
const SAMPLE: Time = Time(250_000);

/// Where samples come from.
trait Source: fmt::Debug {
    /// What is sampled, and how often.
    fn describe(&self) -> String;

    /// The period to start with, for one of this many misses.
    fn first_period(&self, misses: u32) -> u32 {
        misses
    }

    /// Samples one of this many events from here on, or as near to that as can be had; returns the period.
    fn set_period(&mut self, period: u32) -> io::Result<u32>;

    /// Number of samples taken before the last reading, of any process.
    fn taken(&self) -> u64;

    /// The samples of watched processes since the last reading, oldest first.
    fn read(&mut self, watched: &Watched) -> io::Result<Vec<Sampled>>;
}

#[derive(Debug)]
struct AccessSamples {
    source: Box<dyn Source>,
    sampling: AccessSampling,
    period: u32,
    /// When the period was last adjusted; `None` before sampling begins.
    since: Option<Time>,
}

/// A sampled access of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The process.
    pub pid: Pid,
    /// Its thread; the process's first if the source does not know threads.
    pub thread: ThreadId,
    /// Where it accessed.
    pub address: VirtAddr,
    /// When, by the daemon's clock.
    pub time: Time,
    /// The page's node, as the machine numbers it.
    pub node: NodeId,
    /// How long it took, if that was measured.
    pub latency: Option<Time>,
    /// Accesses that it stands for.
    pub period: u32,
    /// A store if true, else a load.
    pub write: bool,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let Sensor::AccessSamples(sampling) = *sensor else { return None };
    Some(source(sampling.period).map(|source| {
        let period = source.first_period(sampling.period);
        Box::new(AccessSamples { source, sampling, period, since: None }) as Box<dyn Sense>
    }))
}

/// The lab's samples in a guest of the lab, else the processor's.
fn source(period: u32) -> io::Result<Box<dyn Source>> {
    match Lab::open() {
        Ok(lab) => Ok(Box::new(lab)),
        Err(CountersError::None) => {
            let event =
                SampledEvent::misses().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
            Ok(Box::new(Perf::open(event, period)?))
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

impl AccessSamples {
    /// Keeps to the budget, given the number of samples since the last time and the time that it took to read
    /// them.
    fn adjust(&mut self, now: Time, samples: u64, reading: Time) -> io::Result<()> {
        if let Some(since) = self.since.replace(now) {
            let spent = SAMPLE * samples + reading;
            self.period = self.sampling.tuned(self.period, spent, now.since(since));
        }
        self.period = self.source.set_period(self.period)?;
        Ok(())
    }
}

impl Sense for AccessSamples {
    fn answer(&self) -> Answer {
        Answer::Observed(self.source.describe())
    }

    fn fill(&mut self, watched: &mut Watched, _: &mut View, events: &mut Vec<Event>) {
        let begun = thread_time();
        let samples = match self.source.read(watched) {
            Ok(samples) => samples,
            Err(error) => return watched.troubles.push(format!("access samples: {error}")),
        };
        let mut sizes = Sizes::default();
        events.extend(samples.iter().map(|sampled| sampled.event(sizes.of(sampled))));
        let reading = thread_time().saturating_sub(begun);
        let reading = Time::from_ns(reading.as_nanos() as f64);
        if let Err(error) = self.adjust(watched.now, self.source.taken(), reading) {
            watched.troubles.push(format!("access samples: their period cannot be set: {error}"));
        }
    }
}

impl Sampled {
    fn event(&self, size: PageSize) -> Event {
        let Sampled { pid, thread, address, time, node, latency, period, write } = *self;
        let (task, page) = (task(pid), address.page());
        Event::AccessSample(AccessSample { time, task, thread, page, size, node, latency, period, write })
    }
}

/// Sizes of sampled pages, by process and 2 MiB.
#[derive(Debug, Default)]
struct Sizes {
    pagemaps: BTreeMap<TaskId, Option<File>>,
    known: BTreeMap<(TaskId, u64), PageSize>,
}

impl Sizes {
    fn of(&mut self, sampled: &Sampled) -> PageSize {
        let page = sampled.address.page().0;
        let task = task(sampled.pid);
        let pagemap = || pagemap::open(sampled.pid).ok();
        let pagemap = self.pagemaps.entry(task).or_insert_with(pagemap);
        let is_huge = || pagemap.as_ref().is_some_and(|pagemap| is_huge(pagemap, page));
        let look = || if is_huge() { PageSize::Huge } else { PageSize::Base };
        *self.known.entry((task, page / PageSize::Huge.base_pages())).or_insert_with(look)
    }
}
