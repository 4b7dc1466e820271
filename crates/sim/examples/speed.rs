//! Speed of the simulator: accesses a second of user time. Run by `make bench`.
#![allow(missing_docs)]
use memtide_core::Machine;
use memtide_core::epoch::Limits;
use memtide_sim::{Job, Policy, run};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let mut machine = Machine::parse(&args[1], &text).unwrap();
    if let Some(s) = args.get(4) {
        machine.scale = s.parse().unwrap();
    }
    let p = memtide_policies::parse(&args[3]).unwrap();
    let (name, params) = args[2].split_once(':').unwrap_or((&args[2], ""));
    let params = {
        let mut ps = memtide_workloads::Params::new();
        for kv in params.split(',').filter(|s| !s.is_empty()) {
            let (k, v) = kv.split_once('=').unwrap();
            ps.set(k, v).unwrap();
        }
        ps
    };
    let program = memtide_workloads::program(name, &params, 1).unwrap();
    let job = Job { name: name.into(), program, cpus: vec![] };
    let scaled = machine.scaled();
    let policy = Policy {
        placement: p.placement(&scaled).unwrap(),
        migration: Some(p.migration(&scaled)),
        limits: Limits::default(),
    };
    let cpu = || {
        std::fs::read_to_string("/proc/thread-self/schedstat")
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
            / 1e9
    };
    println!("setup cpu {:.2}", cpu());
    let t = Instant::now();
    let c = cpu();
    let mut r = run(&machine, vec![job], policy, 1, &mut |_| true).unwrap();
    let c1 = cpu();
    let s = t.elapsed().as_secs_f64();
    r.timeline = Default::default();
    r.latency.distribution.clear();
    println!("{r:#?}");
    println!(
        "accesses {} in {:.2} s: {:.2} M/s; llc miss {:.3}",
        r.accesses,
        s,
        r.accesses as f64 / s / 1e6,
        r.llc_misses as f64 / r.accesses as f64
    );
}
