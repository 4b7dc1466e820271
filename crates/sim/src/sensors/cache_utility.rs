//! Utility of the last cache level to each task: auxiliary tag directories, which are hardware and cost no
//! time (Qureshi and Patt, MICRO 2006).

use memtide_core::policy::{CacheUtility, Sensor, View};
use memtide_memory::Utility;

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct Monitors;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::CacheUtility).then(|| Box::new(Monitors) as Box<dyn Sense>)
}

impl Sense for Monitors {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        for task in view.tasks.iter().map(|task| task.task) {
            let class = engine.class_of(task);
            let Some(Utility { hits, misses }) = engine.uncore.take_utility(class) else { return };
            let caches = engine.caches_of(task);
            let quota_ways = engine.quota(task, &caches);
            view.cache_utility.push(CacheUtility { task, caches, quota_ways, hits, misses });
        }
    }
}
