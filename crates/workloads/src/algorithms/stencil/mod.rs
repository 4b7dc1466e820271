//! A three-dimensional seven-point stencil in four orders of computation.

mod orders;
mod tile;

use std::ops::Range;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use self::tile::{Order, Shape, Tile, TooMany, Window};
use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{hash, unit};
use crate::workload::{Algorithm, Phase, Workload};

/// Accesses of a point.
const POINT_ACCESSES: u64 = 8;
/// Of a point. Scalar code takes 61 cycles of a Cortex-A53, whose instructions are one cycle each in the
/// model: a chain of five additions, a multiplication and a subtraction of 4 cycles and a division of 29, in
/// the order of the source; then store, index, compare, branch. Loads are issued while additions wait.
const POINT_INSTRUCTIONS: u64 = 61;
/// Of a row: the addresses of its neighbours.
const ROW_INSTRUCTIONS: u64 = 12;
/// The stencil's denominator.
const FACTOR: f64 = 2.0;
/// Planes of each buffer of the circular queue.
const QUEUE_PLANES: usize = 3;
/// Doubles per page.
const PAGE_DOUBLES: usize = 512;
/// Points before each window that fill the caches: their two arrays take 2 MiB if each is new.
const WARM_UP_POINTS: usize = 1 << 17;

/// Two arrays over a box, and the order in which points of all steps are computed.
pub struct Stencil {
    seed: u64,
    shape: Shape,
    steps: usize,
    /// Instructions of a point beside its accesses.
    work: u64,
    order: Order,
    windows: Vec<Window>,
    a0: Array<f64>,
    anext: Array<f64>,
    queue: Option<Queue>,
}

/// Buffers of intermediate steps.
struct Queue {
    planes: Array<f64>,
    rows: usize,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Items from `first` on, of a window's warm-up.
    WarmUp {
        first: usize,
        is_first: bool,
    },
    /// Items from `first` on.
    Compute {
        first: usize,
    },
}

impl Algorithm for Stencil {
    const INFO: Info = Info {
        name: "stencil",
        summary: "seven-point stencil over two 3D arrays, in four cache-blocking orders",
        stresses: "reuse in the caches: each order reads and writes memory differently often",
        source: "after StencilProbe's algorithms; pms section 5.5",
        parameters: &[
            Parameter::word(
                "algorithm",
                "order of computation",
                &["blocked", "time-skewed", "circular-queue", "cache-oblivious"],
            ),
            Parameter::integer("x", "points", "grid along x, contiguous in memory", [3, 256, 1 << 20]),
            Parameter::integer("y", "points", "grid along y; along z as many as fit", [3, 128, 1 << 20]),
            Parameter::integer("block_x", "points", "block of blocked, time-skewed", [1, 64, 1 << 20]),
            Parameter::integer("block_y", "points", "block of all but cache-oblivious", [1, 16, 1 << 20]),
            Parameter::integer("block_z", "points", "block of time-skewed", [1, 16, 1 << 20]),
            Parameter::integer("steps", "", "time steps", [1, 6, 1000]),
            Parameter::integer(
                "windows",
                "",
                "parts of the computation to run; 0: all of it",
                [0, 0, 10_000],
            ),
            Parameter::integer("window_points", "", "points of each, after a warm-up", [1, 1 << 16, 1 << 30]),
            Parameter::integer(
                "instructions",
                "",
                "of a point, its 8 accesses included; default: cycles of a Cortex-A53",
                [POINT_ACCESSES, POINT_INSTRUCTIONS, 10_000],
            ),
            params::footprint_mib(8),
            params::threads(1),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Stencil, WorkloadError> {
        if settings.threads() != 1 {
            return Err(settings.unfit("its algorithms are serial: threads must be 1"));
        }
        let [x, y, steps] = ["x", "y", "steps"].map(|name| settings.size(name));
        let shape = [x, y, settings.footprint_bytes() / (2 * 8) / (x * y)];
        if shape[2] < 3 {
            return Err(settings.unfit(format!(
                "{} MiB hold {} planes of {x} x {y} points in each of two arrays; at least 3 are needed: \
                 increase footprint_mib",
                settings.size("footprint_mib"),
                shape[2]
            )));
        }
        let order = order(settings, shape, steps).map_err(|TooMany| {
            settings.unfit("more than 16777216 blocks: increase block_x, block_y or block_z")
        })?;
        let points = shape.iter().product();
        let queue = match settings.word("algorithm") {
            "circular-queue" if steps > 1 => {
                let rows = orders::queue_rows(shape, steps, settings.size("block_y"));
                let planes = space.array("queue", (steps - 1) * QUEUE_PLANES * rows * x)?;
                Some(Queue { planes, rows })
            }
            _ => None,
        };
        Ok(Stencil {
            seed,
            shape,
            steps,
            work: settings.integer("instructions") - POINT_ACCESSES,
            windows: windows(settings, &order)?,
            order,
            a0: space.array("a0", points)?,
            anext: space.array("anext", points)?,
            queue,
        })
    }
}

/// The tiles of the algorithm that the settings name.
fn order(settings: &Settings, shape: Shape, steps: usize) -> Result<Order, TooMany> {
    let [x, y, z] = ["block_x", "block_y", "block_z"].map(|name| settings.size(name));
    match settings.word("algorithm") {
        "time-skewed" => orders::time_skewed(shape, steps, [x, y, z]),
        "circular-queue" => orders::circular_queue(shape, steps, y),
        "cache-oblivious" => orders::cache_oblivious(shape, steps),
        _ => orders::blocked(shape, steps, [x, y]),
    }
}

/// What is computed.
fn windows(settings: &Settings, order: &Order) -> Result<Vec<Window>, WorkloadError> {
    let (count, points) = (settings.size("windows"), settings.size("window_points"));
    if count == 0 {
        return Ok(vec![Window { warm_up: 0..0, counted: 0..order.items() }]);
    }
    order.windows(count, WARM_UP_POINTS, points).map_err(|part| {
        settings.unfit(format!(
            "{count} windows of {WARM_UP_POINTS} points of warm-up and {points} that count overlap: a part \
             of the computation has {part}; decrease windows or window_points, or set windows=0"
        ))
    })
}

/// A row along x: its array, and the index of the point at x = 0.
#[derive(Clone, Copy)]
struct Row<'a> {
    array: &'a Array<f64>,
    start: usize,
}

impl Stencil {
    /// The array that a step reads, and the one that it writes, unless there is a queue.
    fn arrays(&self, step: usize) -> [&Array<f64>; 2] {
        if step.is_multiple_of(2) { [&self.a0, &self.anext] } else { [&self.anext, &self.a0] }
    }

    /// A row of the grid in an array of its size.
    fn row<'a>(&self, array: &'a Array<f64>, y: usize, z: usize) -> Row<'a> {
        Row { array, start: (z * self.shape[1] + y) * self.shape[0] }
    }

    /// Where a tile's step finds a row of its input.
    fn input(&self, tile: &Tile, y: usize, z: usize) -> Row<'_> {
        let step = tile.step as usize;
        let Some(queue) = &self.queue else { return self.row(self.arrays(step)[0], y, z) };
        let is_constant =
            [(y, self.shape[1]), (z, self.shape[2])].iter().any(|(at, n)| *at == 0 || at + 1 == *n);
        match step.checked_sub(1) {
            Some(level) if !is_constant => queue.row(self.shape[0], level, tile.base as usize, y, z),
            _ => self.row(&self.a0, y, z),
        }
    }

    /// Where a tile's step puts a row, and whether that is a buffer.
    fn output(&self, tile: &Tile, y: usize, z: usize) -> (Row<'_>, bool) {
        let step = tile.step as usize;
        match &self.queue {
            None => (self.row(self.arrays(step)[1], y, z), false),
            Some(_) if step + 1 == self.steps => (self.row(&self.anext, y, z), false),
            Some(queue) => (queue.row(self.shape[0], step, tile.base as usize, y, z), true),
        }
    }

    /// Computes a tile's row.
    fn compute<M: Memory>(&self, m: &mut M, tile: &Tile, y: usize, z: usize) {
        let near =
            [(y, z), (y - 1, z), (y + 1, z), (y, z - 1), (y, z + 1)].map(|(y, z)| self.input(tile, y, z));
        let (to, is_buffer) = self.output(tile, y, z);
        m.work(ROW_INSTRUCTIONS);
        points(m, near, to, tile.range(0), self.work);
        if is_buffer {
            for x in [0, self.shape[0] - 1] {
                let constant = *m.load(&self.a0, self.row(&self.a0, y, z).start + x);
                m.store(to.array, to.start + x, constant);
            }
        }
    }

    /// All arrays. Each is initialised before the next one, as in the original: neighbouring rows are then in
    /// frames of different cache sets.
    fn all(&self) -> impl Iterator<Item = &Array<f64>> {
        [&self.a0, &self.anext].into_iter().chain(self.queue.iter().map(|queue| &queue.planes))
    }

    /// Initialises a page; only its first store is recorded.
    fn init<M: Memory>(&self, m: &mut M, page: usize) {
        let mut page = page;
        for array in self.all() {
            let pages = array.len().div_ceil(PAGE_DOUBLES);
            if page < pages {
                let is_buffer = self.queue.as_ref().is_some_and(|queue| std::ptr::eq(&queue.planes, array));
                let value = |at: usize| if is_buffer { 0.0 } else { unit(hash(self.seed ^ hash(at as u64))) };
                let first = page * PAGE_DOUBLES;
                m.work(10);
                m.store(array, first, value(first));
                (first + 1..array.len().min(first + PAGE_DOUBLES)).for_each(|at| array.set(at, value(at)));
                return;
            }
            page -= pages;
        }
    }
}

impl Queue {
    /// A row of the buffer behind step `level`.
    fn row(&self, row_points: usize, level: usize, base: usize, y: usize, z: usize) -> Row<'_> {
        let plane = level * QUEUE_PLANES + z % QUEUE_PLANES;
        Row { array: &self.planes, start: (plane * self.rows + y - base) * row_points }
    }
}

/// Computes points of a row from the row itself and its four neighbours.
#[inline(always)]
fn points<M: Memory>(m: &mut M, near: [Row<'_>; 5], to: Row<'_>, x: Range<usize>, work: u64) {
    let [row, others @ ..] = near;
    for x in x {
        let mut load = |row: Row<'_>, x: usize| *m.load(row.array, row.start + x);
        let mut sum = load(row, x + 1) + load(row, x - 1);
        for other in others {
            sum += load(other, x);
        }
        let centre = load(row, x);
        m.work(work);
        m.store(to.array, to.start + x, sum - 6.0 * centre / (FACTOR * FACTOR));
    }
}

impl Workload for Stencil {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        1
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let init = Phase::new(Step::Init, self.all().map(|array| array.len().div_ceil(PAGE_DOUBLES)).sum());
        let windows = self.windows.iter().enumerate().flat_map(|(number, Window { warm_up, counted })| {
            let warm = Step::WarmUp { first: warm_up.start, is_first: number == 0 };
            let compute = Step::Compute { first: counted.start };
            [Phase::new(warm, warm_up.len()), Phase::new(compute, counted.len())]
        });
        std::iter::once(init).chain(windows.filter(|phase| phase.items > 0)).collect()
    }

    /// Between two windows the region has ended.
    fn stage(&self, _phase: usize, step: Step) -> Stage {
        match step {
            Step::Init => Stage::Initialisation,
            Step::WarmUp { is_first: true, .. } => Stage::WarmUp,
            Step::WarmUp { .. } => Stage::Outside,
            Step::Compute { .. } => Stage::Region,
        }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        match step {
            Step::Init => self.init(m, item),
            Step::WarmUp { first, .. } | Step::Compute { first } => {
                let (tile, part) = self.order.find(first + item);
                tile.rows_of(part).for_each(|(y, z)| self.compute(m, &tile, y, z));
            }
        }
    }

    /// The sum over the last step's array.
    fn result(&self) -> f64 {
        let last = if self.queue.is_some() { &self.anext } else { self.arrays(self.steps)[0] };
        last.values().sum()
    }
}

#[cfg(test)]
mod tests;
