use super::*;
use crate::units::Time;

const GOOD: &str = r#"
name = "two"
summary = "two sockets and an expander"
[sources]
default = "assumed: made for this test"
"node.far.fixed" = "datasheet"
[core]
clock_mhz = 2000
instructions_per_cycle = 4
reorder_buffer = 224
outstanding_misses = 12
[[cache]]
name = "L1d"
capacity_kib = 32
ways = 8
latency_cycles = 4
[[initiator]]
name = "a"
cpus = 2
[[initiator]]
name = "b"
cpus = 2
[[node]]
name = "near"
tier = 0
capacity_mib = 64
initiator = "a"
[node.fixed]
read_latency_ns = 80
read_bandwidth_mbps = 20000
[[node]]
name = "far"
tier = 1
capacity_mib = 128
[node.fixed]
read_latency_ns = 100
read_bandwidth_mbps = 10000
[[link]]
between = ["a", "b"]
latency_ns = 60
bandwidth_mbps = 20000
[[link]]
between = ["b", "far"]
latency_ns = 90
bandwidth_mbps = 16000
"#;

fn refused(from: &str, to: &str) -> FileError {
    assert!(GOOD.contains(from), "the test's own text lacks {from}");
    Machine::parse("m.toml", &GOOD.replacen(from, to, 1)).expect_err("accepted")
}

#[test]
fn routes_use_links_with_least_latency() {
    let m = Machine::parse("m.toml", GOOD).unwrap();
    let (a, b) = (InitiatorId(0), InitiatorId(1));
    let (near, far) = (NodeId(0), NodeId(1));
    assert!(m.topology.hops(a, near).is_empty());
    assert_eq!(m.topology.hops(a, far).len(), 2);
    assert_eq!(m.topology.hops(b, near), [Hop { link: 0, reversed: true }]);
    assert_eq!(m.idle_latency(a, far), Time::from_ns(250.0));
    assert_eq!(m.nearest_nodes(CpuId(3)), [near, far]);
    assert_eq!(m.initiator_of(CpuId(5)), a);
}

#[test]
fn source_applies_to_everything_below_its_path() {
    let m = Machine::parse("m.toml", GOOD).unwrap();
    assert_eq!(m.source_of("node.far.fixed.read_latency_ns"), "datasheet");
    assert_eq!(m.source_of("core.clock_mhz"), "assumed: made for this test");
}

#[test]
fn older_files_with_given_nodes_are_read_and_written_as_fixed() {
    let old = GOOD.replace("[node.fixed]", "[node.given]").replace("node.far.fixed", "node.far.given");
    assert!(old.contains("[node.given]") && old.contains("node.far.given"));
    let [old, today] = [old.as_str(), GOOD].map(|text| Machine::parse("m.toml", text).unwrap());
    assert_eq!(old.to_toml(), today.to_toml());
    assert_eq!(old.source_of("node.far.fixed.read_latency_ns"), "datasheet");
    let both = GOOD.replace("[node.fixed]", "[node.fixed]\n[node.given]");
    assert!(Machine::parse("m.toml", &both).is_err());
}

#[test]
fn errors_have_line_field_and_allowed_values() {
    let cases = [
        (
            "read_bandwidth_mbps = 20000",
            "read_bandwidth_mbps = 0",
            "read_bandwidth_mbps",
            "node[0].fixed.read_bandwidth_mbps",
            "from 1 to",
        ),
        ("ways = 8", "ways = 0", "ways", "cache[0].ways", "from 1 to 64"),
        ("ways = 8", "ways = 7", "capacity_kib", "cache[0].capacity_kib", "whole sets of 7 ways"),
        ("[\"a\", \"b\"]", "[\"a\", \"c\"]", "between", "link[0].between", "there are: a, b, near, far"),
        ("tier = 1", "tier = 2", "[[node]]", "node", "without a gap"),
        (
            "name = \"two\"",
            "scale = 65\nname = \"two\"",
            "capacity_mib",
            "node[0].capacity_mib",
            "leave no memory: give it 65 or more",
        ),
        (
            "read_latency_ns = 80",
            "read_latency_ns = 1",
            "read_latency_ns",
            "node[0].fixed.read_latency_ns",
            "load-to-use",
        ),
        ("\"node.far.fixed\"", "\"node.fat\"", "node.fat", "sources.node.fat", "there is no"),
        ("cpus = 2", "cpus = 0", "cpus", "initiator[0].cpus", "from 1 to 1024"),
        ("[\"b\", \"far\"]", "[\"b\", \"a\"]", "[[node]]", "node[1]", "cannot reach"),
        ("initiator = \"a\"", "initiator = \"z\"", "initiator", "node[0].initiator", "there are: a, b"),
    ];
    for (from, to, on_line, field, says) in cases {
        let error = refused(from, to);
        let text = GOOD.replacen(from, to, 1);
        let line = text.lines().nth(error.line - 1).unwrap();
        assert_eq!(error.field, field, "{error}");
        assert!(line.contains(on_line), "{error} points at: {line}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn unknown_missing_and_mistyped_fields_are_refused_with_their_line() {
    let unknown = refused("ways = 8", "ways = 8\nweighs = 9");
    assert_eq!(unknown.line, 16, "{unknown}");
    assert!(unknown.to_string().contains("unknown field `weighs`, expected one of"), "{unknown}");
    let mistyped = refused("ways = 8", "ways = \"eight\"");
    assert_eq!(mistyped.line, 15, "{mistyped}");
    let missing = refused("clock_mhz = 2000", "");
    assert!(missing.message.contains("clock_mhz"), "{missing}");
    let broken = refused("[core]", "[core");
    assert_eq!(broken.line, 7, "{broken}");
}

#[test]
fn values_of_wrong_type_are_refused_with_their_field() {
    let cases = [
        ("ways = 8", "ways = -1", "cache[0].ways", "invalid value -1: expected an integer from 0 to 65535"),
        (
            "clock_mhz = 2000",
            "clock_mhz = \"fast\"",
            "core.clock_mhz",
            "invalid value \"fast\": expected a number",
        ),
        ("[\"a\", \"b\"]", "[\"a\", \"b\", \"far\"]", "link[0].between", "has 3 entries"),
        ("[\"a\", \"b\"]", "[\"a\"]", "link[0].between", "has 1 entry; a link is between two"),
        ("tier = 1", "tier = 1.5", "node[1].tier", "invalid value 1.5: expected an integer from 0 to 255"),
        (
            "[node.fixed]\nread_latency_ns = 80\nread_bandwidth_mbps = 20000",
            "fixed = 5",
            "node[0].fixed",
            "invalid value 5: expected a table",
        ),
    ];
    for (from, to, field, says) in cases {
        let error = refused(from, to);
        assert_eq!(error.field, field, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn names_are_words_and_unique() {
    for name in ["", "a b", "x,y", "<b>", "line\nbreak", "tab\t", "naïve"] {
        for (from, field) in
            [("near", "node[0].name"), ("L1d", "cache[0].name"), ("two", "name"), ("b", "initiator[1].name")]
        {
            let error = refused(&format!("name = \"{from}\""), &format!("name = {name:?}"));
            assert_eq!(error.field, field, "{error}");
            assert!(error.message.contains("letters, digits"), "{error}");
        }
    }
    let cache = "[[cache]]\nname = \"L1d\"\ncapacity_kib = 32\nways = 8\nlatency_cycles = 4\n";
    let second = cache.replace("= 4", "= 9");
    let error = refused(cache, &format!("{cache}{second}"));
    assert_eq!((error.field.as_str(), error.line), ("cache[1].name", 18), "{error}");
    let tlb = "[[tlb]]\nname = \"L1\"\nentries = 8\nways = 8\n";
    assert_eq!(refused(cache, &format!("{cache}{tlb}{tlb}")).field, "tlb[1].name");
    assert_eq!(refused("name = \"b\"", "name = \"a\"").field, "initiator[1].name");
    assert_eq!(refused("name = \"near\"", "name = \"far\"").field, "node[1].name");
    assert_eq!(refused("name = \"near\"", "name = \"a\"").field, "node[0].name");
}

#[test]
fn implausible_figures_are_refused() {
    for (from, to) in [
        ("instructions_per_cycle = 4", "instructions_per_cycle = 1e-308"),
        ("read_bandwidth_mbps = 20000", "read_bandwidth_mbps = 1e-9"),
        ("read_bandwidth_mbps = 20000", "read_bandwidth_mbps = 20000\nwrite_bandwidth_mbps = 0.5"),
        ("read_latency_ns = 80", "read_latency_ns = 1e9"),
        ("latency_ns = 60", "latency_ns = 1e9"),
        ("bandwidth_mbps = 16000", "bandwidth_mbps = 0.1"),
    ] {
        let error = refused(from, to);
        assert!(error.message.contains("expected a number from"), "{error}");
    }
}

#[test]
fn node_is_dram_or_fixed() {
    let neither = refused("[node.fixed]\nread_latency_ns = 80\nread_bandwidth_mbps = 20000", "");
    assert!(neither.message.contains("needs a table"), "{neither}");
    let dram = "[node.dram]\nchannels = 1\nranks = 1\nbank_groups = 1\nbanks = 1\nrows = 1024\n\
        row_bytes = 65536\naddress_map = \"row|column\"\nt_ck_ps = 833\nburst = 4\ncl = 17\ncwl = 12\n\
        rcd = 17\nrp = 17\nras = 39\nccd_s = 4\nccd_l = 6\nrrd_s = 4\nrrd_l = 6\nfaw = 26\nwtr_s = 3\n\
        wtr_l = 9\nwr = 18\nrtp = 9\nrank_switch = 2\nrfc = 420\nrefi = 9360\n";
    let both = refused("[node.fixed]", &format!("{dram}[node.fixed]"));
    assert!(both.message.contains("both `dram` and `fixed`"), "{both}");
    let alone = GOOD.replacen("[node.fixed]\nread_latency_ns = 80\nread_bandwidth_mbps = 20000", dram, 1);
    Machine::parse("m.toml", &alone).unwrap();
    for (map, says) in [
        ("row|colum", "is not a field"),
        ("row|column:3", "leaves 7 bits"),
        ("row|column:11|row", "more bits"),
    ] {
        let text = alone.replacen("\"row|column\"", &format!("{map:?}"), 1);
        let error = Machine::parse("m.toml", &text).unwrap_err();
        assert_eq!(error.field, "node[0].dram.address_map");
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn split_address_fields_cover_their_coordinate() {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    let m = Machine::parse("ddr4-2400.toml", text).unwrap();
    let mut dram = m.nodes[0].dram.clone().unwrap();
    dram.address_map = "row|column:4|bank|bank_group|rank|column:3".into();
    let fields = dram.map_fields().unwrap();
    let columns: Vec<(u8, u8, u8)> =
        fields.iter().filter(|f| f.what == Coordinate::Column).map(|f| (f.shift, f.bits, f.into)).collect();
    assert_eq!(columns, [(0, 3, 0), (8, 4, 3)]);
}

#[test]
fn wrong_address_hash_is_refused_with_its_bits() {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    let with = |entries: &str| {
        let text = text.replacen("t_ck_ps", &format!("address_hash = {entries}\nt_ck_ps"), 1);
        Machine::parse("ddr4-2400.toml", &text)
    };
    with("[\"rank[0] ^= row[0] ^ column[6]\", \"bank[1] ^= rank[0]\"]").unwrap();
    for (entries, says) in [
        ("[\"bank[0] = row[0]\"]", "expected a bit, `^=`, and the bits XORed into it"),
        ("[\"bank[0] ^= row\"]", "`row` is not a bit, such as `row[2]`"),
        ("[\"bank[0] ^= line[0]\"]", "`line` is not a field; allowed are channel, rank,"),
        ("[\"bank[2] ^= row[0]\"]", "`bank[2]`: `bank` has bits 0 to 1"),
        ("[\"channel[0] ^= row[0]\"]", "the device has no bits of `channel`"),
        ("[\"row[0] ^= column[0]\"]", "cannot hash `row[0]`; allowed are bits of channel, rank, bank_group"),
        ("[\"bank[0] ^= row[0] ^ row[0]\"]", "names `row[0]` twice"),
        ("[\"bank[0] ^= row[0]\", \"bank[0] ^= row[1]\"]", "has two entries for `bank[0]`"),
        ("[\"bank[0] ^= bank[0]\"]", "the bits `bank[0]` depend on each other"),
        (
            "[\"bank[0] ^= bank[1] ^ row[3]\", \"rank[0] ^= bank[0] ^ bank[1] ^ rank[0] ^ row[3]\"]",
            "the bits `rank[0]`, `bank[0]` depend on each other after hashing",
        ),
    ] {
        let error = with(entries).expect_err("accepted");
        assert_eq!(error.field, "node[0].dram.address_hash", "{error}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn address_map_is_described_by_address_bits() {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    let m = Machine::parse("ddr4-2400.toml", text).unwrap();
    let mut dram = m.nodes[0].dram.clone().unwrap();
    let map = "row 33-18 | bank 17-16 | bank_group 15-14 | rank 13 | column 12-6";
    assert_eq!((dram.describe_map().unwrap().as_str(), dram.describe_hashes()), (map, vec![]));
    dram.address_map = "row|channel|column:4|rank|bank|column:3|bank_group".into();
    (dram.bank_hash, dram.address_hash) = (true, vec!["rank[0] ^= column[3] ^ row[9]".into()]);
    let map = "row 33-18 | column 17-14 | rank 13 | bank 12-11 | column 10-8 | bank_group 7-6";
    assert_eq!(dram.describe_map().unwrap(), map);
    let of_rows = ["bank[0]^=row[0]", "bank[1]^=row[1]", "bank_group[0]^=row[2]", "bank_group[1]^=row[3]"];
    assert_eq!(dram.describe_hashes(), [&of_rows[..], &["rank[0]^=column[3]^row[9]"]].concat());
}

#[test]
fn row_buffers_and_bank_queues_are_limited() {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    let with = |more: &str| Machine::parse("ddr4-2400.toml", &format!("{text}{more}"));
    with("bank_queue = 256\n[node.dram.subarrays]\nper_bank = 8\nselect = 4\n").unwrap();
    for (more, field, says) in [
        ("bank_queue = 257\n", "bank_queue", "expected an integer from 0 to 256"),
        ("[node.dram.subarrays]\nper_bank = 3\n", "subarrays.per_bank", "expected a power of two up to 128"),
        ("[node.dram.subarrays]\nper_bank = 2\nselect = 20001\n", "subarrays.select", "from 0 to 20000"),
    ] {
        let error = with(more).expect_err("accepted");
        assert_eq!(error.field, format!("node[0].dram.{field}"), "{error}");
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn long_files_names_and_lists_are_refused_early() {
    let long = "x".repeat(1 << 19);
    let error = refused("name = \"two\"", &format!("name = \"{long}\"")).to_string();
    assert_eq!(error, "m.toml:2: name: has 524288 bytes; a name has at most 64");
    let error = Machine::parse("m.toml", &format!("{GOOD}# {long}{long}")).expect_err("accepted").to_string();
    assert_eq!(error, "m.toml:1: longer than 1048576 bytes: not a machine file");
    let link = "[[link]]\nbetween = [\"a\", \"b\"]\nlatency_ns = 60\nbandwidth_mbps = 20000\n";
    let error = Machine::parse("m.toml", &(GOOD.to_owned() + &link.repeat(10_000))).expect_err("accepted");
    assert_eq!(error.message, "10002 of them; a machine has at most 8192");
}
