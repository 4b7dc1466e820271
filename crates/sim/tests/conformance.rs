//! The simulator passes the conformance suite.

use crate::runs;
use memtide_core::conformance::script::{Area, PLAN_AT, Phase, SCRIPT, SLOW, Step, UNPLUG};
use memtide_core::conformance::{ConformancePolicy, Layout, Log, Placed};
use memtide_core::policy::Placement;
use memtide_core::{
    Batch, CpuId, Machine, NodeId, PAGE_BYTES, Program, ProgramError, Then, ThreadId, Time, VirtAddr,
};
use memtide_sim::{Job, Policy, Report, run};

use crate::support::{MachineText, load, store};

const EPOCH: Time = Time::from_ms(10);

/// Instructions of 0.1 ms: the program checks the script's position at this interval.
const TURN: u64 = 800_000;

/// CPUs with few TLB entries, so that accesses are seen; moves take long enough for a task to end meanwhile.
fn machine() -> Machine {
    MachineText::new("sample_ns = 80\nunmap_ns = 5000\nnuma_scan_period_ms = 10\nnuma_scan_mib = 1")
        .tlb(16, 20)
        .socket("s0", 2)
        .socket("s1", 1)
        .node("fast", 0, "s0", 32, 100.0, 10_000.0)
        .node("slow", 1, "s1", 8, 200.0, 10_000.0)
        .link("s0", "s1", 20.0, 1e6)
        .machine()
}

fn layout() -> Layout {
    Layout::from(VirtAddr(1 << 30), 2400)
}

/// The script's program. Its behaviour depends on the policy's epochs, hence on simulated time alone.
struct Scripted {
    script: &'static [Phase],
    log: Log,
    /// Steps to do, the next one last.
    steps: Vec<Step>,
    begun: usize,
}

impl Scripted {
    fn fill(area: Area, batch: &mut Batch) {
        let Placed { start, pages } = layout().of(area);
        batch.accesses.extend((0..pages).map(|page| store(start.0 + page * PAGE_BYTES)));
    }
}

impl Program for Scripted {
    fn threads(&self) -> usize {
        1
    }

    fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        batch.clear();
        let phase = self.log.phase();
        if self.begun <= phase && phase < self.script.len() {
            self.steps.extend(self.script[phase].steps.iter().rev());
            self.begun = phase + 1;
        }
        match self.steps.pop() {
            Some(Step::Fill(area)) => Scripted::fill(area, batch),
            Some(Step::Unmap(area)) => {
                let Placed { start, pages } = layout().of(area);
                batch.then = Then::Unmap { start, bytes: pages * PAGE_BYTES };
            }
            Some(Step::EndUnderway) if self.log.epoch() > PLAN_AT => batch.then = Then::End,
            Some(Step::EndUnderway) => {
                self.steps.push(Step::EndUnderway);
                batch.then = Then::Work(TURN);
            }
            Some(Step::UnplugSlow) => {}
            None if phase >= self.script.len() => batch.then = Then::End,
            None => {
                let Placed { start, pages } = layout().of(Area::Hot);
                batch.accesses.extend((0..pages).map(|page| load(start.0 + page * PAGE_BYTES)));
                batch.then = Then::Work(TURN);
            }
        }
        Ok(())
    }
}

/// Continues until the script is over, so that epochs follow the end of its task.
struct Clock {
    script: &'static [Phase],
    log: Log,
}

impl Program for Clock {
    fn threads(&self) -> usize {
        1
    }

    fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        batch.clear();
        let over = self.log.phase() >= self.script.len();
        batch.then = if over { Then::End } else { Then::Work(TURN) };
        Ok(())
    }
}

fn conform(script: &'static [Phase], unplugs: Vec<(Time, NodeId)>) -> Report {
    let (migration, log) = ConformancePolicy::new(script, layout(), EPOCH);
    let placement: Box<dyn Placement> = runs::policy(&machine(), "local").placement;
    let policy = Policy { unplugs, ..Policy::new(placement, Some(Box::new(migration))) };
    let scripted = Scripted { script, log: log.clone(), steps: Vec::new(), begun: 0 };
    let clock = Clock { script, log: log.clone() };
    let job = |name: &str, program: Box<dyn Program + Send>, cpu| Job {
        cpus: vec![CpuId(cpu)],
        ..Job::new(name, program)
    };
    let jobs = vec![job("script", Box::new(scripted), 0), job("clock", Box::new(clock), 1)];
    let report = run(&machine(), jobs, policy, 1, &mut |_| true).expect("a sound program");
    log.check(script, &layout()).unwrap_or_else(|wrong| panic!("{wrong}"));
    report
}

#[test]
fn simulator_conforms() {
    let report = conform(SCRIPT, Vec::new());
    let moved: u64 = report.pages.moves.iter().map(|moved| moved.pages).sum();
    assert_eq!(moved, report.pages.migrated, "only completed moves count");
    assert!(!report.pages.cancelled.is_empty(), "{:?}", report.pages);
}

#[test]
fn simulator_conforms_when_a_node_is_unplugged() {
    conform(UNPLUG, vec![(Time(EPOCH.0 * 11), SLOW)]);
}
