//! Guest events other than loads and stores: address space switches, marks, program starts.

use std::ffi::{c_uint, c_void};

use memtide_core::CpuId;
use memtide_lab_protocol::mark as command;
use qemu_plugin_sys as sys;

use super::{Plugin, State, on_reset, own};
use crate::clocks::{SHARED, executed, executed_by, guest_time};
use crate::start;

pub(super) unsafe extern "C" fn on_translations(cpu: c_uint, _: *mut c_void) {
    // SAFETY: a callback of the virtual CPU.
    unsafe { own(cpu as usize) }.forget_all();
}

pub(super) unsafe extern "C" fn on_address_space(cpu: c_uint, register: *mut c_void) {
    /// Address bits of CR3.
    const ROOT: u64 = 0x000f_ffff_ffff_f000;
    let cpu = cpu as usize;
    // SAFETY: a callback of the virtual CPU, which may read registers.
    let (mut state, vcpu) = unsafe { (Plugin::get().enter(), own(cpu)) };
    let root = state.registers.value(register as u8) & ROOT;
    state.lab.enter(cpu, root, executed_by(cpu));
    SHARED[cpu].publish(state.lab.curve.clock_as_is(CpuId::from(cpu)));
    vcpu.forget_all();
    state.lab.curve.flush(CpuId::from(cpu));
}

/// `iretq`: a return from an interrupt, or the start of a program, at which all general registers are zero.
pub(super) unsafe extern "C" fn on_return(cpu: c_uint, _: *mut c_void) {
    const RSP: u8 = 4;
    let cpu = cpu as usize;
    // SAFETY: a callback, which may read registers.
    let mut state = unsafe { Plugin::get().enter() };
    let State { lab, registers, .. } = &mut *state;
    let frame = registers.value(RSP);
    let at = |place: u64| registers.word(frame.wrapping_add(8 * place));
    let to_user = at(1).is_some_and(|selector| selector & 3 == 3);
    if !to_user || !lab.ledger.returns(cpu) {
        return;
    }
    if (0..16).any(|register| register != RSP && registers.value(register) != 0) {
        return;
    }
    let name = at(3).and_then(|stack| start::program(stack, |address| registers.word(address)));
    if let Some(name) = name {
        lab.start(cpu, &name, executed_by(cpu));
    }
}

pub(super) unsafe extern "C" fn on_mark(cpu: c_uint, _: *mut c_void) {
    const RAX: u8 = 0;
    let plugin = Plugin::get();
    // SAFETY: a callback, which may read registers.
    let mut state = unsafe { plugin.enter() };
    if mark(&mut state, cpu as usize, RAX) {
        drop(state);
        // SAFETY: QEMU resets the plugin once no block runs.
        unsafe { sys::qemu_plugin_reset(plugin.id, Some(on_reset)) }
    }
}

/// Executes a mark, whose command is in a register; true if it turns the model on or off.
fn mark(state: &mut State, cpu: usize, register: u8) -> bool {
    let time = |state: &mut State| guest_time(state.time(cpu));
    let command = state.registers.value(register);
    let begun = state.lab.has_begun();
    match command {
        command::AGENT => {
            let time = time(state);
            state.lab.is_agent(cpu, time);
            return false;
        }
        command::SAMPLE => {
            const RDI: u8 = 7;
            let period = state.registers.value(RDI);
            state.lab.sample(period);
            return false;
        }
        command::WARM_UP | command::BEGIN if !begun => {}
        command::END if begun => {}
        _ => return false,
    }
    let executed = executed(state.lab.vcpus());
    if command == command::BEGIN {
        let time = time(state);
        state.lab.begin(time, &executed);
    }
    let turned = state.lab.turn(command != command::END, &executed);
    state.publish_all();
    if command == command::END {
        let time = time(state);
        state.lab.end(time, &executed);
    }
    let time = time(state);
    state.lab.show(time, &executed);
    turned
}
