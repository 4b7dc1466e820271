//! `memtide run` on a real kernel places an unmodified program's pages by the rule, within one page in a
//! thousand.

use crate::support::{lab, lab_is_here};

/// Pages that the program fills; Perl uses a few more.
const PAGES: u64 = 40 << 8;

/// Fills 40 MiB and prints its numa_maps.
const PROGRAM: &str = r#"my $n = 40 << 20; my $x = "a" x $n; open F, "/proc/self/numa_maps"; print <F>"#;

/// Each placement, and its shares of `hinuma`'s DRAM and NVM (bandwidth ratio 2:1).
const PLACEMENTS: [(&str, [u64; 2]); 6] = [
    ("ratio:weights=4:1", [4, 1]),
    ("bw-interleave", [2, 1]),
    ("hi-bandwidth", [2, 1]),
    ("interleave", [1, 1]),
    ("fast-only", [1, 0]),
    ("local", [1, 0]),
];

#[test]
fn placement_follows_rule_and_weights_are_restored() {
    if !lab_is_here() {
        return;
    }
    let weights = "cat /sys/kernel/mm/mempolicy/weighted_interleave/node0";
    let lines = PLACEMENTS.map(|(placement, _)| {
        format!("echo == {placement}; memtide run -p {placement} -- perl -e '{PROGRAM}'\n")
    });
    let conflict = "memtide run -p ratio:weights=4:1 -- memtide run -p ratio:weights=2:1 -- perl -e 1 2>&1\n";
    let script = format!("{}echo == end\n{conflict}{weights}\n", lines.concat());
    let options = ["--machine", "hinuma", "--vcpus", "1", "--timing", "off"];
    let (out, stderr) = lab::script(&options, &["/usr/bin/perl", "/bin/cat"], &script);
    let parts: Vec<&str> = out.split("== ").collect();
    for ((placement, weights), part) in PLACEMENTS.into_iter().zip(&parts[1..]) {
        assert!(part.starts_with(placement), "{out}\n{stderr}");
        let found = largest(part);
        let all: u64 = found.iter().sum();
        assert!((PAGES..PAGES + 10).contains(&all), "{placement}: {found:?}");
        for (node, weight) in weights.into_iter().enumerate() {
            let expected = all * weight / weights.iter().sum::<u64>();
            assert!(found[node].abs_diff(expected) <= PAGES / 1000, "{placement}: {found:?} for {weights:?}");
        }
    }
    let end = parts.last().expect("the end");
    assert!(end.contains("node 0 has weight 4") && end.trim_end().ends_with("\n1"), "{end}");
}

/// Pages on nodes 0 and 1 of the largest area.
fn largest(numa_maps: &str) -> [u64; 2] {
    let pages = |line: &str| {
        ["N0=", "N1="].map(|node| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(node));
            word.map_or(0, |pages| pages.parse().expect("a number of pages"))
        })
    };
    numa_maps.lines().map(pages).max_by_key(|pages| pages.iter().sum::<u64>()).expect("areas")
}
