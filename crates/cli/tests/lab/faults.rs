//! Fault injection in the daemon, its processes and nodes: no data corruption, no hang, no privilege
//! escalation.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{MEMTIDE, lab, lab_is_here};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde_json::Value;

/// Programs of the scripts.
const PROGRAMS: [&str; 5] = ["/bin/sleep", "/bin/chmod", "/bin/mkdir", "/bin/mount", "/usr/bin/setpriv"];

/// Output of a script of `support/faults`, by section `== NAME`.
struct Part {
    name: String,
    text: String,
}

/// Runs a script of `support/faults` in a guest; returns its sections and standard error. `None` without the
/// lab.
#[track_caller]
fn run(script: &str, options: &[&str], arguments: &str) -> Option<(Vec<Part>, String)> {
    if !lab_is_here() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let here = format!("{}/tests/support/faults", env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![format!("{}:/bin/faults", lab::compile(folder.path(), "faults"))];
    files.extend(["common", script].map(|name| format!("{here}/{name}.sh:/{name}.sh")));
    files.extend(PROGRAMS.map(str::to_owned));
    let mut command = Command::new(MEMTIDE);
    command.env("XDG_RUNTIME_DIR", folder.path()).env("TMPDIR", folder.path());
    command.args(["lab", "run", "--machine", "hinuma", "--scale", "48", "--timing", "off"]).args(options);
    command.args(["--timeout", "150", "--file", &format!("{MEMTIDE}:/bin/memtide")]);
    files.iter().for_each(|file| _ = command.args(["--file", file]));
    command.args(["--", "sh", "-c", &format!(". /{script}.sh"), "sh"]).args(arguments.split_whitespace());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("memtide runs");
    let mut out = String::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        println!("{line}");
        if ["add", "remove"].contains(&&*line) {
            let mut node = Command::new(MEMTIDE);
            node.env("XDG_RUNTIME_DIR", folder.path()).args(["lab", "node", &line, "nvm"]);
            assert!(node.status().expect("memtide runs").success(), "{line}: {out}");
        }
        out += &format!("{line}\n");
    }
    let output = child.wait_with_output().expect("memtide ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{told}");
    assert!(output.status.success() && !out.contains(": FAIL: "), "{out}\n{told}");
    assert!(!out.contains("faults: exit status"), "{out}\n{told}");
    let parts = out.split("== ").skip(1).map(|part| {
        let (name, text) = part.split_once('\n').expect("a name");
        Part { name: name.to_owned(), text: text.to_owned() }
    });
    Some((parts.collect(), told))
}

#[track_caller]
fn part<'a>(parts: &'a [Part], name: &str) -> &'a Part {
    parts.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("no part {name}"))
}

impl Part {
    /// The JSON documents in the output.
    fn answers(&self) -> Vec<Value> {
        let mut answers = Vec::new();
        let mut rest = &*self.text;
        while let Some(at) = rest.find("{\n") {
            let mut stream = serde_json::Deserializer::from_str(&rest[at..]).into_iter();
            answers.push(stream.next().expect("a value").expect("JSON"));
            rest = &rest[at + stream.byte_offset()..];
        }
        answers
    }

    /// Pages by migration outcome; also the pages `found`.
    fn outcomes(&self) -> Vec<BTreeMap<String, u64>> {
        let outcome = |row: &Value| Some((row["outcome"].as_str()?.to_owned(), row["pages"].as_u64()?));
        let of = |answer: Value| {
            let found = ("found".to_owned(), answer["found_pages"].as_u64()?);
            Some(answer["outcomes"].as_array()?.iter().filter_map(outcome).chain([found]).collect())
        };
        self.answers().into_iter().filter_map(of).collect()
    }

    /// Pages of one outcome.
    fn pages(&self, outcome: &str) -> Vec<u64> {
        self.outcomes().iter().map(|of| of.get(outcome).copied().unwrap_or(0)).collect()
    }

    /// Lines with this prefix, without it.
    fn after(&self, word: &str) -> Vec<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix(word)).collect()
    }

    #[track_caller]
    fn says(&self, what: &str) {
        assert!(self.text.contains(what), "'{what}' is not in {}: {}", self.name, self.text);
    }
}

/// Moves of a daemon's policy refused for a reason.
fn refused(status: &Value, reason: &str) -> u64 {
    let rows = status["refused"].as_array().expect("rows").iter();
    rows.filter(|row| row["reason"] == reason).filter_map(|row| row["moves"].as_u64()).sum()
}

#[test]
fn writer_loses_no_byte_during_migrations() {
    let Some((parts, _)) = run("writes", &["--vcpus", "2"], "") else { return };
    let moved = |name: &str| -> u64 {
        parts.iter().filter(|part| part.name == name).flat_map(|part| part.pages("moved")).sum()
    };
    // Its 8 MiB may be on either node at first.
    assert!(moved("without daemon") >= 5 * 2048, "{} pages moved", moved("without daemon"));
    let status = &part(&parts, "status").answers()[0];
    let mut processes = status["processes"].as_array().expect("processes").iter();
    let writer = processes.find(|of| of["name"] == "faults").expect("the writer");
    let by_policy = writer["moved_pages"].as_u64().expect("a number");
    assert!(
        moved("by daemon") >= 2 * 2048 && by_policy >= 2048,
        "{} pages moved, {status}",
        moved("by daemon")
    );
    part(&parts, "end").says("writer: PASS");
    part(&parts, "end").says("daemon: exit status 0");
}

#[test]
fn process_events_during_migration_are_reported() {
    let Some((parts, told)) = run("targets", &["--vcpus", "1"], "") else { return };
    const PAGES: u64 = 4 << 8;
    // Its state before and after `execve`.
    let moved = part(&parts, "exec").pages("moved")[0];
    assert!(moved > PAGES + 100, "{moved} pages of two programs of {PAGES}");
    // Pages shared with its children stay until written.
    let forks = part(&parts, "fork").outcomes();
    assert!(forks[0]["not-allowed"] > 0 && forks[0]["moved"] + forks[1]["moved"] >= PAGES, "{forks:?}");
    let moved = part(&parts, "unmap").pages("moved");
    assert!(moved[0] >= PAGES / 2 && moved[1] > 0, "{moved:?}");
    let locks = part(&parts, "mlock");
    let outcomes = locks.outcomes();
    assert!(outcomes[0].get("moved").is_some_and(|&moved| moved >= PAGES), "{outcomes:?}");
    for of in &outcomes {
        // The policy may have promoted some before; pages of shared files stay.
        let counted =
            ["moved", "already-there", "not-allowed"].map(|name| of.get(name).copied().unwrap_or(0));
        assert_eq!(counted.iter().sum::<u64>(), of["found"], "{outcomes:?}");
    }
    let left = locks.after("anonymous: ");
    assert!(!left.is_empty() && left.iter().all(|line| !line.contains("N1=")), "{left:#?}");
    let pins = part(&parts, "pin").outcomes();
    let [shared, pinned] = [PAGES.div_ceil(7), PAGES / 16];
    let busy = pins[0].get("busy").copied().unwrap_or(0);
    assert!(busy > 0 && busy <= pinned, "{pins:?}");
    assert!(pins[0]["not-allowed"] >= shared && pins[0]["moved"] >= PAGES - shared - pinned, "{pins:?}");
    let killed = part(&parts, "killed");
    assert!(
        killed.text.contains("it has ended") || killed.text.contains("No such process"),
        "{}",
        killed.text
    );
    killed.says("exit status 1");
    for name in ["after_exec", "fork", "unmap", "mlock", "pin"] {
        part(&parts, "end").says(&format!("{name}: PASS"));
    }
    let left = &part(&parts, "after").answers()[0];
    let names: Vec<&str> = left["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .filter_map(|of| of["name"].as_str())
        .collect();
    assert!(!names.contains(&"faults"), "{left}\n{told}");
    part(&parts, "after").says("daemon: exit status 0");
}

#[test]
fn cgroup_selects_or_excludes_processes() {
    let Some((parts, _)) = run("cgroups", &["--vcpus", "1"], "") else { return };
    for name in ["inside", "outside"] {
        let part = part(&parts, name);
        let status = &part.answers()[0];
        let watched = status["processes"].as_array().expect("processes");
        let faults: Vec<String> =
            watched.iter().filter(|of| of["name"] == "faults").map(|of| of["pid"].to_string()).collect();
        assert_eq!(faults, part.after("pid "), "{name}: {status}");
    }
    part(&parts, "end").says("daemon: exit status 0");
}

#[test]
fn full_or_offlined_node_is_reported_and_reused() {
    let Some((parts, _)) = run("nodes", &["--vcpus", "1", "--absent", "nvm"], "") else { return };
    const PAGES: u64 = 32 << 8;
    let filled = &part(&parts, "full").outcomes()[0];
    assert!(filled["moved"] > 0 && filled["no-room"] > 0, "{filled:?}");
    let freed = part(&parts, "freed").pages("moved");
    assert!(freed[0] + filled["moved"] >= PAGES && freed[1] >= PAGES, "{filled:?}, {freed:?}");
    let offline = part(&parts, "offline");
    offline.says("'1' names 1, which does not exist");
    let status = offline.answers();
    assert_eq!(refused(&status[0], "not-allowed"), refused(&status[1], "not-allowed"), "{}", offline.text);
    assert!(status[0]["epochs"].as_u64() < status[1]["epochs"].as_u64(), "{}", offline.text);
    let online = part(&parts, "online").pages("moved");
    // The policy moves some pages too.
    assert!(online[0] + online[1] >= PAGES, "moved there and back: {online:?}");
    part(&parts, "end").says("target: PASS");
    part(&parts, "end").says("daemon: exit status 0");
}

#[test]
fn unprivileged_user_migrates_own_pages_only() {
    let Some((parts, told)) = run("privileges", &["--vcpus", "1"], "") else { return };
    let codes = |name: &str| -> Vec<String> {
        part(&parts, name).after("exit status ").into_iter().map(str::to_owned).collect()
    };
    let nodes = |name: &str| -> Vec<String> {
        part(&parts, name).after("memory on node ").into_iter().map(str::to_owned).collect()
    };
    for (name, why) in [("user", "does not exist or is not yours"), ("user daemon", "CAP_SYS_PTRACE")] {
        assert_eq!(codes(name), ["0", "1", "1"], "{name}");
        // The daemon's policy may move some of them back at once.
        let nodes = nodes(name);
        assert!(nodes[0] != "0" && nodes[1..] == ["0", "0"], "{name}: {nodes:?}");
        part(&parts, name).says(why);
    }
    let status = &part(&parts, "user daemon").answers()[0];
    let users: Vec<Option<u64>> =
        status["processes"].as_array().expect("processes").iter().map(|of| of["uid"].as_u64()).collect();
    assert!(!users.is_empty() && users.iter().all(|&uid| uid == Some(1000)), "{status}");
    // Root does not need CAP_SYS_NICE, but needs CAP_SYS_PTRACE for other users' processes.
    assert_eq!(
        (codes("without sys_nice"), nodes("without sys_nice")),
        (vec!["0".to_owned(); 3], vec!["1".to_owned(); 3])
    );
    assert_eq!(
        (codes("without sys_ptrace"), nodes("without sys_ptrace")),
        (vec!["1".to_owned(); 3], vec!["0".to_owned(); 3])
    );
    part(&parts, "without sys_ptrace").says("CAP_SYS_PTRACE");
    let daemons: Vec<&Part> = parts.iter().filter(|part| part.name == "daemon").collect();
    let [nice, ptrace] = [&daemons[0].answers()[0], &daemons[1].answers()[0]];
    let moved = |status: &Value| status["moved"].as_array().expect("rows").len();
    // DAMON may have ended with its last process.
    assert!(moved(nice) > 0 && !nice["troubles"].to_string().contains("CAP_"), "{nice}");
    assert!(moved(ptrace) == 0 && ptrace["troubles"].to_string().contains("CAP_SYS_PTRACE"), "{ptrace}");
    daemons.iter().for_each(|daemon| daemon.says("daemon: exit status 0"));
    for name in ["own", "others", "roots"] {
        assert!(part(&parts, "end").text.contains(&format!("{name}: PASS")), "{told}");
    }
}

/// Times that the daemon is killed.
const KILLS: usize = 10;

#[test]
fn kill_at_any_time_leaves_no_trace() {
    let seed = env::var("MEMTIDE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("MEMTIDE_TEST_SEED={seed}");
    let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed);
    let times = (0..KILLS).map(|_| format!("{:.3} ", (draws.next_u64() % 2000) as f64 / 1000.0));
    let Some((parts, told)) = run("kills", &["--vcpus", "1"], &times.collect::<String>()) else { return };
    let restart = part(&parts, "restart");
    let status = &restart.answers()[0];
    assert!(status["monitor"] == "damon" && status["epochs"].as_u64() > Some(0), "{status}\n{told}");
    restart.says("daemon: exit status 0");
    restart.says("nr_kdamonds 0");
    let in_use = part(&parts, "damon in use");
    let status = &in_use.answers()[0];
    assert!(
        status["monitor"] == "smaps" && status["why_not_better"].to_string().contains("another program"),
        "{status}"
    );
    in_use.says("other kdamond: on");
    assert_eq!(part(&parts, "weights").after("weight "), ["4", "1", "1"]);
    part(&parts, "target killed").says("exit status 1");
    let end = part(&parts, "end");
    end.says("writer: PASS");
    end.says("migrated: PASS");
    assert!(!parts.iter().any(|part| part.text.contains("stopped: ")), "a process is stopped");
}

#[test]
fn monitoring_200_processes_stays_within_bounds() {
    let Some((parts, told)) = run("processes", &["--vcpus", "1"], "") else { return };
    let samples: Vec<&Part> = parts.iter().filter(|part| part.name == "sample").collect();
    for sample in &samples {
        let status = &sample.answers()[0];
        let processes = status["processes"].as_array().expect("processes");
        let watched = processes.iter().filter(|of| of["name"] == "faults").count();
        assert!(watched >= 200 && status["monitor"] == "damon", "{watched} watched: {status}\n{told}");
        let kib: u64 = sample.after("peak_kib ")[0].parse().expect("a size");
        assert!(kib < 64 << 10, "{kib} KiB");
        let [cpu_ns, request_ns] = ["cpu_ns ", "request_ns "]
            .map(|word| sample.after(word)[0].parse::<f64>().expect("CPU time of the daemon"));
        let epoch_ns = cpu_ns / status["epochs"].as_f64().expect("epochs");
        println!("{kib} KiB, {epoch_ns:.0} ns of CPU time per epoch, {request_ns} ns per status request");
        // The request may fall within an epoch; independent of host speed.
        assert!(request_ns < 3.0 * epoch_ns, "a request waited for more than the current epoch");
    }
    assert_eq!(samples.len(), 2);
    part(&parts, "end").says("parent: PASS");
    part(&parts, "after").says("daemon: exit status 0");
}
