//! QEMU's callbacks. The only module that uses its plugin API (version 4, of QEMU 10.0).

mod access;
mod events;
mod registers;
mod translate;
mod turns;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use memtide_core::{CpuId, Time};
use qemu_plugin_sys as sys;

use self::registers::Registers;
use self::translate::on_translation;
use self::turns::{clock_get, clock_set};
use crate::clocks::{SHARED, Score, common_time_ns, executed, guest_time};
use crate::exclusive::{Entered, Exclusive};
use crate::internals::{Internals, current_cpu};
use crate::lab::{Lab, QUANTUM};
use crate::op::Blocks;
use crate::vcpu::{VCPUS, Vcpu};

/// The API version that the plugin is made for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks this name up")]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION as c_int;

/// Constants of an installed plugin, and the state.
struct Plugin {
    state: Exclusive<State>,
    parallel: bool,
    /// Instructions are counted one by one.
    by_instruction: bool,
    internals: Option<Internals>,
    scores: *mut sys::qemu_plugin_scoreboard,
    id: sys::qemu_plugin_id_t,
}

// SAFETY: the scoreboard's address is a handle, which QEMU takes from any thread; the rest may be shared.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

/// State changed by callbacks, one at a time.
struct State {
    lab: Lab,
    /// Translated blocks.
    blocks: Blocks,
    registers: Registers,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// Turn length at which the next block calls `on_turn_end`.
const AT_ONCE: u64 = 1 << 60;

const NO_REGISTERS: sys::qemu_plugin_cb_flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;

impl Plugin {
    fn get() -> &'static Plugin {
        PLUGIN.get().expect("QEMU calls back only after the plugin is installed")
    }

    /// The state, for the callback that calls this at its start.
    ///
    /// # Safety
    /// The caller is a callback of QEMU's, on a thread of virtual CPUs.
    #[inline]
    unsafe fn enter(&self) -> Entered<'_, State> {
        // SAFETY: with `thread=single` QEMU runs all virtual CPUs, and so all callbacks, on one thread. With
        // `thread=multi` the state was made for several.
        unsafe { self.state.enter() }
    }
}

impl State {
    /// Instructions per turn.
    fn turn_length(&self) -> u64 {
        (QUANTUM.0 as f64 / self.lab.instruction_ps()) as u64
    }

    /// Publishes a virtual CPU's time.
    fn time(&mut self, cpu: usize) -> Time {
        let instruction = SHARED[cpu].instructions();
        let clock = self.lab.curve.clock(CpuId::from(cpu), instruction);
        SHARED[cpu].publish(clock);
        clock.at(instruction)
    }

    fn publish_all(&mut self) {
        for cpu in 0..self.lab.vcpus() {
            self.time(cpu);
        }
    }
}

/// A virtual CPU's private state.
///
/// # Safety
/// The caller is a callback of that virtual CPU, and calls this once.
#[inline(always)]
unsafe fn own<'a>(cpu: usize) -> &'a mut Vcpu {
    // SAFETY: a virtual CPU's callbacks follow each other, and each has one reference.
    unsafe { &mut *VCPUS[cpu].get() }
}

/// Called by QEMU once the plugin is loaded.
///
/// # Safety
/// `info` and `argv` must be what QEMU's plugin interface says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: sys::qemu_plugin_id_t,
    info: *const sys::qemu_info_t,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a valid `info`, and `argc` strings.
    let (system, arguments) = unsafe {
        let text = |i| CStr::from_ptr(*argv.add(i)).to_string_lossy().into_owned();
        ((*info).system_emulation, (0..argc as usize).map(text).collect::<Vec<_>>())
    };
    let file = arguments.iter().find_map(|argument| argument.strip_prefix("config="));
    let Some(file) = file.filter(|_| system) else {
        eprintln!("memtide clock: use `memtide lab`, which runs QEMU's system emulation with config=FILE");
        return -1;
    };
    let lab = match Lab::read(file) {
        Ok(lab) => lab,
        Err(error) => {
            eprintln!("memtide clock: {error}");
            return -1;
        }
    };
    // SAFETY: making a scoreboard, and registering callbacks of the types that QEMU asks for.
    unsafe {
        PLUGIN.get_or_init(|| Plugin::new(lab, id, sys::qemu_plugin_scoreboard_new(size_of::<Score>())));
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_vcpu));
        register(id);
    }
    0
}

impl Plugin {
    fn new(mut lab: Lab, id: sys::qemu_plugin_id_t, scores: *mut sys::qemu_plugin_scoreboard) -> Plugin {
        let (parallel, by_instruction) = (lab.config.parallel, lab.config.by_instruction);
        let internals = if parallel {
            Err("virtual CPUs that run at the same time have this system's clock".to_owned())
        } else {
            Internals::find()
        };
        for (cpu, slot) in VCPUS.iter().enumerate().take(lab.vcpus()) {
            // SAFETY: no virtual CPU exists yet.
            let vcpu = unsafe { &mut *slot.get() };
            vcpu.first = lab.take_first_cache(CpuId::from(cpu));
            vcpu.write_stream = lab.curve.write_stream();
        }
        let internals = internals.map_err(|why| lab.results.why = Some(why)).ok();
        let state = State { lab, blocks: Blocks::default(), registers: Registers::new() };
        Plugin { state: Exclusive::new(state, parallel), parallel, by_instruction, internals, scores, id }
    }
}

unsafe extern "C" fn register(id: sys::qemu_plugin_id_t) {
    // SAFETY: registering callbacks of the types that QEMU asks for.
    unsafe {
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_translation));
        sys::qemu_plugin_register_flush_cb(id, Some(on_flush));
        sys::qemu_plugin_register_atexit_cb(id, Some(on_exit), null_mut());
    }
}

/// After a reset: all blocks have been dropped.
unsafe extern "C" fn on_reset(id: sys::qemu_plugin_id_t) {
    // SAFETY: as for `on_flush`, and then as when the plugin was installed.
    unsafe {
        on_flush(id);
        register(id);
    }
}

unsafe extern "C" fn on_flush(_: sys::qemu_plugin_id_t) {
    // SAFETY: a callback.
    let mut state = unsafe { Plugin::get().enter() };
    for slot in &VCPUS {
        // SAFETY: QEMU drops blocks while no virtual CPU runs.
        unsafe { (*slot.get()).flow.reset() };
    }
    // SAFETY: QEMU has dropped all blocks, and all flows were just reset.
    unsafe { state.blocks.clear() }
}

unsafe extern "C" fn on_vcpu(_: sys::qemu_plugin_id_t, cpu: c_uint) {
    let plugin = Plugin::get();
    // SAFETY: a callback.
    let mut state = unsafe { plugin.enter() };
    let state = &mut *state;
    if cpu as usize >= state.lab.vcpus() {
        eprintln!("memtide clock: QEMU has more virtual CPUs than the configuration");
        std::process::abort();
    }
    for known in 0..=cpu {
        // SAFETY: the scoreboard has an entry for each virtual CPU so far; it may move when it grows.
        let score = unsafe { sys::qemu_plugin_scoreboard_find(plugin.scores, known) };
        SHARED[known as usize].score.store(score.cast(), Ordering::Relaxed);
    }
    let shared = &SHARED[cpu as usize];
    // All but the first are halted at first.
    let idle = cpu > 0;
    shared.cpu.store(current_cpu(), Ordering::Relaxed);
    shared.idle.store(idle, Ordering::Relaxed);
    shared.set_turn(if idle { AT_ONCE } else { 0 });
    state.publish_all();
    state.registers.find();
    let Some(internals) = &plugin.internals else { return };
    let lab = &mut state.lab;
    if lab.vcpus() > 1 {
        internals.share_blocks();
    }
    if !lab.results.hook && lab.results.why.is_none() {
        match internals.replace_clock(clock_get, clock_set) {
            Ok(()) => lab.results.hook = true,
            Err(why) => lab.results.why = Some(why),
        }
    }
}

unsafe extern "C" fn on_exit(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    // SAFETY: a callback; at exit no virtual CPU runs.
    let mut state = unsafe { Plugin::get().enter() };
    let lab = &mut state.lab;
    if lab.has_begun() {
        let time = guest_time(Time(common_time_ns() * 1000));
        lab.end(time, &executed(lab.vcpus()));
    }
    lab.write();
}
