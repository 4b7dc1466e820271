//! Each JSON format matches its golden text. A changed text is a changed format: raise its version in
//! `version.rs`, too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use memtide_core::{InitiatorId, NodeId, Time};
use memtide_lab_protocol::agent::{
    Companion, Ending, Expander, Hello, KernelCounters, KernelNodeCounters, MemoryPolicy, Message,
    Preparation, Program, RegionOfInterest, Sample, Shared, Task, TmpfsBind, Write,
};
use memtide_lab_protocol::clock::{Config, Range, RegionTotals, Results, Timeline};
use memtide_lab_protocol::{Counts, NodeCounts, Process, Who};

fn program(name: &str) -> Program {
    Program {
        file: PathBuf::from("/bin").join(name),
        arguments: vec![name.into(), "-v".into()],
        environment: vec![("HOME".into(), "/root".into())],
        folder: "/".into(),
    }
}

fn task() -> Task {
    Task {
        writes: vec![Write { file: "/proc/sys/kernel/numa_balancing".into(), text: "1".into() }],
        shared: vec![Shared { name: "pool".into(), start: 1 << 32 }],
        expanders: vec![Expander { name: "cxl".into(), start: 1 << 33, bytes: 1 << 28, node: 2 }],
        policy: Some(MemoryPolicy { mode: 3, nodes: 0b101 }),
        preparation: Some(Preparation { programs: vec![program("damo")], folder: "/opt/damo".into() }),
        tmpfs_bind: Some(TmpfsBind { folder: "/opt/memtide".into(), node: 1 }),
        companion: Some(Companion { program: program("memtide"), ready: "/run/memtide.sock".into() }),
        fragment_memory: Some(u64::MAX),
        program: program("true"),
        region: RegionOfInterest::Marks,
        interactive: false,
    }
}

#[test]
fn agent_task_matches_version_1() {
    let program = |name: &str| {
        let environment = r#"[["HOME","/root"]]"#;
        format!(
            r#"{{"file":"/bin/{name}","arguments":["{name}","-v"],"environment":{environment},"folder":"/"}}"#
        )
    };
    let (damo, memtide, own) = (program("damo"), program("memtide"), program("true"));
    let text = [
        r#"{"protocol":1,"writes":[{"file":"/proc/sys/kernel/numa_balancing","text":"1"}],"#,
        r#""shared":[{"name":"pool","start":4294967296}],"#,
        r#""expanders":[{"name":"cxl","start":8589934592,"bytes":268435456,"node":2}],"#,
        r#""policy":{"mode":3,"nodes":5},"#,
        &format!(r#""preparation":{{"programs":[{damo}],"folder":"/opt/damo"}},"#),
        r#""tmpfs_bind":{"folder":"/opt/memtide","node":1},"#,
        &format!(r#""companion":{{"program":{memtide},"ready":"/run/memtide.sock"}},"#),
        &format!(
            r#""fragment_memory":18446744073709551615,"program":{own},"region":"marks","interactive":false}}"#
        ),
    ];
    assert_eq!(String::from_utf8_lossy(&task().to_json()), text.concat());
    assert_eq!(Task::from_json(text.concat().as_bytes()).expect("a task"), task());
}

#[test]
fn agent_messages_match_version_1() {
    let counters = KernelCounters {
        events: BTreeMap::from([("pgfault".to_owned(), 5)]),
        nodes: vec![KernelNodeCounters { total_kib: 1024, allocations: 9 }],
    };
    let ending = Ending {
        status: 137,
        signal: Some(9),
        guest_ns: 77,
        out_bytes: 1,
        err_bytes: 2,
        counters,
        samples: vec![Sample { guest_ns: 7, nodes_kib: vec![4, 0] }],
    };
    for (message, text) in [
        (
            Message::Hello(Hello { kernel: "6.12".into(), domains: vec![0, 2] }),
            r#"{"protocol":1,"hello":{"kernel":"6.12","domains":[0,2]}}"#.to_owned(),
        ),
        (Message::Refused("no".into()), r#"{"protocol":1,"refused":"no"}"#.to_owned()),
        (
            Message::Ended(Box::new(ending)),
            [
                r#"{"protocol":1,"ended":{"status":137,"signal":9,"guest_ns":77,"#,
                r#""out_bytes":1,"err_bytes":2,"#,
                r#""counters":{"events":{"pgfault":5},"nodes":[{"total_kib":1024,"allocations":9}]},"#,
                r#""samples":[{"guest_ns":7,"nodes_kib":[4,0]}]}}"#,
            ]
            .concat(),
        ),
    ] {
        assert_eq!(String::from_utf8_lossy(&message.to_json()), text);
        assert_eq!(Message::from_json(text.as_bytes()).expect("a message"), message);
    }
}

#[test]
fn clock_config_matches_version_1() {
    let config = Config {
        machine: "name = \"m\"".into(),
        vcpu_initiators: vec![InitiatorId(0), InitiatorId(1)],
        memory: vec![Range { node: NodeId(1), start: 0, bytes: 2 << 20 }],
        parallel: false,
        by_instruction: true,
        boot_ps: 10_000,
        results: "/run/results.json".into(),
        counters: "/run/counters".into(),
        guest_nodes: vec![1],
    };
    let text = [
        r#"{"protocol":1,"machine":"name = \"m\"","vcpu_initiators":[0,1],"#,
        r#""memory":[{"node":1,"start":0,"bytes":2097152}],"#,
        r#""parallel":false,"by_instruction":true,"boot_ps":10000,"#,
        r#""results":"/run/results.json","counters":"/run/counters","guest_nodes":[1]}"#,
    ]
    .concat();
    assert_eq!(String::from_utf8_lossy(&config.to_json()), text);
    assert_eq!(Config::from_json(text.as_bytes()).expect("a configuration").to_json(), text.as_bytes());
}

#[test]
fn clock_results_match_version_1() {
    let node = NodeCounts { reads: 6, prefetches: 7, writes: 8, latency: Time(9) };
    let counts = Counts {
        instructions: 1,
        user_instructions: 2,
        accesses: 3,
        llc_misses: 4,
        page_walks: 5,
        nodes: vec![node],
    };
    let process = Process { root: 4096, name: "gups".into(), who: Who::Program, counts: counts.clone() };
    let mut timeline = Timeline::new(vec![0]);
    timeline.record(1, vec![640]);
    let region = RegionTotals {
        start_ns: 0.5,
        guest_ns: 2e9,
        host_cpu_ns: 3,
        total: counts,
        processes: vec![process],
        timeline: timeline.clone(),
    };
    let results = Results { hook: true, why: None, regions: vec![region] };
    let counts = [
        r#"{"instructions":1,"user_instructions":2,"accesses":3,"llc_misses":4,"page_walks":5,"#,
        r#""nodes":[{"reads":6,"prefetches":7,"writes":8,"latency":9}]}"#,
    ]
    .concat();
    let text = [
        r#"{"protocol":1,"hook":true,"why":null,"#,
        r#""regions":[{"start_ns":0.5,"guest_ns":2000000000.0,"host_cpu_ns":3,"total":"#,
        &counts,
        r#","processes":[{"root":4096,"name":"gups","who":"program","counts":"#,
        &counts,
        r#"}],"timeline":{"interval_ns":1000000,"bytes":[[640]]}}]}"#,
    ]
    .concat();
    assert_eq!(String::from_utf8_lossy(&results.to_json()), text);
    assert_eq!(Results::from_json(text.as_bytes()).expect("results").to_json(), text.as_bytes());
}

#[test]
fn other_version_is_refused_with_both_versions() {
    let text = String::from_utf8(task().to_json()).expect("text");
    let error_of = |text: &str| Task::from_json(text.as_bytes()).expect_err("it is refused").to_string();
    assert_eq!(
        error_of(&text.replacen("\"protocol\":1", "\"protocol\":9", 1)),
        "task has protocol version 9, and this memtide uses 1: build or install all parts of memtide together"
    );
    assert!(error_of(&text.replacen("\"protocol\":1,", "", 1)).starts_with("task has protocol version none"));
}
