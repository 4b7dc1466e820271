//! Nodes with special memory, and parallel virtual CPUs.

use std::path::{Path, PathBuf};

use memtide_lab::{Memory, Options};

/// Options of commands that run guests.
#[derive(Debug, clap::Args)]
pub struct MemoryOptions {
    /// Nodes without memory until `memtide lab node add` plugs it in
    ///
    /// A comparison runs without that memory.
    #[arg(long, value_delimiter = ',', value_name = "NODE,..")]
    absent: Vec<String>,
    /// Share the node's memory with other guests as a file; repeatable
    ///
    /// Programs in the guest map the device /dev/memtide/NODE.
    ///
    /// The file is created if missing. A comparison refuses this option.
    #[arg(long, value_name = "NODE=FILE", value_parser = shared)]
    shared: Vec<(String, PathBuf)>,
    /// Nodes to put behind CXL memory expanders (type 3)
    #[arg(long, value_delimiter = ',', value_name = "NODE,..")]
    cxl: Vec<String>,
    /// Run each virtual CPU on its own thread; not deterministic
    ///
    /// The guest's clock is the host's, and the model only counts.
    ///
    /// A comparison refuses this option.
    #[arg(long)]
    parallel: bool,
}

impl MemoryOptions {
    /// Host files that back nodes' memory.
    pub fn host_files(&self) -> impl Iterator<Item = &Path> {
        self.shared.iter().map(|(_, file)| file.as_path())
    }

    /// Adds these options.
    pub fn of(self, options: Options) -> Options {
        let absent = self.absent.into_iter().map(|name| (name, Memory::Absent));
        let shared = self.shared.into_iter().map(|(name, file)| (name, Memory::Shared(file)));
        let cxl = self.cxl.into_iter().map(|name| (name, Memory::Cxl));
        Options { memory: absent.chain(shared).chain(cxl).collect(), parallel: self.parallel, ..options }
    }
}

fn shared(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        // The virtual machine runs in its own folder.
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            let file = std::path::absolute(file).map_err(|error| error.to_string())?;
            Ok((name.to_owned(), file))
        }
        _ => Err("give NODE=FILE".to_owned()),
    }
}
