//! `memtide run`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use clap::ValueHint;
use memtide_core::policy::{Group, Rule, Task};
use memtide_core::{CpuId, Machine, NodeId, TaskId};
use memtide_linux::machines;
use memtide_linux::placement::{Exact, ExactError, HeldPolicy, NoKernelPolicy, PlacementCounts, WeightError};
use memtide_linux::topology::{System, nodelist};
use memtide_policies::Policy;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::options::FiguresFile;
use crate::output::{Cell, Document, Format, Table};
use crate::{advice, weights};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Placement policy with parameters: see `memtide policy list`
    #[arg(short, long, value_name = "POLICY")]
    placement: String,
    /// Machine file or bundled machine [default: the firmware's figures]
    #[arg(long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: Option<String>,
    /// Run on the CPUs of these nodes only: 0-2,5 or all, !0, +0-1
    #[arg(short = 'N', long, value_name = "NODES")]
    cpunodebind: Option<String>,
    /// Run on these CPUs only
    #[arg(short = 'C', long, value_name = "CPUS", conflicts_with = "cpunodebind")]
    physcpubind: Option<String>,
    /// Place on these nodes of the policy only
    #[arg(short, long, value_name = "NODES")]
    membind: Option<String>,
    /// Place each page on its fault, even if the kernel has the policy
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    figures: FiguresFile,
    /// Format of the figures
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT",
        requires = "figures")]
    output: Format,
    /// Seed for everything random, as in `memtide simulate`
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// How the program's pages are placed.
enum Mechanism {
    Kernel(HeldPolicy),
    Exact(Exact),
}

/// Runs the program, and passes its exit status on.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = arguments.machine.as_deref().map(Path::new);
    arguments.figures.check(machine.into_iter().chain(arguments.command.iter().map(Path::new)))?;
    let host = System::read().map_err(|error| Failure::NotRun(error.to_string()))?;
    weights::put_back();
    let all: Vec<NodeId> = host.with_memory().map(|node| node.id).collect();
    let policy = policy(&arguments.placement)?;
    let info = policy.placement_info();
    let machine = machines::of_host(&host, arguments.machine.as_deref(), info.figures);
    let machine = machine.map_err(|error| match advice::on_machine(error) {
        Failure::Run(why) => Failure::NotRun(format!("policy '{}': {why}", info.name)),
        other => other,
    })?;
    let rule = rule(arguments, &policy, &machine, &all)?;
    let mut program = command(arguments, &cpus(arguments, &host)?)?;
    let name = arguments.command[0].to_string_lossy();
    let not_started =
        |error: io::Error| Failure::not_started(format!("{name}: cannot be started: {error}"), &error);
    let (status, outcome) = match mechanism(arguments, rule, &machine, &host)? {
        Mechanism::Kernel(kernel) => {
            let child = kernel.policy.start(&mut program);
            let mut child = child.map_err(not_started)?;
            let status = wait_passing_signals(Pid::from_child(&child), || child.wait());
            let mechanism = kernel.policy.to_string();
            drop(kernel);
            (status?, Outcome { mechanism, counts: None })
        }
        Mechanism::Exact(exact) => {
            let running = exact.start(program).map_err(|error| match error {
                ExactError::Start(error) => not_started(error),
                other => Failure::NotRun(format!("{name}: {other}")),
            })?;
            let (status, outcome) = wait_passing_signals(running.pid(), || running.wait())?;
            print_outcome(&outcome);
            (status, Outcome { mechanism: "fault by fault".to_owned(), counts: outcome.ok() })
        }
    };
    if arguments.figures.is_some() {
        let document = figures(arguments, &machine, &outcome, &status.to_string());
        arguments.figures.write(&document, arguments.output)?;
    }
    match status.code().or_else(|| Some(128 + status.signal()?)) {
        None | Some(0) => Ok(()),
        Some(code) => Err(Failure::Program(code as u8)),
    }
}

/// The kernel's own policy if it implements the rule, else placement fault by fault; prints which and why.
fn mechanism(
    arguments: &Arguments,
    rule: Rule,
    machine: &Machine,
    host: &System,
) -> Result<Mechanism, Failure> {
    let name = &arguments.placement;
    let why = if arguments.exact {
        "requested by --exact".to_owned()
    } else {
        match HeldPolicy::new(&rule, host) {
            Ok(kernel) => {
                message!("memtide: placement '{name}' by the kernel: {}", kernel.policy);
                return Ok(Mechanism::Kernel(kernel));
            }
            // Exact placement is slower: only on request.
            Err(NoKernelPolicy::Weights(error @ WeightError::Held { .. })) => {
                return Err(Failure::NotRun(format!("{error}, or add --exact")));
            }
            Err(error) => error.to_string(),
        }
    };
    let exact = Exact::new(rule, machine, host, arguments.seed);
    let exact = exact.map_err(|error| Failure::Usage(advice::system::exact(&error)))?;
    message!("memtide: placement '{name}' by page fault: {why}");
    Ok(Mechanism::Exact(exact))
}

/// How the program's pages were placed; of exact placement that lasted to its end, with counts.
struct Outcome {
    mechanism: String,
    counts: Option<PlacementCounts>,
}

/// The figures of a run: a row for each node that pages were placed on, if they were counted.
fn figures(arguments: &Arguments, machine: &Machine, outcome: &Outcome, status: &str) -> Document {
    let counts = outcome.counts.as_ref();
    let count =
        |of: fn(&PlacementCounts) -> u64| counts.map_or(Cell::Absent, |counts| Cell::Whole(of(counts)));
    let about = vec![
        ("placement", Cell::text(&arguments.placement)),
        ("machine", Cell::text(&machine.name)),
        ("mechanism", Cell::text(&outcome.mechanism)),
        ("program_status", Cell::text(status)),
        ("left_to_kernel_pages", count(|counts| counts.left)),
        ("other_faults", count(|counts| counts.others)),
        ("unwatched_programs", count(|counts| counts.unwatched)),
    ];
    let mut table = Table::new("nodes", &[("node", "node"), ("placed_pages", "pages placed")]);
    let placed = counts.iter().flat_map(|counts| &counts.placed);
    table.rows = placed.map(|&(node, pages)| vec![Cell::Whole(node.0.into()), Cell::Whole(pages)]).collect();
    let uncounted = counts.is_none().then(|| "pages are counted only where memtide places them".to_owned());
    Document { about, notes: uncounted.into_iter().collect(), ..Document::of(table) }
}

/// Prints the outcome of exact placement.
fn print_outcome(outcome: &io::Result<PlacementCounts>) {
    match outcome {
        Ok(outcome) => message!("memtide: {outcome}"),
        Err(error) => {
            message!(
                "memtide: placement ended before the program; the kernel placed the remaining pages: {error}"
            )
        }
    }
}

/// Parses a policy that only places pages.
fn policy(text: &str) -> Result<Policy, Failure> {
    let policy = memtide_policies::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
    if policy.migration_info().name == "none" {
        return Ok(policy);
    }
    Err(Failure::Usage(format!(
        "'{text}' has a migration policy, which `run` does not support; name a placement only"
    )))
}

/// The policy's rule, in the machine's numbers, and without the nodes that --membind leaves out.
fn rule(arguments: &Arguments, policy: &Policy, machine: &Machine, all: &[NodeId]) -> Result<Rule, Failure> {
    let mut placement = policy.placement(machine).map_err(|error| Failure::Usage(error.to_string()))?;
    let name = arguments.command[0].to_string_lossy().into_owned();
    let mut rule = placement.rule(machine, &Task { id: TaskId(0), name, threads: 0 });
    let there: Vec<u16> = all.iter().map(|node| node.0.into()).collect();
    let allowed = match &arguments.membind {
        Some(list) => nodelist::numbers(list, &there).map_err(|why| option_error("membind", why))?,
        None => there,
    };
    let here = |group: Group| {
        let allowed = |node: &NodeId| allowed.contains(&all[node.index()].0.into());
        Group { nodes: group.nodes.into_iter().filter(allowed).collect(), ..group }
    };
    rule.groups = rule.groups.into_iter().map(here).filter(|group| !group.nodes.is_empty()).collect();
    if rule.groups.is_empty() {
        return Err(option_error(
            "membind",
            format!("placement '{}' uses none of these nodes", arguments.placement),
        ));
    }
    Ok(rule)
}

fn cpus(arguments: &Arguments, host: &System) -> Result<Vec<CpuId>, Failure> {
    let numbers = |cpus: &[CpuId]| cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>();
    if let Some(list) = &arguments.physcpubind {
        let there: Vec<u16> = host.with_cpus().flat_map(|node| numbers(&node.cpus)).collect();
        let cpus = nodelist::numbers(list, &there).map_err(|why| option_error("physcpubind", why))?;
        return Ok(cpus.into_iter().map(CpuId).collect());
    }
    let Some(list) = &arguments.cpunodebind else { return Ok(Vec::new()) };
    let there: Vec<u16> = host.with_cpus().map(|node| node.id.0.into()).collect();
    let nodes = nodelist::numbers(list, &there).map_err(|why| option_error("cpunodebind", why))?;
    let chosen = host.with_cpus().filter(|node| nodes.contains(&node.id.0.into()));
    Ok(chosen.flat_map(|node| node.cpus.iter().copied()).collect())
}

fn option_error(option: &str, why: String) -> Failure {
    Failure::Usage(format!("--{option}: {why}"))
}

/// The program; this process takes its CPUs, for the program to inherit.
fn command(arguments: &Arguments, cpus: &[CpuId]) -> Result<Command, Failure> {
    let mut program = Command::new(&arguments.command[0]);
    program.args(&arguments.command[1..]).arg0(&arguments.command[0]);
    if !cpus.is_empty() {
        memtide_linux::run_on(cpus)
            .map_err(|error| Failure::NotRun(format!("cannot use these CPUs: {error}")))?;
    }
    Ok(program)
}

/// Waits for the program. Terminal signals reach it directly; other termination signals are forwarded.
fn wait_passing_signals<T>(pid: Pid, wait: impl FnOnce() -> io::Result<T>) -> Result<T, Failure> {
    let failed = |error: io::Error| Failure::Run(error.to_string());
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map_err(failed)?;
    let handle = signals.handle();
    let passes = thread::spawn(move || {
        for signal in signals.forever().filter(|signal| [SIGTERM, SIGHUP].contains(signal)) {
            let signal = if signal == SIGTERM { Signal::TERM } else { Signal::HUP };
            // The program may have just exited.
            let _ = kill_process(pid, signal);
        }
    });
    let waited = wait().map_err(failed);
    handle.close();
    // The thread only forwards signals; its panic changes no result.
    let _ = passes.join();
    waited
}
