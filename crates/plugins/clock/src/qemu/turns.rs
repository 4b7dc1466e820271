//! Turns of virtual CPUs, and the guest's clock.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use memtide_core::{CpuId, Time};

use super::{AT_ONCE, Plugin, State, own};
use crate::clocks::{LATEST, SHARED, SKIPPED_NS, common_time_ns, executed, guest_time};
use crate::internals::current_cpu;
use crate::lab::QUANTUM;
use crate::op::Block;
use crate::vcpu::Vcpu;

impl State {
    /// The minimum time of the other running virtual CPUs.
    fn slowest_other(&self, cpu: usize) -> Option<Time> {
        let others = (0..self.lab.vcpus()).filter(|&other| other != cpu && SHARED[other].runs());
        others.map(|other| SHARED[other].time()).min()
    }

    /// Starts another turn of a virtual CPU with its own thread. If it has fallen behind it was waiting, and
    /// its time catches up with the others': the model keeps a node's load for a few turns only.
    fn keep_up(&mut self, cpu: usize, vcpu: &mut Vcpu) {
        let shared = &SHARED[cpu];
        shared.idle.store(false, Ordering::Relaxed);
        let others = (0..self.lab.vcpus()).filter(|&other| other != cpu);
        if let Some(latest) = others.map(|other| SHARED[other].time()).max() {
            self.lab.curve.idle_until(CpuId::from(cpu), shared.instructions(), latest);
            vcpu.take_evicted().for_each(drop);
        }
        self.time(cpu);
        shared.set_turn(0);
    }
}

/// The calling thread's virtual CPU, unless asleep.
fn running() -> Option<usize> {
    let cpu = current_cpu();
    if cpu.is_null() {
        return None;
    }
    let known = SHARED.iter().position(|shared| shared.cpu.load(Ordering::Relaxed) == cpu);
    known.filter(|&cpu| SHARED[cpu].runs())
}

/// The guest's clock, in ns. All threads of QEMU call this; only one that runs a virtual CPU uses the state.
pub(super) extern "C" fn clock_get() -> i64 {
    let plugin = Plugin::get();
    if let Some(internals) = &plugin.internals {
        SKIPPED_NS.store(internals.skipped_ns() as u64, Ordering::Relaxed);
    }
    let skipped = SKIPPED_NS.load(Ordering::Relaxed);
    let now = match running() {
        // QEMU reads the clock within a callback: return the last value.
        Some(cpu) if plugin.state.is_entered() => SHARED[cpu].time().0 / 1000,
        // SAFETY: called as a callback is, on the thread of the virtual CPUs.
        Some(cpu) => unsafe { plugin.enter() }.time(cpu).0 / 1000,
        None => common_time_ns(),
    };
    (now + skipped) as i64
}

/// Sets the guest's clock. QEMU only does so for its own tests, and never on a thread without a virtual CPU,
/// which could not use the state.
pub(super) extern "C" fn clock_set(to: i64) {
    let ahead = Time::from_ns((to - clock_get()).max(0) as f64);
    let plugin = Plugin::get();
    if current_cpu().is_null() || plugin.state.is_entered() {
        return;
    }
    // SAFETY: called as a callback is, on the thread of the virtual CPUs.
    let mut state = unsafe { plugin.enter() };
    for (cpu, shared) in SHARED.iter().enumerate().take(state.lab.vcpus()) {
        let until = state.time(cpu) + ahead;
        state.lab.curve.idle_until(CpuId::from(cpu), shared.instructions(), until);
    }
    state.publish_all();
}

/// Start of a block of a virtual CPU that is busy or whose turn ends.
pub(super) unsafe extern "C" fn on_block(cpu: c_uint, block: *mut c_void) {
    let cpu = cpu as usize;
    let shared = &SHARED[cpu];
    // SAFETY: a block that `on_translation` handed over; it lives until QEMU drops all blocks.
    let block = unsafe { &*block.cast::<Block>() };
    // SAFETY: a callback of the virtual CPU.
    let vcpu = unsafe { own(cpu) };
    if !vcpu.flow.block(block, shared.time_at(shared.instructions() - u64::from(block.counted))) {
        shared.set_busy(false);
    }
    if shared.turn() >= block.turn {
        on_turn_end(cpu, vcpu);
    }
}

#[inline(never)]
fn on_turn_end(cpu: usize, vcpu: &mut Vcpu) {
    let plugin = Plugin::get();
    // SAFETY: a callback of the virtual CPU.
    let mut state = unsafe { plugin.enter() };
    if plugin.parallel {
        return state.keep_up(cpu, vcpu);
    }
    let shared = &SHARED[cpu];
    let other = state.slowest_other(cpu);
    if shared.idle.swap(false, Ordering::Relaxed) {
        let wakes = other.unwrap_or(Time(LATEST.load(Ordering::Relaxed) * 1000));
        state.lab.curve.idle_until(CpuId::from(cpu), shared.instructions(), wakes);
    }
    let now = state.time(cpu);
    let time = guest_time(now.min(other.unwrap_or(now)));
    if state.lab.is_due(time) {
        let executed = executed(state.lab.vcpus());
        state.lab.show(time, &executed);
    }
    let ahead = other.is_some_and(|other| now > other + QUANTUM);
    shared.set_turn(if ahead { AT_ONCE } else { 0 });
    if let Some(internals) = &plugin.internals {
        vcpu.take_evicted().for_each(|page| internals.flush_page(page << 12));
        vcpu.renew(now).into_iter().for_each(|page| internals.flush_page(page << 12));
        internals.end_turn();
    }
}

pub(super) unsafe extern "C" fn on_halt(cpu: c_uint, _: *mut c_void) {
    let cpu = cpu as usize;
    // SAFETY: a callback.
    unsafe { Plugin::get().enter() }.time(cpu);
    SHARED[cpu].idle.store(true, Ordering::Relaxed);
    SHARED[cpu].set_turn(AT_ONCE);
}

/// While the model is off, makes a pause take long: QEMU stops at each, and at boot the kernel spins in
/// pauses for a tenth of a second and more.
pub(super) unsafe extern "C" fn on_pause(cpu: c_uint, _: *mut c_void) {
    const PAUSE: Time = Time::from_us(1);
    let cpu = cpu as usize;
    // SAFETY: a callback.
    let mut state = unsafe { Plugin::get().enter() };
    let until = state.time(cpu) + PAUSE;
    state.lab.curve.idle_until(CpuId::from(cpu), SHARED[cpu].instructions(), until);
    state.time(cpu);
}
