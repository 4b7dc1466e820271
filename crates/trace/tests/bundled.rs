//! The bundled traces match traces/README.md.

use std::path::Path;

use memtide_trace::Trace;

#[test]
fn bundled_traces_are_small_valid_and_exceed_the_caches() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    for (name, accesses, threads, mib) in [
        ("orders", 32_000_000, 1, 64),
        ("sqlite3", 8_000_000, 1, 10),
        ("redis", 8_000_000, 5, 10),
        ("sort", 8_000_000, 1, 10),
    ] {
        let trace = Trace::open(&traces.join(format!("{name}.parquet"))).unwrap();
        let info = trace.info(&mut |_| true).unwrap();
        assert!(info.file_bytes <= 4 << 20, "{name}: {} bytes", info.file_bytes);
        assert_eq!((info.accesses, info.threads), (accesses, threads), "{name}");
        assert!(info.footprint_pages >= mib << 8, "{name}: {} pages", info.footprint_pages);
        assert!((0.2..0.8).contains(&info.dependent_share), "{name}: {}", info.dependent_share);
    }
}

#[test]
fn mappings_are_named_and_complete() {
    let sort = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/sort.parquet");
    let trace = Trace::open(&sort).unwrap();
    let mappings = trace.mappings(&mut |_| true).unwrap();
    for name in ["heap", "image", "anonymous"] {
        assert!(mappings.iter().any(|mapping| mapping.name == name), "{name}");
    }
    assert!(mappings.iter().all(|mapping| mapping.bytes > 0));
    assert!(matches!(trace.mappings(&mut |_| false), Err(memtide_trace::TraceError::Interrupted)));
}
