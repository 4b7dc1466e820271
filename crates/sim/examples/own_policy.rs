//! A migration policy of one's own, beside none and beside `hot-cold`: the code of docs/own-policy.md.
//! `cargo run --release -p memtide-sim --example own_policy`

use memtide_core::machine::{Machine, bundled};
use memtide_core::policy::{
    Delivery, Event, Frame, Migration, Move, Plan, Reason, Region, RegionSampling, Sensor, Sensors, View,
    Wake,
};
use memtide_core::{NodeId, Time, Vpn};
use memtide_sim::{Job, Policy, Report, run};

// policy
/// Pages in use go to the fast node; idle ones leave it as room is needed.
struct InUse {
    fast: NodeId,
    slow: NodeId,
}

impl Migration for InUse {
    fn sensors(&self) -> Sensors {
        let regions = Sensor::Regions(RegionSampling::default());
        Sensors::new(Delivery::Deployable, Time::from_ms(1000)).require(regions)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let on = |node, is_used| {
            move |region: &Region| region.node == node && (region.reads + region.writes > 0) == is_used
        };
        let mut free = view.node(self.fast).map_or(0, |node| node.free_pages);
        let mut idle = view.regions.iter().filter(on(self.fast, false)).flat_map(pages);
        for up in view.regions.iter().filter(on(self.slow, true)).flat_map(pages) {
            let needed = up.size.base_pages();
            while free < needed {
                let Some(down) = idle.next() else { return Wake::After(Time::from_ms(1000)) };
                plan.push_move(Move { to: self.slow, ..down }, Reason::MakeRoom);
                free += down.size.base_pages();
            }
            plan.push_move(Move { to: self.fast, ..up }, Reason::Hot);
            free -= needed;
        }
        Wake::After(Time::from_ms(1000))
    }
}

/// A move of each page of a region, to where it is.
fn pages(region: Region) -> impl Iterator<Item = Move> {
    let Region { task, start, pages, size, node, .. } = region;
    let page = move |number: u64| Vpn(start.0 + number * size.base_pages());
    (0..pages).map(move |number| Move {
        task,
        page: page(number),
        size,
        from: node,
        to: node,
        wish: Frame::ANY,
    })
}
// end of the policy

fn main() {
    let machine = bundled::machine("memos").expect("a bundled machine").expect("a sound one");
    // DRAM of 64 MiB, which the program does not fit into.
    let machine = Machine { scale: 64, ..machine };
    let own = InUse { fast: NodeId(0), slow: NodeId(1) };
    let others = ["local", "local+hot-cold"].map(|name| {
        let policy = memtide_policies::parse(name).expect("a policy");
        let migration = name.contains('+').then(|| policy.simulated_migration(&machine));
        (name, migration)
    });
    for (name, migration) in others.into_iter().chain([("local+in-use", Some(Box::new(own) as _))]) {
        let report = simulated(&machine, migration);
        println!("{name:16} {:8.2} ms, {:6} pages migrated", report.time_ms, report.pages.migrated);
    }
}

/// A program with a hot part on the machine, its pages placed on the local node first.
fn simulated(machine: &Machine, migration: Option<Box<dyn Migration>>) -> Report {
    let params = "threads=2,footprint_mib=96,operations=4000000".parse().expect("parameters");
    let program = memtide_workloads::program("zipf", &params, 1).expect("a workload");
    let job = Job::new("zipf", program);
    let placement = memtide_policies::parse("local").expect("a policy").placement(machine).expect("it fits");
    run(machine, vec![job], Policy::new(placement, migration), 1, &mut |_| true).expect("it runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_use_are_on_the_fast_node() {
        let machine = bundled::machine("memos").expect("a bundled machine").expect("a sound one");
        let machine = Machine { scale: 64, ..machine };
        let own: Box<dyn Migration> = Box::new(InUse { fast: NodeId(0), slow: NodeId(1) });
        let [without, with] = [None, Some(own)].map(|migration| simulated(&machine, migration));
        assert_eq!(without.pages.migrated, 0);
        assert!(with.pages.migrated > 0);
        assert!(with.nodes[0].demand_share > without.nodes[0].demand_share);
    }
}
