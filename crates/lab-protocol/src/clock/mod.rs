//! The clock plugin's configuration ([`Config`]) and results ([`Results`]).

mod config;
mod results;
mod timeline;

pub use config::{Config, Range};
pub use results::{RegionTotals, Results};
pub use timeline::Timeline;
