//! Formats between the lab, its agent, its clock plugin and programs in the guest.

use std::sync::atomic::AtomicU64;

use memtide_lab_protocol::agent::{Message, Task};
use memtide_lab_protocol::clock::{Config, Results};
use memtide_lab_protocol::counters::{self, ReadError, Writer};
use memtide_lab_protocol::{Counts, between};

/// Messages from the agent to the lab.
pub fn agent_message(data: &[u8]) {
    let Ok(message) = Message::from_json(data) else { return };
    let again = Message::from_json(&message.to_json()).expect("what was written can be read");
    assert_eq!(again, message);
}

/// The agent's task.
pub fn agent_task(data: &[u8]) {
    let Ok(task) = Task::from_json(data) else { return };
    let again = Task::from_json(&task.to_json()).expect("what was written can be read");
    assert_eq!(again, task);
}

/// The clock plugin's configuration.
pub fn clock_config(data: &[u8]) {
    let Ok(config) = Config::from_json(data) else { return };
    let written = config.to_json();
    assert_eq!(Config::from_json(&written).expect("what was written can be read").to_json(), written);
}

/// The clock plugin's results.
pub fn clock_results(data: &[u8]) {
    let Ok(results) = Results::from_json(data) else { return };
    let again = Results::from_json(&results.to_json()).expect("what was written can be read");
    assert_eq!(again, results);
    for region in &results.regions {
        region.program_instructions();
        region.outside_instructions();
        region.total.kernel_instructions();
        region.total.all_nodes().mean_latency_ns();
        region.total.all_nodes().bytes();
        assert!(between(&[], &region.processes).len() <= region.processes.len());
        assert!(between(&region.processes, &region.processes).is_empty());
        Counts::sum(region.total.nodes.len(), region.processes.iter().map(|process| &process.counts));
    }
}

/// The page of counters: what is read is written, and read back.
pub fn counters(data: &[u8]) {
    let words: Vec<u64> =
        data.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect();
    let Ok(snapshot) = counters::read::<ReadError>(words.len(), |range| Ok(words[range].to_vec())) else {
        return;
    };
    let bytes = counters::bytes(snapshot.nodes.len());
    let page: Vec<AtomicU64> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
    let mut writer = Writer::new(&page, &snapshot.nodes);
    writer.write(snapshot.guest_ns, snapshot.on, &snapshot.processes);
    let words: Vec<u64> = page.into_iter().map(AtomicU64::into_inner).collect();
    let again =
        counters::read::<ReadError>(words.len(), |range| Ok(words[range].to_vec())).expect("counters");
    let (sum, nodes) = (&again.total, snapshot.nodes.len());
    assert_eq!(*sum, Counts::sum(nodes, snapshot.processes.iter().map(|process| &process.counts)));
    assert_eq!((again.guest_ns, again.on, &again.nodes), (snapshot.guest_ns, snapshot.on, &snapshot.nodes));
    assert_eq!(again.processes.len(), snapshot.processes.len());
}
