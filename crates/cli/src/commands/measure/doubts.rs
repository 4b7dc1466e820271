//! Measurements that may be wrong.

use memtide_linux::topology::MeasuredFile;

use super::STEADY;

/// Notes on doubtful figures. `size` is the option for the size of the measured memory.
pub fn doubts(measured: &MeasuredFile, size: &str) -> impl Iterator<Item = String> {
    let cached = measured.cached().map(move |(initiator, node)| {
        format!(
            "a cache held much of the measured memory of {node} from {initiator}: its figures may be too \
             good; raise {size}"
        )
    });
    let unsteady = measured.unsteady(STEADY).map(|(initiator, node)| {
        format!("measurements of {node} from {initiator} differ widely: the system was busy; measure again")
    });
    cached.chain(unsteady)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_and_unsteady_figures_are_doubted() {
        let text = r#"{"nodes": [{"initiator": 0, "node": 0, "cached": true}, {"initiator": 0, "node": 1,
            "spread": 0.6}]}"#;
        let measured = MeasuredFile::parse(text.as_bytes()).expect("what is printed");
        let doubts: Vec<String> = doubts(&measured, "--mib").collect();
        assert_eq!(doubts.len(), 2);
        assert!(doubts[0].contains("the measured memory of node0"), "{doubts:?}");
        assert!(doubts[1].contains("of node1 from node0 differ widely"), "{doubts:?}");
    }
}
