//! Memory hotplug in a running guest.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{LabError, Remedy};
use crate::layout::Layout;
use crate::qemu::Qmp;
use crate::run_dir;
use crate::running::{HotplugNode, Running, running};

/// Host time limit for a guest to take or release memory.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Time between two looks whether a guest has booted.
const BOOT_POLL: Duration = Duration::from_millis(100);

/// Event in a guest's report: memory added, memory to be removed (ACPI 6.5, section 6.3.5: `_OST`).
const EVENT_ADD: u64 = 1;
const EVENT_REMOVE: u64 = 3;

/// Status of that event.
const DONE: u64 = 0;
const UNDER_WAY: u64 = 0x84;

/// Hotpluggable nodes of a layout.
pub fn hotplug_nodes(layout: &Layout) -> Vec<HotplugNode> {
    let of = |number: usize| {
        let node = &layout.nodes[number];
        HotplugNode { name: node.name.clone(), mib: node.mib, number, start: layout.start(number) }
    };
    layout.absent().into_iter().map(of).collect()
}

/// A hotpluggable node of a running guest.
pub struct Hotplug {
    node: HotplugNode,
    guest: Running,
    /// Once it was needed: QEMU has one client at a time.
    qmp: Option<Qmp>,
}

impl Hotplug {
    /// Finds a node of the guest that `run` names, or of the only running guest.
    ///
    /// # Errors
    /// If there is no such guest or node (lists those that exist).
    pub fn find(run: Option<u32>, node: &str) -> Result<Hotplug, LabError> {
        let guest = choose(running()?, run)?;
        let names: Vec<&str> = guest.nodes.iter().map(|known| known.name.as_str()).collect();
        let Some(number) = names.iter().position(|&name| name == node) else {
            let what = format!("run {} can only plug in {}", guest.run, names.join(", "));
            return Err(LabError::Node { node: node.to_owned(), what });
        };
        Ok(Hotplug { node: guest.nodes[number].clone(), guest, qmp: None })
    }

    /// Whether the memory is plugged in.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub fn is_in(&mut self) -> Result<bool, LabError> {
        let name = self.device();
        let devices = self.ask("query-memory-devices", json!({}))?;
        Ok(devices.as_array().into_iter().flatten().any(|device| device["data"]["id"] == name.as_str()))
    }

    /// Waits until the guest has booted: before that its kernel does not answer.
    fn wait_for_boot(&self) -> Result<(), LabError> {
        let booted = self.guest.folder.join(run_dir::BOOTED);
        while !booted.exists() {
            if !running()?.contains(&self.guest) {
                return Err(self.failure("the guest has ended"));
            }
            thread::sleep(BOOT_POLL);
        }
        Ok(())
    }

    /// Waits until the guest has booted, plugs the memory in, and waits until the guest has onlined it.
    ///
    /// # Errors
    /// If it is already plugged in, or the guest refuses it, does not answer or has ended.
    pub fn add(&mut self) -> Result<(), LabError> {
        self.wait_for_boot()?;
        if self.is_in()? {
            return Err(self.failure("its memory is already plugged in"));
        }
        let (memory, device, number) = (self.memory(), self.device(), self.node.number);
        // The backend is left over if an unplug timed out here and completed later.
        let _ = self.ask("object-del", json!({ "id": memory }));
        let bytes = self.node.mib << 20;
        self.ask("object-add", json!({ "qom-type": "memory-backend-ram", "id": memory, "size": bytes }))?;
        let dimm = json!({
            "driver": "pc-dimm", "id": device, "memdev": memory, "node": number, "addr": self.node.start
        });
        if let Err(error) = self.ask("device_add", dimm) {
            self.ask("object-del", json!({ "id": memory }))?;
            return Err(error);
        }
        let until = Instant::now() + TIMEOUT;
        while let Some(event) = self.event(until)? {
            match self.status(&event, EVENT_ADD) {
                Some(DONE) => return Ok(()),
                Some(status) => {
                    return Err(self.failure(&format!("the guest refuses its memory (_OST {status:#x})")));
                }
                None => {}
            }
        }
        Err(self.failure(&format!("the guest has not onlined its memory within {} s", TIMEOUT.as_secs())))
    }

    /// Waits until the guest has booted, and unplugs the memory: the guest migrates its pages away and
    /// offlines it.
    ///
    /// # Errors
    /// If it is not plugged in, the guest refuses, or the guest has not released it in time. It may still do
    /// so later.
    pub fn remove(&mut self, timeout: Duration) -> Result<(), LabError> {
        self.wait_for_boot()?;
        if !self.is_in()? {
            return Err(self.failure("its memory is not plugged in"));
        }
        let device = self.device();
        self.ask("device_del", json!({ "id": device }))?;
        let until = Instant::now() + timeout;
        while let Some(event) = self.event(until)? {
            if event["event"] == "DEVICE_DELETED" && event["data"]["device"] == device.as_str() {
                let memory = self.memory();
                return self.ask("object-del", json!({ "id": memory })).map(drop);
            }
            if let Some(status) = self.status(&event, EVENT_REMOVE).filter(|&s| s != DONE && s != UNDER_WAY) {
                let what = format!(
                    "the guest cannot offline its memory (_OST {status:#x}): other nodes have too little \
                     free memory, or some pages cannot move"
                );
                return Err(self.failure(&what));
            }
        }
        let what = format!(
            "the guest has not offlined its memory within {} s and keeps trying; pages pinned by a program \
             or device cannot move",
            timeout.as_secs_f64()
        );
        Err(self.failure(&what))
    }

    /// The guest's `_OST` report about this memory, if the event is one.
    fn status(&self, event: &Value, of: u64) -> Option<u64> {
        let info = &event["data"]["info"];
        let this = event["event"] == "ACPI_DEVICE_OST" && info["device"] == self.device().as_str();
        (this && info["source"] == of).then(|| info["status"].as_u64())?
    }

    fn event(&mut self, until: Instant) -> Result<Option<Value>, LabError> {
        let run = self.guest.run;
        self.qmp()?.event(until).map_err(of_qmp(run))
    }

    fn qmp(&mut self) -> Result<&mut Qmp, LabError> {
        let qmp = match self.qmp.take() {
            Some(qmp) => qmp,
            None => Qmp::connect(&self.guest.folder).map_err(of_qmp(self.guest.run))?,
        };
        Ok(self.qmp.insert(qmp))
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, LabError> {
        let run = self.guest.run;
        self.qmp()?.execute(command, arguments).map_err(of_qmp(run))
    }

    fn device(&self) -> String {
        format!("dimm{}", self.node.number)
    }

    fn memory(&self) -> String {
        format!("m{}", self.node.number)
    }

    fn failure(&self, what: &str) -> LabError {
        LabError::Node { node: self.node.name.clone(), what: what.to_owned() }
    }
}

fn of_qmp(run: u32) -> impl FnOnce(io::Error) -> LabError {
    move |error| LabError::Qmp { run, what: error.to_string() }
}

fn choose(all: Vec<Running>, run: Option<u32>) -> Result<Running, LabError> {
    let list = all.iter().map(|guest| format!("{} ({}: {})", guest.run, guest.machine, guest.program));
    let list = list.collect::<Vec<_>>().join(", ");
    let mut fit: Vec<Running> =
        all.into_iter().filter(|guest| run.is_none_or(|run| run == guest.run)).collect();
    match (fit.len(), run) {
        (1, _) => Ok(fit.remove(0)),
        _ if list.is_empty() => Err(LabError::Missing {
            what: "no virtual machine with hotpluggable nodes is running".to_owned(),
            remedy: Remedy::StartGuest,
        }),
        (_, Some(run)) => Err(LabError::Missing {
            what: format!("no run {run} with hotpluggable nodes; running: {list}"),
            remedy: Remedy::ChooseRun,
        }),
        (_, None) => Err(LabError::Missing {
            what: format!("several virtual machines run: {list}"),
            remedy: Remedy::ChooseRun,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_must_be_named_among_several_guests() {
        let guest = |run| Running {
            run,
            machine: "m".into(),
            program: "p".into(),
            nodes: Vec::new(),
            folder: "/".into(),
        };
        assert_eq!(choose(vec![guest(7)], None).unwrap().run, 7);
        assert_eq!(choose(vec![guest(7), guest(8)], Some(8)).unwrap().run, 8);
        for (all, run, says, expected) in [
            (vec![], None, "no virtual machine with", Remedy::StartGuest),
            (vec![], Some(7), "no virtual machine with", Remedy::StartGuest),
            (vec![guest(7)], Some(8), "running: 7 (m: p)", Remedy::ChooseRun),
            (vec![guest(7), guest(8)], None, "7 (m: p), 8 (m: p)", Remedy::ChooseRun),
        ] {
            match choose(all, run).unwrap_err() {
                LabError::Missing { what, remedy } => {
                    assert!(what.contains(says) && remedy == expected, "{what}: {remedy:?}");
                }
                other => panic!("{other}"),
            }
        }
    }
}
