//! Collects a report from a run that has ended.

use memtide_core::machine::Link;
use memtide_core::policy::Answer;
use memtide_core::{Bandwidth, LINE_BYTES, NodeId, Stage, Time};

use super::banks::{channels, energy};
use super::wear::Wear;
use super::{
    FullReport, KernelReport, LatencyReport, LinkReport, MoveReport, NodeReport, PagesReport, Report,
    SensorReport, StageReport, TimeReport, TimelineReport, share,
};
use crate::engine::Engine;
use crate::samples::{Latencies, NodeSample, ProgramSample};
use crate::thread::{Cause, Spent};
use crate::totals::{NodeTotals, Totals};

impl Report {
    pub(crate) fn of(engine: &Engine<'_>) -> Report {
        let region = engine.stages.region().expect("the run has ended");
        let run = engine.programs.iter().map(|p| p.ended).max().unwrap_or_default();
        let nodes = nodes(engine, region);
        let stages = stages(engine);
        let all = region.latencies();
        Report {
            machine: engine.setup.machine.name.clone(),
            slice: engine.setup.slice,
            scale: engine.setup.scale,
            programs: engine.programs.iter().map(|p| p.name.clone()).collect(),
            seed: engine.setup.seed,
            marked: !stages.is_empty(),
            time_ms: ms(region.time),
            run_ms: ms(run),
            threads: engine.threads.len() as u64,
            program_times_ms: engine.programs.iter().map(|p| ms(p.region_time)).collect(),
            program_started_ms: engine.programs.iter().map(|p| ms(p.start)).collect(),
            program_ended_ms: engine.programs.iter().map(|p| ms(p.ended)).collect(),
            stages,
            spent: spent(region),
            instructions: region.threads.instructions,
            accesses: region.threads.accesses,
            private_hits: region.private_hits.clone(),
            shared_accesses: region.uncore.accesses,
            llc_misses: region.uncore.misses,
            llc_misses_per_kilo_instruction: share(region.uncore.misses * 1000, region.threads.instructions),
            prefetched_lines: region.uncore.prefetches,
            tlb_misses: region.threads.tlb_misses,
            latency: latency(&Latencies(&all)),
            links: links(engine, region),
            pages: pages(region),
            timeline: timeline(engine, region),
            heat_maps: engine.heat.reports(region.time),
            energy_mj: nodes.iter().map(|n| n.energy_mj).sum(),
            nodes,
            sensors: sensors(engine),
            page_samples: engine.sensors.page_samples().to_vec(),
            full: full(engine),
        }
    }
}

fn ms(time: Time) -> f64 {
    time.0 as f64 / 1e9
}

/// The stages that the run was in, unless no program marks any.
fn stages(engine: &Engine<'_>) -> Vec<StageReport> {
    let marked = engine.programs.iter().any(|program| program.feed.has_region());
    let report = |(stage, totals): (Stage, &Totals)| {
        let lines = totals.nodes.iter().map(|node| node.device.lines()).sum();
        let nodes = engine.setup.machine.nodes.iter().zip(&totals.nodes);
        let energy_nj: f64 = nodes.map(|(spec, node)| node.device.energy_nj(&spec.energy, totals.time)).sum();
        StageReport {
            stage: stage.name().to_owned(),
            time_ms: ms(totals.time),
            spent: spent(totals),
            instructions: totals.threads.instructions,
            accesses: totals.threads.accesses,
            llc_misses: totals.uncore.misses,
            tlb_misses: totals.threads.tlb_misses,
            faults: totals.os.faults + totals.os.huge_faults,
            hint_faults: totals.os.hint_faults,
            swapped: totals.os.swapped_pages(),
            migrated: totals.migrated_pages(),
            observations: totals.observations,
            lines,
            bandwidth_mbps: Bandwidth::of(lines * LINE_BYTES, totals.time).as_mbps(),
            latency_mean_ns: Latencies(&totals.latencies()).mean_ns(),
            energy_mj: energy_nj / 1e6,
        }
    };
    let all = Stage::ALL.into_iter().filter(|_| marked);
    // A part of a trace begins with its warm-up.
    let lasted = |of: &(Stage, &Totals)| of.0 == Stage::Region || of.1.time > Time::ZERO;
    all.filter_map(|stage| Some((stage, engine.stages.of(stage)?))).filter(lasted).map(report).collect()
}

fn spent(totals: &Totals) -> TimeReport {
    let Spent { user, system, stall, idle } = totals.spent;
    TimeReport {
        user_ms: ms(user),
        system_ms: ms(system.total()),
        kernel: KernelReport {
            faults_ms: ms(system.of(Cause::Fault)),
            swap_ms: ms(system.of(Cause::Swap)),
            unmapping_ms: ms(system.of(Cause::Unmap)),
            migration_ms: ms(system.of(Cause::Migration)),
            monitoring_ms: ms(system.of(Cause::Monitoring)),
        },
        stall_ms: ms(stall),
        idle_ms: ms(idle),
        kernel_threads_ms: ms(totals.kernel_threads),
    }
}

fn latency(of: &Latencies<'_>) -> LatencyReport {
    LatencyReport {
        mean_ns: of.mean_ns(),
        p50_ns: of.percentile_ns(50.0),
        p95_ns: of.percentile_ns(95.0),
        p99_ns: of.percentile_ns(99.0),
        distribution: of.distribution(),
    }
}

fn nodes(engine: &Engine<'_>, totals: &Totals) -> Vec<NodeReport> {
    let time = totals.time;
    let lines: u64 = totals.nodes.iter().map(|node| node.device.lines()).sum();
    let demand: u64 = totals.nodes.iter().map(|node| node.requested.demand).sum();
    let pages = &engine.tasks.pages_of_ended;
    let all_pages: u64 = pages.iter().sum();
    let report = |(node, counts): (NodeId, &NodeTotals)| {
        let spec = &engine.setup.machine.nodes[node.index()];
        let latencies = Latencies(&counts.latencies);
        let NodeTotals { device, requested, .. } = counts;
        let wear = counts.wear.as_ref().map(|frames| Wear::of(spec, frames));
        NodeReport {
            name: spec.name.clone(),
            tier: spec.tier,
            reads: device.reads,
            writes: device.writes,
            bandwidth_mbps: Bandwidth::of(device.lines() * LINE_BYTES, time).as_mbps(),
            read_bandwidth_mbps: Bandwidth::of(device.reads * LINE_BYTES, time).as_mbps(),
            access_share: share(device.lines(), lines),
            demand_lines: requested.demand,
            prefetch_lines: requested.prefetch,
            copy_lines: requested.copy,
            demand_share: share(requested.demand, demand),
            pages: pages[node.index()],
            page_share: share(pages[node.index()], all_pages),
            latency_mean_ns: latencies.mean_ns(),
            latency_p99_ns: latencies.percentile_ns(99.0),
            row_hit_rate: (spec.dram.is_some() && device.lines() > 0).then(|| device.row_hit_rate()),
            energy_mj: device.energy_nj(&spec.energy, time) / 1e6,
            energy: energy(spec, device, time),
            wear: spec.endurance_writes.zip(wear.as_ref()).map(|(n, wear)| wear.node.report(n, time)),
            channels: channels(spec, &counts.banks, wear.as_ref(), time),
        }
    };
    engine.setup.machine.node_ids().zip(&totals.nodes).map(report).collect()
}

fn links(engine: &Engine<'_>, totals: &Totals) -> Vec<LinkReport> {
    let report = |(link, lines): (&Link, &[u64; 2])| {
        let [forward_mbps, back_mbps] =
            lines.map(|lines| Bandwidth::of(lines * LINE_BYTES, totals.time).as_mbps());
        LinkReport {
            between: link.between.clone(),
            forward_mbps,
            back_mbps,
            forward_share: forward_mbps / link.bandwidth_mbps,
            back_share: back_mbps / link.bandwidth_mbps,
        }
    };
    engine.setup.machine.links.iter().zip(&totals.links).map(report).collect()
}

fn pages(totals: &Totals) -> PagesReport {
    let Totals { os: counts, record, .. } = totals;
    let moved = |(&(from, to), &pages): (&(NodeId, NodeId), &u64)| MoveReport { from, to, pages };
    PagesReport {
        faults: counts.faults,
        huge_faults: counts.huge_faults,
        hint_faults: counts.hint_faults,
        marked_misses: counts.marked_misses,
        swapped_out: counts.swapped_out_pages,
        swapped_in: counts.swapped_in_pages,
        migrated: totals.migrated_pages(),
        observations: totals.observations,
        moves: record.moved_pages.iter().map(moved).collect(),
        refused: record.refused.iter().map(|(why, &count)| (why.to_string(), count)).collect(),
        cancelled: record.cancelled.iter().map(|(why, &count)| (why.to_string(), count)).collect(),
    }
}

fn sensors(engine: &Engine<'_>) -> Vec<SensorReport> {
    let report = |(sensor, answer): (&str, &Answer)| {
        let (answer, how) = answer.parts();
        SensorReport { sensor: sensor.to_owned(), answer: answer.to_owned(), how: how.to_owned() }
    };
    engine.sensors.answers().iter().map(report).collect()
}

fn timeline(engine: &Engine<'_>, totals: &Totals) -> TimelineReport {
    let samples = &engine.samples;
    let rest = totals.time.since(samples.until());
    let of_node = |node: NodeId| {
        let counts = &totals.nodes[node.index()];
        let whole = NodeSample {
            lines: counts.device.lines(),
            requested: counts.requested,
            migrated_pages: counts.migrated_pages,
            pages: engine.tasks.last_pages[node.index()],
        };
        samples.of_node_over_time(node, &whole, rest)
    };
    let nodes: Vec<Vec<NodeSample>> = engine.setup.machine.node_ids().map(of_node).collect();
    let of_program =
        |(program, whole): (usize, &ProgramSample)| samples.of_program_over_time(program, *whole, rest);
    let programs: Vec<Vec<ProgramSample>> = totals.programs.iter().enumerate().map(of_program).collect();
    let mbps = |(number, lines): (usize, u64)| {
        let is_last = number as u64 * samples.bucket.0 == samples.until().0;
        let length = if is_last { rest } else { samples.bucket };
        Bandwidth::of(lines * LINE_BYTES, length).as_mbps()
    };
    let bandwidth = |lines: &mut dyn Iterator<Item = u64>| lines.enumerate().map(mbps).collect::<Vec<f64>>();
    let each = |figure: fn(&NodeSample) -> u64| -> Vec<Vec<u64>> {
        nodes.iter().map(|buckets| buckets.iter().map(figure).collect()).collect()
    };
    TimelineReport {
        bucket_ms: ms(samples.bucket),
        bandwidth_mbps: nodes.iter().map(|all| bandwidth(&mut all.iter().map(|of| of.lines))).collect(),
        demand_lines: each(|of| of.requested.demand),
        prefetch_lines: each(|of| of.requested.prefetch),
        copy_lines: each(|of| of.requested.copy),
        pages: each(|of| of.pages),
        migrated_pages: each(|of| of.migrated_pages),
        program_bandwidth_mbps: programs
            .iter()
            .map(|all| bandwidth(&mut all.iter().map(|of| of.lines)))
            .collect(),
        program_migrated_pages: programs
            .iter()
            .map(|all| all.iter().map(|of| of.migrated_pages).collect())
            .collect(),
    }
}

fn full(engine: &Engine<'_>) -> Vec<FullReport> {
    let left = engine.policy.iter().flat_map(|runner| runner.left());
    left.map(|(&node, left)| FullReport {
        node,
        epochs: left.epochs,
        pages_mean: share(left.pages, left.epochs),
    })
    .collect()
}
