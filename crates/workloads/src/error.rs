use memtide_core::params::ParamError;

/// Why a workload cannot be created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("unknown workload '{name}'; known: {}", .known.join(", "))]
    UnknownWorkload {
        /// The name given.
        name: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// A parameter is refused.
    #[error("workload '{workload}': {error}")]
    Parameter {
        /// The workload.
        workload: &'static str,
        /// What is wrong and what is allowed.
        error: ParamError,
    },
    /// Values that are individually allowed but not together.
    #[error("workload '{workload}': {problem}")]
    Unfit {
        /// The workload.
        workload: &'static str,
        /// What is wrong and what to change.
        problem: String,
    },
    /// The host has too little memory for the workload's data.
    #[error("cannot allocate the {mib} MiB of array '{array}': reduce footprint_mib")]
    OutOfMemory {
        /// The array.
        array: String,
        /// Its size in MiB, rounded up.
        mib: u64,
    },
}
