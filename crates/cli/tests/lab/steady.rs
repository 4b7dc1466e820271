//! A loop of dependent loads is as slow in each interval as in the first, whatever its addresses depend
//! through.

use crate::support::{lab, lab_is_here};

/// Time of a load in each interval, in ns.
fn intervals(out: &str, way: &str) -> Vec<f64> {
    let after = out.lines().skip_while(|line| *line != way).skip(1);
    let numbers: Vec<f64> = after.map_while(|line| line.parse().ok()).collect();
    assert_eq!(numbers.len(), 3, "{way}: {out}");
    numbers
}

#[test]
fn dependent_loads_take_same_time_in_each_interval_through_registers_memory_and_flags() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = lab::compile(folder.path(), "dependent");
    let script = format!(
        "for way in register registers memory flags nothing; do echo $way; {program} $way 32 3; done"
    );
    let options = ["--machine", "ddr5-cxl", "--vcpus", "1", "--timing", "on"];
    let (out, _) = lab::script(&options, &[&program], &script);
    let chase = intervals(&out, "register")[0];
    for way in ["register", "registers", "memory", "flags", "nothing"] {
        let intervals = intervals(&out, way);
        for ns in &intervals {
            assert!((ns / intervals[0] - 1.0).abs() < 0.03, "through {way}: {intervals:?} ns a load");
        }
        let ns = intervals[0];
        if way == "nothing" {
            assert!(ns < 0.5 * chase, "independent loads take {ns} ns, dependent ones {chase}");
        } else {
            assert!((ns / chase - 1.0).abs() < 0.05, "through {way}: {ns} ns, a chase {chase}");
        }
    }
}
