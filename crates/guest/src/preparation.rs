//! Programs to run before the program.

use std::fs;
use std::process::{Command, Stdio};

use memtide_lab_protocol::agent::{Preparation, Program};

/// Runs the programs and removes their files.
pub fn prepare(preparation: &Preparation) -> Result<(), String> {
    preparation.programs.iter().try_for_each(run)?;
    let folder = &preparation.folder;
    fs::remove_dir_all(folder).map_err(|error| format!("{} cannot be removed: {error}", folder.display()))
}

fn run(program: &Program) -> Result<(), String> {
    let mut command = Command::new(&program.file);
    command.args(program.arguments.iter().skip(1));
    command.env_clear().envs(program.environment.iter().cloned()).current_dir(&program.folder);
    let line = program.arguments.join(" ");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", program.file.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{line} ended with {}: {}", output.status, String::from_utf8_lossy(&text).trim()))
}
