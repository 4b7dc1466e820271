//! A plugin for QEMU's user mode that records every access to memory of an x86-64 program.
//!
//! `qemu-x86_64 -plugin libmemtide_recorder.so,dir=DIR PROGRAM` writes into DIR, which must hold a control
//! page (crate `memtide-recording`). `memtide record` does that and converts the output into a trace.

#![allow(unsafe_code, reason = "QEMU's plugin interface is C")]
#![cfg_attr(test, allow(dead_code, reason = "`qemu`, which uses most of it, is left out"))]

mod calls;
mod files;
mod thread;

#[cfg(not(test))]
mod qemu;
