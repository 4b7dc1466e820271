//! Samples of every page's accessed and dirty bits: SysMon (memos section II-B).
//!
//! A kernel thread walks all page tables. It counts the pages whose bits are set, clears the bits and drops the
//! translations, so that the next access sets them again.

use std::collections::BTreeMap;

use memtide_core::policy::{PageSampling, Region, Sensor, View};
use memtide_core::{TaskId, Time, Vpn};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::{Entry, Os, PAGES, Stale};

/// Adjacent pages whose samples are stored together.
const BLOCK: u64 = 512;

struct PageSamples {
    sampling: Time,
    blocks: Vec<[Samples; BLOCK as usize]>,
    /// Blocks by task and number.
    index: BTreeMap<(TaskId, u64), usize>,
    /// Its working time.
    system: Time,
    /// Number of epochs in which it was read.
    observations: u64,
}

/// Samples in which a page was found accessed, and written.
#[derive(Clone, Copy, Default)]
struct Samples {
    accessed: u32,
    written: u32,
}

const NONE: Samples = Samples { accessed: 0, written: 0 };

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    let Sensor::PageSamples(PageSampling { sampling }) = *sensor else { return None };
    let (blocks, index, system) = Default::default();
    Some(Box::new(PageSamples { sampling, blocks, index, system, observations: 0 }))
}

impl PageSamples {
    fn block(&mut self, task: TaskId, number: u64) -> usize {
        *self.index.entry((task, number)).or_insert_with(|| {
            self.blocks.push([NONE; BLOCK as usize]);
            self.blocks.len() - 1
        })
    }

    fn sample_task(&mut self, os: &mut Os, task: TaskId) {
        let mut entries = 0;
        let mut last = None;
        os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |page, _, entry| {
            entries += 1;
            if !entry.has(Entry::PRESENT | Entry::ACCESSED) {
                return true;
            }
            let number = page.0 / BLOCK;
            let block = match last {
                Some((of, block)) if of == number => block,
                _ => self.block(task, number),
            };
            last = Some((number, block));
            let samples = &mut self.blocks[block][(page.0 % BLOCK) as usize];
            samples.accessed += 1;
            samples.written += u32::from(entry.has(Entry::DIRTY));
            entry.set(Entry::YOUNG);
            entry.clear(Entry::ACCESSED | Entry::DIRTY);
            true
        });
        self.system += os.costs.walk_entry * entries;
        os.stale.push(Stale { task, page: None });
    }

    /// Appends a task's pages with their samples, which start again.
    fn list(&mut self, os: &mut Os, task: TaskId, view: &mut View) {
        let frames = &os.frames;
        os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |start, size, entry| {
            if entry.has(Entry::PRESENT) {
                let block = self.index.get(&(task, start.0 / BLOCK));
                let Samples { accessed: reads, written: writes } =
                    block.map_or(NONE, |&block| self.blocks[block][(start.0 % BLOCK) as usize]);
                let node = frames.node_of(entry.frame());
                view.regions.push(Region { task, start, pages: 1, size, node, reads, writes, age: 0 });
            }
            true
        });
    }
}

impl Sense for PageSamples {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.observations += 1;
        for task in (0..engine.os.spaces.len()).map(TaskId::from) {
            if engine.tasks.is_alive(task) {
                self.list(&mut engine.os, task, view);
            }
        }
        self.blocks.iter_mut().for_each(|block| block.fill(NONE));
    }

    fn sampling(&self) -> Option<Time> {
        Some(self.sampling)
    }

    fn sample(&mut self, os: &mut Os) {
        (0..os.spaces.len()).for_each(|task| self.sample_task(os, TaskId::from(task)));
    }

    fn cost(&self) -> Option<(Time, u64)> {
        Some((self.system, self.observations))
    }
}
