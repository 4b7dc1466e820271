//! The bound: no policy is faster, and it is not far below what can be reached.

use memtide_core::machine::bundled;
use memtide_core::{Access, Batch, Machine, Mark, PageSize, Then};
use memtide_policies::default_comparison;
use memtide_sim::{Bound, Job, Policy, Report, Unbounded, bound, run, run_shared_with_bound};
use memtide_trace::{ReplayOptions, Trace};
use memtide_workloads::Params;
use proptest::prelude::*;

use crate::support::{
    MachineText, Marked, Script, after, alone, doing, follow, load, map, mixed, store, store_past, together,
};

const SEED: u64 = 1;

fn machine(name: &str) -> Machine {
    bundled::machine(name).expect("a bundled machine").expect("a checked machine")
}

fn workload(text: &str) -> Job<'static> {
    let (name, params) = text.split_once(':').unwrap_or((text, ""));
    let params: Params = params.parse().expect("parameters");
    let program = memtide_workloads::program(name, &params, SEED).expect("a bundled workload");
    Job::new(name, program)
}

fn trace(name: &str, limit: u64) -> Job<'static> {
    let path = format!("{}/../../traces/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
    let options = ReplayOptions { limit, ..ReplayOptions::default() };
    let program = Trace::open(path.as_ref()).expect("a trace").program(options).expect("a program");
    Job::new(name, Box::new(program))
}

/// Every policy of the default comparison, and the placements and migrations beside it that fit the machine.
fn policies(machine: &Machine) -> Vec<(String, Policy)> {
    let mut all: Vec<memtide_policies::Policy> = default_comparison();
    let others = ["interleave+hanb", "interleave+heterovisor", "interleave+hot-threshold"];
    all.extend(others.map(|text| memtide_policies::parse(text).expect("a policy")));
    let each = all.into_iter().filter_map(|policy| {
        let migrates = policy.migration_info().name != "none";
        let placement = policy.placement(machine).ok()?;
        let migration = migrates.then(|| policy.simulated_migration(machine));
        Some((policy.name().to_owned(), Policy::new(placement, migration)))
    });
    each.collect()
}

fn policy(machine: &Machine, text: &str) -> Policy {
    let policy = memtide_policies::parse(text).expect("a policy");
    Policy::new(policy.placement(machine).expect("it fits"), None)
}

/// Runs of policies and their bound, in one pass.
fn in_one_pass(
    machine: &Machine,
    jobs: Vec<Job<'static>>,
    policies: Vec<(String, Policy)>,
) -> (Vec<(String, Report)>, Bound) {
    let (names, policies): (Vec<_>, Vec<_>) = policies.into_iter().unzip();
    let (reports, bound) = run_shared_with_bound(machine, jobs, policies, SEED, &|_, _| true);
    let runs = names.into_iter().zip(reports).filter_map(|(name, report)| Some((name, report.ok()?)));
    (runs.collect(), bound.expect("a run").expect("a bound").bound)
}

/// The fastest run, and the bound, of all policies; none is faster.
fn best_and_bound(machine: &Machine, jobs: Vec<Job<'static>>) -> (f64, Bound) {
    let (runs, bound) = in_one_pass(machine, jobs, policies(machine));
    for (name, report) in &runs {
        assert!(report.time_ms >= bound.time_ms(), "{name}: {} ms, {bound:?}", report.time_ms);
    }
    (runs.iter().map(|(_, report)| report.time_ms).fold(f64::INFINITY, f64::min), bound)
}

#[test]
fn bound_is_above_half_of_the_best_time_of_bundled_traces() {
    for name in ["redis", "sqlite3", "sort", "orders"] {
        for on in ["bmpm-5", "ddr5-cxl"] {
            let (best, bound) = best_and_bound(&machine(on), vec![trace(name, 1_000_000)]);
            let share = bound.time_ms() / best;
            println!("{name} on {on}: {share:.3} of {best:.3} ms, {bound:?}");
            assert!(share > 0.5, "{name} on {on}: {share:.3}");
        }
    }
}

/// Runs of a program under each policy by itself, and its bound; no policy is faster.
fn assert_bounded_alone(machine: &Machine, program: &dyn Fn() -> Job<'static>) {
    let bound = bound(machine, vec![program()], SEED, &mut |_| true).expect("a run").expect("a bound").bound;
    for (name, policy) in policies(machine) {
        let Ok(report) = run(machine, vec![program()], policy, SEED, &mut |_| true) else { continue };
        assert!(report.time_ms >= bound.time_ms(), "{name}: {} ms, {bound:?}", report.time_ms);
    }
}

/// A random program: phases with barriers between them, in which each thread accesses memory in its way.
#[derive(Clone, Debug)]
struct Phases {
    threads: usize,
    page: PageSize,
    phases: Vec<Phase>,
}

/// What all threads do between two barriers.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// First page and pages of the footprint, which threads share, or each has for itself.
    first: u64,
    pages: u64,
    shared: bool,
    way: Way,
    accesses: u64,
    /// Accesses to a store, instructions to an access.
    stores: u64,
    instructions: u32,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Lines one after the other.
    Stream,
    Random,
    /// Each load's address depends on the one before.
    Chase,
    /// Non-temporal stores, one after the other.
    Fill,
}

impl Phase {
    fn batch(&self, thread: usize, number: usize) -> Batch {
        let start = 0x4000_0000 + (self.first + if self.shared { 0 } else { thread as u64 * 4096 }) * 4096;
        let lines = self.pages * 64;
        let access = |index: u64| {
            let any = start + mixed(index | (thread as u64) << 32 | (number as u64) << 48) % lines * 64;
            let next = start + index % lines * 64;
            let is_store = index.is_multiple_of(self.stores);
            let access = match self.way {
                Way::Stream if is_store => store(next),
                Way::Stream => load(next),
                Way::Random if is_store => store(any),
                Way::Random => load(any),
                Way::Chase => follow(any),
                Way::Fill => store_past(start + index * 8 % (lines * 64)),
            };
            Access { instructions: self.instructions, ..access }
        };
        after((0..self.accesses).map(access), Then::Barrier)
    }
}

impl Phases {
    fn job(&self) -> Job<'static> {
        let of = |thread: usize| {
            let memory = (thread == 0).then(|| map(0x4000_0000, 64 << 20, self.page));
            let phases = self.phases.iter().enumerate().map(|(number, phase)| phase.batch(thread, number));
            memory.into_iter().chain(phases).collect()
        };
        Job::new("phases", Box::new(together(self.threads, of)))
    }
}

fn phase() -> impl Strategy<Value = Phase> {
    let way = prop_oneof![Just(Way::Stream), Just(Way::Random), Just(Way::Chase), Just(Way::Fill)];
    let size = (0u64..1024, prop_oneof![1u64..64, 64u64..1500], any::<bool>());
    (size, way, 100u64..6000, 1u64..6, 1u32..30).prop_map(
        |((first, pages, shared), way, accesses, stores, instructions)| Phase {
            first,
            pages,
            shared,
            way,
            accesses,
            stores,
            instructions,
        },
    )
}

fn phases() -> impl Strategy<Value = Phases> {
    let page = prop_oneof![3 => Just(PageSize::Base), 1 => Just(PageSize::Huge)];
    (1usize..5, page, prop::collection::vec(phase(), 1..5)).prop_map(|(threads, page, phases)| Phases {
        threads,
        page,
        phases,
    })
}

/// A bundled machine, at up to 8 times its scale, or a small one with fixed nodes.
fn any_machine() -> impl Strategy<Value = Machine> {
    let names = ["bdm", "bmpm-2", "bmpm-5", "ddr5-cxl", "hinuma", "laptop", "memos", "optane", "pms"];
    let bundled = (prop::sample::select(names.to_vec()), 0u32..4).prop_map(|(name, doubled)| {
        let machine = machine(name);
        Machine { scale: machine.scale << doubled, ..machine }
    });
    prop_oneof![2 => bundled, 1 => small_machine()]
}

/// Two sockets with small caches, whose nodes and links are fast or slow.
fn small_machine() -> impl Strategy<Value = Machine> {
    let figures = (60.0..400.0f64, 60.0..400.0f64, 500.0..40_000.0f64, 500.0..40_000.0f64);
    let sizes = (prop::sample::select(vec![32u64, 128, 512]), 1u16..4, 8u64..40, 0.0..200.0f64);
    (figures, sizes).prop_map(|((near_ns, far_ns, near_mbps, far_mbps), (kib, cpus, mib, link_ns))| {
        MachineText::new("fault_ns = 300")
            .last_level(kib, cpus.max(2))
            .tlb(64, 30)
            .socket("s0", cpus)
            .socket("s1", cpus)
            .node("near", 0, "s0", mib, near_ns, near_mbps)
            .node("far", 1, "s1", 40, far_ns, far_mbps)
            .link("s0", "s1", link_ns, 8_000.0)
            .machine()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_policy_is_faster_than_the_bound(machine in any_machine(), program in phases()) {
        let cpus = machine.reduced().cpus();
        let program = Phases { threads: program.threads.min(cpus), ..program };
        best_and_bound(&machine, vec![program.job()]);
    }

    #[test]
    fn no_policy_alone_is_faster_than_the_bound(machine in any_machine(), program in phases()) {
        assert_bounded_alone(&machine, &|| program.job());
    }
}

/// A socket with two fixed nodes: `fast` of 100 ns, `slow` of 300 ns behind a link.
fn two_nodes(cpus: u16, mbps: [f64; 2]) -> Machine {
    MachineText::new("")
        .last_level(64, cpus)
        .socket("s0", cpus)
        .node("fast", 0, "s0", 64, 100.0, mbps[0])
        .node("slow", 1, "", 64, 280.0, mbps[1])
        .link("s0", "slow", 20.0, 1e6)
        .machine()
}

/// A program whose region of interest begins once its pages have been touched.
fn after_touching(pages: u64, region: impl IntoIterator<Item = Batch>) -> Job<'static> {
    let first = after((256..256 + pages).map(|page| store(page * 4096)), Then::Mark(Mark::Begin));
    let program = Marked(alone(std::iter::once(first).chain(region)));
    Job::new("script", Box::new(program))
}

#[test]
fn chase_on_the_fast_node_reaches_its_bound() {
    let machine = two_nodes(2, [20_000.0, 20_000.0]);
    let chase =
        || after_touching(4096, [doing((0..20_000).map(|n| follow((1 << 20) + mixed(n) % 262_144 * 64)))]);
    let all = ["fast-only", "interleave"].map(|name| (name.to_owned(), policy(&machine, name)));
    let (runs, bound) = in_one_pass(&machine, vec![chase()], all.into());
    let over = |index: usize| runs[index].1.time_ms / bound.time_ms();
    // 20,000 loads of 100 ns, less the few that hit, and 5 %.
    assert!((bound.time_ms() / 1.9 - 1.0).abs() < 0.02, "{bound:?}");
    assert!((1.05..1.06).contains(&over(0)), "{}", over(0));
    assert!(over(1) > 1.5, "half of the pages at 320 ns: {}", over(1));
}

#[test]
fn stream_with_pages_by_bandwidth_reaches_its_bound() {
    let machine = two_nodes(4, [4_000.0, 2_000.0]);
    let of = |thread: usize| {
        let pages = 256 + thread as u64 * 1024..1280 + thread as u64 * 1024;
        let lines = || pages.clone().flat_map(|page| (0..64).map(move |line| load(page * 4096 + line * 64)));
        let touched = after(pages.clone().map(|page| load(page * 4096)), Then::Barrier);
        let begin = (thread == 0).then(|| after([], Then::Mark(Mark::Begin)));
        let region = after(lines(), Then::Barrier);
        std::iter::once(touched).chain(begin).chain([region]).collect()
    };
    let job = || Job::new("stream", Box::new(Marked(together(4, of))));
    let all = ["bw-interleave", "fast-only"].map(|name| (name.to_owned(), policy(&machine, name)));
    let (runs, bound) = in_one_pass(&machine, vec![job()], all.into());
    let over = |index: usize| runs[index].1.time_ms / bound.time_ms();
    // 16 MiB at 6,000 MB/s.
    assert!((bound.bandwidth_ms / 2.796 - 1.0).abs() < 0.01, "{bound:?}");
    assert_eq!(bound.time_ms(), bound.bandwidth_ms);
    assert!((1.0..1.05).contains(&over(0)), "{}", over(0));
    assert!(over(1) > 1.4, "two thirds of the bandwidth: {}", over(1));
}

#[test]
fn first_touch_faults_of_a_single_thread_are_in_the_bound() {
    let with = |fault_ns: &str| {
        let kernel = format!("fault_ns = {fault_ns}");
        let machine = MachineText::new(&kernel)
            .last_level(64, 2)
            .socket("s0", 2)
            .node("fast", 0, "s0", 64, 100.0, 20_000.0)
            .machine();
        let touch = |thread: usize| {
            vec![after((0..1000).map(|page| store((thread as u64 * 2000 + page) * 4096)), Then::Barrier)]
        };
        let of = |threads| {
            Job::new("touch", Box::new(together(threads, touch)) as Box<dyn memtide_core::Program + Send>)
        };
        [1, 2].map(|threads| {
            bound(&machine, vec![of(threads)], SEED, &mut |_| true)
                .expect("a run")
                .expect("a bound")
                .bound
                .time_ms()
        })
    };
    let ([one, two], [one_free, two_free]) = (with("1000"), with("0"));
    assert!((one - one_free - 0.95).abs() < 0.02, "1000 faults of 1 us, less 5 %: {one}, {one_free}");
    assert!(two - two_free < 0.01, "who of two has a fault depends on the policy: {two}, {two_free}");
}

#[test]
fn region_that_depends_on_the_policy_has_no_bound() {
    let machine = two_nodes(2, [20_000.0, 20_000.0]);
    let marked = |script: Script| Job::new("m", Box::new(Marked(script)));
    let of = |jobs: Vec<Job<'static>>| bound(&machine, jobs, SEED, &mut |_| true).expect("a run");
    let simple = || alone([after([load(4096)], Then::Mark(Mark::Begin)), doing([load(8192)])]);
    assert!(of(vec![marked(simple())]).is_ok());
    assert_eq!(of(vec![marked(simple()), marked(simple())]), Err(Unbounded::SeveralRegions));
    let open = |thread: usize| match thread {
        0 => vec![after([load(4096)], Then::Mark(Mark::Begin)), doing([load(8192)])],
        _ => vec![doing((0..1000).map(|page| load(page * 4096)))],
    };
    assert_eq!(of(vec![marked(together(2, open))]), Err(Unbounded::OpenMark));
}

#[test]
fn bound_does_not_depend_on_the_policies_beside_it() {
    let machine = machine("bmpm-5");
    let job = || workload("gups:threads=2,footprint_mib=8,operations=20000");
    let (_, all) = in_one_pass(&machine, vec![job()], policies(&machine));
    let (_, none) = in_one_pass(&machine, vec![job()], Vec::new());
    assert_eq!(all, none);
}
