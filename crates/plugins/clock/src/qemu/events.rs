//! What the guest does beside loads and stores: address spaces, marks, programs that begin.

use std::ffi::{c_uint, c_void};

use memtide_core::CpuId;
use memtide_lab_protocol::mark as command;
use qemu_plugin_sys as sys;

use super::{Plugin, on_reset};
use crate::clocks::SHARED;
use crate::start;

pub(super) unsafe extern "C" fn on_translations(cpu: c_uint, _: *mut c_void) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    plugin.lab().vcpus[cpu as usize].forget_all();
}

pub(super) unsafe extern "C" fn on_address_space(cpu: c_uint, register: *mut c_void) {
    /// Bits of CR3 that are an address.
    const ROOT: u64 = 0x000f_ffff_ffff_f000;
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let root = plugin.register(register as u8) & ROOT;
    let lab = plugin.lab();
    lab.enter(cpu as usize, root, SHARED[cpu as usize].executed());
    lab.vcpus[cpu as usize].forget_all();
    lab.curve.flush(CpuId::from(cpu as usize));
}

/// The kernel returns from an interrupt, or to a program that begins: then all general registers are zero.
pub(super) unsafe extern "C" fn on_return(cpu: c_uint, _: *mut c_void) {
    const RSP: u8 = 4;
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let frame = plugin.register(RSP);
    let at = |place: u64| plugin.word(frame.wrapping_add(8 * place));
    let to_user = at(1).is_some_and(|selector| selector & 3 == 3);
    if !to_user || !plugin.lab().ledger.returns(cpu as usize) {
        return;
    }
    if (0..16).any(|register| register != RSP && plugin.register(register) != 0) {
        return;
    }
    let name = at(3).and_then(|stack| start::program(stack, |address| plugin.word(address)));
    if let Some(name) = name {
        plugin.lab().start(cpu as usize, &name, SHARED[cpu as usize].executed());
    }
}

pub(super) unsafe extern "C" fn on_mark(cpu: c_uint, _: *mut c_void) {
    const RAX: u8 = 0;
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let time = || plugin.guest_time(plugin.time(cpu as usize));
    let command = plugin.register(RAX);
    let begun = plugin.lab().has_begun();
    match command {
        command::AGENT => return plugin.lab().is_agent(cpu as usize, time()),
        command::WARM_UP | command::BEGIN if !begun => {}
        command::END if begun => {}
        _ => return,
    }
    let executed = plugin.executed();
    if command == command::BEGIN {
        plugin.lab().begin(time(), &executed);
    }
    let turned = plugin.lab().turn(command != command::END, &executed);
    plugin.publish_all();
    if command == command::END {
        plugin.lab().end(time(), &executed);
    }
    plugin.lab().show(time(), &executed);
    if !turned {
        return;
    }
    // SAFETY: QEMU resets the plugin once no block runs.
    unsafe { sys::qemu_plugin_reset(plugin.id, Some(on_reset)) }
}
