//! Sensors: what a policy requests a host to observe, and the host's answers.
//!
//! Each sensor is declared here and implemented in one file per host; a host without that file refuses it.
//! Its data are delivered in the [`View`](super::View) or as an [`Event`](super::Event).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::migration::Delivery;
use crate::units::Time;

/// A kind of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sensor {
    /// Access counts by region, in [`View::regions`](super::View::regions): DAMON.
    Regions(RegionSampling),
    /// NUMA hint faults, as [`Event::HintFault`](super::Event::HintFault). The scan period and size are the
    /// machine's ([`Kernel`](crate::machine::Kernel)).
    HintFaults,
    /// NUMA hint faults on pages of nodes below the fastest tier alone, as
    /// [`Event::HintFault`](super::Event::HintFault): Linux's memory tiering (`numa_balancing = 2`).
    SlowTierFaults,
    /// TLB misses on marked page table entries, as [`Event::TlbMiss`](super::Event::TlbMiss), and their
    /// number by page, in [`View::regions`](super::View::regions): BadgerTrap. Not beside
    /// [`Sensor::Regions`].
    TlbMisses(TlbMissSampling),
    /// Accesses to the shared cache levels and their misses, in [`View::llc`](super::View::llc).
    LlcMisses,
    /// One of many accesses that miss all caches, as [`Event::AccessSample`](super::Event::AccessSample):
    /// PEBS, IBS, SPE.
    AccessSamples(AccessSampling),
    /// Threads of the tasks, in [`View::threads`](super::View::threads).
    Threads,
    /// Bytes read and written per node, in [`NodeView::traffic`](super::NodeView::traffic).
    NodeTraffic,
    /// Bytes read and written per thread, in [`ThreadView::traffic`](super::ThreadView::traffic), if
    /// [`Sensor::Threads`] lists them.
    ThreadTraffic,
    /// Mean latency of reads under the current load, in
    /// [`NodeView::loaded_latency`](super::NodeView::loaded_latency).
    LoadedLatency,
    /// Page faults per task, in [`TaskView::page_faults`](super::TaskView::page_faults).
    PageFaults,
    /// Watermarks of free memory, in [`NodeView::watermarks`](super::NodeView::watermarks).
    Watermarks,
    /// Pages that reclaim would take next, in [`View::inactive`](super::View::inactive): the oldest of the
    /// kernel's inactive lists that were not accessed since their last check.
    InactivePages,
    /// Resident pages on the kernel's LRU lists, which alone can be migrated, in
    /// [`View::regions`](super::View::regions): runs of adjacent pages of one size on one node, without
    /// access counts (`/proc/PID/pagemap`, flag `LRU` of `/proc/kpageflags`). Not beside
    /// [`Sensor::Regions`] or [`Sensor::TlbMisses`].
    LruPages,
    /// Samples in which each resident page was found accessed, as reads, and written, as writes, since the
    /// last epoch, in [`View::regions`](super::View::regions), each page alone: SysMon (memos section II-B).
    /// Not beside [`Sensor::Regions`], [`Sensor::TlbMisses`] or [`Sensor::LruPages`].
    PageSamples(PageSampling),
    /// Cache colours and banks of the frames of listed pages, in [`View::frames`](super::View::frames).
    Frames,
    /// Applications' messages about their buffers, as [`Event::Message`](super::Event::Message).
    Messages,
    /// Starts and ends of tasks, as [`Event::Task`](super::Event::Task).
    TaskLifecycle,
    /// Hits of each task by recency position in the last-level cache, as if it had the cache to itself, in
    /// [`View::cache_utility`](super::View::cache_utility): the utility monitors of Qureshi and Patt (MICRO
    /// 2006).
    CacheUtility,
}

/// Sampling of access counts by region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSampling {
    /// Sampling interval: time between two samples of a region. With a budget, the one to start with.
    pub sampling: Time,
    /// Aggregation interval: time over which samples are counted; at least `sampling`, at most the epoch.
    pub aggregation: Time,
    /// Maximum number of regions, at least 2.
    pub regions_max: u32,
    /// Count writes separately from reads. If false, the host may skip that, and writes may be 0.
    pub writes: bool,
    /// Budget in hundredths of a percent of a core's time. If given, the host keeps to it by the sampling
    /// interval ([`RegionSampling::tuned`]), and says how many samples were taken
    /// ([`View::region_samples`](super::View::region_samples)). A host that has to look up the nodes of pages
    /// gives a part of the budget to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bp: Option<u32>,
}

/// A tuned sampling interval is at least this part of the one to start with.
const TUNED_DIVISOR_MAX: u64 = 100;
/// Minimum samples per aggregation interval of a tuned one.
const TUNED_SAMPLES_MIN: u64 = 10;

impl RegionSampling {
    /// The sampling interval that keeps to the budget, after one that took `spent` of a core's time in
    /// `passed` time. Shorter is better: it tells apart how often pages are accessed that have an access in
    /// each longer one, and counts as many accesses of the others.
    ///
    /// It is a hundredth of `sampling` to a tenth of `aggregation`. As a change may cost a host the samples
    /// of an aggregation interval, it stays while they take half of the budget to one and a half.
    pub fn tuned(&self, interval: Time, spent: Time, passed: Time) -> Time {
        let Some(budget_bp) = self.budget_bp.filter(|_| passed > Time::ZERO) else { return interval };
        let share_bp = spent.0 as f64 / passed.0 as f64 * 1e4;
        let most = (self.aggregation.0 / TUNED_SAMPLES_MIN).max(1);
        let least = (self.sampling.0 / TUNED_DIVISOR_MAX).clamp(1, most);
        let change = (share_bp / f64::from(budget_bp.max(1))).clamp(0.25, 4.0);
        let wanted = ((interval.0 as f64 * change) as u64).clamp(least, most);
        let is_close = wanted * 2 > interval.0 && wanted * 2 < interval.0 * 3;
        if is_close { interval } else { Time(wanted) }
    }
}

impl Default for RegionSampling {
    /// DAMON's defaults (Documentation/mm/damon/design.rst): 5 ms, 100 ms, 1,000 regions; writes are not
    /// counted separately.
    fn default() -> RegionSampling {
        let (sampling, aggregation) = (Time::from_ms(5), Time::from_ms(100));
        RegionSampling { sampling, aggregation, regions_max: 1000, writes: false, budget_bp: None }
    }
}

/// Sampling of accesses that miss all caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSampling {
    /// Period: misses per sample, at least 1. With a budget, the one to start with.
    pub period: u32,
    /// Budget for samples, in hundredths of a percent of a core's time. If given, the host keeps to it by the
    /// period ([`AccessSampling::tuned`]); each sample says its own
    /// ([`AccessSample::period`](super::AccessSample::period)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bp: Option<u32>,
}

impl AccessSampling {
    /// Minimum of a tuned period, so that a program that begins to miss does not drown in samples.
    pub const TUNED_MIN: u32 = 64;

    /// The period that keeps to the budget, after one whose samples took `spent` of a core's time in `passed`
    /// time: at least [`AccessSampling::TUNED_MIN`], or the period to start with if that is less.
    pub fn tuned(&self, period: u32, spent: Time, passed: Time) -> u32 {
        let Some(budget_bp) = self.budget_bp.filter(|_| passed > Time::ZERO) else { return period };
        let share_bp = spent.0 as f64 / passed.0 as f64 * 1e4;
        let change = (share_bp / f64::from(budget_bp.max(1))).clamp(0.25, 4.0);
        ((f64::from(period) * change) as u32).max(AccessSampling::TUNED_MIN.min(self.period)).max(1)
    }
}

impl Default for AccessSampling {
    /// One of 4,096 misses.
    fn default() -> AccessSampling {
        AccessSampling { period: 4096, budget_bp: None }
    }
}

/// Counting of TLB misses by page.
///
/// The host marks page table entries and drops their translations. The next access misses the TLB, its page
/// walk finds the mark and faults, and the fault counts one miss of the page (hinuma section III-C).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbMissSampling {
    /// Marking interval: time between two steps that mark present pages.
    pub marking: Time,
    /// Whether an entry stays marked after its fault, so that each later TLB miss of its page counts too, as
    /// in BadgerTrap. If false, it counts one miss per marking interval.
    pub every_miss: bool,
    /// Whether only the pages of the last [`Plan::count`](super::Plan::count) are marked, instead of all.
    #[serde(default)]
    pub planned: bool,
}

impl Default for TlbMissSampling {
    /// All pages once a second, the period of Linux's NUMA hint scanner; one miss per page and interval.
    fn default() -> TlbMissSampling {
        TlbMissSampling { marking: Time::from_ms(1000), every_miss: false, planned: false }
    }
}

/// Sampling of every page's accessed and dirty bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSampling {
    /// Sampling interval: time between two samples, each of which clears the bits of all pages and drops
    /// their translations.
    pub sampling: Time,
}

impl Default for PageSampling {
    /// DAMON's sampling interval, 5 ms.
    fn default() -> PageSampling {
        PageSampling { sampling: Time::from_ms(5) }
    }
}

impl Sensor {
    /// Every sensor, with default settings.
    pub fn all() -> [Sensor; 19] {
        [
            Sensor::Regions(RegionSampling::default()),
            Sensor::HintFaults,
            Sensor::SlowTierFaults,
            Sensor::TlbMisses(TlbMissSampling::default()),
            Sensor::LlcMisses,
            Sensor::AccessSamples(AccessSampling::default()),
            Sensor::Threads,
            Sensor::NodeTraffic,
            Sensor::ThreadTraffic,
            Sensor::LoadedLatency,
            Sensor::PageFaults,
            Sensor::Watermarks,
            Sensor::InactivePages,
            Sensor::LruPages,
            Sensor::PageSamples(PageSampling::default()),
            Sensor::Frames,
            Sensor::Messages,
            Sensor::TaskLifecycle,
            Sensor::CacheUtility,
        ]
    }

    /// Its name, without settings: `regions`, `hint-faults`, ...
    pub fn name(&self) -> &'static str {
        match self {
            Sensor::Regions(_) => "regions",
            Sensor::HintFaults => "hint-faults",
            Sensor::SlowTierFaults => "slow-tier-faults",
            Sensor::TlbMisses(_) => "tlb-misses",
            Sensor::LlcMisses => "llc-misses",
            Sensor::AccessSamples(_) => "access-samples",
            Sensor::Threads => "threads",
            Sensor::NodeTraffic => "node-traffic",
            Sensor::ThreadTraffic => "thread-traffic",
            Sensor::LoadedLatency => "loaded-latency",
            Sensor::PageFaults => "page-faults",
            Sensor::Watermarks => "watermarks",
            Sensor::InactivePages => "inactive-pages",
            Sensor::LruPages => "lru-pages",
            Sensor::PageSamples(_) => "page-samples",
            Sensor::Frames => "frames",
            Sensor::Messages => "messages",
            Sensor::TaskLifecycle => "task-lifecycle",
            Sensor::CacheUtility => "cache-utility",
        }
    }
}

/// A request for a sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sensor and its settings.
    pub sensor: Sensor,
    /// Whether the policy cannot work without it.
    pub required: bool,
}

/// A policy's requested sensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensors {
    /// How events are delivered.
    pub delivery: Delivery,
    /// Time from the start to the first [`decide`](super::Migration::decide), which then returns when to be
    /// called next; [`Time::NEVER`] for an in-kernel policy that asks for it
    /// ([`Plan::decide_now`](super::Plan::decide_now)).
    pub first_epoch: Time,
    /// Whether kernel threads copy pages while they stay mapped, if the host can: a store to a page drops its
    /// copy, which is made again (hinuma section III-D). If false, accesses wait for the copy.
    pub copy_on_write: bool,
    requests: Vec<Request>,
}

impl Sensors {
    /// No sensors yet.
    pub fn new(delivery: Delivery, first_epoch: Time) -> Sensors {
        Sensors { delivery, first_epoch, copy_on_write: false, requests: Vec::new() }
    }

    /// Lets pages stay mapped while kernel threads copy them.
    #[must_use]
    pub fn copy_on_write(self) -> Sensors {
        Sensors { copy_on_write: true, ..self }
    }

    /// Adds a sensor that the policy cannot work without.
    #[must_use]
    pub fn require(self, sensor: Sensor) -> Sensors {
        self.with(sensor, true)
    }

    /// Adds a sensor that the policy can work without.
    #[must_use]
    pub fn want(self, sensor: Sensor) -> Sensors {
        self.with(sensor, false)
    }

    /// Adds a sensor; one that was already requested keeps its settings, and is required if either request
    /// requires it.
    fn with(mut self, sensor: Sensor, required: bool) -> Sensors {
        match self.requests.iter_mut().find(|request| request.sensor.name() == sensor.name()) {
            Some(known) => known.required |= required,
            None => self.requests.push(Request { sensor, required }),
        }
        self
    }

    /// The requests, in the policy's order.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Region sampling, if requested.
    pub fn regions(&self) -> Option<RegionSampling> {
        self.requests.iter().find_map(|request| match request.sensor {
            Sensor::Regions(sampling) => Some(sampling),
            _ => None,
        })
    }

    /// Sampling of accesses, if requested.
    pub fn access_samples(&self) -> Option<AccessSampling> {
        self.requests.iter().find_map(|request| match request.sensor {
            Sensor::AccessSamples(sampling) => Some(sampling),
            _ => None,
        })
    }

    /// Counting of TLB misses, if requested.
    pub fn tlb_misses(&self) -> Option<TlbMissSampling> {
        self.requests.iter().find_map(|request| match request.sensor {
            Sensor::TlbMisses(sampling) => Some(sampling),
            _ => None,
        })
    }

    /// Whether NUMA hint faults are requested, of all nodes or of slow ones.
    pub fn hint_faults(&self) -> bool {
        let faults =
            |request: &Request| matches!(request.sensor, Sensor::HintFaults | Sensor::SlowTierFaults);
        self.requests.iter().any(faults)
    }

    /// The same with all times divided by a machine's scale, and so the accesses from one sample to the next.
    #[must_use]
    pub fn scaled(&self, scale: u32) -> Sensors {
        let time = |time: Time| match time {
            Time::NEVER => Time::NEVER,
            time => Time((time.0 / u64::from(scale)).max(1)),
        };
        let request = |request: &Request| match request.sensor {
            Sensor::Regions(regions) => {
                let (sampling, aggregation) = (time(regions.sampling), time(regions.aggregation));
                let sensor = Sensor::Regions(RegionSampling { sampling, aggregation, ..regions });
                Request { sensor, ..*request }
            }
            Sensor::TlbMisses(sampling) => {
                let sensor =
                    Sensor::TlbMisses(TlbMissSampling { marking: time(sampling.marking), ..sampling });
                Request { sensor, ..*request }
            }
            Sensor::AccessSamples(sampling) => {
                let period = (sampling.period / scale).max(1);
                Request { sensor: Sensor::AccessSamples(AccessSampling { period, ..sampling }), ..*request }
            }
            Sensor::PageSamples(PageSampling { sampling }) => {
                let sensor = Sensor::PageSamples(PageSampling { sampling: time(sampling) });
                Request { sensor, ..*request }
            }
            _ => *request,
        };
        let requests = self.requests.iter().map(request).collect();
        Sensors { first_epoch: time(self.first_epoch), requests, ..*self }
    }
}

/// A host's answer to a request for a sensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Observed directly: by which means.
    Observed(String),
    /// Inferred: from what.
    Inferred(String),
    /// Not available: why.
    Refused(String),
}

impl Answer {
    /// `observed`, `inferred` or `refused`; and the means, source or reason.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Answer::Observed(means) => ("observed", means),
            Answer::Inferred(from) => ("inferred", from),
            Answer::Refused(why) => ("refused", why),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answer, how) = self.parts();
        write!(f, "{answer}: {how}")
    }
}

/// A host's answers by sensor name. Stamps all data of an epoch ([`View::answers`](super::View::answers)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Answers(Vec<(String, Answer)>);

/// A required sensor that the host refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy needs the sensor `{sensor}`: {why}")]
pub struct SensorRefused {
    /// The sensor's name.
    pub sensor: &'static str,
    /// The reason.
    pub why: String,
}

impl Answers {
    /// Requests each sensor from a host. `answer` returns `None` for a sensor unknown to the host.
    ///
    /// # Errors
    /// The first refused required sensor.
    pub fn ask(
        sensors: &Sensors,
        mut answer: impl FnMut(&Sensor) -> Option<Answer>,
    ) -> Result<Answers, SensorRefused> {
        let mut answers = Answers::default();
        for Request { sensor, required } in sensors.iter() {
            let unknown = || Answer::Refused("memtide has no such sensor for this host".to_owned());
            let answer = answer(sensor).unwrap_or_else(unknown);
            if let (true, Answer::Refused(why)) = (required, &answer) {
                return Err(SensorRefused { sensor: sensor.name(), why: why.clone() });
            }
            answers.set(sensor, answer);
        }
        Ok(answers)
    }

    /// The answer for a sensor; `None` if not requested.
    pub fn get(&self, sensor: &Sensor) -> Option<&Answer> {
        self.0.iter().find(|(name, _)| name == sensor.name()).map(|(_, answer)| answer)
    }

    /// Changes the answer for a sensor, for instance when another monitor takes over.
    pub fn set(&mut self, sensor: &Sensor, answer: Answer) {
        match self.0.iter_mut().find(|(name, _)| name == sensor.name()) {
            Some((_, known)) => *known = answer,
            None => self.0.push((sensor.name().to_owned(), answer)),
        }
    }

    /// Names and answers, in the order of the requests.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.0.iter().map(|(name, answer)| (name.as_str(), answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sensors() -> Sensors {
        Sensors::new(Delivery::Deployable, Time::from_ms(100))
            .require(Sensor::HintFaults)
            .want(Sensor::LoadedLatency)
    }

    #[test]
    fn sensor_names_are_unique() {
        let names: std::collections::BTreeSet<&str> = Sensor::all().iter().map(Sensor::name).collect();
        assert_eq!(names.len(), Sensor::all().len());
    }

    #[test]
    fn refused_required_sensor_refuses_the_policy() {
        let refused = Answers::ask(&sensors(), |sensor| match sensor {
            Sensor::HintFaults => None,
            _ => Some(Answer::Observed("counters".to_owned())),
        });
        let why = "the policy needs the sensor `hint-faults`: memtide has no such sensor for this host";
        assert_eq!(refused.map_err(|error| error.to_string()), Err(why.to_owned()));
    }

    #[test]
    fn refused_wanted_sensor_is_an_answer() {
        let inferred = Answer::Inferred("region accesses".to_owned());
        let answers =
            Answers::ask(&sensors(), |sensor| (*sensor == Sensor::HintFaults).then(|| inferred.clone()));
        let answers = answers.expect("the required sensor is answered");
        assert_eq!(answers.get(&Sensor::HintFaults), Some(&inferred));
        assert!(matches!(answers.get(&Sensor::LoadedLatency), Some(Answer::Refused(_))));
        assert_eq!(answers.get(&Sensor::Watermarks), None, "not requested");
    }

    #[test]
    fn sensor_requested_twice_is_required_if_either_is() {
        let twice = sensors().want(Sensor::HintFaults).require(Sensor::LoadedLatency);
        let required: Vec<bool> = twice.iter().map(|request| request.required).collect();
        assert_eq!(required, [true, true]);
    }

    #[test]
    fn tuned_interval_keeps_to_the_budget() {
        let (sampling, aggregation) = (Time::from_ms(10), Time::from_ms(500));
        let regions = RegionSampling { sampling, aggregation, budget_bp: Some(100), ..Default::default() };
        // 1,000 regions of 1 us each: 10 % of a core at 10 ms, 1 % would be at 100 ms.
        let spent = |interval: Time, sample_ns: u64| Time(sample_ns * 1000 * (aggregation.0 / interval.0));
        for (sample_ns, expected_us) in [(1_000_000, 50_000), (100_000, 10_000), (1000, 100), (0, 100)] {
            let mut interval = sampling;
            for _ in 0..10 {
                interval = regions.tuned(interval, spent(interval, sample_ns), aggregation);
            }
            let share = interval.0 as f64 / Time::from_us(expected_us).0 as f64;
            assert!((2.0 / 3.0..=2.0).contains(&share), "{sample_ns}: {interval}");
        }
        let free = RegionSampling { budget_bp: None, ..regions };
        assert_eq!(free.tuned(sampling, aggregation, aggregation), sampling);
    }

    #[test]
    fn scale_divides_times_and_nothing_else() {
        let sampling = RegionSampling {
            sampling: Time::from_ms(8),
            aggregation: Time::from_ms(80),
            regions_max: 300,
            writes: true,
            budget_bp: Some(100),
        };
        let scaled = sensors().want(Sensor::Regions(sampling)).scaled(8);
        assert_eq!(scaled.first_epoch, Time(12_500_000_000));
        let expected =
            RegionSampling { sampling: Time::from_ms(1), aggregation: Time::from_ms(10), ..sampling };
        assert_eq!(scaled.regions(), Some(expected));
        assert_eq!(Sensors::new(Delivery::InKernel, Time::NEVER).scaled(8).first_epoch, Time::NEVER);
    }
}
