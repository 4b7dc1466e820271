//! The docs: line lengths, and that the commands they show run.
//!
//! `src/words.rs` parses every command of the docs; this file also runs those that need no privileges,
//! virtual machine or network.

use crate::support;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::call::{ROWS, file, stdout_of};
use crate::support::docs::{Example, examples, pages, root};

/// Longest line of a page.
const DOCS_COLUMNS: usize = 110;

/// Prefixes of commands that are only parsed, and why they do not run here.
const PARSED_ONLY: [(&str, &str); 16] = [
    ("memtide lab", "boots a virtual machine; tests/lab runs such commands"),
    ("memtide run", "needs nodes of several tiers or root; tests/lab/place.rs runs such"),
    ("memtide daemon", "runs until it is stopped; tests/lab/daemon/mod.rs runs it"),
    ("memtide status", "needs a daemon; tests/lab/daemon/mod.rs runs it"),
    ("memtide top", "needs a daemon, or its journal; tests/lab/daemon/mod.rs runs it"),
    ("memtide why", "needs a daemon; tests/lab/daemon/mod.rs runs it"),
    ("memtide pause", "needs a daemon; tests/lab/daemon/mod.rs runs it"),
    ("memtide resume", "needs a daemon; tests/lab/daemon/mod.rs runs it"),
    ("memtide migrate", "names a process; tests/lab/daemon/mod.rs runs it"),
    ("memtide replay", "needs a daemon's journal; tests/lab/daemon/mod.rs runs it"),
    ("memtide counters", "runs in a guest of the lab; tests/lab/counters.rs runs it"),
    ("memtide record", "needs qemu-user; tests/record.rs runs it"),
    ("memtide measure", "its time is the host's; tests/lab/measure.rs runs it"),
    ("memtide repro", "takes minutes; tests/repro.rs runs small experiments"),
    ("memtide validate", "takes minutes; tests/validate.rs runs it in a small size"),
    ("memtide topo -o machine --measured", "needs the output of measure; tests/lab/measure.rs runs it"),
];

/// Exceptions to [`PARSED_ONLY`]: placements that need no figures, and experiments of the reader.
const RUN_ANYWHERE: [&str; 4] = [
    "memtide run --placement local ",
    "memtide run --placement interleave ",
    "memtide repro list",
    "memtide repro my-figure.toml",
];

/// Parameters that shorten a workload of the docs: its name, and parameters to append.
const SMALL: [(&str, &str); 11] = [
    ("stream", "footprint_mib=4,iterations=1"),
    ("gups", "footprint_mib=4,operations=1000"),
    ("hot-set", "footprint_mib=4,operations=1000,warm_up=1000"),
    ("zipf", "footprint_mib=4,operations=1000"),
    ("ycsb-a", "footprint_mib=8,operations=1000"),
    ("chase", "operations=1000"),
    ("uniform", "operations=1000"),
    ("stencil", "steps=2,window_points=1024"),
    ("memos-hmmer", "operations=20000"),
    ("memos-mcf", "operations=20000"),
    ("memos-libquantum", "operations=20000"),
];

/// Whether a line is part of a table or an image, which Markdown cannot wrap.
fn unwrappable(line: &str) -> bool {
    line.starts_with('|') || line.starts_with("![")
}

#[test]
fn docs_wrap_at_110_characters() {
    let mut long = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| line.chars().count() > DOCS_COLUMNS && !unwrappable(line));
        long.extend(lines.map(|(at, line)| format!("{}:{}: {line}", page.display(), at + 1)));
    }
    assert!(long.is_empty(), "longer than {DOCS_COLUMNS} characters: {long:#?}");
}

#[test]
fn every_file_of_tests_is_part_of_a_test_program() {
    let mut listed = 0;
    for package in fs::read_dir(root().join("crates")).unwrap() {
        let package = package.unwrap().path();
        let Ok(main) = fs::read_to_string(package.join("tests/main.rs")) else { continue };
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        for file in fs::read_dir(package.join("tests")).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap();
            if name == "main" || file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let is_part = main.contains(&format!("\nmod {name};\n"))
                || manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
            assert!(is_part, "{} is in neither tests/main.rs nor Cargo.toml", file.display());
            listed += 1;
        }
    }
    assert!(listed >= 50, "{listed}");
}

#[test]
fn tutorial_shows_the_code_of_its_example() {
    let page = fs::read_to_string(root().join("docs/own-policy.md")).unwrap();
    let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let example = fs::read_to_string(root().join("crates/sim/examples/own_policy.rs")).unwrap();
    let policy = example.split("// policy\n").nth(1).unwrap().split("// end of the policy").next().unwrap();
    assert_eq!(shown, policy);
    assert!(policy.lines().count() <= 60);
}

#[test]
fn doc_links_resolve() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let folder = page.parent().unwrap();
        let targets = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { root().join(&page) } else { root().join(folder).join(path) };
            if !path.exists() || !anchor.is_empty() && !anchors(&path).contains(&anchor.to_owned()) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let characters = heading.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        characters.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn commands_in_docs_run() {
    let mut ran = 0;
    for page in pages() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        for example in examples(&page) {
            let line = example.words.join(" ");
            let parsed_only = PARSED_ONLY.iter().any(|(start, _)| line.starts_with(start));
            if !parsed_only || RUN_ANYWHERE.iter().any(|start| line.starts_with(start)) {
                run(&example, folder.path());
                ran += 1;
            }
        }
    }
    assert!(ran > 30, "{ran} commands ran");
}

#[test]
fn parsed_only_commands_are_in_docs() {
    let shown: Vec<Example> = pages().iter().flat_map(|page| examples(page)).collect();
    for (start, _) in PARSED_ONLY {
        assert!(shown.iter().any(|example| example.words.join(" ").starts_with(start)), "{start}");
    }
}

/// Small versions of the files that the docs' commands read.
fn prepare(folder: &Path) {
    let rows = file(folder, "accesses.csv", ROWS);
    let trace = folder.join("mine.parquet");
    stdout_of(&["trace", "import", &rows, "--format", "csv", "--to", trace.to_str().unwrap()]);
    fs::create_dir(folder.join("traces")).unwrap();
    for name in ["orders", "sqlite3", "redis", "sort"] {
        fs::copy(&trace, folder.join(format!("traces/{name}.parquet"))).unwrap();
    }
    fs::copy("/bin/true", folder.join("my-program")).unwrap();
    for name in ["my.toml", "my-machine.toml"] {
        fs::copy(root().join("machines/laptop.toml"), folder.join(name)).unwrap();
    }
    let page = fs::read_to_string(root().join("docs/experiments.md")).unwrap();
    let figure = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let small = figure.replace("stream:threads=16", "stream:threads=16,footprint_mib=4,iterations=1");
    assert_ne!(small, figure, "the example's workload");
    file(folder, "my-figure.toml", small.as_bytes());
    let mix = fs::read_to_string(root().join("runs/service-levels.toml")).unwrap();
    fs::create_dir(folder.join("runs")).unwrap();
    file(&folder.join("runs"), "service-levels.toml", mix.replace("operations=200000", "operations=1000"));
    fs::create_dir_all(folder.join("docs/comparison")).unwrap();
    fs::copy(root().join("docs/comparison/two-tier.toml"), folder.join("docs/comparison/two-tier.toml"))
        .unwrap();
    file(folder, "lackey.txt", "==7== Lackey\nI  00400000,4\n L 1ffe0000,8\n S 1ffe0008,8\n");
}

/// Runs a command; it must succeed. `doctor` may also report problems of the system.
fn run(example: &Example, folder: &Path) {
    let mut command = Command::new(support::MEMTIDE);
    let mut previous = "";
    for word in &example.words[1..] {
        let shortened = (previous == "--workload").then(|| small(word, &example.place));
        command.arg(shortened.as_deref().unwrap_or(word));
        previous = word;
    }
    if example.words[1] == "repro" {
        command.env("XDG_CACHE_HOME", folder);
    }
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let (line, error) = (example.words.join(" "), String::from_utf8_lossy(&output.stderr));
    let found_problems = example.words[1] == "doctor" && output.status.code() == Some(4);
    assert!(output.status.success() || found_problems, "{}: {line}: {error}", example.place);
    if let Some(path) = &example.output {
        fs::write(folder.join(path), output.stdout).unwrap();
    }
}

/// A workload with its parameters, those of [`SMALL`] instead of its own.
fn small(workload: &str, place: &str) -> String {
    let (name, parameters) = workload.split_once(':').unwrap_or((workload, ""));
    let (_, small) = SMALL
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("{place}: add small parameters of {name} to SMALL"));
    let key = |parameter: &str| parameter.split('=').next().unwrap().to_owned();
    let replaced = |parameter: &&str| small.split(',').any(|new| key(new) == key(parameter));
    let own = parameters.split(',').filter(|parameter| !parameter.is_empty() && !replaced(parameter));
    format!("{name}:{}", own.chain([*small]).collect::<Vec<_>>().join(","))
}
