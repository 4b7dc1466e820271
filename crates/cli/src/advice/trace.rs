//! Errors of traces and of recording, with advice.

use memtide_trace::{TraceError, Unrecordable};

/// Why a trace cannot be read, written, recorded or imported.
pub fn message(error: &TraceError) -> String {
    match error {
        TraceError::Foreign { .. } => format!(
            "{error}; make one with `memtide record -o FILE -- PROGRAM`, or convert one with \
             `memtide trace import`"
        ),
        TraceError::NoProgram => format!("{error}; name one: memtide record -o FILE -- PROGRAM ARGS"),
        TraceError::Record { program, why } => format!("cannot record {program}: {}", unrecordable(why)),
        _ => error.to_string(),
    }
}

/// Why a program, or any program, cannot be recorded.
pub fn unrecordable(why: &Unrecordable) -> String {
    match why {
        Unrecordable::Script { interpreter, path } => {
            let path = path.display();
            format!("{why}; record what runs it: memtide record -o FILE -- {interpreter} {path}")
        }
        Unrecordable::PluginUnreadable { plugin, source } => {
            format!("--plugin {}: {source}", plugin.display())
        }
        Unrecordable::NotAPlugin { plugin, recorder } => format!(
            "--plugin {}: not a plugin for QEMU; name {recorder}, or leave --plugin out if that is \
             beside memtide",
            plugin.display()
        ),
        Unrecordable::NoPlugin { .. } => {
            format!("{why}; build it: cargo build --release -p memtide-recorder")
        }
        _ => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use memtide_trace::Foreign;

    use super::*;

    fn of(why: Unrecordable) -> String {
        message(&TraceError::Record { program: "prog".to_owned(), why })
    }

    #[test]
    fn foreign_file_names_the_commands_that_make_traces() {
        for (found, what) in [
            (Foreign::Empty, "an empty file, so not a memtide trace"),
            (Foreign::NotParquet, "not a Parquet file, so not a memtide trace"),
            (Foreign::Parquet, "a Parquet file, but not a memtide trace"),
        ] {
            assert_eq!(
                message(&TraceError::Foreign { path: "x".into(), found }),
                format!(
                    "x: {what}; make one with `memtide record -o FILE -- PROGRAM`, or convert one with \
                     `memtide trace import`"
                )
            );
        }
    }

    #[test]
    fn unrecordable_program_names_the_command_or_option_to_change() {
        let script = Unrecordable::Script { interpreter: "/bin/sh -e".to_owned(), path: "./s".into() };
        assert_eq!(
            of(script),
            "cannot record prog: a script; record what runs it: memtide record -o FILE -- /bin/sh -e ./s"
        );
        let recorder = "recorder.so";
        assert_eq!(
            of(Unrecordable::NotAPlugin { plugin: "/bin/true".into(), recorder }),
            "cannot record prog: --plugin /bin/true: not a plugin for QEMU; name recorder.so, or leave \
             --plugin out if that is beside memtide"
        );
        assert_eq!(
            of(Unrecordable::NoPlugin { recorder }),
            "cannot record prog: the recorder plugin recorder.so is not beside memtide; build it: cargo \
             build --release -p memtide-recorder"
        );
        assert!(
            message(&TraceError::NoProgram).ends_with("name one: memtide record -o FILE -- PROGRAM ARGS")
        );
    }
}
