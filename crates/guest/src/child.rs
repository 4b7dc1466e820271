//! The program.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use memtide_lab_protocol::agent::{Ending, MemoryPolicy, RegionOfInterest, Task};
use memtide_lab_protocol::mark::{AGENT, BEGIN, END, mark};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use crate::counters;
use crate::ports::Ports;
use crate::sampler::Sampler;

/// Runs the program and kills its remaining descendants.
pub fn run(task: &Task, ports: &Ports) -> Result<Ending, String> {
    let mut command = command(task)?;
    let before = counters::now();
    let sampler = Sampler::start();
    mark(AGENT, 0);
    let started = Instant::now();
    let mut child =
        command.spawn().map_err(|error| format!("{} cannot be run: {error}", task.program.file.display()))?;
    // The command holds the guest's ends of the console.
    drop(command);
    let out = child.stdout.take().map(|from| pump(from, &ports.out));
    let err = child.stderr.take().map(|from| pump(from, &ports.err));
    let status = wait_for(Pid::from_child(&child));
    if task.region == RegionOfInterest::Program {
        mark(END, 0);
    }
    let guest_ns = started.elapsed().as_nanos() as u64;
    let counters = counters::between(&before, &counters::now());
    let samples = sampler.end();
    end_others();
    let bytes = |pump: Option<JoinHandle<u64>>| pump.map_or(0, |pump| pump.join().unwrap_or(0));
    let signal = status.terminating_signal().map(|signal| signal as u8);
    let code = status.exit_status().unwrap_or(0) as u8;
    Ok(Ending {
        status: signal.map_or(code, |signal| 128 + signal),
        signal,
        guest_ns,
        out_bytes: bytes(out),
        err_bytes: bytes(err),
        counters,
        samples,
    })
}

#[allow(unsafe_code, reason = "what happens between fork and exec")]
fn command(task: &Task) -> Result<Command, String> {
    let program = &task.program;
    let mut command = Command::new(&program.file);
    command.arg0(program.arguments.first().map_or("", String::as_str)).args(program.arguments.iter().skip(1));
    command.env_clear().envs(program.environment.iter().cloned()).current_dir(&program.folder);
    if task.interactive {
        let console = || OpenOptions::new().read(true).write(true).open("/dev/console");
        let console = || console().map_err(|error| format!("/dev/console: {error}"));
        command.stdin(console()?).stdout(console()?).stderr(console()?);
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let (policy, region, interactive) = (task.policy, task.region, task.interactive);
    let prepare = move || {
        if interactive {
            take_console()?;
        }
        policy.map_or(Ok(()), set_policy)?;
        if region == RegionOfInterest::Program {
            mark(BEGIN, 0);
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes only system calls and a mark, and uses no lock and no heap.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

/// Starts a session with standard input as its controlling terminal, so that Ctrl-C reaches the program.
#[allow(unsafe_code, reason = "no safe crate makes a terminal one's own")]
fn take_console() -> io::Result<()> {
    rustix::process::setsid()?;
    // SAFETY: the request takes a number and accesses no memory of ours.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 1) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets the memory policy of this process.
#[allow(unsafe_code, reason = "a system call without a safe wrapper")]
pub fn set_policy(policy: MemoryPolicy) -> io::Result<()> {
    let bits = u64::BITS as usize + 1;
    // SAFETY: the kernel reads 64 bits of the mask, which outlives the call.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, policy.mode, &raw const policy.nodes, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Copies the program's output to a port.
fn pump(mut from: impl Read + Send + 'static, port: &File) -> JoinHandle<u64> {
    let port = port.try_clone();
    thread::spawn(move || {
        let Ok(mut port) = port else { return 0 };
        let mut buffer = vec![0; 64 << 10];
        let mut bytes = 0;
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return bytes,
                Ok(length) if port.write_all(&buffer[..length]).is_ok() => bytes += length as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return bytes,
            }
        }
    })
}

/// Waits for a process; as init, also reaps orphans.
fn wait_for(pid: Pid) -> WaitStatus {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == pid => return status,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => unreachable!("the program is a child of this process: {error}"),
        }
    }
}

/// Kills all other processes, which may hold the program's output open.
fn end_others() {
    if let Some(init) = Pid::from_raw(1) {
        // Fails only if there is no process.
        let _ = kill_process_group(init, Signal::KILL);
    }
}
