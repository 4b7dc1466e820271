//! Region of interest and time limit of a run.

use std::time::Duration;

use clap::ValueEnum;
use memtide_lab::{Options, RegionOfInterest};

use crate::options::seconds;

/// Options of commands that run a program and measure it.
#[derive(Debug, clap::Args)]
pub struct RegionOptions {
    /// Part of the run that is modelled and measured
    #[arg(long, value_enum, default_value_t = MeasuredRegion::Program)]
    region: MeasuredRegion,
    /// Time limit of a run, boot included, in seconds [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

/// The measured part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MeasuredRegion {
    /// The whole program
    Program,
    /// Between the program's own marks
    Marks,
}

impl RegionOptions {
    /// Adds these options.
    pub fn of(&self, options: Options) -> Options {
        let region = match self.region {
            MeasuredRegion::Program => RegionOfInterest::Program,
            MeasuredRegion::Marks => RegionOfInterest::Marks,
        };
        Options { region, timeout: self.timeout, ..options }
    }
}
