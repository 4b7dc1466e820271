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
/// Elements per item.
const BLOCK: usize = 1024;
/// Loop overhead: add, compare, branch.
const LOOP_INSTRUCTIONS: u64 = 3;
const SCALAR: f64 = 3.0;

/// How the kernels are compiled.
#[derive(Clone, Copy, PartialEq)]
enum Code {
    /// gcc -O3 -mavx2 -mfma: a vector's accesses and the loop's instructions, with the arithmetic folded into
    /// a load (triad, add), except for scale.
    Vector,
    /// gcc -O2: an element's accesses, its arithmetic (triad's is fused) and the loop's instructions.
    Scalar,
    /// The same in the cycles of a Cortex-A53, which issues two instructions a cycle, in order, and waits for
    /// the results of each:
    ///
    /// ```text
    /// cycle    0    1    2    3    4    5 ..  9    10   11  ..  14   15
    /// copy     ldr            str  next
    /// scale    ldr            fmul            str  next
    /// add      ldr  ldr            fadd            str  next
    /// triad    ldr  ldr            fmadd                        str  next
    /// ```
    ///
    /// The loop's instructions are issued beside these. A cycle is an instruction here. A load that misses
    /// waits for its line and then for the latency of a hit, too.
    CortexA53,
}

/// Latencies of a Cortex-A53 in cycles, from LLVM's AArch64SchedA53.td: a load whose result is forwarded; add
/// or multiply; fused multiply-add.
const A53_LOAD: u64 = 3;
const A53_ARITHMETIC: u64 = 6;
const A53_FUSED: u64 = 10;

impl Code {
    /// Instructions between an element's loads and its store, and after it.
    #[inline(always)]
    fn instructions(self, step: Step) -> [u64; 2] {
        let wait = match step {
            Step::Init => return [0, LOOP_INSTRUCTIONS],
            Step::Copy => 0,
            Step::Scale | Step::Add => A53_ARITHMETIC,
            Step::Triad => A53_FUSED,
        };
        match self {
            Code::Vector => [u64::from(step == Step::Scale), LOOP_INSTRUCTIONS],
            Code::Scalar => [u64::from(step != Step::Copy), LOOP_INSTRUCTIONS],
            Code::CortexA53 => [A53_LOAD - 1 + wait, 0],
        }
    }
}

/// Three arrays and the kernel.
pub struct Stream {
    threads: usize,
    iterations: usize,
    kernels: Vec<Step>,
    code: Code,
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
                "code",
                "four elements at a time; one; one in a Cortex-A53's cycles, an instruction each",
                &["vector", "scalar", "cortex-a53"],
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
        let code = match settings.word("code") {
            "scalar" => Code::Scalar,
            "cortex-a53" => Code::CortexA53,
            _ => Code::Vector,
        };
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
            code,
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
        match (self.code == Code::Vector, self.past && step != Step::Init) {
            (true, true) => self.kernel(m, step, item, M::store_lanes_past::<LANES>),
            (true, false) => self.kernel(m, step, item, M::store_lanes::<f64, LANES>),
            (false, true) => self.kernel(m, step, item, M::store_lanes_past::<1>),
            (false, false) => self.kernel(m, step, item, M::store_lanes::<f64, 1>),
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
    /// Runs an item in steps of `N` elements, with one of the two kinds of stores.
    #[inline(always)]
    fn kernel<M: Memory, const N: usize>(
        &self,
        m: &mut M,
        step: Step,
        item: usize,
        store: impl Fn(&mut M, &Array<f64>, usize, [f64; N]),
    ) {
        let Stream { a, b, c, .. } = self;
        let [before, after] = self.code.instructions(step);
        for i in (item * BLOCK..(item + 1) * BLOCK).step_by(N) {
            match step {
                Step::Init => {
                    store(m, a, i, [1.0; N]);
                    store(m, b, i, [2.0; N]);
                    store(m, c, i, [0.0; N]);
                    self.rest.iter().for_each(|array| store(m, array, i, [0.0; N]));
                }
                Step::Copy => {
                    let x: [f64; N] = *m.load_lanes(a, i);
                    m.work(before);
                    store(m, c, i, x);
                }
                Step::Scale => {
                    let x: [f64; N] = *m.load_lanes(c, i);
                    m.work(before);
                    store(m, b, i, x.map(|x| SCALAR * x));
                }
                Step::Add => {
                    let x: [f64; N] = *m.load_lanes(a, i);
                    let y: [f64; N] = *m.load_lanes(b, i);
                    m.work(before);
                    store(m, c, i, from_fn(|lane| x[lane] + y[lane]));
                }
                Step::Triad => {
                    let y: [f64; N] = *m.load_lanes(c, i);
                    let x: [f64; N] = *m.load_lanes(b, i);
                    m.work(before);
                    store(m, a, i, from_fn(|lane| x[lane] + SCALAR * y[lane]));
                }
            }
            m.work(after);
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

    fn loads_and_stores(kernel: &str) -> usize {
        if matches!(kernel, "copy" | "scale") { 2 } else { 3 }
    }

    #[test]
    fn scalar_code_has_an_access_per_element_and_the_instructions_of_its_core() {
        let kernels = ["copy", "scale", "add", "triad"];
        for (code, expected) in [("scalar", [5, 6, 7, 7]), ("cortex-a53", [4, 10, 11, 15])] {
            for (kernel, instructions) in kernels.into_iter().zip(expected) {
                let params = format!("footprint_mib=1,iterations=1,threads=1,code={code},kernel={kernel}");
                let (program, recorded) = check::<Stream>(&params);
                let elements = program.workload().a.len();
                let accesses = &recorded.streams[0][3 * elements..];
                assert_eq!(accesses.len(), elements * loads_and_stores(kernel), "{params}");
                assert!(accesses.iter().all(|access| access.size == 8));
                assert_eq!(recorded.instructions(), (6 + instructions) * elements as u64, "{params}");
            }
        }
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
