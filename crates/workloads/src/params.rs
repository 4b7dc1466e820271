//! Parameters that workloads share, and their values.

use memtide_core::PageSize;
use memtide_core::params::{ParamError, Parameter, Params, Values};

use crate::error::WorkloadError;
use crate::info::Info;

/// `threads`.
pub(crate) const fn threads(default: u64) -> Parameter {
    Parameter::integer("threads", "", "threads that share the work", [1, default, 1024])
}

/// `footprint_mib` of a workload whose data are in host memory: at most 16 GiB, so that indices fit 32 bits.
pub(crate) const fn footprint_mib(default: u64) -> Parameter {
    Parameter::integer("footprint_mib", "MiB", "size of all arrays together", [1, default, 16 << 10])
}

/// `footprint_mib` of a workload whose data are never read, and use no host memory.
pub(crate) const fn nominal_footprint_mib(default: u64) -> Parameter {
    Parameter::integer("footprint_mib", "MiB", "size of the memory accessed", [1, default, 1 << 20])
}

/// `iterations`.
pub(crate) const fn iterations(default: u64) -> Parameter {
    Parameter::integer("iterations", "", "number of iterations", [1, default, 100_000])
}

/// `operations`.
pub(crate) const fn operations(default: u64) -> Parameter {
    Parameter::integer("operations", "", "operations of all threads together", [1, default, 1 << 40])
}

/// `page`.
pub(crate) const PAGE: Parameter = Parameter::word("page", "size of the arrays' pages", &["4KiB", "2MiB"]);

/// The values of all parameters of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    workload: &'static str,
    values: Values,
}

impl Settings {
    /// The given values, and defaults for the rest.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn new(info: &Info, params: &Params) -> Result<Settings, WorkloadError> {
        let values = params.values(info.parameters);
        let values = values.map_err(|error| WorkloadError::Parameter { workload: info.name, error })?;
        Ok(Settings { workload: info.name, values })
    }

    /// An integer's value.
    ///
    /// # Panics
    /// This and the next three, if the workload declares no such parameter.
    pub fn integer(&self, name: &str) -> u64 {
        self.values.u64(name)
    }

    /// An integer's value, as a size in memory.
    pub fn size(&self, name: &str) -> usize {
        self.integer(name) as usize
    }

    /// A number's value.
    pub fn number(&self, name: &str) -> f64 {
        self.values.f64(name)
    }

    /// A word's value.
    pub fn word(&self, name: &str) -> &'static str {
        self.values.word(name)
    }

    /// `footprint_mib` in bytes.
    pub fn footprint_bytes(&self) -> usize {
        self.size("footprint_mib") << 20
    }

    /// `threads`.
    pub fn threads(&self) -> usize {
        self.size("threads")
    }

    /// `page`.
    pub fn page(&self) -> PageSize {
        if self.word("page") == "2MiB" { PageSize::Huge } else { PageSize::Base }
    }

    /// The error that a parameter is refused.
    pub(crate) fn refused(&self, error: ParamError) -> WorkloadError {
        WorkloadError::Parameter { workload: self.workload, error }
    }

    /// The error that these settings do not fit together.
    pub fn unfit(&self, problem: impl Into<String>) -> WorkloadError {
        WorkloadError::Unfit { workload: self.workload, problem: problem.into() }
    }
}
