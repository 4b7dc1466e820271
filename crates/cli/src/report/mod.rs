//! Reports: one HTML file each, which needs no network.

mod axes;
mod chart;
mod explained;
mod file;
mod heat;
mod lab;
mod machines;
mod over_time;
mod page;
mod reproduced;
mod simulated;
mod swept;
mod timelines;
mod validated;

pub use file::{Draft, ReportFile};
pub use heat::HeatMapFile;
pub use lab::{LabRun, page as of_lab};
pub use machines::page as of_machines;
pub use page::{Finding, Page};
pub use reproduced::page as of_reproduction;
pub use simulated::page as of_simulation;
pub use swept::{Group, LineChart, LineOver, page as of_sweep};
pub use validated::{ValidatedRun, page as of_validation};
