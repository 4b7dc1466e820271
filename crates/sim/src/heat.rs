//! A heat map of each program: its misses of the private caches by address and time, and pages moved.
//!
//! Memory is bounded: a map has at most [`ROWS`] rows and [`COLUMNS`] columns. A row is an aligned block of
//! pages that were accessed; what was never accessed has none. Once there are more rows, each takes twice as
//! many pages and neighbours merge; once time is over, each column takes twice as long.
//!
//! ```text
//! blocks of 2^k pages   0x40 | . . # # .        0x40 | . # .
//!                       0x41 | # # . . .   ->        |
//!                       0x80 | . . . # #        0x80 | . # #
//! ```

use memtide_core::{NodeId, PAGE_BYTES, Time, Vpn};

use crate::report::{HeatMapReport, HeatRow};

/// Maximum number of rows of a map.
const ROWS: usize = 128;

/// Number of columns of a map.
const COLUMNS: usize = 128;

/// Initial time of a column.
const FIRST_STEP: Time = Time::from_us(10);

/// Programs that have a map: the first ones.
const PROGRAMS: usize = 8;

/// The maps of a run's first programs.
pub(crate) struct Heat {
    nodes: usize,
    /// Time of a column.
    step: Time,
    maps: Vec<Map>,
}

#[derive(Default)]
struct Map {
    /// Pages of a row, as a power of two.
    shift: u32,
    /// By address.
    rows: Vec<Row>,
    /// The row used last.
    last: usize,
}

struct Row {
    block: u64,
    /// By column, then by node.
    accesses: Vec<u32>,
    /// Base pages moved, by column, then by destination; empty without moves.
    moved: Vec<u32>,
}

impl Heat {
    pub fn new(nodes: usize, programs: usize) -> Heat {
        let maps = (0..programs.min(PROGRAMS)).map(|_| Map::default()).collect();
        Heat { nodes, step: FIRST_STEP, maps }
    }

    /// Counts an access of a program to a page on a node, at a time of the region of interest.
    #[inline]
    pub fn access(&mut self, program: usize, page: Vpn, node: NodeId, at: Time) {
        if program < self.maps.len() {
            let cell = self.cell(node, at);
            let nodes = self.nodes;
            let count = &mut self.maps[program].row(page, nodes).accesses[cell];
            *count = count.saturating_add(1);
        }
    }

    /// Counts base pages of a program that were moved to a node.
    pub fn moved(&mut self, program: usize, page: Vpn, pages: u64, to: NodeId, at: Time) {
        if program < self.maps.len() {
            let cell = self.cell(to, at);
            let nodes = self.nodes;
            let moved = &mut self.maps[program].row(page, nodes).moved;
            moved.resize(COLUMNS * nodes, 0);
            moved[cell] = moved[cell].saturating_add(pages as u32);
        }
    }

    /// Index of a node's cell at a time, for which there is a column afterwards.
    fn cell(&mut self, node: NodeId, at: Time) -> usize {
        while at.0 / self.step.0 >= COLUMNS as u64 {
            self.step = self.step * 2;
            let nodes = self.nodes;
            let rows = self.maps.iter_mut().flat_map(|map| &mut map.rows);
            rows.for_each(|row| row.halve(nodes));
        }
        (at.0 / self.step.0) as usize * self.nodes + node.index()
    }

    /// The maps of a region of interest of this length.
    pub fn reports(&self, length: Time) -> Vec<HeatMapReport> {
        let columns = (length.0.div_ceil(self.step.0) as usize).clamp(1, COLUMNS);
        let of = |cells: &[u32], node: usize| -> Vec<u32> {
            cells.iter().skip(node).step_by(self.nodes).take(columns).copied().collect()
        };
        let by_node = |cells: &[u32]| (0..self.nodes).map(|node| of(cells, node)).collect();
        let report = |map: &Map| HeatMapReport {
            column_ms: self.step.as_ns() / 1e6,
            columns,
            pages_per_row: 1 << map.shift,
            rows: map
                .rows
                .iter()
                .map(|row| HeatRow {
                    address: (row.block << map.shift) * PAGE_BYTES,
                    accesses: by_node(&row.accesses),
                    moved_pages: if row.moved.is_empty() { Vec::new() } else { by_node(&row.moved) },
                })
                .collect(),
        };
        self.maps.iter().map(report).collect()
    }
}

impl Map {
    /// The row of a page.
    fn row(&mut self, page: Vpn, nodes: usize) -> &mut Row {
        let block = page.0 >> self.shift;
        if self.rows.get(self.last).is_none_or(|row| row.block != block) {
            self.last = self.find(page, nodes);
        }
        &mut self.rows[self.last]
    }

    /// Index of a page's row, which it gets if it has none; rows merge if there are too many.
    fn find(&mut self, page: Vpn, nodes: usize) -> usize {
        loop {
            let block = page.0 >> self.shift;
            match self.rows.binary_search_by_key(&block, |row| row.block) {
                Ok(at) => return at,
                Err(at) if self.rows.len() < ROWS => {
                    let row = Row { block, accesses: vec![0; COLUMNS * nodes], moved: Vec::new() };
                    self.rows.insert(at, row);
                    return at;
                }
                Err(_) => self.merge(),
            }
        }
    }

    /// Doubles the pages of a row.
    fn merge(&mut self) {
        self.shift += 1;
        for mut row in std::mem::take(&mut self.rows) {
            row.block >>= 1;
            match self.rows.last_mut() {
                Some(before) if before.block == row.block => before.add(&row),
                _ => self.rows.push(row),
            }
        }
    }
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.moved.resize(self.moved.len().max(other.moved.len()), 0);
        let counts = self.accesses.iter_mut().zip(&other.accesses);
        let counts = counts.chain(self.moved.iter_mut().zip(&other.moved));
        counts.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }

    /// Doubles the time of a column.
    fn halve(&mut self, nodes: usize) {
        for cells in [&mut self.accesses, &mut self.moved] {
            let columns = cells.len() / nodes;
            for cell in 0..columns / 2 * nodes {
                let first = cell / nodes * 2 * nodes + cell % nodes;
                cells[cell] = cells[first].saturating_add(cells[first + nodes]);
            }
            let kept = columns / 2 * nodes;
            cells[kept..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: [NodeId; 2] = [NodeId(0), NodeId(1)];

    fn sum(report: &HeatMapReport, node: usize) -> u32 {
        report.rows.iter().flat_map(|row| &row.accesses[node]).sum()
    }

    #[test]
    fn access_is_in_the_cell_of_its_page_and_time() {
        let mut heat = Heat::new(2, 1);
        heat.access(0, Vpn(5), NODE[1], Time::from_us(25));
        heat.access(0, Vpn(900), NODE[0], Time::from_us(5));
        heat.moved(0, Vpn(5), 1, NODE[0], Time::from_us(31));
        // A program without a map.
        heat.access(1, Vpn(5), NODE[1], Time::ZERO);
        let [report] = &heat.reports(Time::from_us(40))[..] else { panic!("one map") };
        assert_eq!((report.columns, report.pages_per_row, report.column_ms), (4, 1, 0.01));
        let addresses: Vec<u64> = report.rows.iter().map(|row| row.address).collect();
        assert_eq!(addresses, [5 * 4096, 900 * 4096]);
        assert_eq!(report.rows[0].accesses, [vec![0; 4], vec![0, 0, 1, 0]]);
        assert_eq!(report.rows[0].moved_pages, [vec![0, 0, 0, 1], vec![0; 4]]);
        assert_eq!(report.rows[1].accesses, [vec![1, 0, 0, 0], vec![0; 4]]);
        assert!(report.rows[1].moved_pages.is_empty());
    }

    #[test]
    fn counts_survive_merged_rows_and_columns_in_bounded_memory() {
        let mut heat = Heat::new(2, 1);
        let count = 100_000;
        for number in 0..count {
            let page = Vpn(number * 7919 % 40_000 + if number % 2 == 0 { 0 } else { 1 << 30 });
            heat.access(0, page, NODE[(number % 2) as usize], Time::from_us(number));
        }
        let [report] = &heat.reports(Time::from_us(count))[..] else { panic!("one map") };
        assert_eq!([sum(report, 0), sum(report, 1)], [50_000; 2]);
        assert!(report.rows.len() <= ROWS && report.rows.len() > ROWS / 4, "{} rows", report.rows.len());
        assert!(report.columns <= COLUMNS && report.columns > COLUMNS / 2, "{} columns", report.columns);
        assert!(report.rows.is_sorted_by_key(|row| row.address));
        let rows = &report.rows;
        assert!(rows.iter().all(|row| (row.address >= 1 << 42) == (row.accesses[1].iter().sum::<u32>() > 0)));
        // Each column but the last has as many accesses as microseconds.
        let column = |at: usize| rows.iter().flat_map(|row| row.accesses.iter().map(move |of| of[at])).sum();
        let columns: Vec<u32> = (0..report.columns - 1).map(column).collect();
        assert!(columns.iter().all(|&sum| f64::from(sum) == report.column_ms * 1e3), "{columns:?}");
    }
}
