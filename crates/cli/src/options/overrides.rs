//! `--set`, `--slice` and `--scale`: figures of a machine file given other values, and by how much the
//! machine is made smaller.

use clap::Args;
use memtide_core::machine::Setting;

/// Other values for a machine file's figures.
#[derive(Clone, Debug, Default, Args)]
pub struct Settings {
    /// Set a figure of the machine file; repeatable
    ///
    /// FIGURE is its path in `machine show`; its unit may be left out.
    ///
    /// VALUE: such as 4096, 4GiB, or 50% of the file's.
    #[arg(long, value_name = "FIGURE=VALUE")]
    pub set: Vec<Setting>,
}

/// Overrides of a machine file's figures, `slice` and `scale`.
#[derive(Clone, Debug, Default, Args)]
pub struct Overrides {
    #[command(flatten)]
    pub settings: Settings,
    /// Divide cores, channels, links and shared caches by N
    ///
    /// Capacities too; N divides each initiator's CPUs.
    ///
    /// [default: the machine's `slice`]
    #[arg(long, value_name = "N", value_parser = divisor)]
    pub slice: Option<u32>,
    /// Then divide capacities, caches and the kernel's periods by N
    ///
    /// TLB reach too. [default: the machine's `scale`]
    #[arg(long, value_name = "N", value_parser = divisor)]
    pub scale: Option<u32>,
}

impl Overrides {
    /// Whether neither slice nor scale is set.
    pub fn keep_reduction(&self) -> bool {
        self.slice.is_none() && self.scale.is_none()
    }
}

/// What divides a given machine is checked once it is known.
fn divisor(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected an integer of at least 1".to_owned())
}
