//! What QEMU calls. The only module that knows its plugin API (version 4, which QEMU 10.0 has).

mod access;
mod events;
mod registers;
mod translate;
mod turns;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use memtide_core::{CpuId, Time};
use qemu_plugin_sys as sys;

use self::access::HOT;
use self::registers::Registers;
use self::translate::on_translation;
use self::turns::{clock_get, clock_set};
use crate::clocks::{SHARED, SKIPPED_NS, Score, Shared, common_time_ns};
use crate::internals::{Internals, current_cpu};
use crate::lab::{Executed, Lab, QUANTUM};
use crate::op::{self, Op};

/// The API version that the plugin is made for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks this name up")]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION as c_int;

struct Plugin {
    lab: UnsafeCell<Lab>,
    /// Held while a callback uses `lab`, if each virtual CPU has a thread of its own.
    alone: Mutex<()>,
    parallel: bool,
    /// Instructions are counted one by one.
    by_instruction: bool,
    internals: Option<Internals>,
    scores: *mut sys::qemu_plugin_scoreboard,
    /// Ops of translated blocks, to be freed when QEMU drops all blocks.
    #[allow(clippy::vec_box, reason = "QEMU keeps their addresses")]
    ops: UnsafeCell<Vec<Box<Op>>>,
    id: sys::qemu_plugin_id_t,
    registers: UnsafeCell<Registers>,
}

// SAFETY: with `thread=single` QEMU runs all virtual CPUs, and so all callbacks, on one thread; `clock_get` alone is called
// by others, and then reads `SHARED` and `internals` alone, which does not change. With `thread=multi` callbacks hold `alone`;
// without it `on_access` changes what belongs to the virtual CPU of its thread alone.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// A turn that makes the next block call `on_turn_end`.
const AT_ONCE: u64 = 1 << 60;

const NO_REGISTERS: sys::qemu_plugin_cb_flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;

impl Plugin {
    fn get() -> &'static Plugin {
        PLUGIN.get().expect("QEMU calls back only after the plugin is installed")
    }

    /// Keeps the callbacks of other threads out, if there are some.
    #[inline]
    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.parallel.then(|| self.alone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[allow(clippy::mut_from_ref, reason = "callbacks do not nest; see `Sync` above")]
    fn lab(&self) -> &mut Lab {
        // SAFETY: only one callback at a time uses it, and none keeps the reference.
        unsafe { &mut *self.lab.get() }
    }

    fn executed(&self) -> Vec<Executed> {
        SHARED.iter().take(self.lab().vcpus.len()).map(Shared::executed).collect()
    }

    /// Instructions that make a turn's length.
    fn turn_length(&self) -> u64 {
        (QUANTUM.0 as f64 / self.lab().instruction_ps()) as u64
    }

    fn time(&self, cpu: usize) -> Time {
        let instruction = SHARED[cpu].instructions();
        let clock = self.lab().curve.clock(CpuId::from(cpu), instruction);
        SHARED[cpu].publish(clock);
        clock.at(instruction)
    }

    /// Time on the guest's clock. QEMU allows no look at its own everywhere; what it skipped is as when the guest last asked.
    fn guest_time(&self, time: Time) -> Time {
        time + Time::from_ns(SKIPPED_NS.load(Ordering::Relaxed) as f64)
    }

    fn publish_all(&self) {
        for cpu in 0..self.lab().vcpus.len() {
            self.time(cpu);
        }
    }
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
        PLUGIN.get_or_init(|| {
            Plugin {
                parallel: lab.config.parallel,
                by_instruction: lab.config.by_instruction,
                alone: Mutex::new(()),
                lab: UnsafeCell::new(lab),
                internals: None,
                scores: sys::qemu_plugin_scoreboard_new(size_of::<Score>()),
                ops: UnsafeCell::new(Vec::new()),
                id,
                registers: UnsafeCell::new(Registers::new()),
            }
            .with_internals()
        });
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_vcpu));
        register(id);
    }
    0
}

impl Plugin {
    fn with_internals(mut self) -> Plugin {
        if self.parallel {
            let why = "virtual CPUs that run at the same time have this system's clock";
            self.lab.get_mut().results.why = Some(why.to_owned());
            return self;
        }
        match Internals::find() {
            Ok(internals) => self.internals = Some(internals),
            Err(why) => self.lab.get_mut().results.why = Some(why),
        }
        self
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
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    for vcpu in &mut plugin.lab().vcpus {
        vcpu.writers = op::NO_WRITERS;
    }
    // SAFETY: QEMU has dropped all blocks, and nothing else refers to their ops.
    unsafe { (*plugin.ops.get()).clear() }
}

unsafe extern "C" fn on_vcpu(_: sys::qemu_plugin_id_t, cpu: c_uint) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let lab = plugin.lab();
    if cpu as usize >= lab.vcpus.len() {
        eprintln!("memtide clock: QEMU has more virtual CPUs than the configuration");
        std::process::abort();
    }
    for known in 0..=cpu {
        // SAFETY: the scoreboard has an entry for each virtual CPU so far; it may move when it grows.
        let score = unsafe { sys::qemu_plugin_scoreboard_find(plugin.scores, known) };
        SHARED[known as usize].score.store(score.cast(), Ordering::Relaxed);
    }
    let shared = &SHARED[cpu as usize];
    shared.cpu.store(current_cpu(), Ordering::Relaxed);
    shared.idle.store(lab.vcpus[cpu as usize].idle, Ordering::Relaxed);
    shared.set_turn(if lab.vcpus[cpu as usize].idle { AT_ONCE } else { 0 });
    HOT[cpu as usize].store(&mut lab.vcpus[cpu as usize], Ordering::Relaxed);
    plugin.publish_all();
    // SAFETY: as for `lab`.
    unsafe { (*plugin.registers.get()).find() };
    let Some(internals) = &plugin.internals else { return };
    if lab.vcpus.len() > 1 {
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
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    if plugin.lab().has_begun() {
        let time = plugin.guest_time(Time(common_time_ns() * 1000));
        plugin.lab().end(time, &plugin.executed());
    }
    plugin.lab().write();
}
