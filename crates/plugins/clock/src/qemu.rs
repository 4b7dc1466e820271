//! What QEMU calls. The only module that knows its plugin API (version 4, which QEMU 10.0 has).

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use memtide_core::{CpuId, Time};
use qemu_plugin_sys as sys;

use crate::clocks::{LATEST, SHARED, SKIPPED_NS, Score, Shared, common_time_ns};
use crate::internals::{Internals, current_cpu};
use crate::lab::{Executed, Lab, QUANTUM};
use crate::marks::{Special, command};
use crate::op::{self, MAX_VCPUS, Op};
use crate::start;
use crate::vcpu::Vcpu;

/// The API version that the plugin is made for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION as c_int;

struct Plugin {
    lab: UnsafeCell<Lab>,
    /// Held while a callback uses `lab`, if each virtual CPU has a thread of its own.
    alone: Mutex<()>,
    parallel: bool,
    internals: Option<Internals>,
    scores: *mut sys::qemu_plugin_scoreboard,
    /// Ops of translated blocks, to be freed when QEMU drops all blocks.
    #[allow(clippy::vec_box, reason = "QEMU keeps their addresses")]
    ops: UnsafeCell<Vec<Box<Op>>>,
    id: sys::qemu_plugin_id_t,
    registers: UnsafeCell<Registers>,
}

/// Handles of the general registers, in the order of their numbers, and room for a value.
struct Registers {
    handles: [*mut sys::qemu_plugin_register; 16],
    value: *mut sys::GByteArray,
}

// SAFETY: with `thread=single` QEMU runs all virtual CPUs, and so all callbacks, on one thread; `clock_get` alone is called
// by others, and then reads `SHARED` and `internals` alone, which does not change. With `thread=multi` callbacks hold `alone`;
// without it `on_access` changes what belongs to the virtual CPU of its thread alone.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// The virtual CPUs of the plugin's `Lab`, for the access that takes no time.
static HOT: [AtomicPtr<Vcpu>; MAX_VCPUS] = [const { AtomicPtr::new(null_mut()) }; MAX_VCPUS];

/// A turn that makes the next block call `on_turn_end`.
const AT_ONCE: u64 = 1 << 60;

const NO_REGISTERS: sys::qemu_plugin_cb_flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;
const READS_REGISTERS: sys::qemu_plugin_cb_flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS;

unsafe extern "C" {
    fn g_byte_array_new() -> *mut sys::GByteArray;
    fn g_byte_array_set_size(array: *mut sys::GByteArray, size: c_uint) -> *mut sys::GByteArray;
}

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

    fn register(&self, number: u8) -> u64 {
        // SAFETY: used on the one thread of the virtual CPUs, in callbacks that may read registers.
        unsafe {
            let registers = &mut *self.registers.get();
            let handle = registers.handles[usize::from(number)];
            if handle.is_null() {
                return 0;
            }
            g_byte_array_set_size(registers.value, 0);
            if sys::qemu_plugin_read_register(handle, registers.value) < 8 {
                return 0;
            }
            (*registers.value).data.cast::<u64>().read_unaligned()
        }
    }

    /// A word of the guest's memory, at an address of the address space in use.
    fn word(&self, address: u64) -> Option<u64> {
        // SAFETY: as in `register`; QEMU makes the array as long as what it reads.
        unsafe {
            let value = (*self.registers.get()).value;
            let read = sys::qemu_plugin_read_memory_vaddr(address, value, size_of::<u64>());
            read.then(|| (*value).data.cast::<u64>().read_unaligned())
        }
    }
}

/// The guest's clock, in ns.
extern "C" fn clock_get() -> i64 {
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

extern "C" fn clock_set(to: i64) {
    let plugin = Plugin::get();
    let ahead = Time::from_ns((to - clock_get()).max(0) as f64);
    let count = plugin.lab().vcpus.len();
    for (cpu, shared) in SHARED.iter().enumerate().take(count) {
        let until = plugin.time(cpu) + ahead;
        plugin.lab().curve.idle_until(CpuId::from(cpu), shared.instructions(), until);
    }
    plugin.publish_all();
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
    // SAFETY: making a scoreboard and an array, and registering callbacks of the types that QEMU asks for.
    unsafe {
        let registers = Registers { handles: [null_mut(); 16], value: g_byte_array_new() };
        PLUGIN.get_or_init(|| {
            Plugin {
                parallel: lab.config.parallel,
                alone: Mutex::new(()),
                lab: UnsafeCell::new(lab),
                internals: None,
                scores: sys::qemu_plugin_scoreboard_new(size_of::<Score>()),
                ops: UnsafeCell::new(Vec::new()),
                id,
                registers: UnsafeCell::new(registers),
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
    // SAFETY: the scoreboard has an entry for each virtual CPU so far; it may move when it grows.
    for known in 0..=cpu {
        let score = unsafe { sys::qemu_plugin_scoreboard_find(plugin.scores, known) };
        SHARED[known as usize].score.store(score.cast(), Ordering::Relaxed);
    }
    let shared = &SHARED[cpu as usize];
    shared.cpu.store(current_cpu(), Ordering::Relaxed);
    shared.idle.store(lab.vcpus[cpu as usize].idle, Ordering::Relaxed);
    shared.set_turn(if lab.vcpus[cpu as usize].idle { AT_ONCE } else { 0 });
    HOT[cpu as usize].store(&mut lab.vcpus[cpu as usize], Ordering::Relaxed);
    plugin.publish_all();
    find_registers(plugin);
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

fn find_registers(plugin: &Plugin) {
    const NAMES: [&CStr; 16] = [
        c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11", c"r12",
        c"r13", c"r14", c"r15",
    ];
    // SAFETY: called while a virtual CPU is initialised; the array holds `len` descriptors, whose handles are the same for
    // all virtual CPUs.
    unsafe {
        let array = sys::qemu_plugin_get_registers();
        let found = (*array).data.cast::<sys::qemu_plugin_reg_descriptor>();
        for i in 0..(*array).len as usize {
            let descriptor = *found.add(i);
            if let Some(number) = NAMES.iter().position(|&name| name == CStr::from_ptr(descriptor.name)) {
                (*plugin.registers.get()).handles[number] = descriptor.handle;
            }
        }
    }
}

unsafe extern "C" fn on_translation(_: sys::qemu_plugin_id_t, tb: *mut sys::qemu_plugin_tb) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let on = plugin.lab().on;
    // SAFETY: `tb` and its instructions are valid during this call; the ops handed over live until QEMU drops all blocks.
    unsafe {
        let count = sys::qemu_plugin_tb_n_insns(tb);
        count_block(plugin, tb, count as u64);
        let instructions: Vec<_> = (0..count).map(|i| sys::qemu_plugin_tb_get_insn(tb, i)).collect();
        let code: Vec<_> =
            instructions.iter().map(|&at| (sys::qemu_plugin_insn_vaddr(at), bytes(at))).collect();
        for (&at, (_, code)) in instructions.iter().zip(&code) {
            if let Some(special) = Special::of(code) {
                watch(at, special);
            }
        }
        if !on {
            return;
        }
        let ops = op::of_block(code.iter().map(|(pc, bytes)| (*pc, bytes.as_slice())));
        for (&at, op) in instructions.iter().zip(ops) {
            let Some(op) = op else { continue };
            let address = std::ptr::from_ref(op.as_ref()).cast_mut().cast();
            (*plugin.ops.get()).push(op);
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

/// Has QEMU count a block's instructions, and end turns. A block is the kernel's or a program's by where it lies.
///
/// # Safety
/// `tb` must be valid.
unsafe fn count_block(plugin: &Plugin, tb: *mut sys::qemu_plugin_tb, instructions: u64) {
    let entry = |offset| sys::qemu_plugin_u64 { score: plugin.scores, offset };
    let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
    use std::mem::offset_of;
    // SAFETY: the block is valid, and the entries are fields of `Score`.
    unsafe {
        let user = !Vcpu::is_kernel(sys::qemu_plugin_tb_vaddr(tb));
        let user = user.then_some(offset_of!(Score, user_instructions));
        for offset in [offset_of!(Score, instructions), offset_of!(Score, turn)].into_iter().chain(user) {
            sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, add, entry(offset), instructions);
        }
        sys::qemu_plugin_register_vcpu_tb_exec_cond_cb(
            tb,
            Some(on_turn_end),
            NO_REGISTERS,
            sys::qemu_plugin_cond::QEMU_PLUGIN_COND_GE,
            entry(offset_of!(Score, turn)),
            plugin.turn_length(),
            null_mut(),
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
    // SAFETY: QEMU copies as many bytes as there is room for.
    let copied = unsafe { sys::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(copied);
    bytes
}

unsafe extern "C" fn on_load(cpu: c_uint, info: sys::qemu_plugin_meminfo_t, address: u64, op: *mut c_void) {
    // SAFETY: the op that `on_translation` handed over.
    unsafe { on_access(cpu as usize, info, address, &*op.cast::<Op>(), false) }
}

unsafe extern "C" fn on_store(cpu: c_uint, info: sys::qemu_plugin_meminfo_t, address: u64, op: *mut c_void) {
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
                if found.is_null() || sys::qemu_plugin_hwaddr_is_io(found) {
                    return;
                }
                sys::qemu_plugin_hwaddr_phys_addr(found)
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

unsafe extern "C" fn on_turn_end(cpu: c_uint, _: *mut c_void) {
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

unsafe extern "C" fn on_halt(cpu: c_uint, _: *mut c_void) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    plugin.time(cpu as usize);
    SHARED[cpu as usize].idle.store(true, Ordering::Relaxed);
    SHARED[cpu as usize].set_turn(AT_ONCE);
}

unsafe extern "C" fn on_translations(cpu: c_uint, _: *mut c_void) {
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    plugin.lab().vcpus[cpu as usize].forget_all();
}

unsafe extern "C" fn on_address_space(cpu: c_uint, register: *mut c_void) {
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
unsafe extern "C" fn on_return(cpu: c_uint, _: *mut c_void) {
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

unsafe extern "C" fn on_mark(cpu: c_uint, _: *mut c_void) {
    const RAX: u8 = 0;
    let plugin = Plugin::get();
    let _alone = plugin.alone();
    let time = || plugin.guest_time(plugin.time(cpu as usize));
    let on = match plugin.register(RAX) {
        command::BEGIN => true,
        command::END => false,
        command::AGENT => return plugin.lab().is_agent(cpu as usize, time()),
        _ => return,
    };
    let executed = plugin.executed();
    if on == plugin.lab().has_begun() {
        return;
    }
    if on {
        plugin.lab().begin(time(), &executed);
    }
    let turned = plugin.lab().turn(on, &executed);
    plugin.publish_all();
    if !on {
        plugin.lab().end(time(), &executed);
    }
    plugin.lab().show(time(), &executed);
    if !turned {
        return;
    }
    // SAFETY: QEMU resets the plugin once no block runs.
    unsafe { sys::qemu_plugin_reset(plugin.id, Some(on_reset)) }
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
