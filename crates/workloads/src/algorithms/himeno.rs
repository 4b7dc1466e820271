//! The Himeno benchmark: a 19-point Jacobi solver of Poisson's equation in general coordinates.

use std::array::from_fn;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload, block};

/// Points of a vector register (AVX2).
const LANES: usize = 8;
/// Per eight points: 34 floating-point operations each, a dozen of them fused, and the loop's add, compare,
/// branch.
const POINT_INSTRUCTIONS: u64 = 25;
/// Per point without vector instructions: 34 floating-point operations, and the loop's add, compare, branch.
/// An in-order core with a latency of 4 cycles does not wait longer: the longest chain has 14 of them.
const SCALAR_INSTRUCTIONS: u64 = 37;
const OMEGA: f32 = 0.8;
/// Points per page.
const PAGE_POINTS: usize = 1024;
/// Lines of all threads that fill the caches before a sample: a line of k = 448 takes 29 KiB of all arrays in
/// a Jacobi step, 4 KiB when copied; the rest of 1 MiB is for planes that are used again.
const WARM_UP_LINES: [usize; 2] = [64, 320];

/// Fourteen arrays over a box; its outermost points are constant.
pub struct Himeno {
    threads: usize,
    iterations: usize,
    /// Points along i, j and k; along k 2 more than a multiple of 8, unless `scalar`.
    shape: [usize; 3],
    /// Whether code computes one point at a time.
    scalar: bool,
    /// Lines that each thread computes in an iteration, instead of all of its own.
    lines: Option<usize>,
    p: Array<f32>,
    a: [Array<f32>; 4],
    b: [Array<f32>; 3],
    c: [Array<f32>; 3],
    bnd: Array<f32>,
    wrk1: Array<f32>,
    wrk2: Array<f32>,
    gosa: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// The same by one thread, with a store recorded for each page alone.
    Touch,
    Jacobi(Part),
    Copy(Part),
}

/// Lines of an iteration.
#[derive(Clone, Copy)]
pub enum Part {
    /// All.
    Whole,
    /// This many consecutive ones of each thread's share, from its `first` on.
    Sample { first: usize, lines: usize, stage: Stage },
}

impl Algorithm for Himeno {
    const INFO: Info = Info {
        name: "himeno",
        summary: "Himeno: 19-point Jacobi iterations of Poisson's equation over fourteen arrays",
        stresses: "bandwidth of many streams at once, mostly reads",
        source: "R. Himeno, RIKEN; pms section 5.4",
        parameters: &[
            Parameter::integer("j", "points", "grid along j; 0: by the footprint, as k", [0, 0, 1 << 16]),
            Parameter::integer("k", "points", "grid along k, contiguous in memory", [0, 0, 1 << 16]),
            Parameter::word("code", "eight points at a time, or one", &["vector", "scalar"]),
            Parameter::integer(
                "lines",
                "",
                "lines along k that each thread computes in an iteration; 0: all",
                [0, 0, 1 << 30],
            ),
            params::footprint_mib(64),
            params::iterations(3),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, _seed: u64, space: &mut Space) -> Result<Himeno, WorkloadError> {
        let shape = shape(settings)?;
        let threads = settings.threads();
        let lines = Some(settings.size("lines")).filter(|lines| *lines > 0);
        let share = (shape[0] - 2) * (shape[1] - 2) / threads;
        if lines.is_some_and(|lines| lines + WARM_UP_LINES[1] > share) {
            return Err(settings.unfit(format!(
                "a thread has {share} lines, too few for 'lines' and {} that fill the caches: decrease lines \
                 or threads, or set lines=0",
                WARM_UP_LINES[1]
            )));
        }
        let mut array = |name: &str| space.array(name, shape.iter().product());
        Ok(Himeno {
            threads,
            iterations: settings.size("iterations"),
            shape,
            scalar: settings.word("code") == "scalar",
            lines,
            p: array("p")?,
            a: [array("a0")?, array("a1")?, array("a2")?, array("a3")?],
            b: [array("b0")?, array("b1")?, array("b2")?],
            c: [array("c0")?, array("c1")?, array("c2")?],
            bnd: array("bnd")?,
            wrk1: array("wrk1")?,
            wrk2: array("wrk2")?,
            gosa: Reduction::new("gosa", threads, space)?,
        })
    }
}

/// Points along i, j and k.
fn shape(settings: &Settings) -> Result<[usize; 3], WorkloadError> {
    let points = settings.footprint_bytes() / (14 * 4);
    let side = libm::cbrt(points as f64 / 2.0) as usize;
    let [j, k] = ["j", "k"].map(|name| settings.size(name));
    let shape = match (j, k) {
        (0, 0) => [side, side, (points / (side * side) - 2) / LANES * LANES + 2],
        (0, _) | (_, 0) => return Err(settings.unfit("j and k must be given together")),
        (j, k) => [points / (j * k), j, k],
    };
    if shape.iter().any(|points| *points < 3) {
        let [i, j, k] = shape;
        return Err(settings.unfit(format!("{i} x {j} x {k} points, at least 3 along each are needed")));
    }
    if settings.word("code") == "vector" && shape[2] % LANES != 2 {
        return Err(settings
            .unfit(format!("k {} must be 2 more than a multiple of {LANES}, or code=scalar", shape[2])));
    }
    Ok(shape)
}

impl Himeno {
    fn index(&self, i: usize, j: usize, k: usize) -> usize {
        (i * self.shape[1] + j) * self.shape[2] + k
    }

    /// The arrays, and Himeno's initial values (initmt) in a plane at this share of the grid.
    fn initial(&self, i: f32) -> [(&Array<f32>, f32); 14] {
        [
            (&self.p, i * i),
            (&self.a[0], 1.0),
            (&self.a[1], 1.0),
            (&self.a[2], 1.0),
            (&self.a[3], 1.0 / 6.0),
            (&self.b[0], 0.0),
            (&self.b[1], 0.0),
            (&self.b[2], 0.0),
            (&self.c[0], 1.0),
            (&self.c[1], 1.0),
            (&self.c[2], 1.0),
            (&self.bnd, 1.0),
            (&self.wrk1, 0.0),
            (&self.wrk2, i * i),
        ]
    }

    /// The share of the grid in front of a plane along j and k.
    fn depth(&self, plane: usize) -> f32 {
        plane as f32 / (self.shape[0] - 1) as f32
    }

    /// Initialises a page, array by array as the original; only its first store is recorded.
    fn touch<M: Memory>(&self, m: &mut M, item: usize) {
        let (len, plane) = (self.p.len(), self.shape[1] * self.shape[2]);
        let pages = len.div_ceil(PAGE_POINTS);
        let initial = |at: usize| self.initial(self.depth(at / plane))[item / pages];
        let mut first = item % pages * PAGE_POINTS;
        let end = len.min(first + PAGE_POINTS);
        let (array, value) = initial(first);
        m.work(10);
        m.store(array, first, value);
        while first < end {
            let until = end.min((first / plane + 1) * plane);
            let (array, value) = initial(first);
            if value != 0.0 {
                (first..until).for_each(|at| array.set(at, value));
            }
            first = until;
        }
    }

    /// Initialises a line along k of all arrays.
    fn init<M: Memory>(&self, m: &mut M, line: usize) {
        if self.scalar {
            return self.init_points(m, line);
        }
        for (array, value) in self.initial(self.depth(line / self.shape[1])) {
            let (first, end) = (line * self.shape[2], (line + 1) * self.shape[2] - 2);
            for at in (first..end).step_by(LANES) {
                m.work(3);
                m.store_lanes(array, at, [value; LANES]);
            }
            m.store_lanes(array, end, [value; 2]);
        }
    }

    fn init_points<M: Memory>(&self, m: &mut M, line: usize) {
        for (array, value) in self.initial(self.depth(line / self.shape[1])) {
            for at in line * self.shape[2]..(line + 1) * self.shape[2] {
                m.work(3);
                m.store(array, at, value);
            }
        }
    }

    /// A Jacobi step of points from `at` on: their new values, and the squares of the changes.
    #[inline(always)]
    fn points<M: Memory, const N: usize>(&self, m: &mut M, at: usize, instructions: u64) -> ([f32; N], f32) {
        let (di, dj) = (self.shape[1] * self.shape[2], self.shape[2]);
        let Himeno { p, a, b, c, .. } = self;
        let mut near = |up: usize, down: usize| -> [f32; N] { *m.load_lanes(p, at + up - down) };
        let centre = near(0, 0);
        let ahead = [near(di, 0), near(dj, 0), near(1, 0)];
        let behind = [near(0, di), near(0, dj), near(0, 1)];
        let cross = [(di, dj), (dj, 1), (di, 1)]
            .map(|(x, y)| [near(x + y, 0), near(y, x), near(x, y), near(0, x + y)]);
        let a: [[f32; N]; 4] = from_fn(|n| *m.load_lanes(&a[n], at));
        let b: [[f32; N]; 3] = from_fn(|n| *m.load_lanes(&b[n], at));
        let c: [[f32; N]; 3] = from_fn(|n| *m.load_lanes(&c[n], at));
        let work: [f32; N] = *m.load_lanes(&self.wrk1, at);
        let bound: [f32; N] = *m.load_lanes(&self.bnd, at);
        m.work(instructions);
        let mut gosa = 0.0;
        let next = from_fn(|l| {
            let mut s0 = work[l];
            for n in 0..3 {
                let [pp, mp, pm, mm] = cross[n].map(|v| v[l]);
                s0 += a[n][l] * ahead[n][l] + b[n][l] * (pp - mp - pm + mm) + c[n][l] * behind[n][l];
            }
            let change = (s0 * a[3][l] - centre[l]) * bound[l];
            gosa += change * change;
            centre[l] + OMEGA * change
        });
        (next, gosa)
    }
}

impl Himeno {
    /// The phases of an iteration of which each thread computes `lines`, at another place in each iteration.
    fn sample(&self, iteration: usize, lines: usize) -> [Phase<Step>; 4] {
        let share = (self.shape[0] - 2) * (self.shape[1] - 2) / self.threads;
        let parts = |number: usize| {
            let warm_up = WARM_UP_LINES[number].div_ceil(self.threads);
            let spare = share - warm_up - lines;
            let first = spare * (4 * iteration + 2 * number + 1) / (4 * self.iterations);
            let stage = if iteration + number == 0 { Stage::WarmUp } else { Stage::Outside };
            [(first, warm_up, stage), (first + warm_up, lines, Stage::Region)]
                .map(|(first, lines, stage)| Part::Sample { first, lines, stage })
        };
        let [warm_jacobi, jacobi] = parts(0).map(Step::Jacobi);
        let [warm_copy, copy] = parts(1).map(Step::Copy);
        [warm_jacobi, jacobi, warm_copy, copy].map(|step| {
            let (Step::Jacobi(Part::Sample { lines, .. }) | Step::Copy(Part::Sample { lines, .. })) = step
            else {
                unreachable!("all are samples")
            };
            Phase::new(step, self.threads * lines)
        })
    }

    /// The first inner point of an item's line.
    fn line(&self, part: Part, item: usize) -> usize {
        let (inner, all) = (self.shape[1] - 2, (self.shape[0] - 2) * (self.shape[1] - 2));
        let line = match part {
            Part::Whole => item,
            Part::Sample { first, lines, .. } => {
                block(all, item / lines, self.threads).start + first + item % lines
            }
        };
        self.index(1 + line / inner, 1 + line % inner, 1)
    }

    fn jacobi<M: Memory, const N: usize>(&self, m: &mut M, first: usize, instructions: u64) -> f64 {
        let mut gosa = 0.0;
        for at in (first..first + self.shape[2] - 2).step_by(N) {
            let (next, changes) = self.points::<M, N>(m, at, instructions);
            gosa += f64::from(changes);
            m.store_lanes(&self.wrk2, at, next);
        }
        gosa
    }

    fn copy<M: Memory, const N: usize>(&self, m: &mut M, first: usize) {
        for at in (first..first + self.shape[2] - 2).step_by(N) {
            let next: [f32; N] = *m.load_lanes(&self.wrk2, at);
            m.work(3);
            m.store_lanes(&self.p, at, next);
        }
    }
}

impl Workload for Himeno {
    type Step = Step;
    /// The thread's number, and the squares of its changes.
    type Local = (usize, f64);

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let [i, j, _] = self.shape;
        let Some(lines) = self.lines else {
            let inner = (i - 2) * (j - 2);
            let round = [Step::Jacobi, Step::Copy].map(|step| Phase::new(step(Part::Whole), inner));
            return std::iter::once(Phase::new(Step::Init, i * j))
                .chain(round.repeat(self.iterations))
                .collect();
        };
        let touch = Phase::grouped(Step::Touch, 1, 14 * self.p.len().div_ceil(PAGE_POINTS));
        std::iter::once(touch)
            .chain((0..self.iterations).flat_map(|iteration| self.sample(iteration, lines)))
            .collect()
    }

    /// Between two samples the region has ended.
    fn stage(&self, _: usize, step: Step) -> Stage {
        match step {
            Step::Init | Step::Touch => Stage::Initialisation,
            Step::Jacobi(Part::Sample { stage, .. }) | Step::Copy(Part::Sample { stage, .. }) => stage,
            Step::Jacobi(Part::Whole) | Step::Copy(Part::Whole) => Stage::Region,
        }
    }

    fn local(&self, thread: usize) -> (usize, f64) {
        (thread, 0.0)
    }

    fn begin<M: Memory>(&self, _m: &mut M, _step: Step, local: &mut (usize, f64)) {
        local.1 = 0.0;
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut (usize, f64)) {
        match (step, self.scalar) {
            (Step::Init, _) => self.init(m, item),
            (Step::Touch, _) => self.touch(m, item),
            (Step::Jacobi(part), false) => {
                local.1 += self.jacobi::<M, LANES>(m, self.line(part, item), POINT_INSTRUCTIONS);
            }
            (Step::Jacobi(part), true) => {
                local.1 += self.jacobi::<M, 1>(m, self.line(part, item), SCALAR_INSTRUCTIONS);
            }
            (Step::Copy(part), false) => self.copy::<M, LANES>(m, self.line(part, item)),
            (Step::Copy(part), true) => self.copy::<M, 1>(m, self.line(part, item)),
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut (usize, f64)) {
        if let Step::Jacobi(_) = step {
            self.gosa.put(m, local.0, local.1);
        }
    }

    /// Gosa: the sum of squares of the last iteration's changes.
    fn result(&self) -> f64 {
        self.gosa.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    /// The pressure after some iterations, by plain loops with Himeno's coefficients.
    fn reference(himeno: &Himeno) -> Vec<f32> {
        let [ni, nj, nk] = himeno.shape;
        let start = |at: usize| {
            ((at / (nj * nk)) as f32 / (ni - 1) as f32) * ((at / (nj * nk)) as f32 / (ni - 1) as f32)
        };
        let mut p: Vec<f32> = (0..ni * nj * nk).map(start).collect();
        for _ in 0..himeno.iterations {
            let old = p.clone();
            for i in 1..ni - 1 {
                for j in 1..nj - 1 {
                    for k in 1..nk - 1 {
                        let at = himeno.index(i, j, k);
                        let sum = old[at + nj * nk]
                            + old[at - nj * nk]
                            + old[at + nk]
                            + old[at - nk]
                            + old[at + 1]
                            + old[at - 1];
                        p[at] = old[at] + OMEGA * (sum / 6.0 - old[at]);
                    }
                }
            }
        }
        p
    }

    #[test]
    fn pressures_are_those_of_plain_loops_and_gosa_falls() {
        let mut last = f64::INFINITY;
        for iterations in [1, 3, 6] {
            let (program, _) = check::<Himeno>(&format!("footprint_mib=1,iterations={iterations},threads=3"));
            let himeno = program.workload();
            for (computed, expected) in himeno.p.values().zip(reference(himeno)) {
                assert!((computed - expected).abs() < 1e-5, "{computed} for {expected}");
            }
            assert!(himeno.result() < last && himeno.result() > 0.0);
            last = himeno.result();
        }
    }

    /// An array's accesses after initialisation.
    fn accesses(params: &str) -> (Vec<memtide_core::Access>, Himeno) {
        let (_, recorded) = check::<Himeno>(params);
        let himeno = crate::testing::native::<Himeno>(params);
        let of_init = match himeno.lines {
            Some(_) => 14 * himeno.p.len().div_ceil(PAGE_POINTS),
            None if himeno.scalar => 14 * himeno.p.len(),
            None => 14 * himeno.shape[0] * himeno.shape[1] * ((himeno.shape[2] - 2) / LANES + 1),
        };
        (recorded.streams[0][of_init..].to_vec(), himeno)
    }

    #[test]
    fn one_point_at_a_time_gives_the_same_pressures() {
        let params = "footprint_mib=1,iterations=2,threads=3";
        let (vector, _) = check::<Himeno>(params);
        let (scalar, recorded) = check::<Himeno>(&format!("{params},code=scalar"));
        assert!(vector.workload().p.values().eq(scalar.workload().p.values()));
        assert!(recorded.streams.iter().flatten().all(|access| access.size <= 8));
    }

    #[test]
    fn grid_has_the_given_sides() {
        let shape = |params: &str| crate::testing::native::<Himeno>(params).shape;
        assert_eq!(shape("footprint_mib=2,j=20,k=40,code=scalar,threads=1"), [46, 20, 40]);
        let refused = |params: &str| {
            let program = crate::program("himeno", &params.parse().expect("parameters"), 1);
            program.err().expect("it was made").to_string()
        };
        assert!(refused("footprint_mib=2,j=20,k=40").contains("code=scalar"));
        assert!(refused("k=40").contains("given together"));
        assert!(refused("footprint_mib=1,j=1000,k=1002").contains("at least 3"));
        assert!(refused("footprint_mib=1,lines=1000,threads=1").contains("lines=0"));
    }

    #[test]
    fn sample_computes_its_lines_of_each_iteration() {
        use memtide_core::Mark::{Begin, End, WarmUp};
        let params = "footprint_mib=8,j=40,k=42,threads=1,iterations=2,lines=50,code=scalar";
        let (_, recorded) = check::<Himeno>(params);
        assert_eq!(recorded.marks, [WarmUp, Begin, End, Begin, End, Begin, End, Begin]);
        let (accesses, himeno) = accesses(params);
        let written = |array: &Array<f32>| {
            let range = array.address(0)..array.address(array.len() - 1);
            accesses.iter().filter(|access| access.write && range.contains(&access.address)).count()
        };
        let lines = [64, 320].map(|warm_up| 2 * (warm_up + 50) * 40);
        assert_eq!([written(&himeno.wrk2), written(&himeno.p)], lines);
    }

    #[test]
    fn point_makes_32_accesses() {
        let (accesses, himeno) = accesses("footprint_mib=1,iterations=1,threads=1,code=scalar");
        let inner: usize = himeno.shape.iter().map(|points| points - 2).product();
        // The last is the thread's sum of squares.
        assert_eq!(accesses.len(), inner * (32 + 2) + 1);
    }
}
