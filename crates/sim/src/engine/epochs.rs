//! Runs the migration policy: its epochs, its hint faults, and its host.

use memtide_core::Time;
use memtide_core::epoch::{Host, PolicyRunner};
use memtide_core::policy::{Completion, Event, Page, Planned, View, Wake};

use super::{Engine, Timer};
use crate::thread::Cause;

/// The machine as a policy sees it.
struct SimHost<'e, 'p> {
    engine: &'e mut Engine<'p>,
    /// The CPU in whose fault the policy acts; `None` for one outside the kernel.
    cpu: Option<usize>,
}

impl Host for SimHost<'_, '_> {
    fn now(&self) -> Time {
        self.engine.now
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        self.engine.sense(view, events);
    }

    fn refresh(&mut self, view: &mut View) {
        self.engine.refresh(view);
    }

    fn act(&mut self, actions: &[Planned]) {
        for planned in actions {
            self.engine.begin(planned, self.cpu);
        }
        self.engine.wake_mover(self.engine.now);
    }

    fn spend(&mut self, time: Time) {
        self.engine.work_for_policy(self.cpu, time);
    }

    fn count(&mut self, pages: &[Page]) {
        self.engine.count_misses_of(pages);
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        self.engine.mover.take_done(done);
    }
}

impl Engine<'_> {
    pub(super) fn epoch(&mut self) {
        let wake = self.with_policy(None, |runner, host| runner.epoch(host, &mut ()));
        let next = match wake {
            Some(Wake::After(time)) => self.now + Time((time.0 / u64::from(self.setup.scale)).max(1)),
            Some(Wake::Never) | None => Time::NEVER,
        };
        self.decide_at(next);
    }

    /// Sets the time of the next epoch: not before the policy's work of the last one is done.
    fn decide_at(&mut self, time: Time) {
        self.set_timer(Timer::Epoch, time.max(self.work_ends));
    }

    /// Delivers an event to an in-kernel policy, in the fault on a CPU. Its next epoch may be due then.
    pub(crate) fn deliver(&mut self, cpu: usize, event: &Event) {
        if self.with_policy(Some(cpu), |runner, host| runner.deliver(host, event)) == Some(true) {
            self.decide_at(self.now);
        }
    }

    /// Collects the completions of the last epoch's actions.
    pub(crate) fn collect_completions(&mut self) {
        self.with_policy(None, |runner, host| runner.collect(host, &mut ()));
    }

    fn with_policy<T>(
        &mut self,
        cpu: Option<usize>,
        act: impl FnOnce(&mut PolicyRunner, &mut dyn Host) -> T,
    ) -> Option<T> {
        let mut runner = self.policy.take()?;
        let acted = act(&mut runner, &mut SimHost { engine: self, cpu });
        self.policy = Some(runner);
        Some(acted)
    }

    /// Handles the end of a sampling interval.
    pub(super) fn sample_sensors(&mut self) {
        self.sensors.sample(&mut self.os);
        self.shoot_down(None, Cause::Monitoring);
        if let Some(sampling) = self.sensors.sampling() {
            self.set_timer(Timer::Sensor, self.now + sampling);
        }
    }
}
