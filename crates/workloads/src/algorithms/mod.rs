//! The algorithms: a file each, and a line in the list below.

use crate::registry::{Entry, entry};

mod cached;
mod chase;
mod gups;
mod random_reads;
pub(crate) mod stream;

pub(crate) const ALGORITHMS: &[Entry] = &[
    entry::<stream::Stream>(),
    entry::<gups::Gups>(),
    entry::<chase::Chase>(),
    entry::<random_reads::RandomReads<false>>(),
    entry::<random_reads::RandomReads<true>>(),
    entry::<cached::Cached>(),
];
