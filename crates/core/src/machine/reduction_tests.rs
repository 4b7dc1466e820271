//! A slice and a scale leave a machine of the same proportions.

use super::bundled;
use super::*;

fn machine(name: &str) -> Machine {
    bundled::machine(name).expect("a bundled machine").expect("a checked machine")
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

#[test]
fn each_core_of_a_slice_has_its_share_of_every_resource() {
    for whole in bundled::names().into_iter().map(machine) {
        let divides = |by: &u32| whole.initiators.iter().all(|i| u32::from(i.cpus).is_multiple_of(*by));
        for by in (1..=112).filter(divides) {
            let small = Machine { slice: by, ..whole.clone() }.sliced();
            let (name, by) = (format!("{} / {by}", whole.name), f64::from(by));
            assert_eq!(small.cpus() as f64 * by, whole.cpus() as f64, "{name}");
            for node in whole.node_ids() {
                let [all, part] = [&whole, &small].map(|m| m.device_bandwidth(node).as_mbps());
                assert!(near(part * by, all), "{name}: {part} of {all} MB/s");
                let [all, part] = [&whole, &small].map(|m| m.nodes[node.index()].capacity_mib);
                assert_eq!(part, (all as f64 / by) as u64, "{name}");
                assert_eq!(
                    small.idle_latency(InitiatorId(0), node),
                    whole.idle_latency(InitiatorId(0), node),
                    "{name}"
                );
            }
            for (part, all) in small.caches.iter().zip(&whole.caches) {
                assert_eq!(part.is_shared(), all.is_shared(), "{name}");
                let [of_all, of_part] = [all, part].map(|c| c.capacity_kib as f64 / f64::from(c.shared_by));
                let rounding = f64::from(all.ways) / f64::from(part.shared_by);
                assert!((of_all - of_part).abs() <= rounding, "{name}: {of_part} of {of_all} KiB a core");
            }
            for (part, all) in small.links.iter().zip(&whole.links) {
                assert!(near(part.bandwidth_mbps * by, all.bandwidth_mbps), "{name}");
            }
            let text = small.to_toml();
            let again = Machine::parse("slice.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again.to_toml(), text);
        }
    }
}

#[test]
fn slice_takes_whole_channels_and_shares_what_is_left() {
    let sliced = |by| Machine { slice: by, ..machine("ddr5-cxl") }.sliced();
    let channels = |m: &Machine| -> Vec<(u16, u16)> {
        m.nodes.iter().map(|n| (n.dram.as_ref().unwrap().channels, n.sharing_slices)).collect()
    };
    assert_eq!(channels(&sliced(2)), [(8, 1), (8, 1), (1, 1)]);
    assert_eq!(channels(&sliced(16)), [(1, 1), (1, 1), (1, 8)]);
    assert_eq!(channels(&sliced(32)), [(1, 2), (1, 2), (1, 16)]);
    assert!(sliced(16).links.iter().all(|link| link.sharing_slices == 16));
}

#[test]
fn sliced_address_map_covers_the_remaining_channels() {
    let mut whole = machine("ddr5-cxl");
    for node in &mut whole.nodes {
        let dram = node.dram.as_mut().unwrap();
        if dram.channels == 16 {
            dram.address_hash =
                ["channel[3] ^= row[1]", "bank[0] ^= channel[3] ^ row[2]"].map(str::to_owned).into();
        }
        dram.address_map =
            dram.address_map.replace("|channel", "|channel:1").replacen("row", "channel|row", 1);
    }
    for by in [2, 4, 8, 16] {
        let small = Machine { slice: by, ..whole.clone() }.sliced();
        assert_eq!(small.nodes[0].dram.as_ref().unwrap().address_hash, ["bank[0] ^= row[2]"], "{by}");
        for node in &small.nodes {
            let dram = node.dram.as_ref().unwrap();
            let fields = dram.map_fields().unwrap_or_else(|error| panic!("{by}: {error}"));
            let bits = fields.iter().filter(|f| f.what == Coordinate::Channel).map(|f| u32::from(f.bits));
            assert_eq!(1 << bits.sum::<u32>(), dram.channels, "{by}: {}", dram.address_map);
            dram.map_hashes().unwrap_or_else(|error| panic!("{by}: {error}"));
        }
    }
}

#[test]
fn slice_that_divides_a_core_is_refused() {
    let text = bundled::text("ddr5-cxl").unwrap();
    let error = Machine::parse("m.toml", &format!("slice = 5\n{}", text.replace("\nslice", "\n#")));
    let error = error.expect_err("accepted");
    assert_eq!((error.field.as_str(), error.line), ("slice", 1), "{error}");
    assert_eq!(error.message, "invalid value 5: expected a divisor of the 32 CPUs of 'socket0'");
}

#[test]
fn scale_divides_capacities_and_keeps_the_first_cache_latencies_and_bandwidths() {
    let whole = Machine { slice: 1, scale: 16, ..machine("ddr5-cxl") };
    let small = whole.scaled();
    assert_eq!(small.scale, 1);
    let kib: Vec<u64> = small.caches.iter().map(|cache| cache.capacity_kib).collect();
    assert_eq!(kib, [48, 128, 3840]);
    for node in whole.node_ids() {
        let [all, part] = [&whole, &small].map(|m| &m.nodes[node.index()]);
        assert_eq!(part.capacity_mib * 16, all.capacity_mib);
        assert_eq!(whole.node_bandwidth(node), small.node_bandwidth(node));
        assert_eq!(whole.idle_latency(InitiatorId(0), node), small.idle_latency(InitiatorId(0), node));
    }
}

#[test]
fn second_private_cache_keeps_the_capacity_of_the_first() {
    let kib = |scale| -> Vec<u64> {
        let small = Machine { scale, ..machine("bmpm-1") }.scaled();
        small.caches.iter().map(|cache| cache.capacity_kib).collect()
    };
    assert_eq!(kib(2), [32, 128, 10240]);
    assert_eq!(kib(64), [32, 32, 320]);
}

#[test]
fn hint_scanner_marks_as_much_per_second_at_every_reduction() {
    let whole = machine("optane");
    let rate = |m: &Machine| m.kernel.numa_scan_pages() as f64 / m.kernel.numa_scan_period_ms;
    for scale in [1, 3, 64, 512, 2048, 65_536, 100_000] {
        for slice in [1, 3, 24] {
            let small = Machine { slice, scale, ..whole.clone() }.reduced();
            // A slice has its part of the program's pages.
            let expected = rate(&whole) / f64::from(slice);
            assert!(near(rate(&small), expected), "{slice} x {scale}: {} of {expected}", rate(&small));
        }
    }
}

#[test]
fn reduction_of_one_changes_nothing() {
    for whole in bundled::names().into_iter().map(machine) {
        let whole = Machine { slice: 1, scale: 1, ..whole }.without_deviation();
        assert_eq!(whole.reduced().to_toml(), whole.to_toml());
    }
}

#[test]
fn bundled_machines_keep_their_proportions_at_their_slice_and_scale() {
    for whole in bundled::names().into_iter().map(machine) {
        assert_eq!(whole.reduction_warnings(), [""; 0], "{}", whole.name);
    }
}

#[test]
fn lost_proportions_are_named_with_a_scale_that_keeps_them() {
    let warnings = |name, slice, scale| Machine { slice, scale, ..machine(name) }.reduction_warnings();
    let of_cache = warnings("ddr5-cxl", 1, 256);
    assert_eq!(
        of_cache,
        [
            "scale: at slice 1 and scale 256, 'L2' has 48 KiB and a CPU's share of 'L3' 8 KiB (whole \
             machine: 2048 and 1920); lower `scale` to 32 or less",
            "prefetcher: at slice 1 and scale 256, the prefetcher fetches up to 40 KiB ahead into a CPU's \
             share of 'L3' of 8 KiB; lower `scale` to 32 or less",
        ]
    );
    assert_eq!(warnings("ddr5-cxl", 8, 32), [""; 0]);
    let of_scan = warnings("memos", 1, 1 << 17);
    let scan = of_scan.iter().find(|w| w.starts_with("kernel.numa_scan_period_ms")).expect("a warning");
    assert!(scan.contains("a page each 0.015 ms: its part of 256 MiB each 0.008 ms"), "{scan}");
}

#[test]
fn check_warns_about_lost_proportions_at_the_scale() {
    let text = bundled::text("ddr5-cxl").unwrap().replacen("\nscale = 32\n", "\nscale = 128\n", 1);
    let machine = Machine::parse("m.toml", &text).unwrap();
    let warnings = machine.warnings("m.toml", &text);
    let [cache, prefetcher] = &warnings[..] else { panic!("{warnings:#?}") };
    assert_eq!((cache.field.as_str(), prefetcher.field.as_str()), ("scale", "prefetcher"));
    assert_eq!(text.lines().nth(cache.line - 1), Some("scale = 128"));
}
