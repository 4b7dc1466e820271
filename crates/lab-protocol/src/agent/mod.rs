//! Protocol between the lab and the *agent*, the first process of its virtual machines.
//!
//! The lab puts a [`Task`] into the guest as [`TASK_FILE`]; the agent performs it and writes [`Message`]s,
//! one JSON object per line, to the virtio port [`RESULT_PORT`]. The program's output goes to [`OUT_PORT`]
//! and [`ERR_PORT`].

mod message;
mod task;

pub use message::{Ending, Hello, KernelCounters, KernelNodeCounters, Message, Sample};
pub use task::{
    Companion, Expander, MemoryPolicy, Preparation, Program, RegionOfInterest, Shared, Task, TmpfsBind, Write,
};

/// Path of the task in the guest.
pub const TASK_FILE: &str = "/task.json";

/// Folder of the kernel modules for CXL and shared memory, as in the kernel's package.
pub const MODULES: &str = "/lib/modules/memtide";

/// Modules for shared memory: the device, the detection of such memory, and its hotplug.
pub const SHARED_MODULES: [&str; 3] = ["device_dax.ko.xz", "dax_hmem.ko.xz", "kmem.ko.xz"];

/// Modules for CXL memory, each after its dependencies: windows, devices, regions, and hotplug.
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
