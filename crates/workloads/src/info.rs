//! What is known of a workload before it is made.

use memtide_core::params::Parameter;

/// What is known of a workload before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What of a machine it puts to the test.
    pub stresses: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}
