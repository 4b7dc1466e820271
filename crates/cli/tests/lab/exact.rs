//! `memtide run --exact` on a real kernel places each page where the simulator does.

use std::fs;
use std::path::Path;
use std::process::Command;

use memtide_core::machine::Machine;
use memtide_core::policy::{FirstTouch, FreeMemory, NodeOrder, Rule, RuleState, Task};
use memtide_core::{CpuId, NodeId, PageSize, TaskId, ThreadId, Vpn};

use memtide_testing::not_run_in_part;

use crate::support::{lab, lab_is_here};

/// Two nodes of DRAM and two of Optane.
const MACHINE: &str = include_str!("../../../../machines/optane.toml");

/// CPUs per socket.
const SOCKET: u16 = 24;

/// Pages that a program may touch before its reported ones.
const START: usize = 64;

/// Pages per step of the program.
const PAGES: usize = 512;

/// A mode of `exact.c` under a policy, on virtual CPU 0.
struct Run {
    policy: &'static str,
    mode: &'static str,
    /// Threads by name, with creation order.
    threads: &'static [(&'static str, u32)],
}

const RUNS: [Run; 7] = [
    Run { policy: "bw-random", mode: "single", threads: &[("single", 0)] },
    Run { policy: "bw-random", mode: "threads", threads: THREADS },
    Run {
        policy: "bw-random",
        mode: "processes",
        threads: &[("child1", 1), ("child2", 2), ("spawned", 3), ("single", 4)],
    },
    Run { policy: "bw-random", mode: "blocked-signals", threads: &[("thread1", 1)] },
    Run { policy: "low-latency", mode: "single", threads: &[("single", 0)] },
    Run { policy: "bw-interleave", mode: "single", threads: &[("single", 0)] },
    Run { policy: "ratio:weights=2:1", mode: "threads", threads: THREADS },
];

const THREADS: &[(&str, u32)] = &[("thread1", 1), ("thread2", 2), ("thread3", 3)];

/// A policy's choices on the machine.
struct Choices {
    rule: Rule,
    order: NodeOrder,
}

struct Ample;

impl FreeMemory for Ample {
    fn fits(&self, _: NodeId, _: PageSize) -> bool {
        true
    }
}

impl Choices {
    fn of(policy: &str) -> Choices {
        let machine = Machine::parse("optane.toml", MACHINE).expect("a machine");
        let policy = memtide_policies::parse(policy).expect("a policy");
        let task = Task { id: TaskId(0), name: "exact".to_owned(), threads: 0 };
        let rule = policy.placement(&machine).expect("a placement").rule(&machine, &task);
        Choices { rule, order: NodeOrder::of(&machine) }
    }

    /// Nodes of a thread's pages: counts per CPU in turn, after pages touched before.
    fn nodes(&self, thread: u32, before: usize, pages: &[(u16, usize)]) -> String {
        let mut state = RuleState::new(&self.rule, 1, ThreadId(thread));
        let mut next = |cpu| {
            let fault =
                FirstTouch { thread: ThreadId(thread), cpu: CpuId(cpu), page: Vpn(0), size: PageSize::Base };
            state.next(&self.rule, &self.order, &fault, &Ample).expect("room")
        };
        (0..before).for_each(|_| _ = next(pages[0].0));
        let cpus = pages.iter().flat_map(|&(cpu, pages)| vec![cpu; pages]);
        cpus.map(|cpu| char::from(b'0' + next(cpu).0)).collect()
    }

    /// Whether these are the nodes of a thread, with up to [`START`] pages touched before.
    fn explain(&self, thread: u32, found: &str, pages: &[(u16, usize)]) -> bool {
        (0..START).any(|before| self.nodes(thread, before, pages) == found)
    }
}

/// The rest of the line that begins with a word.
#[track_caller]
fn line<'a>(part: &'a str, word: &str) -> &'a str {
    let found = part.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no line '{word}' in {part}"))
}

/// Pages per node from a line of the outcome.
fn placed(part: &str) -> Vec<u64> {
    let all = line(part, "memtide: pages placed:");
    let nodes = all.split(';').next().expect("nodes").split(", ");
    nodes.map(|node| node.split(' ').next().expect("pages").parse().expect("a number")).collect()
}

/// Pages on each node that are neither files' nor the stack's, by /proc/PID/numa_maps.
fn anonymous(numa_maps: &str) -> [u64; 4] {
    let mut nodes = [0; 4];
    let areas = numa_maps.lines().filter(|line| line.contains(" anon="));
    for area in areas.filter(|line| !line.contains(" file=") && !line.contains(" stack ")) {
        for (node, pages) in nodes.iter_mut().enumerate() {
            let word = area.split_whitespace().find_map(|word| word.strip_prefix(&format!("N{node}=")));
            *pages += word.map_or(0, |pages| pages.parse().expect("a number of pages"));
        }
    }
    nodes
}

/// A static program in another language, without a C library; `None` without its compiler.
fn compile_go(folder: &Path) -> Option<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/exact.go");
    let program = folder.join("exact-go").to_str().expect("a name").to_owned();
    let mut go = Command::new("go");
    let built = go.args(["build", "-o", &program, source]).env("CGO_ENABLED", "0").status();
    match built {
        Ok(status) => assert!(status.success(), "{source} does not compile"),
        Err(error) => not_run_in_part(&format!("its Go program: go: {error}; apt-get install golang-go")),
    }
    fs::exists(&program).expect("a folder").then_some(program)
}

/// Runs a script in a guest with these host files; returns the output's sections, which begin with `== `.
#[track_caller]
fn parts(machine: &str, script: &str, files: &[&str]) -> Vec<String> {
    let options = ["--machine", machine, "--vcpus", "2", "--timing", "off"];
    let (out, _) = lab::script(&options, files, script);
    out.split("== ").skip(1).map(str::to_owned).collect()
}

#[test]
fn exact_placement_matches_simulator() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = lab::compile(folder.path(), "exact");
    let run = |policy: &str, options: &str, mode: &str| {
        format!(
            "echo == {policy} {mode}; \
             memtide run --exact --machine optane -p {policy} {options} -- exact {mode} 2>&1\n"
        )
    };
    let mut script: String = RUNS.iter().map(|of| run(of.policy, "-C 0", of.mode)).collect();
    script += &run("bw-local", "", "cpus");
    let parts = parts("optane", &script, &[&format!("{program}:/bin/exact")]);
    for (Run { policy, mode, threads }, part) in RUNS.iter().zip(&parts) {
        assert!(part.starts_with(&format!("{policy} {mode}\n")), "{part}");
        let choices = Choices::of(policy);
        for &(name, thread) in *threads {
            let found = line(part, name);
            assert!(found.len() >= PAGES, "{part}");
            assert!(choices.explain(thread, found, &[(0, found.len())]), "{policy}: {name}: {part}");
        }
        assert!(part.contains("left to the kernel: 0,"), "{part}");
    }
    let part = parts.last().expect("a part");
    let pages = [(SOCKET, PAGES), (0, PAGES)];
    assert!(Choices::of("bw-local").explain(0, line(part, "cpus"), &pages), "{part}");
}

/// Go sends SIGURG to its own threads: a thread that returns from mmap may get it together with SIGWINCH.
#[test]
fn signals_lose_no_mapping_and_no_signal() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = lab::compile(folder.path(), "exact");
    let script =
        "echo == signals; memtide run --exact --machine optane -p bw-interleave -- exact signals 2>&1";
    let parts = parts("optane", script, &[&format!("{program}:/bin/exact")]);
    for (signal, thread) in [("SIGURG", 1), ("SIGWINCH", 2)] {
        let found = line(&parts[0], signal);
        let as_ruled = Choices::of("bw-interleave").explain(thread, found, &[(0, PAGES)]);
        assert!(as_ruled, "{signal}: {}", parts[0]);
    }
    assert!(parts[0].contains("left to the kernel: 0,"), "{}", parts[0]);
}

/// Fills 20 MiB and prints its numa_maps.
const PERL: &str = r#"my $x = "a" x (20 << 20); open F, "/proc/self/numa_maps"; print <F>"#;

/// Delays before a program kills its fault handler, in microseconds.
const KILL_DELAYS_US: [u32; 4] = [700, 2345, 9000, 20_000];

#[test]
fn any_program_is_placed_and_survives_fault_handler() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = format!("{}:/bin/exact", lab::compile(folder.path(), "exact"));
    let go = compile_go(folder.path()).map(|program| format!("{program}:/bin/exact-go"));
    let run = "memtide run --machine optane -p";
    let mut script = format!("echo == perl; {run} bw-random -- perl -e '{PERL}' 2>&1\n");
    let mut files = vec![&*program, "/usr/bin/perl", "/bin/sleep", "/bin/true"];
    if let Some(go) = &go {
        script += &format!("echo == go; {run} low-latency -- exact-go 2>&1\n");
        files.push(go);
    }
    for delay in KILL_DELAYS_US {
        script += &format!(
            "echo == kill-parent; {run} bw-random -- exact kill-parent {delay} /{delay}; n=0; \
             until [ -e /{delay} ] || [ $n = 100 ]; do sleep 0.1; n=$((n + 1)); done; \
             [ -e /{delay} ] && echo survived\n"
        );
    }
    for info in memtide_policies::placements() {
        script += &format!("echo == placement; {run} {} -- true 2>&1; echo exit status $?\n", info.name);
    }
    for part in parts("optane", &script, &files) {
        match part.lines().next() {
            Some("kill-parent") => assert!(part.contains("survived"), "{part}"),
            Some("placement") => assert!(part.contains("exit status 0"), "{part}"),
            _ => {
                let (placed, found) = (placed(&part), anonymous(&part));
                assert!(
                    found.iter().zip(&placed).all(|(found, placed)| found <= placed),
                    "{placed:?}: {part}"
                );
                let [placed, found] = [placed.iter().sum::<u64>(), found.iter().sum()];
                assert!(found >= 20 << 8 && placed <= found + 64, "{placed}, {found}: {part}");
                assert!(part.contains("by page fault: not a plain ratio"), "{part}");
            }
        }
    }
}

/// Fills 32 MiB more than node 0 has free, and prints the number of pages.
const OVERFILL: &str = r#"open my $in, "<", "/sys/devices/system/node/node0/meminfo" or die;
    local $/; <$in> =~ /MemFree: *(\d+)/ or die;
    my $pages = $1 / 4 + (32 << 8); my $x = "a" x ($pages << 12); print "filled pages: $pages\n""#;

#[test]
fn kernel_places_pages_that_do_not_fit_policy_nodes() {
    if !lab_is_here() {
        return;
    }
    let script = format!(
        "echo == overfill; \
         memtide run --exact -p fast-only -m 0 --machine hinuma -- perl -e '{OVERFILL}' 2>&1\n"
    );
    let parts = parts("hinuma", &script, &["/usr/bin/perl"]);
    let number = |after: &str| -> u64 {
        let number = parts[0].split(after).nth(1).and_then(|rest| rest.split([',', '\n']).next());
        number.unwrap_or_else(|| panic!("no '{after}': {}", parts[0])).parse().expect("pages")
    };
    let left = number("left to the kernel: ");
    let all = left + placed(&parts[0]).iter().sum::<u64>();
    assert!(left > 0 && all >= number("filled pages: "), "{}", parts[0]);
}
