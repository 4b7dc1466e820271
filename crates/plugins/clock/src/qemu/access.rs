//! Loads and stores.

use std::ffi::{c_uint, c_void};

use memtide_core::{CpuId, LINE_BYTES, Time, VirtAddr};
use memtide_lab_model::{Access, CacheAccess};
use qemu_plugin_sys as sys;

use super::{Plugin, own};
use crate::clocks::SHARED;
use crate::flow::Place;
use crate::lab::{Lab, Touch};
use crate::op::{MAX_VCPUS, Op};
use crate::page_table::is_huge;
use crate::vcpu::{VCPUS, Vcpu};

pub(super) unsafe extern "C" fn on_load(
    cpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: *mut c_void,
) {
    // SAFETY: the op that `on_translation` handed over; this is a callback of the virtual CPU.
    unsafe { on_access(cpu as usize, info, address, &*op.cast::<Op>(), false) }
}

pub(super) unsafe extern "C" fn on_store(
    cpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: *mut c_void,
) {
    // SAFETY: the op that `on_translation` handed over; this is a callback of the virtual CPU.
    unsafe { on_access(cpu as usize, info, address, &*op.cast::<Op>(), true) }
}

/// A non-temporal store. It is rare, so it is always passed to the model.
pub(super) unsafe extern "C" fn on_store_past(
    cpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: *mut c_void,
) {
    let cpu = cpu as usize % MAX_VCPUS;
    VCPUS[cpu].count_access(true);
    // SAFETY: the op that `on_translation` handed over; this is a callback of the virtual CPU, and the one
    // reference, which goes down from here.
    let (op, vcpu) = unsafe { (&*op.cast::<Op>(), own(cpu)) };
    // SAFETY: this callback has not entered the state.
    let mut state = unsafe { Plugin::get().enter() };
    let lab = &mut state.lab;
    let (line, translation) = match vcpu.line(address) {
        Some(line) => (line, Time::ZERO),
        // SAFETY: QEMU handed `info` to this callback.
        None => match unsafe { new_page(lab, cpu, vcpu, info, address) } {
            Some(found) => found,
            None => return,
        },
    };
    // SAFETY: as above.
    let bytes = 1 << unsafe { sys::qemu_plugin_mem_size_shift(info) };
    vcpu.drop_line(line);
    let shared = &SHARED[cpu];
    let stores = VCPUS[cpu].stores();
    let cpu = CpuId::from(cpu);
    let before = lab.curve.clock_as_is(cpu).offset;
    let access = Access {
        instruction: shared.instructions() - u64::from(op.left),
        stores,
        line,
        write: true,
        overwritten: false,
        ready: vcpu.flow.address(op, true),
        arrival: Time::ZERO,
        translation,
    };
    let offset = address % LINE_BYTES;
    lab.curve.store_past(cpu, access, offset, bytes.min(LINE_BYTES - offset));
    let clock = lab.curve.clock_as_is(cpu);
    shared.publish(clock);
    let waited = clock.offset.0.wrapping_sub(before.0);
    shared.add_turn((waited as f64 / lab.instruction_ps()) as u64);
    if vcpu.flow.is_busy() {
        vcpu.flow.hits(op, Place::new(line, address, true));
    }
}

/// # Safety
/// A callback of the virtual CPU, to which QEMU handed `info`.
#[inline(always)]
unsafe fn on_access(cpu: usize, info: sys::qemu_plugin_meminfo_t, address: u64, op: &Op, write: bool) {
    let cpu = cpu % MAX_VCPUS;
    VCPUS[cpu].count_access(write);
    // SAFETY: as the caller promises, and the one reference, which goes down from here.
    let vcpu = unsafe { own(cpu) };
    let Some(line) = vcpu.line(address) else {
        // SAFETY: as the caller promises.
        return unsafe { on_new_page(cpu, vcpu, info, address, op, write) };
    };
    let place = Place::new(line, address, write);
    // SAFETY: as the caller promises.
    let overwritten = write && vcpu.write_stream.is_on() && unsafe { overwrites(vcpu, info, address) };
    if !vcpu.hits_first(line, write) {
        // SAFETY: as the caller promises.
        return unsafe { take(cpu, vcpu, op, place, address, overwritten) };
    }
    if vcpu.flow.is_busy() {
        vcpu.flow.hits(op, place);
    }
}

/// Whether a store begins to overwrite a line that need not be fetched.
///
/// # Safety
/// In a callback to which QEMU handed `info`.
unsafe fn overwrites(vcpu: &mut Vcpu, info: sys::qemu_plugin_meminfo_t, address: u64) -> bool {
    // SAFETY: as the caller promises.
    let bytes = 1 << unsafe { sys::qemu_plugin_mem_size_shift(info) };
    vcpu.write_stream.see(VirtAddr(address), bytes)
}

/// Passes an access that missed the first cache to the model.
///
/// # Safety
/// In a callback that has not entered the state.
#[inline(never)]
unsafe fn take(cpu: usize, vcpu: &mut Vcpu, op: &Op, place: Place, address: u64, overwritten: bool) {
    let first = vcpu.fill_first(place.line(), place.write);
    // SAFETY: as the caller promises.
    let mut state = unsafe { Plugin::get().enter() };
    let missed = Missed { first, translation: Time::ZERO, overwritten, address };
    model(&mut state.lab, cpu, vcpu, op, place, missed);
}

/// What is known of an access passed to the model: see [`Touch`].
struct Missed {
    first: Option<CacheAccess>,
    translation: Time,
    overwritten: bool,
    address: u64,
}

#[inline]
fn model(lab: &mut Lab, cpu: usize, vcpu: &mut Vcpu, op: &Op, place: Place, missed: Missed) {
    let Missed { first, translation, overwritten, address } = missed;
    let shared = &SHARED[cpu];
    let (line, write) = (place.line(), place.write);
    let before = lab.curve.clock_as_is(CpuId::from(cpu)).offset;
    let instruction = || shared.instructions() - u64::from(op.left);
    let (ready, arrival) = (vcpu.flow.address(op, write), vcpu.flow.arrival(line));
    let stores = VCPUS[cpu].stores();
    let touch = Touch { line, write, stores, overwritten, translation, first, ready, arrival, address };
    match lab.access(CpuId::from(cpu), touch, instruction) {
        Some(took) => {
            let clock = lab.curve.clock_as_is(CpuId::from(cpu));
            shared.publish(clock);
            let waited = clock.offset.0.wrapping_sub(before.0);
            if waited != 0 {
                shared.add_turn((waited as f64 / lab.instruction_ps()) as u64);
            }
            if vcpu.flow.ends(op, place, took) {
                shared.set_busy(true);
            }
        }
        None if vcpu.flow.is_busy() => vcpu.flow.hits(op, place),
        None => {}
    }
}

/// An access to a page without cached translation.
///
/// # Safety
/// In a callback that has not entered the state, and to which QEMU handed `info`.
#[inline(never)]
unsafe fn on_new_page(
    cpu: usize,
    vcpu: &mut Vcpu,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: &Op,
    write: bool,
) {
    // SAFETY: as the caller promises.
    let mut state = unsafe { Plugin::get().enter() };
    let lab = &mut state.lab;
    // SAFETY: as the caller promises.
    let Some((line, translation)) = (unsafe { new_page(lab, cpu, vcpu, info, address) }) else { return };
    let place = Place::new(line, address, write);
    // SAFETY: as the caller promises.
    let overwritten = write && vcpu.write_stream.is_on() && unsafe { overwrites(vcpu, info, address) };
    let first = vcpu.touch_first(line, write);
    model(lab, cpu, vcpu, op, place, Missed { first, translation, overwritten, address });
}

/// The line of an address without cached translation, and the time of its translation; `None` if it is not
/// memory.
///
/// # Safety
/// In a callback to which QEMU handed `info`.
unsafe fn new_page(
    lab: &mut Lab,
    cpu: usize,
    vcpu: &mut Vcpu,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
) -> Option<(u64, Time)> {
    let line = match vcpu.recall(address) {
        Some(line) => line,
        None => {
            // SAFETY: as the caller promises; the answer is used before the next call.
            let physical = unsafe {
                let found = sys::qemu_plugin_get_hwaddr(info, address);
                if found.is_null() {
                    return None;
                }
                let physical = sys::qemu_plugin_hwaddr_phys_addr(found);
                // QEMU emulates CXL memory as a device, too.
                if sys::qemu_plugin_hwaddr_is_io(found) && !lab.curve.is_memory(physical >> 6) {
                    return None;
                }
                physical
            };
            vcpu.learn(address, physical);
            physical >> 6
        }
    };
    let mut translation = Time::ZERO;
    if !Vcpu::is_kernel(address) {
        let internals = Plugin::get().internals.as_ref();
        let is_huge =
            || internals.is_some_and(|qemu| is_huge(lab.ledger.root(cpu), address, |at| qemu.word(at)));
        let lookup = lab.curve.translate(CpuId::from(cpu), vcpu.page(address, is_huge));
        translation = lookup.takes;
        let drops = lookup.evicted.and_then(|page| vcpu.evict(page));
        if let (Some(page), Some(internals)) = (drops, internals) {
            internals.flush_page(page << 12);
        }
    }
    Some((line, translation))
}
