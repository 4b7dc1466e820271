//! `--slice` and `--scale`: by how much a machine is made smaller.

use clap::Args;

/// Overrides of a machine file's `slice` and `scale`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Reduction {
    /// Divide cores, channels, links and shared caches by N
    ///
    /// Capacities too; N divides each initiator's CPUs.
    ///
    /// [default: the machine's `slice`]
    #[arg(long, value_name = "N")]
    pub slice: Option<u32>,
    /// Then divide capacities, caches and the kernel's periods by N
    ///
    /// TLB reach too. [default: the machine's `scale`]
    #[arg(long, value_name = "N")]
    pub scale: Option<u32>,
}

impl Reduction {
    /// Whether neither is set.
    pub fn is_default(self) -> bool {
        self.slice.is_none() && self.scale.is_none()
    }
}
