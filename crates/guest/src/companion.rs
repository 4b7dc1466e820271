//! Background program.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use memtide_lab_protocol::agent::Companion;

/// Guest time limit until it is ready.
const LIMIT: Duration = Duration::from_secs(10);

/// Log of its output, in a folder that may not exist yet.
const FOLDER: &str = "/run";
const OUTPUT: &str = "/run/companion";

/// Starts it and waits until it is ready. It is killed with all other processes.
pub fn start(companion: &Companion) -> Result<(), String> {
    let program = &companion.program;
    let line = program.arguments.join(" ");
    let mut child = spawn(companion).map_err(|error| format!("{line} cannot be run: {error}"))?;
    let begin = Instant::now();
    while !companion.ready.exists() {
        let ended = child.try_wait().map_err(|error| format!("{line}: {error}"))?;
        let why = match ended {
            Some(status) => format!("ended with {status}"),
            None if begin.elapsed() > LIMIT => format!("was not ready after {} s", LIMIT.as_secs()),
            None => {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        let output = fs::read_to_string(OUTPUT).unwrap_or_default();
        return Err(format!("{line} {why}: {}", output.trim()));
    }
    Ok(())
}

fn spawn(companion: &Companion) -> std::io::Result<Child> {
    let program = &companion.program;
    fs::create_dir_all(FOLDER)?;
    let output = File::create(OUTPUT)?;
    let mut command = Command::new(&program.file);
    command.args(program.arguments.iter().skip(1));
    command.env_clear().envs(program.environment.iter().cloned()).current_dir(&program.folder);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()
}
