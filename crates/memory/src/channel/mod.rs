//! DRAM devices, command by command.
//!
//! A [`Channel`] sends activate, precharge, column and refresh commands as a memory controller does (FR-FCFS,
//! read and write queues, drains), as its timing set allows. Its cost is per command, not per cycle: each
//! bank with work has one candidate command, and the next event is the earliest of them. A
//! [`DramNode`](crate::dram::DramNode) is a node's channels behind its address map.
//!
//! Requests pass from `backlog` (arrived) to `queues` (in the controller, as far as `occupancy` has room),
//! from which `candidate` takes each bank's next command; `schedule` selects among them, and `timing` has
//! their limits. Where banks have subarrays, each counts as a bank inside (`units`).

mod backlog;
mod bank;
mod candidate;
mod command;
mod map;
mod observer;
mod occupancy;
mod queues;
mod refresh;
mod schedule;
mod timing;
mod units;

use memtide_core::Time;
use memtide_core::machine::{Dram, PagePolicy};

use backlog::{Arrival, Backlog};
use bank::Bank;
use occupancy::Occupancy;
use queues::Slots;
use refresh::Refreshes;
use schedule::Schedule;
use timing::{BankTiming, Cycle, Kind, Limits, NEVER};
use units::Units;

pub use map::{AddressMap, Place};
pub use observer::{Banks, Command, Observer};

use crate::counters::{BankCounters, Counters};
use crate::node::Completion;

/// Number of cycles after which the base of the channel's times moves.
const SPAN: Cycle = 1 << 30;

/// How far times reach back after that: more than any timing figure.
const REACH: Cycle = 1 << 20;

/// One channel of a DRAM device.
#[derive(Clone, Debug)]
pub struct Channel<O = ()> {
    timing: BankTiming,
    policy: Policy,
    limits: Limits,
    banks: Vec<Bank>,
    slots: Slots,
    schedule: Schedule,
    refreshes: Refreshes,
    backlog: Backlog,
    /// The requests in the controller's queues.
    queued: Occupancy,
    /// Number of requests that left the queue and wait for their column command.
    activated: u16,
    units: Units,
    /// Whether the channel serves writes, and how many it has sent since a read waited.
    writing: bool,
    drained: u32,
    /// Reads to serve before the next drain.
    owed: u16,
    /// Cycle that is the base of all times inside, and that of the last event.
    base: u64,
    now: Cycle,
    counters: Counters,
    observer: O,
}

/// The controller's policies.
#[derive(Clone, Copy, Debug)]
struct Policy {
    clock_ps: u64,
    burst: u64,
    banks_of_rank: u64,
    write_queue: u16,
    subarray_select: Cycle,
    drain_high: u16,
    drain_low: u16,
    hit_cap: u16,
    closed_page: bool,
    split_command_bus: bool,
}

impl Channel {
    /// The channel of a checked device, idle and with all rows closed.
    pub fn new(dram: &Dram) -> Channel {
        Channel::with_observer(dram, ())
    }
}

impl<O: Observer> Channel<O> {
    /// A channel with an observer of its commands.
    pub fn with_observer(dram: &Dram, observer: O) -> Channel<O> {
        let units = Units::new(dram);
        let of_group = usize::from(dram.banks) << units.shift;
        let queued = Occupancy::new(dram);
        let policy = Policy {
            clock_ps: dram.t_ck_ps.into(),
            burst: dram.burst.into(),
            banks_of_rank: u64::from(dram.bank_groups) * u64::from(dram.banks),
            write_queue: dram.write_queue,
            subarray_select: dram.subarrays.map_or(0, |subarrays| subarrays.select.into()),
            drain_high: dram.drain_high,
            drain_low: dram.drain_low,
            hit_cap: dram.hit_cap,
            closed_page: dram.page_policy == PagePolicy::Closed,
            split_command_bus: dram.split_command_bus,
        };
        Channel {
            timing: BankTiming::new(dram),
            policy,
            limits: Limits::new(dram),
            banks: (0..units.count).map(|unit| Bank::new(unit / of_group)).collect(),
            slots: Slots::new(queued.entries() + units.count),
            schedule: Schedule::new(dram.arbitration, units.count),
            refreshes: Refreshes::new(dram),
            backlog: Backlog::default(),
            queued,
            activated: 0,
            units,
            writing: false,
            drained: 0,
            owed: 0,
            base: 0,
            now: 0,
            counters: Counters::default(),
            observer,
        }
    }

    /// Queues a request that arrives at `at`, or at the channel's current time if that is later. Reads are
    /// reported with their `id`; writes are posted, except with
    /// [`REPORT_ACCEPTED`](crate::node::REPORT_ACCEPTED).
    #[inline]
    pub fn push(&mut self, at: Time, place: Place, write: bool, id: u64) {
        let at = at.0.div_ceil(self.policy.clock_ps);
        let place = Place { bank: self.units.of(place), ..place };
        self.backlog.push(Arrival { at, id, place, write });
    }

    /// Time of the next event; [`Time::NEVER`] if nothing is queued.
    #[inline]
    pub fn next_event(&self) -> Time {
        match self.backlog.first() {
            None if self.is_idle() => Time::NEVER,
            Some(arrival) if self.is_idle() => Time(arrival.at * self.policy.clock_ps),
            _ => {
                let next = self.schedule.peek(self.limits.earliest()).map_or(NEVER, |(at, _)| at);
                let next = next.min(self.next_refresh()).min(self.next_admission());
                self.time(next)
            }
        }
    }

    /// Sends all commands up to and including `until`. Appends the reads whose column command was sent to
    /// `done`, with the end of their data at the pins (which may be after `until`), and the writes to report
    /// that entered the write queue.
    pub fn advance(&mut self, until: Time, done: &mut Vec<Completion>) {
        let until = (until.0 / self.policy.clock_ps).max(self.base + u64::from(self.now));
        loop {
            if self.is_idle() {
                match self.backlog.first() {
                    Some(arrival) if arrival.at <= until => self.wake(arrival.at),
                    _ => return,
                }
            }
            let horizon = (until - self.base).min(SPAN.into());
            self.run(horizon as Cycle, done);
            if !self.is_idle() && horizon < u64::from(SPAN) {
                return;
            }
            if self.now > SPAN / 2 {
                self.rebase(self.base + u64::from(self.now));
            }
        }
    }

    /// Counters; refreshes are counted up to `at`.
    pub fn counters(&self, at: Time) -> Counters {
        let refreshed = self.refreshes.refreshed_banks_by(at.0 / self.policy.clock_ps);
        Counters {
            refreshes: refreshed as f64 / self.policy.banks_of_rank as f64,
            bus_busy: Time(self.counters.lines() * self.policy.burst * self.policy.clock_ps),
            ..self.counters
        }
    }

    /// Counters of each bank.
    pub fn bank_counters(&self) -> impl Iterator<Item = BankCounters> + '_ {
        let of_bank = 1 << self.units.shift;
        let sum = |units: &[Bank]| {
            units.iter().map(|unit| unit.counters).fold(BankCounters::default(), BankCounters::plus)
        };
        self.banks.chunks(of_bank).map(sum)
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Whether no request is in the controller.
    #[inline]
    fn is_idle(&self) -> bool {
        self.queued.total == [0; 2] && self.activated == 0
    }

    /// Processes events up to `until`, or until nothing is queued.
    fn run(&mut self, until: Cycle, done: &mut Vec<Completion>) {
        let mut refresh = self.next_refresh();
        let mut arrival = self.next_admission();
        loop {
            let best = self.schedule.best(self.limits.earliest());
            let command = best.map_or(NEVER, |(at, _)| at);
            let own = refresh.min(command);
            if arrival.min(own) > until {
                return;
            }
            if arrival <= own {
                self.now = arrival;
                self.admit(done);
                arrival = self.next_admission();
            } else if refresh <= command {
                self.now = refresh;
                self.refresh_step(refresh);
                refresh = self.next_refresh();
            } else if let Some((at, handle)) = best {
                self.now = at;
                if self.send(handle, done) {
                    arrival = self.next_admission();
                    if self.is_idle() {
                        return;
                    }
                }
            }
        }
    }

    #[inline]
    fn next_refresh(&self) -> Cycle {
        self.relative(self.refreshes.next_at())
    }

    /// When the first request of the backlog enters the queues, if nothing happens before.
    #[inline]
    fn next_admission(&self) -> Cycle {
        match self.backlog.first() {
            Some(arrival) if self.queued.has_room(self.units.bank(arrival.place.bank), arrival.write) => {
                self.relative(arrival.at)
            }
            _ => NEVER,
        }
    }

    /// A cycle relative to the base, but not before the last event.
    #[inline]
    fn relative(&self, at: u64) -> Cycle {
        let at = at.saturating_sub(self.base).min(u64::from(NEVER - 1));
        (at as Cycle).max(self.now)
    }

    #[inline]
    fn time(&self, at: Cycle) -> Time {
        Time((self.base + u64::from(at)) * self.policy.clock_ps)
    }

    /// Ends an idle period.
    fn wake(&mut self, at: u64) {
        self.refreshes.skip(at);
        if at.saturating_sub(self.base) >= u64::from(SPAN) {
            self.rebase(at);
        }
    }

    /// Moves the base to shortly before `present`.
    fn rebase(&mut self, present: u64) {
        let base = present - u64::from(REACH);
        let by = Cycle::try_from(base - self.base).unwrap_or(NEVER);
        self.base = base;
        self.now = self.now.saturating_sub(by);
        self.limits.rebase(by);
        for bank in &mut self.banks {
            bank.rebase(by);
        }
        let heads = self.banks.iter().flat_map(|bank| &bank.queues).filter(|fifo| fifo.head != queues::NONE);
        let oldest = heads.map(|fifo| self.slots.get(fifo.head).age).min();
        let ages = oldest.unwrap_or(self.slots.next_age());
        self.slots.rebase_ages(ages);
        self.schedule.rebase(by, ages);
    }

    /// Cycles until which a command sent at `at` occupies the column and row command buses.
    #[inline]
    fn command_bus(&self, kind: Kind, at: Cycle) -> [Cycle; 2] {
        let until = at + self.timing.command[kind as usize];
        match (self.policy.split_command_bus, kind) {
            (false, _) => [until; 2],
            (true, Kind::Read | Kind::Write) => [until, at],
            (true, Kind::Activate | Kind::Precharge) => [at, until],
        }
    }
}
