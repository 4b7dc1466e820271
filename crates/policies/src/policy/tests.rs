use proptest::prelude::*;

use super::*;
use crate::testing::{Full, N, Toucher, bmpm, machine, with_last_level};
use memtide_core::policy::{Delivery, Sensor, Task};
use memtide_core::{CpuId, TaskId};

fn refused(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn policy_is_placement_with_optional_migration() {
    let policy = parse("ratio:weights=4:1+bw-migration:threshold=20:delivery=in-kernel").unwrap();
    assert_eq!(policy.placement_info().name, "ratio");
    assert_eq!(policy.migration_info().name, "bw-migration");
    assert_eq!(policy.migration(&bmpm(2.0)).sensors().delivery, Delivery::InKernel);
    let plain = parse("local").unwrap();
    assert_eq!((plain.to_string().as_str(), plain.migration_info().name), ("local", "none"));
    assert!(!plain.migration(&bmpm(2.0)).sensors().hint_faults());
}

#[test]
fn parameters_are_separated_by_commas_or_colons() {
    let values = |text: &str| {
        let policy = parse(text).unwrap();
        assert_eq!(policy.name(), text);
        (policy.placement_values, policy.migration_values)
    };
    let expected = values("low-latency:read-share=0.5:threshold=9+hot-cold:low=1:high=5:hot=20");
    assert_eq!((expected.0.f64("read-share"), expected.1.u32("hot")), (0.5, 20));
    for same in [
        "low-latency:read-share=0.5,threshold=9+hot-cold:low=1,high=5,hot=20",
        "low-latency:threshold=9,read-share=0.5+hot-cold:low=1:high=5,hot=20",
    ] {
        assert_eq!(values(same), expected, "{same}");
    }
    assert_eq!(values("ratio:weights=4:2:1").0.weights("weights"), [4, 2, 1]);
}

#[test]
fn anb_is_in_kernel_and_bw_migration_deployable() {
    let sensors = |text| parse(text).unwrap().migration(&bmpm(2.0)).sensors();
    assert_eq!(sensors("local+anb").delivery, Delivery::InKernel);
    assert_eq!(sensors("local+bw-migration").delivery, Delivery::Deployable);
    assert_eq!(sensors("local+anb").first_epoch, memtide_core::Time::from_ms(1000));
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    assert_eq!(
        refused("locale"),
        "unknown placement policy 'locale'; known: local, interleave, fast-only, bind, preferred, ratio, \
         bw-interleave, bw-random, bw-local, low-latency, hi-bandwidth"
    );
    assert_eq!(
        refused("local+numa"),
        "unknown migration policy 'numa'; known: none, anb, bdm, bw-migration, hanb, heterovisor, \
         hot-cold, hot-threshold, linux-tiering, memos, pms, relative-heat, utility-cache, vertical"
    );
    assert!(refused("anb").ends_with("; a policy is written PLACEMENT+MIGRATION, such as local+anb"));
    assert!(refused("local+bw-local").ends_with("such as local+anb"));
    assert!(refused("").starts_with("unknown placement policy ''; known: "));
    assert!(refused("local+").starts_with("unknown migration policy ''; known: "));
    assert!(refused("local+anb+anb").starts_with("unknown migration policy 'anb+anb'; known: "));
}

#[test]
fn parameters_are_refused_with_what_is_allowed() {
    for (text, expected) in [
        ("local:x=1", "policy 'local': unknown parameter 'x'; there are none"),
        ("low-latency:p=1", "policy 'low-latency': unknown parameter 'p'; known: read-share, threshold"),
        (
            "low-latency:read-share=70",
            "policy 'low-latency': invalid value '70' for parameter 'read-share': expected a number from 0 \
             to 1",
        ),
        (
            "low-latency:read-share=nan",
            "policy 'low-latency': invalid value 'nan' for parameter 'read-share': expected a number from 0 \
             to 1",
        ),
        (
            "low-latency:read-share",
            "policy 'low-latency': 'read-share' is not a parameter: expected KEY=VALUE, several separated by \
             commas",
        ),
        (
            "hi-bandwidth:threshold=1:threshold=2",
            "policy 'hi-bandwidth': parameter 'threshold' is given twice",
        ),
        (
            "local+bw-migration:threshold=0",
            "policy 'bw-migration': invalid value '0' for parameter 'threshold': expected an integer from 1 \
             to 1000000000",
        ),
        (
            "local+bw-migration:delivery=late",
            "policy 'bw-migration': invalid value 'late' for parameter 'delivery': expected one of \
             deployable, in-kernel",
        ),
        ("local+hot-cold:low=7:high=5", "policy 'hot-cold': low is 7, high is 5; high must be at least low"),
        (
            "ratio:weights=4:0",
            "policy 'ratio': invalid value '4:0' for parameter 'weights': expected an integer from 1 to 255 \
             for each tier, fastest first, joined by ':'",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
}

#[test]
fn default_comparison_has_every_placement_and_migration_but_those_of_special_sensors() {
    let names: Vec<String> = default_comparison().iter().map(Policy::to_string).collect();
    assert_eq!(names[..4], ["local", "local+anb", "local+hot-cold", "local+linux-tiering"]);
    let is_special = |sensor| {
        matches!(
            sensor,
            Sensor::TlbMisses(_) | Sensor::Messages | Sensor::PageSamples(_) | Sensor::CacheUtility
        )
    };
    let is_left_out = |name: &str| {
        let policy = parse(&format!("local+{name}")).expect("a policy");
        let sensors = policy.migration(&with_last_level(bmpm(2.0))).sensors();
        sensors.iter().any(|request| is_special(request.sensor))
    };
    for migration in migrations().filter(|info| info.name != "none" && !is_left_out(info.name)) {
        let ends = format!("+{}", migration.name);
        assert!(names.iter().any(|name| name.ends_with(&ends)), "{names:?} lacks {}", migration.name);
    }
    assert_eq!(names.last().unwrap(), "bw-local+bw-migration");
    let chosen = placements().filter(|info| info.chooses_nodes());
    assert_eq!(names.len(), placements().count() - chosen.count() + 6);
}

#[test]
fn every_policy_has_a_page_that_names_its_source_and_parameters() {
    for info in placements().chain(migrations()) {
        let path = format!("{}/../../docs/policies/{}.md", env!("CARGO_MANIFEST_DIR"), info.name);
        let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(page.starts_with(&format!("# {}\n", info.name)), "{path}: its title");
        for parameter in info.parameters {
            let row = format!("| `{}` | {} | {} |", parameter.name, parameter.range(), parameter.default());
            assert!(page.contains(&row), "{path}: lacks `{row}`");
        }
    }
}

#[test]
fn parameter_help_has_unit_range_and_default() {
    let info = placements().find(|info| info.name == "low-latency").unwrap();
    assert_eq!(
        info.parameters[0].to_string(),
        "read-share (share of accesses): share of reads in the accesses, p of equation 4; a number from 0 to \
         1, by default 0.7"
    );
}

#[test]
fn default_comparison_runs_on_every_bundled_machine() {
    let machines = format!("{}/../../machines", env!("CARGO_MANIFEST_DIR"));
    let mut tried = 0;
    for entry in std::fs::read_dir(&machines).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let machine =
            Machine::parse(&path.to_string_lossy(), &text).unwrap_or_else(|e| panic!("{e}")).reduced();
        for policy in default_comparison() {
            let mut thread = Toucher::new(policy.name(), &machine, 0);
            assert!(thread.touch(CpuId(0), &Full::default()).is_some(), "{policy} on {}", machine.name);
            policy.migration(&machine);
            tried += 1;
        }
    }
    assert!(tried > 0);
}

#[test]
fn policy_without_figures_ignores_them() {
    let node =
        |tier: u8, mbps: f64, ns: f64| N { tier, socket: tier.into(), mbps, read_ns: ns, write_ns: ns };
    let slow = |ratio: f64| machine(&[node(0, 17e3, 80.0), node(1, 17e3 / ratio, 80.0 * ratio)]);
    for info in placements() {
        let rule = |machine: &Machine| {
            let task = Task { id: TaskId(0), name: "p".to_owned(), threads: 1 };
            let policy = parse(info.name).unwrap_or_else(|e| panic!("{e}"));
            let mut placement = policy.placement(machine).unwrap_or_else(|e| panic!("{e}"));
            format!("{:?}", placement.rule(machine, &task))
        };
        assert_eq!(rule(&slow(2.0)) != rule(&slow(7.0)), info.figures, "{}", info.name);
    }
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(
        text in any::<String>(),
        params in "[a-z=:,+0-9 -]{0,30}",
        at in any::<prop::sample::Index>(),
    ) {
        let names: Vec<&str> = placements().chain(migrations()).map(|info| info.name).collect();
        let name = *at.get(&names);
        for text in [text, params.clone(), format!("{name}:{params}"), format!("local+{name}:{params}")] {
            if let Ok(policy) = parse(&text) {
                prop_assert_eq!(policy.name(), text);
            }
        }
    }
}
