//! Nodes of the guest whose memory is not plain.

use memtide_lab::{Memory, Options};

/// Options of commands that run one guest.
#[derive(Debug, clap::Args)]
pub struct NodeMemory {
    /// Leave the memory of these nodes, separated by commas, out of the guest until `memtide lab node add` plugs it in
    #[arg(long, value_delimiter = ',', value_name = "NODE,..")]
    absent: Vec<String>,
}

impl NodeMemory {
    /// The options with these in them.
    pub fn of(self, options: Options) -> Options {
        let memory = self.absent.into_iter().map(|name| (name, Memory::Absent)).collect();
        Options { memory, ..options }
    }
}
