//! QEMU's callbacks. The only module that uses its plugin API.
//!
//! Built on API version 1 (QEMU 6 to 8). Later versions kept every function used here but one, which
//! [`bytes`] handles, and refuse a plugin that names version 1, so [`qemu_plugin_version`] is chosen when the
//! plugin is loaded.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use memtide_dataflow::{self as dataflow, Block, Op};
use memtide_recording::control::Word;
use memtide_recording::{Mark, Record};
use qemu_plugin_sys as sys;

use crate::calls::{Call, Next};
use crate::files::Control;
use crate::thread::Thread;

/// The API version that the plugin claims.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks this name up")]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // SAFETY: a look-up by name in the process that loads the plugin; the result is only compared.
    let scoreboards = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_scoreboard_new".as_ptr()) };
    if !scoreboards.is_null() {
        qemu_plugin_version.store(2, Ordering::Relaxed);
    }
}

/// Maximum number of concurrent recorded threads (QEMU reuses thread numbers); others are not recorded.
const MAX_CPUS: usize = 1 << 16;

struct Cpu {
    thread: AtomicPtr<Thread>,
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu { thread: AtomicPtr::new(null_mut()) } }; MAX_CPUS];

struct Recorder {
    dir: PathBuf,
    control: Control,
    /// The API version of the running QEMU.
    api: c_int,
}

static RECORDER: OnceLock<Recorder> = OnceLock::new();

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
    let (api, arguments) = unsafe {
        let arguments =
            (0..argc as usize).map(|i| CStr::from_ptr(*argv.add(i)).to_string_lossy().into_owned());
        ((*info).version.cur, arguments.collect::<Vec<_>>())
    };
    let Some(dir) = arguments.iter().find_map(|argument| argument.strip_prefix("dir=")) else {
        eprintln!("memtide recorder: the argument dir=DIR is missing; use `memtide record`");
        return -1;
    };
    match Control::open(dir.as_ref()) {
        Ok(control) => RECORDER.get_or_init(|| Recorder { dir: dir.into(), control, api }),
        Err(error) => {
            eprintln!("memtide recorder: {dir}: {error}");
            return -1;
        }
    };
    // SAFETY: registering callbacks that have the types QEMU asks for.
    unsafe {
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_thread_end));
        sys::qemu_plugin_register_vcpu_exit_cb(id, Some(on_thread_end));
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_translation));
        sys::qemu_plugin_register_vcpu_syscall_cb(id, Some(on_call));
        sys::qemu_plugin_register_vcpu_syscall_ret_cb(id, Some(on_return));
        sys::qemu_plugin_register_atexit_cb(id, Some(on_exit), null_mut());
    }
    0
}

/// The calling thread's state, if it is recorded.
fn thread(cpu: c_uint) -> Option<&'static mut Thread> {
    let thread = CPUS.get(cpu as usize)?.thread.load(Ordering::Relaxed);
    // SAFETY: made by `begin` from a box; QEMU calls back for a CPU on that CPU's own thread only, and no
    // callback keeps the reference.
    unsafe { thread.as_mut() }
}

/// Starts the calling thread's stream.
#[cold]
fn begin(cpu: c_uint) -> Option<&'static mut Thread> {
    let recorder = RECORDER.get().filter(|recorder| recorder.control.get(Word::Failure) == 0)?;
    let slot = CPUS.get(cpu as usize)?;
    match Thread::begin(&recorder.dir, &recorder.control) {
        Ok(thread) => slot.thread.store(Box::into_raw(Box::new(thread)), Ordering::Relaxed),
        Err(error) => recorder.control.fail(&error),
    }
    thread(cpu)
}

/// Drops the state of the thread that had this number.
fn forget(cpu: c_uint) {
    if let Some(slot) = CPUS.get(cpu as usize) {
        let thread = slot.thread.swap(null_mut(), Ordering::Relaxed);
        if !thread.is_null() {
            // SAFETY: made by `begin` from a box, and unreachable since the swap.
            let mut thread = unsafe { Box::from_raw(thread) };
            thread.leave();
        }
    }
}

unsafe extern "C" fn on_thread_end(_: sys::qemu_plugin_id_t, cpu: c_uint) {
    forget(cpu);
}

unsafe extern "C" fn on_exit(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    for slot in &CPUS {
        // SAFETY: as in `thread`; the program has ended.
        if let Some(thread) = unsafe { slot.thread.load(Ordering::Relaxed).as_mut() } {
            thread.leave();
        }
    }
}

unsafe extern "C" fn on_translation(_: sys::qemu_plugin_id_t, tb: *mut sys::qemu_plugin_tb) {
    // SAFETY: `tb` and its instructions are valid during this call; the userdata handed over is leaked,
    // because QEMU does not report when it discards a block.
    unsafe {
        let count = sys::qemu_plugin_tb_n_insns(tb);
        let instructions: Vec<_> = (0..count).map(|i| sys::qemu_plugin_tb_get_insn(tb, i)).collect();
        let code: Vec<_> =
            instructions.iter().map(|&at| (sys::qemu_plugin_insn_vaddr(at), bytes(at))).collect();
        let (block, ops) = dataflow::analyse(code.iter().map(|(pc, bytes)| (*pc, bytes.as_slice())));
        let block: *mut Block = Box::into_raw(Box::new(block));
        let flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;
        sys::qemu_plugin_register_vcpu_tb_exec_cb(tb, Some(on_block), flags, block.cast());
        for (&at, op) in instructions.iter().zip(ops) {
            if let Some(op) = op {
                let op: *mut Op = Box::into_raw(Box::new(op));
                let kinds = sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_RW;
                sys::qemu_plugin_register_vcpu_mem_cb(at, Some(on_access), flags, kinds, op.cast());
            }
        }
        for (position, command) in dataflow::marks(code.iter().map(|(pc, bytes)| (*pc, bytes.as_slice()))) {
            if Mark::from_number(command).is_some() {
                let command = null_mut::<c_void>().wrapping_byte_add(command as usize);
                let at = instructions[position];
                sys::qemu_plugin_register_vcpu_insn_exec_cb(at, Some(on_mark), flags, command);
            }
        }
    }
}

/// An instruction's bytes. From API version 3 on, QEMU copies them instead of giving a pointer.
///
/// # Safety
/// `instruction` must be valid.
unsafe fn bytes(instruction: *mut sys::qemu_plugin_insn) -> Vec<u8> {
    type Copy = unsafe extern "C" fn(*const sys::qemu_plugin_insn, *mut c_void, usize) -> usize;
    // SAFETY: either way the function has the type that this API version gives it.
    unsafe {
        let size = sys::qemu_plugin_insn_size(instruction);
        if RECORDER.get().is_some_and(|recorder| recorder.api >= 3) {
            let copy: Copy = std::mem::transmute(sys::qemu_plugin_insn_data as *const ());
            let mut bytes = vec![0; size];
            let copied = copy(instruction, bytes.as_mut_ptr().cast(), size);
            bytes.truncate(copied);
            bytes
        } else {
            std::slice::from_raw_parts(sys::qemu_plugin_insn_data(instruction).cast::<u8>(), size).to_vec()
        }
    }
}

unsafe extern "C" fn on_block(cpu: c_uint, block: *mut c_void) {
    if let Some(thread) = thread(cpu).or_else(|| begin(cpu)) {
        // SAFETY: the userdata that `on_translation` leaked.
        thread.block(unsafe { &*block.cast::<Block>() });
    }
}

unsafe extern "C" fn on_mark(cpu: c_uint, command: *mut c_void) {
    if let (Some(thread), Some(mark)) = (thread(cpu), Mark::from_number(command.addr() as u64)) {
        thread.event(&Record::Mark(mark));
    }
}

unsafe extern "C" fn on_access(cpu: c_uint, info: sys::qemu_plugin_meminfo_t, address: u64, op: *mut c_void) {
    if let Some(thread) = thread(cpu) {
        // SAFETY: the userdata that `on_translation` leaked, and an `info` from QEMU.
        let (op, size, write) = unsafe {
            let size = 1 << sys::qemu_plugin_mem_size_shift(info);
            (&*op.cast::<Op>(), size, sys::qemu_plugin_mem_is_store(info))
        };
        thread.access(op, address, size, write);
    }
}

unsafe extern "C" fn on_call(
    _: sys::qemu_plugin_id_t,
    cpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _: u64,
    _: u64,
) {
    let Some(thread) = thread(cpu) else { return };
    thread.call = Call { number, arguments: [a1, a2, a3, a4, a5, a6] };
    thread.flush();
    match thread.call.next() {
        Next::Same => {}
        Next::Exec => thread.event(&Record::Exec),
        Next::End => forget(cpu),
    }
}

unsafe extern "C" fn on_return(_: sys::qemu_plugin_id_t, cpu: c_uint, _: i64, result: i64) {
    let Some(thread) = thread(cpu) else { return };
    let call = thread.call;
    if call.is_new_process(result) {
        // The other threads and their windows belong to the parent.
        CPUS.iter().for_each(|slot| slot.thread.store(null_mut(), Ordering::Relaxed));
        begin(cpu);
        return;
    }
    for event in call.events(result) {
        thread.event(&event);
    }
    thread.report();
}
