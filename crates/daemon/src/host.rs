//! The daemon's host: this system, or a fake host in tests.

use std::io;
use std::time::Duration;

use memtide_core::epoch::Host;
use memtide_core::policy::{Answers, SensorRefused, Sensors};
use memtide_core::{NodeId, Vpn};
use memtide_linux::live::{Live, Monitoring};
use memtide_linux::movers::{ProcMemory, ProcessMemory};
use memtide_linux::processes::{self, Process};
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::{Numbers, System, TopologyError};
use rustix::process::Pid;

/// A host with processes.
pub trait DaemonHost: Host {
    /// All processes with at least this many resident base pages, by process id.
    ///
    /// # Errors
    /// If they cannot be read.
    fn processes(&mut self, least_pages: u64, scan_interval: Duration) -> io::Result<Vec<Process>>;

    /// A process by its id, if there is one.
    fn process(&self, pid: Pid) -> Option<Process>;

    /// Replaces the watched processes.
    fn watch(&mut self, processes: Vec<Process>);

    /// The watched processes.
    fn watched(&self) -> &[Process];

    /// The sensors' current answers.
    fn answers(&self) -> &Answers;

    /// How regions are monitored; `None` if they are not.
    fn monitoring(&self) -> Option<Monitoring<'_>>;

    /// The node of a page of a process; `None` if it is not resident.
    fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId>;

    /// The watched process that a page of another one belongs to, as memory that both map, and its page
    /// there; by default its own.
    fn owner_of(&self, process: &Process, page: Vpn) -> (Pid, Vpn) {
        (process.pid, page)
    }

    /// The memory of a process, for a transfer.
    fn memory(&self, process: &Process) -> Box<dyn ProcessMemory>;

    /// The system's nodes and CPUs, read again.
    ///
    /// # Errors
    /// If they cannot be read.
    fn system(&self) -> Result<System, TopologyError>;

    /// Errors since the last call, for the log.
    fn take_troubles(&mut self) -> Vec<String>;

    /// Allows a user's request to move pages of a process until [`end_request`](DaemonHost::end_request).
    fn begin_request(&mut self, process: Process);

    /// Ends a user's request.
    fn end_request(&mut self, pid: Pid);

    /// Sets how long a batch of moves may stall a process, and whether moves are made.
    fn set(&mut self, stall: Duration, dry_run: bool);

    /// Moves the daemon's own heap and stacks to the first of these nodes, by the system's numbers, that has
    /// room.
    ///
    /// # Errors
    /// If the daemon's mappings cannot be read.
    fn move_own_memory(&mut self, nodes: &[NodeId]) -> io::Result<()>;

    /// Observes what another policy requests; the processes must be watched again.
    ///
    /// # Errors
    /// If a sensor that the policy requires is refused; nothing is observed then.
    fn set_sensors(
        &mut self,
        numbers: Numbers,
        sensors: &Sensors,
        monitor: Option<Kind>,
    ) -> Result<(), SensorRefused>;
}

impl DaemonHost for Live {
    fn processes(&mut self, least_pages: u64, scan_interval: Duration) -> io::Result<Vec<Process>> {
        self.large_processes(least_pages, scan_interval)
    }

    fn process(&self, pid: Pid) -> Option<Process> {
        processes::one(pid)
    }

    fn watch(&mut self, processes: Vec<Process>) {
        Live::watch(self, processes);
    }

    fn watched(&self) -> &[Process] {
        Live::watched(self)
    }

    fn answers(&self) -> &Answers {
        Live::answers(self)
    }

    fn monitoring(&self) -> Option<Monitoring<'_>> {
        Live::monitoring(self)
    }

    fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId> {
        Live::node_of(self, process, page)
    }

    fn owner_of(&self, process: &Process, page: Vpn) -> (Pid, Vpn) {
        Live::owner_of(self, process, page)
    }

    fn memory(&self, process: &Process) -> Box<dyn ProcessMemory> {
        Box::new(ProcMemory::new(process.clone()))
    }

    fn system(&self) -> Result<System, TopologyError> {
        System::read()
    }

    fn take_troubles(&mut self) -> Vec<String> {
        Live::take_troubles(self)
    }

    fn begin_request(&mut self, process: Process) {
        Live::begin_request(self, process);
    }

    fn end_request(&mut self, pid: Pid) {
        Live::end_request(self, pid);
    }

    fn set(&mut self, stall: Duration, dry_run: bool) {
        Live::set(self, stall, dry_run);
    }

    fn move_own_memory(&mut self, nodes: &[NodeId]) -> io::Result<()> {
        Live::move_own_memory(self, nodes)
    }

    fn set_sensors(
        &mut self,
        numbers: Numbers,
        sensors: &Sensors,
        monitor: Option<Kind>,
    ) -> Result<(), SensorRefused> {
        Live::set_sensors(self, numbers, sensors, monitor)
    }
}
