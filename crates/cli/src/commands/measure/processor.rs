//! Measurements of a core: clock, cache latencies, TLB, overlap of misses, reorder buffer, page faults.

use memtide_core::{CpuId, NodeId, PageSize};
use memtide_linux::measure::{
    Effort, Figure, LastCache, MeasureError, Overlap, RunAhead, RunAheadPoint, Rung, TlbPoint, TlbReach,
    cache_latencies_ns, clock_mhz, cold_walk_ns, fault_ns, follows_next_page, footprints_kib,
    is_virtual_machine, last_cache, memory_ns, overlap, page_counts, page_ns, run_ahead, rung, tlb_point,
    tlb_reach,
};
use memtide_linux::topology::Cache;

use super::{Pair, figure};
use crate::failure::Failure;
use crate::output::{Cell, Table};

/// Figures of a core and its caches, from its first CPU and a node.
pub struct Processor {
    initiator: NodeId,
    node: NodeId,
    clock_mhz: Option<f64>,
    caches: Vec<Cache>,
    ladder: Vec<Rung>,
    tlb_points: Vec<TlbPoint>,
    overlap: Overlap,
    last_cache: Option<LastCache>,
    run_ahead: RunAhead,
    page_ns: f64,
    fault: Option<Figure>,
    huge_fault: Option<Figure>,
    nested_walks: bool,
}

/// Measures the first CPU of a pair; `progress` is called with the share that is done.
pub fn measure(
    pair: &Pair,
    caches: &[Cache],
    effort: Effort,
    mut progress: impl FnMut(f64),
) -> Result<Processor, Failure> {
    let (cpu, node) = (pair.cpus.first().copied().unwrap_or_default(), pair.node);
    let (footprints, counts) = (footprints_kib(effort.mib), page_counts());
    let steps = (footprints.len() + counts.len() + 7) as f64;
    let mut done = 0.0;
    let mut step = || {
        done += 1.0;
        progress(done / steps);
    };
    let mut ladder = Vec::new();
    for kib in footprints {
        ladder.push(figure(pair, move |_| rung(cpu, node, kib, &effort))?);
        step();
    }
    let mut tlb_points = Vec::new();
    for pages in counts {
        tlb_points.push(figure(pair, move |_| tlb_point(cpu, node, pages, &effort))?);
        step();
    }
    let overlap = figure(pair, move |_| overlap(cpu, node, &effort))?;
    step();
    let last_cache = match caches.last() {
        Some(cache) if far(cache, effort.mib) => {
            let kib = cache.capacity_kib;
            Some(figure(pair, move |_| last_cache(cpu, node, kib, &effort))?)
        }
        _ => None,
    };
    step();
    let run_ahead = figure(pair, move |_| run_ahead(cpu, node, &effort))?;
    step();
    let page_ns = figure(pair, move |_| page_ns(cpu, node, &effort))?;
    step();
    let mut fault = |size| -> Result<Option<Figure>, Failure> {
        let found = figure(pair, move |_| fault_ns(cpu, node, size, &effort));
        step();
        found
    };
    Ok(Processor {
        initiator: pair.initiator,
        node,
        clock_mhz: figure(pair, move |_| clock(cpu))?,
        caches: caches.to_vec(),
        ladder,
        tlb_points,
        overlap,
        last_cache,
        run_ahead,
        page_ns,
        fault: fault(PageSize::Base)?,
        huge_fault: fault(PageSize::Huge)?,
        nested_walks: is_virtual_machine(),
    })
}

/// Whether a footprint is large enough to tell what a program has of a cache.
fn far(cache: &Cache, mib: usize) -> bool {
    (mib as u64) << 10 >= 2 * cache.capacity_kib
}

/// Share of a cache from which on a program has all of it.
const ALL: f64 = 0.75;

fn clock(cpu: CpuId) -> Result<Option<f64>, MeasureError> {
    clock_mhz(cpu)
}

impl Processor {
    /// Its tables: cache latencies, the ladder of footprints, pages and translations, instructions and stores
    /// between loads, and single figures.
    pub fn tables(&self) -> Vec<Table> {
        vec![
            self.caches_table(),
            self.ladder_table(),
            self.last_cache_table(),
            self.tlb_table(),
            run_ahead_table(
                "run_ahead",
                ("instructions", "instructions per load, independent loads"),
                &self.run_ahead.instructions,
            ),
            run_ahead_table(
                "stores_ahead",
                ("stores", "stores per load, independent loads"),
                &self.run_ahead.stores,
            ),
            self.figures_table(),
        ]
    }

    fn caches_table(&self) -> Table {
        let columns = [("level", "cache"), ("kib", "a program's share, KiB"), ("latency_ns", "latency, ns")];
        let mut table = Table::new("caches", &columns);
        let caches = self.held_caches();
        let latencies = cache_latencies_ns(&caches, &self.ladder);
        table.rows = caches
            .iter()
            .zip(latencies)
            .map(|(cache, ns)| {
                vec![Cell::Whole(cache.level.into()), Cell::Whole(cache.capacity_kib), Cell::Real(ns, 1)]
            })
            .collect();
        table
    }

    /// The caches with what a program has of the last one.
    fn held_caches(&self) -> Vec<Cache> {
        let mut held = self.caches.clone();
        if let (Some(last), Some(cache)) = (held.last_mut(), &self.last_cache) {
            let kib = cache.held_kib(self.overlap.huge_ns);
            if (kib as f64) < ALL * last.capacity_kib as f64 {
                last.capacity_kib = (kib / u64::from(last.ways) * u64::from(last.ways)).max(last.ways.into());
            }
        }
        held
    }

    /// `None` without a second cache, or without memory's latency.
    fn next_page(&self) -> Option<bool> {
        let second_ns = *cache_latencies_ns(&self.held_caches(), &self.ladder).get(1)?;
        Some(follows_next_page(self.page_ns, second_ns, memory_ns(&self.caches, &self.ladder)?))
    }

    fn ladder_table(&self) -> Table {
        let columns = [("kib", "KiB"), ("huge_ns", "in huge pages, ns"), ("base_ns", "in 4 KiB pages, ns")];
        let mut table = Table::new("ladder", &columns);
        let row = |rung: &Rung| vec![Cell::Whole(rung.kib), ns(rung.huge_ns), Cell::Real(rung.base_ns, 1)];
        table.rows = self.ladder.iter().map(row).collect();
        table
    }

    fn last_cache_table(&self) -> Table {
        let mut table =
            Table::new("last_cache", &[("kib", "KiB"), ("ns", "per load, 32 chases at once, ns")]);
        let points = self.last_cache.iter().flat_map(|cache| &cache.points);
        table.rows = points.map(|&(kib, ns)| vec![Cell::Whole(kib), Cell::Real(ns, 2)]).collect();
        table
    }

    fn tlb_table(&self) -> Table {
        let columns =
            [("pages", "pages"), ("huge_ns", "in huge pages, ns"), ("base_ns", "in 4 KiB pages, ns")];
        let mut table = Table::new("tlb", &columns);
        let row = |point: &TlbPoint| {
            vec![Cell::Whole(point.pages), Cell::Real(point.huge_ns, 1), Cell::Real(point.base_ns, 1)]
        };
        table.rows = self.tlb_points.iter().map(row).collect();
        table
    }

    fn figures_table(&self) -> Table {
        let reach = tlb_reach(&self.tlb_points);
        let memory = memory_ns(&self.caches, &self.ladder);
        let cold_walk = cold_walk_ns(&self.caches, &self.ladder);
        let whole = |number: Option<u64>| number.map_or(Cell::Absent, Cell::Whole);
        let misses = memory.map(|ns| self.overlap.misses(ns).into());
        let reorder = self.run_ahead.reorder_buffer().map(u64::from);
        let store_queue = self.run_ahead.store_queue().map(u64::from);
        let next_page = self.next_page().map_or(Cell::Absent, |follows| Cell::Flag(follows, "yes".into()));
        let walkers = cold_walk.map(|ns| self.overlap.walks(ns).into());
        let second_ns = reach.filter(|reach| reach.first_pages.is_some()).map(|reach| reach.second_ns);
        let median = |figure: &Option<Figure>| figure.map(|figure| figure.median);
        let of_reach = |figure: fn(&TlbReach) -> f64| ns(reach.as_ref().map(figure));
        let figures = [
            ("initiator", "initiator", Cell::Whole(self.initiator.0.into())),
            ("node", "node", Cell::Whole(self.node.0.into())),
            ("clock_mhz", "clock, MHz", self.clock_mhz.map_or(Cell::Absent, |mhz| Cell::Real(mhz, 0))),
            ("memory_ns", "memory, ns", ns(memory)),
            ("misses", "misses in flight", whole(misses)),
            ("random_ns", "per load, that many in flight, ns", Cell::Real(self.overlap.huge_ns, 1)),
            ("random_base_ns", "the same in 4 KiB pages, ns", Cell::Real(self.overlap.base_ns, 1)),
            ("reorder_buffer", "reorder buffer, instructions", whole(reorder)),
            ("store_queue", "store queue, stores", whole(store_queue)),
            ("page_ns", "page of lines in order, ns", Cell::Real(self.page_ns, 1)),
            ("next_page", "prefetcher follows to the next page", next_page),
            ("tlb_first_pages", "first TLB, pages", whole(reach.and_then(|reach| reach.first_pages))),
            ("tlb_second_ns", "second TLB, ns", ns(second_ns)),
            ("tlb_pages", "both TLBs, pages", whole(reach.map(|reach| reach.pages))),
            ("walk_ns", "page walk, table cached, ns", of_reach(|reach| reach.walk_ns)),
            ("cold_walk_ns", "page walk, table not cached, ns", ns(cold_walk)),
            ("walkers", "page walks in flight", whole(walkers)),
            ("nested_walks", "nested page tables", Cell::Flag(self.nested_walks, "yes".into())),
            ("fault_ns", "page fault, ns", ns(median(&self.fault))),
            ("huge_fault_ns", "page fault of 2 MiB, ns", ns(median(&self.huge_fault))),
        ];
        let mut table = Table::new("processor", &[]).with_keys(2).vertical();
        let mut row = Vec::new();
        for (key, title, cell) in figures {
            table.column(key, title);
            row.push(cell);
        }
        table.rows.push(row);
        table
    }
}

fn run_ahead_table(
    name: &'static str,
    what: (&'static str, &'static str),
    points: &[RunAheadPoint],
) -> Table {
    let columns = [what, ("ns", "per load, ns"), ("in_flight", "loads in flight")];
    let mut table = Table::new(name, &columns);
    let row = |point: &RunAheadPoint| {
        let RunAheadPoint { per_load, ns, in_flight } = *point;
        vec![Cell::Whole(per_load.into()), Cell::Real(ns, 1), Cell::Real(in_flight, 1)]
    };
    table.rows = points.iter().map(row).collect();
    table
}

fn ns(figure: Option<f64>) -> Cell {
    figure.map_or(Cell::Absent, |ns| Cell::Real(ns, 1))
}

#[cfg(test)]
mod tests {
    use memtide_linux::topology::MeasuredFile;

    use super::*;
    use crate::output::Document;

    /// A machine of 2 ns per load up to 32 KiB, 6 up to 1 MiB, then 100, and TLBs of 64 and 1536 pages.
    fn processor() -> Processor {
        let cache = |level, capacity_kib| Cache { level, capacity_kib, ways: 8, cpus: 1 };
        let at = |kib| {
            if kib <= 32 {
                2.0
            } else if kib <= 1024 {
                6.0
            } else {
                100.0
            }
        };
        let rung = |kib| Rung { kib, huge_ns: Some(at(kib)), base_ns: at(kib) + 50.0 };
        let adds = |pages| {
            if pages <= 64 {
                0.0
            } else if pages <= 1536 {
                2.0
            } else {
                12.0
            }
        };
        let point = |pages| TlbPoint { pages, base_ns: 4.0 + adds(pages), huge_ns: 4.0 };
        let ahead = |per_load, in_flight| RunAheadPoint { per_load, ns: 100.0 / in_flight, in_flight };
        let median = |median| Some(Figure { median, least: median, spread: 0.0 });
        Processor {
            initiator: NodeId(0),
            node: NodeId(0),
            clock_mhz: Some(3000.0),
            caches: vec![cache(1, 32), cache(2, 1024)],
            ladder: footprints_kib(64).into_iter().map(rung).collect(),
            tlb_points: page_counts().into_iter().map(point).collect(),
            overlap: Overlap { huge_ns: 10.0, base_ns: 25.0 },
            last_cache: Some(LastCache { kib: 1024, points: vec![(256, 1.0), (384, 2.0), (640, 9.0)] }),
            page_ns: 64.0 * 6.0 + 20.0,
            run_ahead: RunAhead {
                instructions: vec![ahead(21, 10.0), ahead(37, 6.5), ahead(53, 4.7)],
                stores: vec![ahead(5, 10.0), ahead(13, 4.5), ahead(17, 3.5)],
            },
            fault: median(700.0),
            huge_fault: median(90_000.0),
            nested_walks: true,
        }
    }

    #[test]
    fn printed_figures_are_read_back() {
        let mut document = Document { tables: processor().tables(), ..Document::default() };
        document.tables.push(Table::new("nodes", &[("initiator", "initiator")]));
        let text = document.json().to_string();
        let file = MeasuredFile::parse(text.as_bytes()).expect("what is printed");
        let found = file.figures().processor.expect("a processor");
        assert_eq!((found.clock_mhz, found.misses), (Some(3000.0), Some(10)));
        assert_eq!((found.reorder_buffer, found.store_queue), (Some(223), Some(52)));
        assert_eq!(found.next_page, Some(true));
        let caches: Vec<_> = found.caches.iter().map(|cache| (cache.kib, cache.ns)).collect();
        // A program has half of the second: 5.5 ns are in the middle between 1 and 10.
        assert_eq!(caches, [(Some(32), 2.0), (Some(512), 6.0)]);
        assert_eq!((found.fault_ns, found.huge_fault_ns), (Some(700.0), Some(90_000.0)));
        let tlb = found.tlb.expect("a TLB");
        assert_eq!((tlb.first_pages, tlb.second_ns, tlb.pages), (Some(64), 2.0, 1536));
        assert_eq!((tlb.walk_ns, tlb.cold_walk_ns, tlb.walkers), (12.0, Some(50.0), Some(2)));
        assert!(tlb.nested_walks);
    }
}
