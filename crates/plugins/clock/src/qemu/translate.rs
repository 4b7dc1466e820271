//! Registers callbacks for a translated block of guest code.

use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;

use qemu_plugin_sys as sys;

use super::access::{on_load, on_store, on_store_past};
use super::events::{on_address_space, on_mark, on_return, on_translations};
use super::turns::{on_block, on_halt, on_pause};
use super::{NO_REGISTERS, Plugin};
use crate::clocks::Score;
use crate::marks::Special;
use crate::op::Block;
use crate::vcpu::Vcpu;

const READS_REGISTERS: sys::qemu_plugin_cb_flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS;

pub(super) unsafe extern "C" fn on_translation(_: sys::qemu_plugin_id_t, tb: *mut sys::qemu_plugin_tb) {
    let plugin = Plugin::get();
    // SAFETY: a callback.
    let mut state = unsafe { plugin.enter() };
    let on = state.lab.on;
    // SAFETY: `tb` and its instructions are valid during this call; the ops handed over live until QEMU drops
    // all blocks.
    unsafe {
        let count = sys::qemu_plugin_tb_n_insns(tb);
        let instructions: Vec<_> = (0..count).map(|i| sys::qemu_plugin_tb_get_insn(tb, i)).collect();
        let code: Vec<_> =
            instructions.iter().map(|&at| (sys::qemu_plugin_insn_vaddr(at), bytes(at))).collect();
        let turn = state.turn_length();
        // While the model is off no access is followed.
        let followed = code.iter().filter(|_| on).map(|(pc, bytes)| (*pc, bytes.as_slice()));
        let counted = if plugin.by_instruction { 0 } else { count as u32 };
        let (block, ops) = state.blocks.add(followed, turn, counted);
        count_block(plugin, block, tb, &instructions);
        for (&at, (_, code)) in instructions.iter().zip(&code) {
            match Special::of(code) {
                Some(Special::Pause) if on || plugin.internals.is_none() => {}
                Some(special) => watch(at, special),
                None => {}
            }
        }
        if !on {
            return;
        }
        for (&at, op) in instructions.iter().zip(ops) {
            let Some(op) = op else { continue };
            let address = op.as_ptr().cast();
            let on_store = if op.as_ref().non_temporal { on_store_past } else { on_store };
            use sys::qemu_plugin_mem_rw::{QEMU_PLUGIN_MEM_R, QEMU_PLUGIN_MEM_W};
            sys::qemu_plugin_register_vcpu_mem_cb(
                at,
                Some(on_load),
                NO_REGISTERS,
                QEMU_PLUGIN_MEM_R,
                address,
            );
            sys::qemu_plugin_register_vcpu_mem_cb(
                at,
                Some(on_store),
                NO_REGISTERS,
                QEMU_PLUGIN_MEM_W,
                address,
            );
        }
    }
}

/// Makes QEMU count a block's instructions, end turns, and call the plugin at the start of a busy virtual
/// CPU's blocks. The block's address distinguishes kernel from user
/// code.
///
/// QEMU leaves a block at an access to a device's memory, repeats that instruction uncounted, and starts
/// another block after it. So instructions are counted one by one if nodes have such memory.
///
/// # Safety
/// `tb` and its instructions must be valid.
unsafe fn count_block(
    plugin: &Plugin,
    block: NonNull<Block>,
    tb: *mut sys::qemu_plugin_tb,
    instructions: &[*mut sys::qemu_plugin_insn],
) {
    let entry = |offset| sys::qemu_plugin_u64 { score: plugin.scores, offset };
    let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
    use std::mem::offset_of;
    // SAFETY: the block is valid, and the entries are fields of `Score`.
    unsafe {
        let kernel = Vcpu::is_kernel(sys::qemu_plugin_tb_vaddr(tb));
        let kernel = kernel.then_some(offset_of!(Score, kernel_instructions));
        for offset in [offset_of!(Score, instructions), offset_of!(Score, turn)].into_iter().chain(kernel) {
            if plugin.by_instruction {
                for &at in instructions {
                    sys::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(at, add, entry(offset), 1);
                }
            } else {
                let count = instructions.len() as u64;
                sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, add, entry(offset), count);
            }
        }
        sys::qemu_plugin_register_vcpu_tb_exec_cond_cb(
            tb,
            Some(on_block),
            NO_REGISTERS,
            sys::qemu_plugin_cond::QEMU_PLUGIN_COND_GE,
            entry(offset_of!(Score, turn)),
            block.as_ref().turn,
            block.as_ptr().cast(),
        );
    }
}

/// # Safety
/// `instruction` must be valid.
unsafe fn watch(instruction: *mut sys::qemu_plugin_insn, special: Special) {
    type Callback = unsafe extern "C" fn(c_uint, *mut c_void);
    let (callback, flags, data): (Callback, _, usize) = match special {
        Special::Mark => (on_mark, READS_REGISTERS, 0),
        Special::Halt => (on_halt, NO_REGISTERS, 0),
        Special::Pause => (on_pause, NO_REGISTERS, 0),
        Special::AddressSpace(register) => (on_address_space, READS_REGISTERS, register.into()),
        Special::Return => (on_return, READS_REGISTERS, 0),
        Special::Translations => (on_translations, NO_REGISTERS, 0),
    };
    // SAFETY: a callback of the type that QEMU asks for; the data is a number.
    unsafe {
        sys::qemu_plugin_register_vcpu_insn_exec_cb(instruction, Some(callback), flags, data as *mut c_void);
    }
}

/// # Safety
/// `instruction` must be valid.
unsafe fn bytes(instruction: *mut sys::qemu_plugin_insn) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    // SAFETY: QEMU copies at most as many bytes as the buffer has.
    let copied = unsafe { sys::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(copied);
    bytes
}
