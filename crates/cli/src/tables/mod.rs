//! Tables that several commands print, or that are long.

pub mod daemon;
pub mod processes;
pub mod simulated;
pub mod verdict;

/// A sensor, what the host answered for it, and by what means, from what, or why.
pub const SENSOR_COLUMNS: [(&str, &str); 3] =
    [("sensor", "sensor"), ("answer", "answer"), ("how", "how or why")];
