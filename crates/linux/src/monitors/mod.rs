//! Which memory processes access, one file a way to find out.

mod damon;

use std::fmt;
use std::io;

use memtide_core::policy::RegionNeeds;

use crate::processes::Process;
pub use damon::Damon;

/// Neighbouring base pages of a process that were accessed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first, as its address / 4096.
    pub start: u64,
    /// How many.
    pub pages: u64,
    /// Samples of the last aggregation interval that were reads, or accesses if the monitor cannot tell.
    pub reads: u32,
    /// Samples of it that were writes, as far as the monitor can tell.
    pub writes: u32,
    /// Aggregation intervals since the run last changed.
    pub age: u32,
}

/// Watches processes.
pub trait Monitor: fmt::Debug + Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Watches these processes, and no others, from now on. What is known of those that were watched before is kept.
    ///
    /// # Errors
    /// The kernel's, told with the file at fault.
    fn watch(&mut self, processes: &[Process]) -> io::Result<()>;

    /// What each process that is watched accessed lately, in the order that they were given; runs in the order of their addresses.
    ///
    /// # Errors
    /// The kernel's, told with the file at fault.
    fn read(&mut self) -> io::Result<Vec<Vec<Found>>>;
}

/// The best monitor that this kernel has.
///
/// # Errors
/// Why there is none.
pub fn choose(needs: &RegionNeeds) -> io::Result<Box<dyn Monitor>> {
    Ok(Box::new(Damon::new(needs)?))
}
