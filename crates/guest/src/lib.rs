//! What the lab and the first process of its virtual machines (the *agent*) tell each other, and marks that programs make.
//!
//! The lab puts a [`Task`] into the guest as [`TASK_FILE`]; the agent carries it out and writes [`Message`]s, one JSON
//! object a line, to the virtio port [`RESULT_PORT`]. What the program prints goes to [`OUT_PORT`] and [`ERR_PORT`].

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod mark;
mod message;
mod task;
mod version;

pub use message::{Counters, Ending, Hello, Message, NodeCounters, Sample};
pub use task::{Apart, Companion, Expander, MemoryPolicy, Preparation, Program, Region, Shared, Task, Write};

pub use version::version;

/// Where the agent finds its task.
pub const TASK_FILE: &str = "/task.json";

/// Where the agent finds the kernel's modules that memory of a special kind takes, as the kernel's package has them.
pub const MODULES: &str = "/lib/modules/memtide";

/// Those of shared memory: a device that is mapped, what finds such memory, and what makes it the kernel's own.
pub const SHARED_MODULES: [&str; 3] = ["device_dax.ko.xz", "dax_hmem.ko.xz", "kmem.ko.xz"];

/// Those of CXL memory, each after those that it needs: what finds its windows, its devices and what is in them, and what makes it
/// the kernel's own.
pub const CXL_MODULES: [&str; 8] = [
    "libnvdimm.ko.xz",
    "cxl_pmem.ko.xz",
    "cxl_acpi.ko.xz",
    "cxl_mem.ko.xz",
    "cxl_pci.ko.xz",
    "dax_hmem.ko.xz",
    "dax_cxl.ko.xz",
    "kmem.ko.xz",
];

/// Folder of shared memory's devices in the guest.
pub const SHARED_DEVICES: &str = "/dev/memtide";

/// Port of the program's standard output.
pub const OUT_PORT: &str = "out";

/// Port of the program's standard error.
pub const ERR_PORT: &str = "err";

/// Port of the agent's messages.
pub const RESULT_PORT: &str = "result";
