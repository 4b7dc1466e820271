//! Errors of this system's memory, counters and placement, with advice.

use memtide_linux::counters::CountersError;
use memtide_linux::measure::MeasureError;
use memtide_linux::placement::ExactError;

/// Why a node cannot be measured.
pub fn measure(error: &MeasureError) -> String {
    match error {
        MeasureError::Memory { .. } => {
            format!("{error}; ask for less with --mib, or see `free memory` in numactl -H")
        }
        MeasureError::Cpu { .. } => error.to_string(),
    }
}

/// Why there are no counters.
pub fn counters(error: &CountersError) -> String {
    match error {
        CountersError::None => format!("{error} (memtide lab run --timing on -- memtide counters)"),
        _ => error.to_string(),
    }
}

/// Why pages cannot be placed fault by fault.
pub fn exact(error: &ExactError) -> String {
    match error {
        ExactError::Initiators(_) => format!("{error}; see `memtide topo -o machine` for a file of it"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use memtide_core::NodeId;
    use memtide_linux::topology::{Numbers, System};

    use super::*;

    #[test]
    fn refused_memory_names_the_option_for_less() {
        let error =
            MeasureError::Memory { node: NodeId(1), mib: 12, source: io::ErrorKind::OutOfMemory.into() };
        assert_eq!(
            measure(&error),
            "cannot allocate 12 MiB on node 1: out of memory; ask for less with --mib, or see `free memory` \
             in numactl -H"
        );
    }

    #[test]
    fn missing_counters_name_the_command_that_has_them() {
        assert_eq!(
            counters(&CountersError::None),
            "there are no counters here: only a guest of the lab has them (memtide lab run --timing on -- \
             memtide counters)"
        );
    }

    #[test]
    fn machine_with_too_few_initiators_is_refused_with_the_command_for_a_file() {
        let host = System::read().expect("this system");
        let mut machine = host.machine_without_figures("small").expect("a machine");
        machine.initiators.clear();
        let error = Numbers::of(&machine, &host).expect_err("an initiator is missing");
        let message = exact(&error.into());
        assert!(message.starts_with("machine 'small' has 0 groups of CPUs, this system "), "{message}");
        assert!(message.ends_with("; see `memtide topo -o machine` for a file of it"), "{message}");
    }
}
