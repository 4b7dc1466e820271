//! What the lab tells its clock plugin when the guest starts ([`Config`]), and what the plugin has measured when it ends
//! ([`Results`]).

mod config;
mod results;
mod timeline;

pub use config::{Config, Range};
pub use results::{RegionTotals, Results};
pub use timeline::Timeline;
