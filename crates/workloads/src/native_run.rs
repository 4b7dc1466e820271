//! Runs a workload on the host's own threads and memory.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use memtide_core::Mark;

use crate::entry::OnMark;
use crate::memory::Native;
use crate::workload::{Part, Phase, Workload};

/// Time from one burst to the next, if a workload runs in bursts.
const BURST_PERIOD: Duration = Duration::from_millis(20);

/// How a native run spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Minimum time in which the region is repeated before it is measured: time for page migration.
    pub warm_up: Duration,
    /// Share of the time in which the threads work before the region is measured, in %, from 1 to 100, except
    /// in the last tenth of the warm-up, which ends with the whole region at full speed at least once. In a
    /// virtual machine whose clock is emulated, idle time costs the host little.
    pub duty_percent: u32,
}

impl Pace {
    /// Once, at full speed.
    pub const FULL: Pace = Pace { warm_up: Duration::ZERO, duty_percent: 100 };
}

/// Runs a workload on the host's own memory and threads. Calls `at` for each mark, while all threads wait.
pub fn run_native<W: Workload>(workload: &W, pace: Pace, at: OnMark<'_>) {
    let parts = Part::of(workload);
    let begin = parts.iter().position(|part| matches!(part, Part::Mark(Mark::Begin)));
    let (before, region) = parts.split_at(begin.unwrap_or(0));
    let run = Run {
        workload,
        at,
        barrier: Barrier::new(workload.threads()),
        pauses: Pauses::default(),
        parts_done: AtomicU32::new(0),
    };
    std::thread::scope(|scope| {
        let threads = (0..workload.threads()).map(|thread| {
            let run = &run;
            scope.spawn(move || {
                let mut worker = Worker { run, thread, local: workload.local(thread) };
                worker.all(before);
                if !pace.warm_up.is_zero() {
                    worker.repeat(region, before, pace.warm_up);
                }
                worker.all(region);
            })
        });
        let threads: Vec<_> = threads.collect();
        if pace.duty_percent < 100 {
            let busy = BURST_PERIOD * pace.duty_percent / 100;
            let has_ended = || threads.iter().all(|thread| thread.is_finished());
            run.pauses.take(busy, BURST_PERIOD - busy, has_ended);
        }
    });
}

/// What the threads of a run share.
struct Run<'a, W> {
    workload: &'a W,
    at: OnMark<'a>,
    barrier: Barrier,
    pauses: Pauses,
    /// Parts of the warm-up that have lasted long enough: one in bursts, one at full speed.
    parts_done: AtomicU32,
}

struct Worker<'a, W: Workload> {
    run: &'a Run<'a, W>,
    thread: usize,
    local: W::Local,
}

impl<W: Workload> Worker<'_, W> {
    fn all(&mut self, parts: &[Part<W::Step>]) {
        parts.iter().for_each(|part| self.part(part));
    }

    fn part(&mut self, part: &Part<W::Step>) {
        match part {
            Part::Mark(mark) => self.mark(*mark),
            Part::Phase(phase) => self.phase(phase),
        }
        self.run.barrier.wait();
    }

    fn mark(&self, mark: Mark) {
        if self.thread == 0 {
            if mark == Mark::Begin {
                self.run.pauses.end();
            }
            (self.run.at)(mark);
        }
    }

    fn phase(&mut self, phase: &Phase<W::Step>) {
        let Run { workload, pauses, .. } = self.run;
        workload.begin(&mut Native, phase.step, &mut self.local);
        for item in phase.share(self.thread, workload.threads()) {
            workload.run(&mut Native, phase.step, item, &mut self.local);
            pauses.wait();
        }
        workload.finish(&mut Native, phase.step, &mut self.local);
    }

    /// Repeats the region's phases for some time, as a part of the warm-up.
    fn repeat(&mut self, region: &[Part<W::Step>], before: &[Part<W::Step>], time: Duration) {
        if !before.iter().any(|part| matches!(part, Part::Mark(Mark::WarmUp))) {
            self.part(&Part::Mark(Mark::WarmUp));
        }
        let begin = Instant::now();
        self.repeat_until(region, begin + time * 9 / 10, 1);
        if self.thread == 0 {
            self.run.pauses.end();
        }
        self.repeat_until(region, begin + time, 2);
    }

    /// Repeats the region's phases, as this part of the warm-up, until thread 0 finds that it has ended.
    fn repeat_until(&mut self, region: &[Part<W::Step>], end: Instant, part: u32) {
        while self.run.parts_done.load(Ordering::Relaxed) < part {
            region.iter().filter(|part| matches!(part, Part::Phase(_))).for_each(|part| self.part(part));
            if self.thread == 0 && Instant::now() >= end {
                self.run.parts_done.store(part, Ordering::Relaxed);
            }
            self.run.barrier.wait();
        }
    }
}

/// Pauses of all threads at once, between two items.
#[derive(Default)]
struct Pauses {
    pausing: AtomicBool,
    /// Locked during a pause.
    gate: RwLock<()>,
    /// Whether there are no more pauses.
    over: AtomicBool,
}

impl Pauses {
    /// Lets the threads work and pause in turn, until the last pause or until they have ended.
    fn take(&self, busy: Duration, idle: Duration, mut ended: impl FnMut() -> bool) {
        while !ended() {
            std::thread::sleep(busy);
            let gate = self.gate.write().expect("no thread panics");
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            self.pausing.store(true, Ordering::Relaxed);
            std::thread::sleep(idle);
            self.pausing.store(false, Ordering::Relaxed);
            drop(gate);
        }
    }

    /// Waits for the end of a pause, after which there are no more.
    fn end(&self) {
        let _gate = self.gate.write().expect("no thread panics");
        self.over.store(true, Ordering::Relaxed);
    }

    fn wait(&self) {
        if self.pausing.load(Ordering::Relaxed) {
            drop(self.gate.read().expect("no thread panics"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::algorithms::stream::Stream;
    use crate::array::Space;
    use crate::params::Settings;
    use crate::workload::Algorithm;

    fn stream(params: &str) -> Stream {
        let settings = Settings::new(&Stream::INFO, &params.parse().unwrap()).unwrap();
        Stream::new(&settings, 1, &mut Space::new(settings.page())).unwrap()
    }

    /// A run of one thread.
    fn run_alone(workload: &Stream) -> Run<'_, Stream> {
        Run {
            workload,
            at: &|_| (),
            barrier: Barrier::new(1),
            pauses: Pauses::default(),
            parts_done: AtomicU32::new(0),
        }
    }

    /// Time from the first mark to the second, and the marks.
    fn marks(params: &str, pace: Pace) -> (Duration, Vec<Mark>) {
        let workload = stream(params);
        let made = Mutex::new(Vec::new());
        run_native(&workload, pace, &|mark| made.lock().unwrap().push((Instant::now(), mark)));
        let made = made.into_inner().unwrap();
        let warm_up = made.get(1).map_or(Duration::ZERO, |second| second.0 - made[0].0);
        (warm_up, made.into_iter().map(|(_, mark)| mark).collect())
    }

    #[test]
    fn region_is_repeated_for_the_warm_up_whether_or_not_the_workload_has_one() {
        let pace = Pace { warm_up: Duration::from_millis(50), ..Pace::FULL };
        for iterations in [1, 3] {
            let params = format!("footprint_mib=1,threads=2,kernel=copy,iterations={iterations}");
            let (warm_up, made) = marks(&params, pace);
            assert_eq!(made, [Mark::WarmUp, Mark::Begin]);
            assert!(warm_up >= pace.warm_up, "{warm_up:?}");
        }
        assert_eq!(marks("footprint_mib=1,threads=2,kernel=copy,iterations=1", Pace::FULL).1, [Mark::Begin]);
    }

    #[test]
    fn threads_wait_for_the_end_of_a_pause() {
        let (pauses, passed) = (Pauses::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let gate = pauses.gate.write().unwrap();
            pauses.pausing.store(true, Ordering::Relaxed);
            scope.spawn(|| {
                pauses.wait();
                passed.store(true, Ordering::Relaxed);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!passed.load(Ordering::Relaxed));
            drop(gate);
        });
        assert!(passed.into_inner());
    }

    #[test]
    fn pauses_take_their_share_of_the_time_until_the_threads_have_ended() {
        let (busy, idle) = (Duration::from_millis(1), Duration::from_millis(9));
        let (pauses, begin) = (Pauses::default(), Instant::now());
        let mut rounds = 0;
        pauses.take(busy, idle, || {
            rounds += 1;
            rounds > 5
        });
        assert!(begin.elapsed() >= 5 * (busy + idle), "{:?}", begin.elapsed());
        assert!(!pauses.pausing.into_inner());
    }

    #[test]
    fn no_pause_begins_after_the_last_one_has_ended() {
        let (pauses, idle) = (Pauses::default(), Duration::from_millis(50));
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| pauses.take(Duration::ZERO, idle, || false));
            while !pauses.pausing.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            pauses.end();
            assert!(!pauses.pausing.load(Ordering::Relaxed), "in a pause");
            taken.join().unwrap();
        });
        assert!(!pauses.pausing.into_inner());
    }

    #[test]
    fn pauses_end_where_the_region_begins() {
        let workload = stream("footprint_mib=1,threads=1");
        let run = run_alone(&workload);
        let worker = Worker { run: &run, thread: 0, local: workload.local(0) };
        worker.mark(Mark::WarmUp);
        assert!(!run.pauses.over.load(Ordering::Relaxed));
        worker.mark(Mark::Begin);
        assert!(run.pauses.over.load(Ordering::Relaxed));
    }

    #[test]
    fn last_tenth_of_the_warm_up_is_at_full_speed() {
        let workload = stream("footprint_mib=1,threads=1");
        let run = run_alone(&workload);
        let mut worker = Worker { run: &run, thread: 0, local: workload.local(0) };
        let (begin, time) = (Instant::now(), Duration::from_millis(100));
        let parts_until_full_speed = std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                loop {
                    let parts = run.parts_done.load(Ordering::Relaxed);
                    if run.pauses.over.load(Ordering::Relaxed) || parts == 2 {
                        break parts;
                    }
                }
            });
            worker.repeat(&[], &[], time);
            seen.join().unwrap()
        });
        assert!(parts_until_full_speed < 2 && begin.elapsed() >= time);
    }
}
