//! The simulated machine's sensors: one file each.
//!
//! A sensor registers in [`ALL`]; others are refused. The order is that of filling: a sensor can use the data
//! of those before it.

mod access_samples;
mod cache_utility;
mod frames;
mod hint_faults;
mod inactive_pages;
mod llc_misses;
mod loaded_latency;
mod lru_pages;
mod messages;
mod node_traffic;
mod page_faults;
mod page_samples;
mod regions;
mod runs;
mod slow_tier_faults;
mod task_lifecycle;
mod tasks;
mod thread_traffic;
mod threads;
mod tlb_misses;
mod watermarks;

use memtide_core::policy::{
    Answer, Answers, Delivery, Event, NodeView, Sensor, SensorRefused, Sensors, TlbMissSampling, View,
};
use memtide_core::{NodeId, Time};

pub(crate) use self::access_samples::AccessSampler;
use crate::engine::Engine;
use crate::os::Os;
use crate::report::PageSamplesReport;

/// Maximum events per epoch for a policy outside the kernel; later ones are lost, as in a full ring buffer.
const EVENTS_MAX: usize = 1 << 16;

/// An open sensor.
pub(crate) trait Sense: Send {
    /// Fills in its observations.
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View);

    /// Updates its observations in the view of an in-kernel policy.
    fn refresh(&mut self, _: &mut Engine<'_>, _: &mut View) {}

    /// Time of kernel threads other than for samples.
    fn kernel_time(&self) -> Time {
        Time::ZERO
    }

    /// Sampling interval, if it samples.
    fn sampling(&self) -> Option<Time> {
        None
    }

    /// How page table entries are marked to count TLB misses, if they are.
    fn tlb_misses(&self) -> Option<TlbMissSampling> {
        None
    }

    /// Takes a sample.
    fn sample(&mut self, _: &mut Os) {}

    /// What its samples of all pages showed in each epoch.
    fn page_samples(&self) -> &[PageSamplesReport] {
        &[]
    }

    /// Cost of its samples so far, and the number of epochs in which it was read; `None` if it does not
    /// sample.
    fn cost(&self) -> Option<(Time, u64)> {
        None
    }
}

/// Parameters for opening a sensor.
pub(crate) struct SensorSetup {
    pub seed: u64,
}

/// A sensor's entry: `None` if another one is requested.
type Open = fn(&Sensor, &SensorSetup) -> Option<Box<dyn Sense>>;

const ALL: [Open; 19] = [
    access_samples::open,
    hint_faults::open,
    inactive_pages::open,
    llc_misses::open,
    loaded_latency::open,
    lru_pages::open,
    messages::open,
    node_traffic::open,
    page_faults::open,
    page_samples::open,
    regions::open,
    slow_tier_faults::open,
    task_lifecycle::open,
    threads::open,
    tlb_misses::open,
    thread_traffic::open,
    watermarks::open,
    frames::open,
    cache_utility::open,
];

/// The sensors that a policy requested.
pub(crate) struct OpenSensors {
    /// When events are delivered to the policy.
    pub delivery: Delivery,
    answers: Answers,
    open: Vec<Box<dyn Sense>>,
    /// Events since the last epoch.
    events: Vec<Event>,
}

impl OpenSensors {
    /// Opens the sensors that a policy requests.
    pub fn new(requests: &Sensors, setup: &SensorSetup) -> Result<OpenSensors, SensorRefused> {
        let mut open = Vec::new();
        let answers = Answers::ask(requests, |sensor| {
            let (at, opened) = (0..).zip(ALL).find_map(|(at, entry)| Some((at, entry(sensor, setup)?)))?;
            open.push((at, opened));
            Some(Answer::Observed("simulated".to_owned()))
        })?;
        open.sort_by_key(|(at, _): &(usize, Box<dyn Sense>)| *at);
        let open = open.into_iter().map(|(_, opened)| opened).collect();
        Ok(OpenSensors { delivery: requests.delivery, answers, open, events: Vec::new() })
    }

    /// No sensors, without a policy.
    pub fn none() -> OpenSensors {
        let (answers, open, events) = Default::default();
        OpenSensors { delivery: Delivery::Deployable, answers, open, events }
    }

    /// The answer for each.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Whether a sensor is requested and open.
    pub fn has(&self, sensor: &Sensor) -> bool {
        self.answers.get(sensor).is_some_and(|answer| !matches!(answer, Answer::Refused(_)))
    }

    /// Queues an event for the next epoch.
    pub fn note(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    /// Sampling interval of those that sample.
    pub fn sampling(&self) -> Option<Time> {
        self.open.iter().find_map(|sensor| sensor.sampling())
    }

    /// How page table entries are marked to count TLB misses, if they are.
    pub fn tlb_misses(&self) -> Option<TlbMissSampling> {
        self.open.iter().find_map(|sensor| sensor.tlb_misses())
    }

    /// Takes a sample at the end of a sampling interval.
    pub fn sample(&mut self, os: &mut Os) {
        self.open.iter_mut().for_each(|sensor| sensor.sample(os));
    }

    /// Time of kernel threads other than for samples.
    pub fn kernel_time(&self) -> Time {
        self.open.iter().map(|sensor| sensor.kernel_time()).sum()
    }

    /// What samples of all pages showed in each epoch.
    pub fn page_samples(&self) -> &[PageSamplesReport] {
        self.open.iter().map(|sensor| sensor.page_samples()).find(|epochs| !epochs.is_empty()).unwrap_or(&[])
    }

    /// Cost of samples so far, and the number of epochs in which they were read; `None` if nothing samples.
    pub fn cost(&self) -> Option<(Time, u64)> {
        self.open.iter().find_map(|sensor| sensor.cost())
    }
}

impl Engine<'_> {
    /// Fills a view, and appends the events since the last one.
    pub(crate) fn sense(&mut self, view: &mut View, events: &mut Vec<Event>) {
        let mut sensors = std::mem::replace(&mut self.sensors, OpenSensors::none());
        events.append(&mut sensors.events);
        view.time = self.now;
        view.answers = sensors.answers.clone();
        view.nodes =
            (0..self.setup.machine.nodes.len()).map(|node| self.node_view(NodeId::from(node))).collect();
        tasks::fill(self, view);
        for sensor in &mut sensors.open {
            sensor.fill(self, view);
        }
        self.sensors = sensors;
    }

    /// Updates the nodes of a view.
    pub(crate) fn refresh(&mut self, view: &mut View) {
        let mut sensors = std::mem::replace(&mut self.sensors, OpenSensors::none());
        for node in self.setup.machine.node_ids() {
            let now = self.node_view(node);
            match view.nodes.get_mut(node.index()) {
                Some(known) => (known.pages, known.free_pages) = (now.pages, now.free_pages),
                None => view.nodes.push(now),
            }
        }
        sensors.open.iter_mut().for_each(|sensor| sensor.refresh(self, view));
        self.sensors = sensors;
    }

    fn node_view(&self, node: NodeId) -> NodeView {
        let (pages, free_pages) = self.os.frames.capacity(node);
        NodeView::new(node, pages, free_pages)
    }
}
