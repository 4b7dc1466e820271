//! Loads and stores.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use memtide_core::{CpuId, Time};
use qemu_plugin_sys as sys;

use super::Plugin;
use crate::clocks::SHARED;
use crate::lab::Lab;
use crate::op::{MAX_VCPUS, Op};
use crate::vcpu::Vcpu;

/// The virtual CPUs of the plugin's `Lab`, for the access that takes no time.
pub(super) static HOT: [AtomicPtr<Vcpu>; MAX_VCPUS] = [const { AtomicPtr::new(null_mut()) }; MAX_VCPUS];

pub(super) unsafe extern "C" fn on_load(
    cpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: *mut c_void,
) {
    // SAFETY: the op that `on_translation` handed over.
    unsafe { on_access(cpu as usize, info, address, &*op.cast::<Op>(), false) }
}

pub(super) unsafe extern "C" fn on_store(
    cpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    op: *mut c_void,
) {
    // SAFETY: the op that `on_translation` handed over.
    unsafe { on_access(cpu as usize, info, address, &*op.cast::<Op>(), true) }
}

/// # Safety
/// `info` must be what QEMU handed to the callback.
#[inline(always)]
unsafe fn on_access(cpu: usize, info: sys::qemu_plugin_meminfo_t, address: u64, op: &Op, write: bool) {
    // SAFETY: set when the virtual CPU was initialised; `Lab` keeps its virtual CPUs where they are, and no other reference to
    // them is alive.
    let vcpu = unsafe { &mut *HOT[cpu % MAX_VCPUS].load(Ordering::Relaxed) };
    vcpu.accesses += 1;
    let Some(line) = vcpu.line(address) else {
        // SAFETY: as the caller promises.
        return unsafe { on_new_page(cpu, info, address, op, write) };
    };
    if !vcpu.changes_nothing(line, write) {
        return take(cpu, op, line, write, Time::ZERO);
    }
    op.accessed(cpu % MAX_VCPUS, line, &mut vcpu.writers);
}

/// Has the model take an access.
#[inline(never)]
fn take(cpu: usize, op: &Op, line: u64, write: bool, translation: Time) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    model(plugin.lab(), cpu, op, line, write, translation);
}

#[inline]
fn model(lab: &mut Lab, cpu: usize, op: &Op, line: u64, write: bool, translation: Time) {
    let shared = &SHARED[cpu];
    let before = lab.curve.clock_as_is(CpuId::from(cpu)).offset;
    let instruction = || shared.instructions() - u64::from(op.left);
    if lab.access(CpuId::from(cpu), op, line, write, translation, instruction) {
        let clock = lab.curve.clock_as_is(CpuId::from(cpu));
        shared.publish(clock);
        let waited = clock.offset.0.wrapping_sub(before.0);
        shared.add_turn((waited as f64 / lab.instruction_ps()) as u64);
    }
    let vcpu = &mut lab.vcpus[cpu];
    vcpu.note(line, write);
    op.accessed(cpu, line, &mut vcpu.writers);
}

/// An access to a page that was not seen lately.
///
/// # Safety
/// `info` must be what QEMU handed to the callback.
#[inline(never)]
unsafe fn on_new_page(cpu: usize, info: sys::qemu_plugin_meminfo_t, address: u64, op: &Op, write: bool) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let lab = plugin.lab();
    let line = match lab.vcpus[cpu].recall(address) {
        Some(line) => line,
        None => {
            // SAFETY: as the caller promises; the answer is used before the next call.
            let physical = unsafe {
                let found = sys::qemu_plugin_get_hwaddr(info, address);
                if found.is_null() {
                    return;
                }
                let physical = sys::qemu_plugin_hwaddr_phys_addr(found);
                // QEMU has CXL memory as a device, too.
                if sys::qemu_plugin_hwaddr_is_io(found) && !lab.curve.is_memory(physical >> 6) {
                    return;
                }
                physical
            };
            lab.vcpus[cpu].learn(address, physical);
            physical >> 6
        }
    };
    let mut translation = Time::ZERO;
    if !Vcpu::is_kernel(address) {
        let looked = lab.curve.translate(CpuId::from(cpu), address >> 12);
        translation = looked.takes;
        let drops = looked.evicted.and_then(|page| lab.vcpus[cpu].evict(page));
        if let (Some(page), Some(internals)) = (drops, &plugin.internals) {
            internals.flush_page(page << 12);
        }
    }
    model(lab, cpu, op, line, write, translation);
}
