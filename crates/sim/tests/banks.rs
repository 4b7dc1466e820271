//! Energy and wear by channel and bank.

use crate::runs;
use memtide_core::machine::bundled;
use memtide_sim::{BankReport, Job, NodeReport, Report, run};
use memtide_workloads::Params;

/// memos-mcf on memos' machine, pages interleaved over DRAM and NVM.
fn simulate() -> Report {
    let machine = bundled::machine("memos").expect("a bundled machine").expect("a sound file");
    let params: Params = "operations=200000,footprint_mib=16".parse().expect("parameters");
    let program = memtide_workloads::program("memos-mcf", &params, 1).expect("a workload");
    let policy = runs::policy(&machine, "interleave");
    run(&machine, vec![Job::new("mcf", program)], policy, 1, &mut |_| true).expect("a run")
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-9
}

/// Checks that parts add up to a whole.
#[track_caller]
fn check_sum(parts: &[BankReport], whole: &BankReport) {
    let sum = |figure: fn(&BankReport) -> u64| parts.iter().map(figure).sum::<u64>();
    assert_eq!(sum(|of| of.reads), whole.reads);
    assert_eq!(sum(|of| of.writes), whole.writes);
    assert_eq!(sum(|of| of.row_conflicts), whole.row_conflicts);
    assert!(near(parts.iter().map(|of| of.dynamic_mj).sum(), whole.dynamic_mj));
    let lines = |of: &BankReport| of.wear.map_or(0, |wear| wear.written_lines);
    assert_eq!(sum(lines_of), lines(whole));
    let most = |of: &BankReport| of.wear.map_or(0, |wear| wear.page_writes_max);
    assert_eq!(parts.iter().map(most).max(), Some(most(whole)));
}

fn lines_of(of: &BankReport) -> u64 {
    of.wear.map_or(0, |wear| wear.written_lines)
}

fn as_bank(node: &NodeReport) -> BankReport {
    BankReport {
        reads: node.reads,
        writes: node.writes,
        row_conflicts: node.channels.iter().map(|channel| channel.counts.row_conflicts).sum(),
        dynamic_mj: node.energy.dynamic_mj,
        wear: node.wear,
    }
}

#[test]
fn banks_add_up_to_channels_and_channels_to_nodes() {
    let report = simulate();
    assert_eq!(report.nodes.iter().map(|node| node.channels[0].banks.len()).collect::<Vec<_>>(), [16, 8]);
    for node in &report.nodes {
        for channel in &node.channels {
            check_sum(&channel.banks, &channel.counts);
        }
        let channels: Vec<BankReport> = node.channels.iter().map(|channel| channel.counts).collect();
        check_sum(&channels, &as_bank(node));
    }
    assert!(report.nodes[0].wear.is_none() && lines_of(&report.nodes[1].channels[0].banks[7]) > 0);
}

#[test]
fn energy_by_cause_adds_up_to_the_nodes() {
    let report = simulate();
    for node in &report.nodes {
        let of = node.energy;
        let dynamic_mj = of.read_mj + of.write_mj + of.activate_mj;
        assert!(near(of.dynamic_mj, dynamic_mj) && dynamic_mj > 0.0);
        assert!(near(node.energy_mj, dynamic_mj + of.refresh_mj + of.standby_mj));
        assert!(near(of.dynamic_mw, dynamic_mj / (report.time_ms / 1e3)));
        assert!(near(of.power_mw, node.energy_mj / (report.time_ms / 1e3)));
    }
    let nvm = &report.nodes[1];
    assert!(near(nvm.energy.write_mj, nvm.writes as f64 * 57.686e-6));
    assert_eq!((nvm.energy.activate_mj, nvm.energy.refresh_mj), (0.0, 0.0));
}

#[test]
fn life_of_a_node_is_that_of_its_shortest_lived_bank() {
    let report = simulate();
    let nvm = &report.nodes[1];
    let of_node = nvm.wear.expect("memory that wears");
    let lives = nvm.channels[0].banks.iter().map(|bank| bank.wear.and_then(|wear| wear.life_years));
    let shortest = lives.map(|life| life.expect("written banks")).fold(f64::INFINITY, f64::min);
    assert!(near(of_node.life_years.unwrap(), shortest));
    let most = of_node.page_writes_max as f64;
    assert!(near(of_node.life_share_of_written.unwrap(), of_node.page_writes_mean / most));
    let frames = 256.0 * 256.0;
    assert!(near(of_node.life_share.unwrap(), of_node.written_lines as f64 / frames / most));
}
