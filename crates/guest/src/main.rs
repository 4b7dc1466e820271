//! First process of the lab's virtual machines: prepares the guest, runs the program and reports to the lab.

mod child;
mod companion;
mod counters;
mod cxl;
mod fragment_memory;
mod modules;
mod mounts;
mod ports;
mod preparation;
mod sampler;
mod shared;
mod srat;
mod tmpfs_bind;

use std::fs;
use std::io::{self, Write};
use std::process::exit;
use std::time::Duration;

use memtide_lab_protocol::agent::{Hello, Message, TASK_FILE, Task};

use ports::Ports;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        // Standard error may be closed.
        let _ = writeln!(io::stdout(), "{}", memtide_lab_protocol::version::agent_version());
        return;
    }
    if std::process::id() != 1 {
        let what = "init of the lab's virtual machines; started by `memtide lab run`";
        let _ = writeln!(io::stderr(), "memtide-guest: {what}");
        exit(2);
    }
    if let Err(error) = mounts::mount() {
        end(&format!("memtide-guest: {error}"));
    }
    let mut ports = match Ports::open() {
        Ok(ports) => ports,
        Err(error) => end(&format!("memtide-guest: {error}")),
    };
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    ports.send(&Message::Hello(Hello { kernel, domains: srat::domains() }));
    let message = match task().and_then(|task| child::run(&task, &ports)) {
        Ok(ending) => Message::Ended(Box::new(ending)),
        Err(what) => Message::Refused(what),
    };
    ports.send(&message);
    // The lab stops the machine after it has read everything.
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// The kernel panics when init exits, and the lab prints the tail of the console.
fn end(why: &str) -> ! {
    let _ = fs::write("/dev/console", format!("{why}\n"));
    exit(1)
}

fn task() -> Result<Task, String> {
    let text = fs::read_to_string(TASK_FILE).map_err(|error| format!("{TASK_FILE}: {error}"))?;
    let task = Task::from_json(text.as_bytes()).map_err(|error| format!("{TASK_FILE}: {error}"))?;
    shared::make_devices(&task.shared)?;
    cxl::make_nodes(&task.expanders)?;
    for write in &task.writes {
        fs::write(&write.file, &write.text).map_err(|error| {
            format!("{:?} cannot be written to {}: {error}", write.text, write.file.display())
        })?;
    }
    task.preparation.as_ref().map_or(Ok(()), preparation::prepare)?;
    task.tmpfs_bind.as_ref().map_or(Ok(()), tmpfs_bind::bind)?;
    task.fragment_memory.map_or(Ok(()), fragment_memory::fragment)?;
    task.companion.as_ref().map_or(Ok(()), companion::start)?;
    Ok(task)
}
