//! What no policy changes of a program's accesses: translation, private caches and write streaming. They run
//! once, for all policies of a comparison; what is left for each policy is a record for every access that may
//! matter to its timing.
//!
//! A thread's stream of accesses does not depend on time, and neither does what its core's private caches and
//! TLB hold, as far as no policy changes pages: [`ThreadFront`] simulates them on virtual pages, numbered in
//! the order of their first use. An access gets a [`Record`] if it misses, walks, or ends so late that later
//! ones may wait for it. The times of all others are fixed by the instructions between records.
//!
//! [`Shared`] runs programs once for several readers, in bounded memory.
//!
//! Approximations, against an engine that takes in each access (`docs/simulator.md` has the deviations):
//!
//! - Pages have the cache sets of their order of first use in the thread, not those of the frames that a
//!   policy gives them.
//! - A page that a policy has moved or unmapped is noticed at its next record. Pages in use have one every
//!   20,480 instructions, about.
//! - Lines of a moved page stay in the private caches.
//! - A hit that ends late ends as if no wait came between it and what it waits for.

mod pages;
mod record;
mod share;
mod thread;

pub use record::{Chunk, Record};
pub use share::{Reader, Shared};
pub use thread::ThreadFront;
