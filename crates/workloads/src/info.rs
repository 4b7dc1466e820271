//! Description of a workload.

use memtide_core::params::Parameter;

/// Description of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The part of a machine that it stresses.
    pub stresses: &'static str,
    /// Its source.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}
