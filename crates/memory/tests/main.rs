//! The memory model against closed forms, references and invariants. One program, to link once.

mod banks;
mod caches;
mod channel_accuracy;
mod channel_closed_forms;
mod channel_devices;
mod channel_map;
mod channel_rules;
mod channel_support;
mod fixed;
mod frame_map;
mod partitions;
mod probe;
mod slices;
mod support;
mod tlbs;
mod uncore;
mod walks;
