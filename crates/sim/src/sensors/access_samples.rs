//! Sampled accesses that miss all caches: PEBS, IBS, SPE.
//!
//! The processor counts the loads and stores that wait for memory, those for a prefetched line on its way
//! among them, and records every one whose number is a multiple of the period. It ends `access_sample_ns`
//! later for that.

use memtide_core::policy::{AccessSample, AccessSampling, Event, Sensor, View};
use memtide_core::{LINE_BYTES, PAGE_BYTES, Time};

use super::{Sense, SensorSetup};
use crate::core::Sent;
use crate::engine::Engine;

/// The samples are events: only the period is adjusted.
struct AccessSamples;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    matches!(sensor, Sensor::AccessSamples(_)).then(|| Box::new(AccessSamples) as Box<dyn Sense>)
}

/// Counts accesses, and selects those to record.
pub(crate) struct AccessSampler {
    sampling: AccessSampling,
    period: u32,
    /// Accesses until the next sample.
    left: u32,
    /// Samples of accesses that have not ended, with their CPUs and slots.
    open: Vec<(usize, u8, AccessSample)>,
    /// Time of all samples since the period was last adjusted.
    spent: Time,
    since: Time,
}

impl AccessSampler {
    pub fn new(sampling: AccessSampling) -> AccessSampler {
        let (period, left) = (sampling.period, sampling.period);
        AccessSampler { sampling, period, left, open: Vec::new(), spent: Time::ZERO, since: Time::ZERO }
    }

    fn adjust(&mut self, now: Time) {
        self.period = self.sampling.tuned(self.period, self.spent, now.since(self.since));
        self.left = self.left.min(self.period);
        (self.spent, self.since) = (Time::ZERO, now);
    }
}

impl Sense for AccessSamples {
    fn fill(&mut self, engine: &mut Engine<'_>, _: &mut View) {
        let now = engine.now;
        if let Some(sampler) = &mut engine.access_sampler {
            sampler.adjust(now);
        }
    }
}

impl Engine<'_> {
    /// Counts an access that waits for memory, and begins a sample if it is due.
    #[inline]
    pub(crate) fn begin_access_sample(&mut self, cpu: usize, sent: Sent) {
        let Some(sampler) = &mut self.access_sampler else { return };
        sampler.left -= 1;
        if sampler.left == 0 {
            sampler.left = sampler.period;
            self.open_access_sample(cpu, sent);
        }
    }

    fn open_access_sample(&mut self, cpu: usize, sent: Sent) {
        let core = &self.cores[cpu];
        let (Some(running), Some(sampler)) = (core.running, &mut self.access_sampler) else { return };
        let frame = (sent.line / (PAGE_BYTES / LINE_BYTES)) as u32;
        let (task, page, node) = self.os.frames.page_of(frame);
        let sample = AccessSample {
            time: sent.time,
            task,
            thread: self.threads[running].id,
            page,
            size: self.os.frames.page_in(frame).size,
            node,
            latency: None,
            period: sampler.period,
            write: core.window.is_store(sent.slot),
        };
        sampler.open.push((cpu, sent.slot, sample));
    }

    /// Ends the sample of a CPU's access, if it has one; returns when the access ends with it.
    #[inline]
    pub(crate) fn end_access_sample(&mut self, cpu: usize, slot: u8, end: Time) -> Time {
        match &self.access_sampler {
            Some(sampler) if !sampler.open.is_empty() => self.close_access_sample(cpu, slot, end),
            _ => end,
        }
    }

    fn close_access_sample(&mut self, cpu: usize, slot: u8, end: Time) -> Time {
        let Some(sampler) = &mut self.access_sampler else { return end };
        let Some(at) = sampler.open.iter().position(|&(on, of, _)| (on, of) == (cpu, slot)) else {
            return end;
        };
        let (.., sample) = sampler.open.swap_remove(at);
        let cost = self.os.costs.access_sample;
        sampler.spent += cost;
        let latency = Some(end.since(sample.time));
        self.sensors.note(Event::AccessSample(AccessSample { time: self.now, latency, ..sample }));
        end + cost
    }
}
