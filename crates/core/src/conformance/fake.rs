//! A host without hardware: pages in a table, sensors set by a test, actions that take a configurable time.
//!
//! It performs every action and answers every sensor, so that a policy can be tested before a real host
//! supports it. Sensors that the policy did not request (in its [`Sensors`]) fill nothing.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU16;

use crate::epoch::Host;
use crate::ids::{CpuId, NodeId, TaskId, ThreadId};
use crate::policy::{
    AccessSampling, Action, Answer, Answers, CacheUtility, Cancellation, Completion, Event, Frame, HintFault,
    Move, NodeView, Outcome, Page, Planned, Refusal, Region, Rule, Sensor, SensorRefused, Sensors, TaskEvent,
    TaskView, ThreadView, TlbMissSampling, View, Watermarks,
};
use crate::units::{PageSize, Time, Vpn};

/// A simulated host made of tables.
#[derive(Debug)]
pub struct FakeHost {
    now: Time,
    /// Duration of each action; actions are performed one after another.
    pub action_time: Time,
    /// Associativity of its last-level cache, which all tasks share.
    pub cache_ways: u16,
    answers: Answers,
    nodes: Vec<NodeView>,
    tasks: BTreeMap<TaskId, FakeTask>,
    pages: BTreeMap<(TaskId, Vpn), FakePage>,
    /// Frames that are not available to pages.
    taken: Vec<(NodeId, Frame)>,
    events: Vec<Event>,
    queue: VecDeque<(Time, Planned)>,
    done: Vec<Completion>,
}

/// A task of a [`FakeHost`].
#[derive(Clone, Debug)]
pub struct FakeTask {
    /// Its view, except for what derives from its pages.
    pub view: TaskView,
    /// Its threads.
    pub threads: Vec<ThreadView>,
    /// Whether it is frozen.
    pub frozen: bool,
    /// Its utility of the last-level cache, except for its id and quota.
    pub cache_utility: Option<CacheUtility>,
    /// Its quota of the last-level cache.
    pub cache_quota: Option<NonZeroU16>,
}

/// A page of a [`FakeHost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakePage {
    /// Its size.
    pub size: PageSize,
    /// Its node.
    pub node: NodeId,
    /// Its frame on the node.
    pub frame: Frame,
    /// Reads since the last epoch.
    pub reads: u32,
    /// Writes since the last epoch.
    pub writes: u32,
    /// Epochs since it was last accessed.
    pub age: u32,
}

impl FakeTask {
    fn cache_utility(&self, task: TaskId) -> Option<CacheUtility> {
        let utility = self.cache_utility.clone()?;
        Some(CacheUtility { task, quota_ways: self.cache_quota, ..utility })
    }
}

impl FakeHost {
    /// A host whose nodes have this many base pages, all free.
    ///
    /// # Errors
    /// None: it answers every sensor. The signature is that of a host that may refuse.
    pub fn new(node_pages: &[u64], sensors: &Sensors) -> Result<FakeHost, SensorRefused> {
        let observed = || Answer::Observed("set by the test".to_owned());
        let node = |(number, &pages): (usize, &u64)| NodeView {
            node: NodeId::from(number),
            pages,
            free_pages: pages,
            per_cpu_pages: 0,
            watermarks: Some(Watermarks { low_pages: pages / 50, high_pages: pages / 25 }),
            traffic: None,
            loaded_latency: None,
        };
        Ok(FakeHost {
            now: Time::ZERO,
            action_time: Time::ZERO,
            cache_ways: 16,
            answers: Answers::ask(sensors, |_| Some(observed()))?,
            nodes: node_pages.iter().enumerate().map(node).collect(),
            tasks: BTreeMap::new(),
            pages: BTreeMap::new(),
            taken: Vec::new(),
            events: Vec::new(),
            queue: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// Advances to a time and completes the actions due until then.
    pub fn advance(&mut self, time: Time) {
        self.now += time;
        while self.queue.front().is_some_and(|(due, _)| *due <= self.now) {
            let (due, planned) = self.queue.pop_front().expect("an action that is due");
            let outcome = match self.check(&planned.action) {
                Ok(()) => self.finish(&planned.action),
                Err(why) if matches!(planned.action, Action::CacheQuota(..)) => Outcome::Refused(why),
                Err(_) => self.cancel(&planned.action, Cancellation::Unmapped),
            };
            self.done.push(Completion { time: due, planned, outcome });
        }
    }

    /// Starts a task with one thread on CPU 0.
    pub fn start_task(&mut self, task: TaskId, name: &str) {
        let view = TaskView {
            task,
            name: name.to_owned(),
            owner: None,
            priority: None,
            page_faults: None,
            resident_pages: 0,
            footprint: Vec::new(),
            rule: None,
        };
        let thread = ThreadView { thread: ThreadId(task.0), task, cpu: Some(CpuId(0)), traffic: None };
        let (cache_utility, cache_quota) = (None, None);
        let started = FakeTask { view, threads: vec![thread], frozen: false, cache_utility, cache_quota };
        self.tasks.insert(task, started);
        self.events.push(Event::Task(TaskEvent { time: self.now, task, started: true }));
    }

    /// Ends a task: its pages are freed, and its actions are cancelled.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn end_task(&mut self, task: TaskId) {
        self.tasks.remove(&task).expect("a task that was started");
        self.cancel_queued(Cancellation::TaskEnded, |action| concerns(action, task));
        let heads: Vec<Vpn> = self.pages_of(task).map(|(page, _)| page).collect();
        heads.into_iter().for_each(|page| self.unmap(task, page));
        self.events.push(Event::Task(TaskEvent { time: self.now, task, started: false }));
    }

    /// Maps a page on a node.
    ///
    /// # Panics
    /// If the node has too few free pages.
    pub fn map(&mut self, task: TaskId, page: Vpn, size: PageSize, node: NodeId) {
        assert!(self.take(node, size), "{node} has no room for {page:?}");
        let page_of = FakePage { size, node, frame: Frame::ANY, reads: 0, writes: 0, age: 0 };
        self.pages.insert((task, page), page_of);
    }

    /// Unmaps the page that begins here, if any; its moves are cancelled.
    pub fn unmap(&mut self, task: TaskId, page: Vpn) {
        if let Some(FakePage { node, size, .. }) = self.pages.remove(&(task, page)) {
            self.give(node, size);
            let is_its = |wanted: &Move| (wanted.task, wanted.page) == (task, page);
            self.cancel_queued(Cancellation::Unmapped, |action| action.moves().iter().any(is_its));
        }
    }

    /// Makes frames of this colour and bank unavailable: a page that requests one gets a later bank, or a
    /// later colour if no bank is named.
    ///
    /// # Panics
    /// If the frame has neither colour nor bank.
    pub fn take_frames(&mut self, node: NodeId, frame: Frame) {
        assert!(!frame.is_any(), "{node} would have no frames left");
        self.taken.push((node, frame));
    }

    /// The page that begins here.
    pub fn page(&mut self, task: TaskId, page: Vpn) -> Option<&mut FakePage> {
        self.pages.get_mut(&(task, page))
    }

    /// A task's pages, in order.
    pub fn pages_of(&self, task: TaskId) -> impl Iterator<Item = (Vpn, &FakePage)> {
        self.pages.range((task, Vpn(0))..=(task, Vpn(u64::MAX))).map(|((_, page), found)| (*page, found))
    }

    /// A task.
    pub fn task(&mut self, task: TaskId) -> Option<&mut FakeTask> {
        self.tasks.get_mut(&task)
    }

    /// A node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&mut self, node: NodeId) -> &mut NodeView {
        &mut self.nodes[node.index()]
    }

    /// Adds an event to the next epoch.
    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// A thread of a task reads a page that the NUMA scanner had unmapped.
    pub fn hint_fault(&mut self, task: TaskId, page: Vpn, cpu: CpuId) -> HintFault {
        let FakePage { size, node, .. } = self.pages[&(task, page)];
        let (time, thread) = (self.now, ThreadId(task.0));
        let fault =
            HintFault { time, task, thread, cpu, page, size, node, write: false, pass: 0, idle: None };
        self.events.push(Event::HintFault(fault));
        fault
    }

    /// Takes the node offline and cancels moves to it. If pages are on it, nothing happens, as in Linux.
    pub fn unplug(&mut self, node: NodeId) {
        if self.pages.values().all(|page| page.node != node) {
            self.cancel_queued(
                Cancellation::NodeOffline,
                |action| matches!(action, Action::Move(wanted) if wanted.to == node),
            );
            let view = &mut self.nodes[node.index()];
            (view.pages, view.free_pages) = (0, 0);
        }
    }

    fn take(&mut self, node: NodeId, size: PageSize) -> bool {
        let view = &mut self.nodes[node.index()];
        let fits = view.free_pages >= size.base_pages();
        if fits {
            view.free_pages -= size.base_pages();
        }
        fits
    }

    fn give(&mut self, node: NodeId, size: PageSize) {
        self.nodes[node.index()].free_pages += size.base_pages();
    }

    /// Begins an action: a move reserves its frame.
    fn begin(&mut self, action: &Action) -> Result<(), Refusal> {
        let names = |planned: &Planned, wanted: &Move| {
            planned.action.moves().iter().any(|other| (other.task, other.page) == (wanted.task, wanted.page))
        };
        for wanted in action.moves() {
            if self.queue.iter().any(|(_, planned)| names(planned, wanted)) {
                return Err(Refusal::Busy);
            }
        }
        self.check(action)?;
        match action {
            Action::Move(wanted) if !self.take(wanted.to, wanted.size) => Err(Refusal::NoRoom),
            _ => Ok(()),
        }
    }

    /// The same action with the pages' current nodes: the policy's may be stale.
    fn located(&self, planned: &Planned) -> Planned {
        let located = |wanted: Move| match self.pages.get(&(wanted.task, wanted.page)) {
            Some(page) => Move { from: page.node, ..wanted },
            None => wanted,
        };
        let action = match &planned.action {
            Action::Move(wanted) => Action::Move(located(*wanted)),
            Action::Exchange(pair) => Action::Exchange(Box::new(pair.map(located))),
            action => action.clone(),
        };
        Planned { action, ..planned.clone() }
    }

    /// Why an action cannot be performed, if so.
    fn check(&self, action: &Action) -> Result<(), Refusal> {
        match action {
            Action::Move(wanted) => self.check_move(wanted),
            Action::Exchange(pair) => self.check_exchange(pair),
            Action::Split(Page { task, page, .. }) => match self.pages.get(&(*task, *page)) {
                Some(found) if found.size == PageSize::Huge => Ok(()),
                _ => Err(Refusal::Gone),
            },
            Action::Collapse(Page { task, page, .. }) => {
                let all = page.0..page.0 + PageSize::Huge.base_pages();
                let found: Vec<&FakePage> =
                    all.clone().filter_map(|page| self.pages.get(&(*task, Vpn(page)))).collect();
                if found.len() != all.count() || found.iter().any(|page| page.size != PageSize::Base) {
                    return Err(Refusal::Gone);
                }
                let together = found.iter().all(|page| page.node == found[0].node);
                together.then_some(()).ok_or(Refusal::Gone)
            }
            Action::Freeze(task) | Action::Thaw(task) | Action::SetRule(task, _) => {
                self.tasks.contains_key(task).then_some(()).ok_or(Refusal::Gone)
            }
            Action::CacheQuota(task, ways) => self.check_quota(*task, *ways),
            Action::Pin(_) | Action::Unpin(_) => unreachable!("the governor keeps pins"),
        }
    }

    fn check_quota(&self, task: TaskId, ways: Option<NonZeroU16>) -> Result<(), Refusal> {
        if !self.tasks.contains_key(&task) {
            return Err(Refusal::Gone);
        }
        let others = self.tasks.iter().filter(|(other, _)| **other != task);
        let others = others.filter_map(|(_, other)| other.cache_quota);
        let all: u64 = others.chain(ways).map(|ways| u64::from(ways.get())).sum();
        if ways.is_some() && all > u64::from(self.cache_ways) { Err(Refusal::NoRoom) } else { Ok(()) }
    }

    fn check_move(&self, wanted: &Move) -> Result<(), Refusal> {
        let page = self.pages.get(&(wanted.task, wanted.page)).filter(|page| page.size == wanted.size);
        let page = page.ok_or(Refusal::Gone)?;
        if page.node == wanted.to && page.frame.satisfies(&wanted.wish) {
            return Err(Refusal::AlreadyThere);
        }
        let offline = self.nodes[wanted.to.index()].pages == 0;
        if offline { Err(Refusal::NodeOffline) } else { Ok(()) }
    }

    /// An exchange needs pages of equal size, each on the other's target node.
    fn check_exchange(&self, pair: &[Move; 2]) -> Result<(), Refusal> {
        pair.iter().try_for_each(|wanted| self.check_move(wanted))?;
        let [first, second] = pair.map(|wanted| self.pages[&(wanted.task, wanted.page)]);
        if first.size != second.size {
            return Err(Refusal::Unsupported);
        }
        let crossed = (first.node, second.node) == (pair[1].to, pair[0].to);
        crossed.then_some(()).ok_or(Refusal::Gone)
    }

    /// Completes an action that has begun and was checked.
    fn finish(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Move(wanted) => return Outcome::Made(self.finish_move(wanted)),
            Action::Exchange(pair) => {
                let keys = pair.map(|wanted| (wanted.task, wanted.page));
                let nodes = keys.map(|key| self.pages[&key].node);
                self.pages.get_mut(&keys[0]).expect("checked").node = nodes[1];
                self.pages.get_mut(&keys[1]).expect("checked").node = nodes[0];
            }
            Action::Split(Page { task, page, .. }) => {
                let whole = self.pages.remove(&(*task, *page)).expect("checked");
                for at in 0..PageSize::Huge.base_pages() {
                    self.pages.insert((*task, Vpn(page.0 + at)), FakePage { size: PageSize::Base, ..whole });
                }
            }
            Action::Collapse(Page { task, page, .. }) => {
                let first = self.pages[&(*task, *page)];
                for at in 0..PageSize::Huge.base_pages() {
                    self.pages.remove(&(*task, Vpn(page.0 + at)));
                }
                self.pages.insert((*task, *page), FakePage { size: PageSize::Huge, ..first });
            }
            Action::Freeze(task) | Action::Thaw(task) => {
                self.tasks.get_mut(task).expect("checked").frozen = matches!(action, Action::Freeze(_));
            }
            Action::SetRule(task, rule) => {
                let rule: Rule = (**rule).clone();
                self.tasks.get_mut(task).expect("checked").view.rule = Some(rule);
            }
            Action::CacheQuota(task, ways) => {
                self.tasks.get_mut(task).expect("checked").cache_quota = *ways;
            }
            Action::Pin(_) | Action::Unpin(_) => unreachable!("the governor keeps pins"),
        }
        Outcome::MADE
    }

    /// Moves a page. Its wish is fulfilled unless those frames are taken.
    fn finish_move(&mut self, wanted: &Move) -> Frame {
        let later = |Frame { colour, bank }: &Frame| {
            let next = |number: u16| number.wrapping_add(1);
            let colour = if bank.is_some() { *colour } else { colour.map(next) };
            Some(Frame { colour, bank: bank.map(next) })
        };
        let frame = std::iter::successors(Some(wanted.wish), later)
            .find(|frame| !self.taken.contains(&(wanted.to, *frame)))
            .expect("65536 banks or colours, and fewer that are taken");
        let page = self.pages.get_mut(&(wanted.task, wanted.page)).expect("checked");
        let from = std::mem::replace(&mut page.node, wanted.to);
        page.frame = frame;
        self.give(from, wanted.size);
        frame
    }

    /// Releases a reserved frame.
    fn cancel(&mut self, action: &Action, why: Cancellation) -> Outcome {
        if let Action::Move(wanted) = action {
            self.give(wanted.to, wanted.size);
        }
        Outcome::Cancelled(why)
    }

    /// Cancels queued actions.
    fn cancel_queued(&mut self, why: Cancellation, is_cancelled: impl Fn(&Action) -> bool) {
        for (due, planned) in std::mem::take(&mut self.queue) {
            if is_cancelled(&planned.action) {
                let outcome = self.cancel(&planned.action, why);
                self.done.push(Completion { time: self.now, planned, outcome });
            } else {
                self.queue.push_back((due, planned));
            }
        }
    }

    /// Whether a sensor of this name was requested.
    fn senses(&self, sensor: &Sensor) -> bool {
        self.answers.get(sensor).is_some()
    }

    fn node_view(&self, node: &NodeView) -> NodeView {
        NodeView {
            watermarks: node.watermarks.filter(|_| self.senses(&Sensor::Watermarks)),
            traffic: node.traffic.filter(|_| self.senses(&Sensor::NodeTraffic)),
            loaded_latency: node.loaded_latency.filter(|_| self.senses(&Sensor::LoadedLatency)),
            ..*node
        }
    }

    fn thread_view(&self, thread: &ThreadView) -> ThreadView {
        let traffic = thread.traffic.filter(|_| self.senses(&Sensor::ThreadTraffic));
        ThreadView { traffic, ..thread.clone() }
    }

    fn reports(&self, event: &Event) -> bool {
        match event {
            Event::HintFault(_) => self.senses(&Sensor::HintFaults) || self.senses(&Sensor::SlowTierFaults),
            Event::TlbMiss(_) => self.senses(&Sensor::TlbMisses(TlbMissSampling::default())),
            Event::AccessSample(_) => self.senses(&Sensor::AccessSamples(AccessSampling::default())),
            Event::Message(_) => self.senses(&Sensor::Messages),
            Event::Task(_) => self.senses(&Sensor::TaskLifecycle),
            Event::Completion(_) => false,
        }
    }

    fn task_view(&self, task: &FakeTask) -> TaskView {
        let mut footprint = vec![0; self.nodes.len()];
        let id = task.view.task;
        for (_, page) in self.pages_of(id) {
            footprint[page.node.index()] += page.size.base_pages();
        }
        let page_faults = task.view.page_faults.filter(|_| self.senses(&Sensor::PageFaults));
        TaskView { resident_pages: footprint.iter().sum(), footprint, page_faults, ..task.view.clone() }
    }
}

impl Host for FakeHost {
    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        let happened = std::mem::take(&mut self.events);
        events.extend(happened.into_iter().filter(|event| self.reports(event)));
        view.time = self.now;
        view.answers = self.answers.clone();
        view.nodes = self.nodes.iter().map(|node| self.node_view(node)).collect();
        view.tasks = self.tasks.values().map(|task| self.task_view(task)).collect();
        if self.senses(&Sensor::Threads) {
            let threads = self.tasks.values().flat_map(|task| &task.threads);
            view.threads = threads.map(|thread| self.thread_view(thread)).collect();
        }
        if self.senses(&Sensor::CacheUtility) {
            view.cache_utility = self.tasks.iter().filter_map(|(task, of)| of.cache_utility(*task)).collect();
        }
        let regions = self.answers.iter().any(|(sensor, _)| sensor == "regions");
        for (&(task, start), page) in &mut self.pages {
            page.age = if page.reads + page.writes > 0 { 0 } else { page.age + 1 };
            let FakePage { size, node, reads, writes, age, .. } = *page;
            if regions {
                view.regions.push(Region { task, start, pages: 1, size, node, reads, writes, age });
            }
            (page.reads, page.writes) = (0, 0);
        }
    }

    fn act(&mut self, actions: &[Planned]) {
        for planned in actions {
            if let Err(why) = self.begin(&planned.action) {
                let (time, planned) = (self.now, planned.clone());
                self.done.push(Completion { time, planned, outcome: Outcome::Refused(why) });
                continue;
            }
            let begins = self.queue.back().map_or(self.now, |(due, _)| *due);
            self.queue.push_back((begins + self.action_time, self.located(planned)));
        }
        self.advance(Time::ZERO);
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

/// Whether an action affects a task.
fn concerns(action: &Action, task: TaskId) -> bool {
    match action {
        Action::Move(_) | Action::Exchange(_) => action.moves().iter().any(|wanted| wanted.task == task),
        Action::Split(page) | Action::Collapse(page) | Action::Pin(page) | Action::Unpin(page) => {
            page.task == task
        }
        Action::Freeze(other)
        | Action::Thaw(other)
        | Action::SetRule(other, _)
        | Action::CacheQuota(other, _) => *other == task,
    }
}
