//! Samples of every page's accessed and dirty bits: SysMon (memos section II-B).
//!
//! A kernel thread walks all page tables. It counts the pages whose bits are set, clears the bits and drops
//! the translations, so that the next access sets them again.

use std::collections::BTreeMap;

use memtide_core::policy::{Frame, PageSampling, Region, Sensor, View};
use memtide_core::{TaskId, Time, Vpn};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::{Entry, Os, PAGES, Stale};
use crate::report::{PageSamplesReport, SampledNode};

/// Adjacent pages whose samples are stored together.
const BLOCK: u64 = 512;

struct PageSamples {
    sampling: Time,
    blocks: Vec<[Samples; BLOCK as usize]>,
    /// Blocks by task and number.
    index: BTreeMap<(TaskId, u64), usize>,
    /// Its working time.
    system: Time,
    /// Samples since the last epoch.
    taken: u32,
    epochs: Vec<PageSamplesReport>,
}

/// Samples in which a page was found accessed, and written.
#[derive(Clone, Copy, Default)]
struct Samples {
    accessed: u32,
    written: u32,
}

/// A page is hot if it is accessed in this part of an epoch's samples: memos' default.
const HOT_PART: u32 = 10;

const NONE: Samples = Samples { accessed: 0, written: 0 };

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    let Sensor::PageSamples(PageSampling { sampling }) = *sensor else { return None };
    let (blocks, index, system, taken, epochs) = Default::default();
    Some(Box::new(PageSamples { sampling, blocks, index, system, taken, epochs }))
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

    /// Appends a task's pages with their samples, and counts them by node.
    fn list(&self, os: &mut Os, task: TaskId, view: &mut View, nodes: &mut [SampledNode]) {
        let frames = &os.frames;
        os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |start, size, entry| {
            if entry.has(Entry::PRESENT) {
                let samples = self.of_page(task, start);
                let node = frames.node_of(entry.frame());
                self.count(&samples, frames.place(entry.frame()), &mut nodes[node.index()]);
                let (reads, writes) = (samples.accessed, samples.written);
                view.regions.push(Region { task, start, pages: 1, size, node, reads, writes, age: 0 });
            }
            true
        });
    }

    fn of_page(&self, task: TaskId, page: Vpn) -> Samples {
        let block = self.index.get(&(task, page.0 / BLOCK));
        block.map_or(NONE, |&block| self.blocks[block][(page.0 % BLOCK) as usize])
    }

    fn count(&self, samples: &Samples, frame: Frame, node: &mut SampledNode) {
        node.pages += 1;
        let is_hot = samples.accessed > 0 && samples.accessed >= self.taken / HOT_PART;
        if is_hot {
            node.hot += 1;
            node.hot_by_bank[usize::from(frame.bank.unwrap_or(0))] += 1;
        }
        node.written += u64::from(samples.written > 0 && samples.written * 2 >= samples.accessed);
    }
}

impl Sense for PageSamples {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        let map = engine.os.frames.map();
        let banks = engine.setup.machine.node_ids().map(|node| usize::from(map.banks(node)));
        let empty = |banks| SampledNode { hot_by_bank: vec![0; banks], ..SampledNode::default() };
        let mut nodes: Vec<SampledNode> = banks.map(empty).collect();
        for task in (0..engine.os.spaces.len()).map(TaskId::from) {
            if engine.tasks.is_alive(task) {
                self.list(&mut engine.os, task, view, &mut nodes);
            }
        }
        self.epochs.push(PageSamplesReport { time_ms: engine.now.0 as f64 / 1e9, nodes });
        self.taken = 0;
        self.blocks.iter_mut().for_each(|block| block.fill(NONE));
    }

    fn sampling(&self) -> Option<Time> {
        Some(self.sampling)
    }

    fn sample(&mut self, os: &mut Os) {
        self.taken += 1;
        (0..os.spaces.len()).for_each(|task| self.sample_task(os, TaskId::from(task)));
    }

    fn cost(&self) -> Option<(Time, u64)> {
        Some((self.system, self.epochs.len() as u64))
    }

    fn page_samples(&self) -> &[PageSamplesReport] {
        &self.epochs
    }
}
