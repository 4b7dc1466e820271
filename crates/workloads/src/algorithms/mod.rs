//! The algorithms: a file each, and a line in the list below.

use crate::registry::{Entry, entry};

mod cached;
mod cg;
mod chase;
mod fft;
mod gups;
mod himeno;
mod is;
mod kmeans;
mod mg;
mod ocean;
mod random_reads;
pub(crate) mod stream;
mod streamcluster;

pub(crate) const ALGORITHMS: &[Entry] = &[
    entry::<stream::Stream>(),
    entry::<gups::Gups>(),
    entry::<chase::Chase>(),
    entry::<random_reads::RandomReads<false>>(),
    entry::<random_reads::RandomReads<true>>(),
    entry::<cached::Cached>(),
    entry::<fft::Fft>(),
    entry::<ocean::Ocean>(),
    entry::<himeno::Himeno>(),
    entry::<cg::Cg>(),
    entry::<mg::Mg>(),
    entry::<is::Is>(),
    entry::<kmeans::Kmeans>(),
    entry::<streamcluster::Streamcluster>(),
];
