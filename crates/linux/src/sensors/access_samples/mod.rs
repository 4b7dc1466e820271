//! Sampled accesses that miss all caches: by the lab, in place of a processor.

mod lab;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::Duration;

use memtide_core::policy::{AccessSample, AccessSampling, Answer, Event, Sensor, View};
use memtide_core::{NodeId, PageSize, TaskId, ThreadId, Time, VirtAddr};
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

use self::lab::Lab;
use super::{Sense, SensorSetup, Watched, task};
use crate::sys::pagemap::is_huge;

/// Time that a sample takes the processor: 200 to 300 ns for Intel's PEBS (Akiyama and Hirofuchi, ROSS 2017).
const SAMPLE: Time = Time(250_000);

#[derive(Debug)]
struct AccessSamples {
    source: Lab,
    sampling: AccessSampling,
    period: u32,
    /// When the period was last adjusted; `None` before sampling begins.
    since: Option<Time>,
}

/// A sampled access of a watched process.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    pid: Pid,
    address: VirtAddr,
    time: Time,
    node: NodeId,
    latency: Time,
    period: u32,
    write: bool,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let Sensor::AccessSamples(sampling) = *sensor else { return None };
    Some(Lab::open().map_err(io::Error::other).map(|source| {
        Box::new(AccessSamples { source, sampling, period: sampling.period, since: None }) as Box<dyn Sense>
    }))
}

impl AccessSamples {
    /// Keeps to the budget, given the number of samples since the last time and the time that it took to read
    /// them.
    fn adjust(&mut self, now: Time, samples: u64, reading: Time) {
        if let Some(since) = self.since.replace(now) {
            let spent = SAMPLE * samples + reading;
            self.period = self.sampling.tuned(self.period, spent, now.since(since));
        }
        self.source.set_period(self.period);
    }
}

impl Sense for AccessSamples {
    fn answer(&self) -> Answer {
        Answer::Observed(format!("the lab's samples, one of {} misses", self.period))
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
        self.adjust(watched.now, self.source.taken(), Time::from_ns(reading.as_nanos() as f64));
    }
}

impl Sampled {
    fn event(&self, size: PageSize) -> Event {
        let Sampled { pid, address, time, node, latency, period, write } = *self;
        let (task, page) = (task(pid), address.page());
        // The lab does not know threads: this is the process's first.
        let thread = ThreadId(task.0);
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
        let pagemap = || File::open(format!("/proc/{}/pagemap", sampled.pid.as_raw_nonzero())).ok();
        let pagemap = self.pagemaps.entry(task).or_insert_with(pagemap);
        let is_huge = || pagemap.as_ref().is_some_and(|pagemap| is_huge(pagemap, page));
        let look = || if is_huge() { PageSize::Huge } else { PageSize::Base };
        *self.known.entry((task, page / PageSize::Huge.base_pages())).or_insert_with(look)
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
