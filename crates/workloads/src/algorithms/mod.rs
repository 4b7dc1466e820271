//! The algorithms, one file each, registered in the list below.

use crate::entry::{Entry, entry};

mod bfs;
mod blackscholes;
mod cached;
mod canneal;
mod cg;
mod chase;
mod convolution;
mod fft;
mod graph;
mod gups;
mod himeno;
mod hot_set;
mod hpl;
mod is;
mod kmeans;
mod lu;
mod mg;
mod ocean;
mod pagerank;
mod random_reads;
mod sparse;
mod stencil;
pub(crate) mod stream;
mod streamcluster;
mod wordcount;
mod xsbench;
mod ycsb;

pub(crate) const ALGORITHMS: &[Entry] = &[
    entry::<stream::Stream>(),
    entry::<gups::Gups>(),
    entry::<hot_set::HotSet>(),
    entry::<chase::Chase>(),
    entry::<random_reads::RandomReads<false>>(),
    entry::<random_reads::RandomReads<true>>(),
    entry::<cached::Cached>(),
    entry::<fft::Fft>(),
    entry::<ocean::Ocean>(),
    entry::<himeno::Himeno>(),
    entry::<stencil::Stencil>(),
    entry::<cg::Cg>(),
    entry::<mg::Mg>(),
    entry::<is::Is>(),
    entry::<kmeans::Kmeans>(),
    entry::<streamcluster::Streamcluster>(),
    entry::<canneal::Canneal>(),
    entry::<wordcount::Wordcount>(),
    entry::<lu::Lu>(),
    entry::<hpl::Hpl>(),
    entry::<sparse::Sparse>(),
    entry::<pagerank::Pagerank>(),
    entry::<bfs::Bfs>(),
    entry::<xsbench::Xsbench>(),
    entry::<blackscholes::Blackscholes>(),
    entry::<convolution::Convolution>(),
    entry::<ycsb::Ycsb<'a'>>(),
    entry::<ycsb::Ycsb<'b'>>(),
    entry::<ycsb::Ycsb<'c'>>(),
    entry::<ycsb::Ycsb<'d'>>(),
    entry::<ycsb::Ycsb<'e'>>(),
    entry::<ycsb::Ycsb<'f'>>(),
];
