//! What of a guest is not as usual: nodes whose memory is not plain, virtual CPUs that run in parallel.

use std::path::{Path, PathBuf};

use memtide_lab::{Memory, Options};

/// Options of commands that run guests.
#[derive(Debug, clap::Args)]
pub struct MemoryOptions {
    /// Leave the memory of these nodes, separated by commas, out of the guest until `memtide lab node add` plugs it in; a comparison
    /// does without it
    #[arg(long, value_delimiter = ',', value_name = "NODE,..")]
    absent: Vec<String>,
    /// Make this node's memory a file of this system that other guests may have at the same time, and a device that programs map,
    /// /dev/memtide/NODE; the file is made if it is not there. Several are allowed. A comparison refuses it, for its runs would not be equal
    #[arg(long, value_name = "NODE=FILE", value_parser = shared)]
    shared: Vec<(String, PathBuf)>,
    /// Make the memory of these nodes, separated by commas, that of CXL memory expanders (type 3), which the guest's own drivers
    /// make nodes
    #[arg(long, value_delimiter = ',', value_name = "NODE,..")]
    cxl: Vec<String>,
    /// Run each virtual CPU on a thread of its own: not deterministic, and the guest's clock is this system's, beside which the
    /// model counts. A comparison refuses it, for it compares modelled times
    #[arg(long)]
    parallel: bool,
}

impl MemoryOptions {
    /// Files of this system that are nodes' memory.
    pub fn host_files(&self) -> impl Iterator<Item = &Path> {
        self.shared.iter().map(|(_, file)| file.as_path())
    }

    /// The options with these in them.
    pub fn of(self, options: Options) -> Options {
        let absent = self.absent.into_iter().map(|name| (name, Memory::Absent));
        let shared = self.shared.into_iter().map(|(name, file)| (name, Memory::Shared(file)));
        let cxl = self.cxl.into_iter().map(|name| (name, Memory::Cxl));
        Options { memory: absent.chain(shared).chain(cxl).collect(), parallel: self.parallel, ..options }
    }
}

fn shared(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        // The virtual machine runs in a folder of its own.
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            let file = std::path::absolute(file).map_err(|error| error.to_string())?;
            Ok((name.to_owned(), file))
        }
        _ => Err("give NODE=FILE".to_owned()),
    }
}
