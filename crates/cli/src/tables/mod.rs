//! Tables shared by several commands, and long ones.

pub mod bottleneck;
pub mod bound;
pub mod daemon;
pub mod explanation;
pub mod mix;
pub mod oracle;
pub mod processes;
pub mod reduction;
pub mod regions;
pub mod simulated;
pub mod verdict;

/// A sensor, its availability, and its means, source or reason.
pub const SENSOR_COLUMNS: [(&str, &str); 3] =
    [("sensor", "sensor"), ("answer", "answer"), ("how", "how or why")];
