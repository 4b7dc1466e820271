//! Turns of virtual CPUs, and the clock that the guest reads.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use memtide_core::{CpuId, Time};

use super::{AT_ONCE, Plugin};
use crate::clocks::{LATEST, SHARED, SKIPPED_NS, common_time_ns};
use crate::internals::current_cpu;
use crate::lab::QUANTUM;

impl Plugin {
    /// The least time of the other virtual CPUs that run.
    fn slowest_other(&self, cpu: usize) -> Option<Time> {
        let others = (0..self.lab().vcpus.len()).filter(|&other| other != cpu && SHARED[other].runs());
        others.map(|other| SHARED[other].time()).min()
    }

    /// Lets a virtual CPU with a thread of its own begin another turn. One that has fallen behind the others has waited, and its
    /// time is brought up to theirs: what the model knows of a node's load goes back some turns only.
    fn keep_up(&self, cpu: usize) {
        let shared = &SHARED[cpu];
        shared.idle.store(false, Ordering::Relaxed);
        let others = (0..self.lab().vcpus.len()).filter(|&other| other != cpu);
        if let Some(latest) = others.map(|other| SHARED[other].time()).max() {
            let lab = self.lab();
            lab.curve.idle_until(CpuId::from(cpu), shared.instructions(), latest);
            lab.vcpus[cpu].take_evicted().for_each(drop);
        }
        self.time(cpu);
        shared.set_turn(0);
    }
}

/// The guest's clock, in ns.
pub(super) extern "C" fn clock_get() -> i64 {
    let plugin = Plugin::get();
    if let Some(internals) = &plugin.internals {
        SKIPPED_NS.store(internals.skipped_ns() as u64, Ordering::Relaxed);
    }
    let skipped = SKIPPED_NS.load(Ordering::Relaxed);
    let cpu = current_cpu();
    let running =
        SHARED.iter().position(|shared| !cpu.is_null() && shared.cpu.load(Ordering::Relaxed) == cpu);
    let now = match running.filter(|&cpu| SHARED[cpu].runs()) {
        Some(cpu) => plugin.time(cpu).0 / 1000,
        None => common_time_ns(),
    };
    (now + skipped) as i64
}

pub(super) extern "C" fn clock_set(to: i64) {
    let plugin = Plugin::get();
    let ahead = Time::from_ns((to - clock_get()).max(0) as f64);
    let count = plugin.lab().vcpus.len();
    for (cpu, shared) in SHARED.iter().enumerate().take(count) {
        let until = plugin.time(cpu) + ahead;
        plugin.lab().curve.idle_until(CpuId::from(cpu), shared.instructions(), until);
    }
    plugin.publish_all();
}

pub(super) unsafe extern "C" fn on_turn_end(cpu: c_uint, _: *mut c_void) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    if plugin.parallel {
        return plugin.keep_up(cpu as usize);
    }
    let cpu = cpu as usize;
    let shared = &SHARED[cpu];
    let other = plugin.slowest_other(cpu);
    if shared.idle.swap(false, Ordering::Relaxed) {
        let wakes = other.unwrap_or(Time(LATEST.load(Ordering::Relaxed) * 1000));
        plugin.lab().curve.idle_until(CpuId::from(cpu), shared.instructions(), wakes);
    }
    let now = plugin.time(cpu);
    let time = plugin.guest_time(now.min(other.unwrap_or(now)));
    if plugin.lab().is_due(time) {
        plugin.lab().show(time, &plugin.executed());
    }
    let ahead = other.is_some_and(|other| now > other + QUANTUM);
    shared.set_turn(if ahead { AT_ONCE } else { 0 });
    if let Some(internals) = &plugin.internals {
        let evicted = plugin.lab().vcpus[cpu].take_evicted();
        evicted.for_each(|page| internals.flush_page(page << 12));
        internals.end_turn();
    }
}

pub(super) unsafe extern "C" fn on_halt(cpu: c_uint, _: *mut c_void) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    plugin.time(cpu as usize);
    SHARED[cpu as usize].idle.store(true, Ordering::Relaxed);
    SHARED[cpu as usize].set_turn(AT_ONCE);
}

/// While the model is off a pause takes long: QEMU stops at each, and at boot the kernel waits so for a tenth of a second and more.
pub(super) unsafe extern "C" fn on_pause(cpu: c_uint, _: *mut c_void) {
    const PAUSE: Time = Time::from_us(1);
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let cpu = cpu as usize;
    let until = plugin.time(cpu) + PAUSE;
    plugin.lab().curve.idle_until(CpuId::from(cpu), SHARED[cpu].instructions(), until);
    plugin.time(cpu);
}
