//! A plugin for QEMU's system emulation that makes a virtual machine's clock follow the memory timing of a
//! modelled machine.
//!
//! `qemu-system-x86_64 -icount shift=0,sleep=off -accel tcg,thread=single -plugin
//! libmemtide_clock.so,config=FILE ...`, where FILE is a [`memtide_lab_protocol::clock::Config`]. `memtide
//! lab` runs it so.
//!
//! Each vCPU's time is its instructions at the modelled core's rate, plus the stall time that crate
//! `lab-model` computes. The guest's clocks follow because the clock functions of QEMU's accelerator are
//! replaced ([`internals`]); if they are not found, QEMU is left unchanged and the results say so.

#![cfg_attr(test, allow(dead_code, reason = "`qemu`, which uses most of it, is left out"))]

mod clocks;
mod exclusive;
mod first;
mod flow;
mod lab;
mod ledger;
mod marks;
mod op;
mod page_table;
mod shared_memory;
mod start;
mod vcpu;

#[cfg(not(test))]
mod internals;
#[cfg(not(test))]
mod qemu;
