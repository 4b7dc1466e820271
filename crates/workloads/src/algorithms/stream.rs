//! STREAM's four kernels.

use std::array::from_fn;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::workload::{Algorithm, Phase, Workload};

/// Elements of a vector register (AVX2).
const LANES: usize = 4;
type Vector = [f64; LANES];
/// Elements per item.
const BLOCK: usize = 1024;
/// Loop overhead per vector: add, compare, branch. gcc -O3 -mavx2 -mfma compiles every kernel to its accesses
/// and these, with the arithmetic folded into a load (triad, add), except for scale.
const LOOP_INSTRUCTIONS: u64 = 3;
const SCALAR: f64 = 3.0;

/// Three arrays and the kernel.
pub struct Stream {
    threads: usize,
    iterations: usize,
    kernels: Vec<Step>,
    /// Whether the kernels' stores, but not those of initialisation, go past the caches.
    past: bool,
    a: Array<f64>,
    b: Array<f64>,
    c: Array<f64>,
    /// The halves of the arrays on which no kernel computes.
    rest: Vec<Array<f64>>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Step {
    Init,
    Copy,
    Scale,
    Add,
    Triad,
}

impl Algorithm for Stream {
    const INFO: Info = Info {
        name: "stream",
        summary: "STREAM: copy c=a, scale b=s*c, add c=a+b, triad a=b+s*c over three arrays",
        stresses: "bandwidth of sequential reads and writes",
        source: "J. McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers",
        parameters: &[
            Parameter::word(
                "kernel",
                "kernel to run, or all four in turn",
                &["all", "copy", "scale", "add", "triad"],
            ),
            Parameter::word(
                "stores",
                "non-temporal: past the caches, without a read",
                &["ordinary", "non-temporal"],
            ),
            Parameter::word(
                "columns",
                "columns of the arrays to compute on; arrays a_rest, b_rest and c_rest are the others",
                &["all", "half"],
            ),
            params::footprint_mib(64),
            params::iterations(2),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, _seed: u64, space: &mut Space) -> Result<Stream, WorkloadError> {
        let rest: &[&str] =
            if settings.word("columns") == "half" { &["a_rest", "b_rest", "c_rest"] } else { &[] };
        let len = settings.footprint_bytes() / ((3 + rest.len()) * 8) / BLOCK * BLOCK;
        Ok(Stream {
            threads: settings.threads(),
            iterations: settings.size("iterations"),
            kernels: match settings.word("kernel") {
                "copy" => vec![Step::Copy],
                "scale" => vec![Step::Scale],
                "add" => vec![Step::Add],
                "triad" => vec![Step::Triad],
                _ => vec![Step::Copy, Step::Scale, Step::Add, Step::Triad],
            },
            past: settings.word("stores") == "non-temporal",
            a: space.array("a", len)?,
            b: space.array("b", len)?,
            c: space.array("c", len)?,
            rest: rest.iter().map(|name| space.array(name, len)).collect::<Result<_, _>>()?,
        })
    }
}

impl Workload for Stream {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let rounds = std::iter::repeat_n(&self.kernels, self.iterations).flatten().copied();
        std::iter::once(Step::Init).chain(rounds).map(|step| Phase::new(step, self.a.len() / BLOCK)).collect()
    }

    /// As in the original, the first iteration does not count, if there are more.
    fn stage(&self, phase: usize, step: Step) -> Stage {
        match step {
            Step::Init => Stage::Initialisation,
            _ if phase <= self.kernels.len() && self.iterations > 1 => Stage::WarmUp,
            _ => Stage::Region,
        }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        match self.past && step != Step::Init {
            true => self.kernel(m, step, item, M::store_lanes_past::<LANES>),
            false => self.kernel(m, step, item, M::store_lanes::<f64, LANES>),
        }
    }

    /// Non-temporal stores are visible to other threads from the phase's end on.
    fn finish<M: Memory>(&self, m: &mut M, _step: Step, _local: &mut ()) {
        if self.past {
            m.fence();
        }
    }

    fn result(&self) -> f64 {
        [&self.a, &self.b, &self.c].iter().flat_map(|array| array.values()).sum()
    }
}

impl Stream {
    /// Runs an item, with one of the two kinds of stores.
    #[inline(always)]
    fn kernel<M: Memory>(
        &self,
        m: &mut M,
        step: Step,
        item: usize,
        store: impl Fn(&mut M, &Array<f64>, usize, Vector),
    ) {
        let Stream { a, b, c, .. } = self;
        for i in (item * BLOCK..(item + 1) * BLOCK).step_by(LANES) {
            match step {
                Step::Init => {
                    store(m, a, i, [1.0; LANES]);
                    store(m, b, i, [2.0; LANES]);
                    store(m, c, i, [0.0; LANES]);
                    self.rest.iter().for_each(|array| store(m, array, i, [0.0; LANES]));
                }
                Step::Copy => {
                    let x: Vector = *m.load_lanes(a, i);
                    store(m, c, i, x);
                }
                Step::Scale => {
                    let x: Vector = *m.load_lanes(c, i);
                    m.work(1);
                    store(m, b, i, x.map(|x| SCALAR * x));
                }
                Step::Add => {
                    let x: Vector = *m.load_lanes(a, i);
                    let y: Vector = *m.load_lanes(b, i);
                    store(m, c, i, from_fn(|lane| x[lane] + y[lane]));
                }
                Step::Triad => {
                    let y: Vector = *m.load_lanes(c, i);
                    let x: Vector = *m.load_lanes(b, i);
                    store(m, a, i, from_fn(|lane| x[lane] + SCALAR * y[lane]));
                }
            }
            m.work(LOOP_INSTRUCTIONS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn arrays_match_stream_after_each_run() {
        let (program, _) = check::<Stream>("footprint_mib=1,iterations=3,threads=3");
        let (mut a, mut b, mut c) = (1.0, 2.0, 0.0);
        for _ in 0..3 {
            c = a;
            b = SCALAR * c;
            c = a + b;
            a = b + SCALAR * c;
        }
        let stream = program.workload();
        for (array, value) in [(&stream.a, a), (&stream.b, b), (&stream.c, c)] {
            assert!(array.values().all(|element| element == value));
        }
    }

    #[test]
    fn other_columns_are_written_at_first_alone() {
        let (program, recorded) =
            check::<Stream>("footprint_mib=1,iterations=2,threads=1,kernel=copy,columns=half");
        let Stream { a, rest, .. } = program.workload();
        assert_eq!((rest.len(), rest[0].len()), (3, a.len()));
        assert!(6 * a.len() * 8 <= 1 << 20);
        let [of_rest, later] = [0, 6 * a.len() / LANES].map(|from| {
            let rest = |address| rest.iter().any(|array| (0..a.len()).any(|i| array.address(i) == address));
            recorded.streams[0][from..].iter().filter(|access| rest(access.address)).count()
        });
        assert_eq!((of_rest, later), (3 * a.len() / LANES, 0));
    }

    #[test]
    fn triad_reads_two_arrays_and_writes_one() {
        let (program, recorded) = check::<Stream>("footprint_mib=1,iterations=1,threads=1,kernel=triad");
        let vectors = program.workload().a.len() / LANES;
        let triad = &recorded.streams[0][3 * vectors..];
        assert_eq!(triad.len(), 3 * vectors);
        assert_eq!(triad.iter().filter(|access| access.write).count(), vectors);
        assert_eq!(recorded.instructions(), (6 + 6) * vectors as u64);
        assert!(triad.iter().all(|access| access.producer == 0 && access.size == 32));
    }

    #[test]
    fn non_temporal_stores_differ_from_ordinary_ones_in_nothing_else() {
        let params = "footprint_mib=1,iterations=1,threads=2";
        let (_, mut ordinary) = check::<Stream>(params);
        let (program, recorded) = check::<Stream>(&format!("{params},stores=non-temporal"));
        let initial = 3 * program.workload().a.len() / LANES / 2;
        for (ordinary, recorded) in ordinary.streams.iter_mut().zip(&recorded.streams) {
            for (at, access) in ordinary.iter_mut().enumerate() {
                access.non_temporal = access.write && at >= initial;
            }
            assert_eq!(ordinary, recorded);
        }
    }
}
