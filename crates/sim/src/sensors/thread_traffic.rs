//! Reads and writes of threads: lines between their cores' private caches and the shared levels; bdm counts
//! those read (bdm section 2.2: misses of the L2 cache).

use std::collections::BTreeMap;

use memtide_core::policy::{Sensor, Traffic, View};
use memtide_core::{LINE_BYTES, ThreadId};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct ThreadTraffic;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::ThreadTraffic).then(|| Box::new(ThreadTraffic) as Box<dyn Sense>)
}

impl Sense for ThreadTraffic {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        let of = |thread: &crate::thread::Thread| {
            let read_bytes = thread.counts.read_lines * LINE_BYTES;
            (thread.id, Traffic { read_bytes, written_bytes: thread.counts.written_lines * LINE_BYTES })
        };
        let traffic: BTreeMap<ThreadId, Traffic> = engine.threads.iter().map(of).collect();
        for thread in &mut view.threads {
            thread.traffic = traffic.get(&thread.thread).copied();
        }
    }
}
