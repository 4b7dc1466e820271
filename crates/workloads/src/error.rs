/// Why a workload cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("unknown workload '{name}'; known: {}", .known.join(", "))]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A setting that is not of the form `key=value`.
    #[error("'{0}' is not a parameter: write key=value, several separated by commas")]
    NotKeyValue(String),
    /// A parameter given twice.
    #[error("parameter '{0}' is given twice")]
    Repeated(String),
    /// The workload has no such parameter.
    #[error("workload '{workload}' has no parameter '{key}'; it has: {}", .known.join(", "))]
    UnknownParameter {
        /// The workload.
        workload: &'static str,
        /// What was given.
        key: String,
        /// What it has.
        known: Vec<&'static str>,
    },
    /// A value that is not of the parameter's kind or outside its range.
    #[error("parameter {key}='{value}' of workload '{workload}' must be {allowed}")]
    BadValue {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// Values that are right one by one but not together.
    #[error("workload '{workload}': {problem}")]
    Unfit {
        /// The workload.
        workload: &'static str,
        /// What does not fit, and what to change.
        problem: String,
    },
    /// The host has not enough memory for the workload's data.
    #[error("no memory for the {mib} MiB of array '{array}': choose a smaller footprint_mib")]
    OutOfMemory {
        /// The array.
        array: String,
        /// Its size in MiB, rounded up.
        mib: u64,
    },
}
