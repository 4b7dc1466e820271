//! Valgrind's lackey: `I address,size` is an instruction; ` L`, ` S` and ` M` (load and store) are its
//! accesses.

use std::io::BufRead;
use std::path::Path;

use super::Importer;
use crate::{Kind, Row, TraceError};

const EXPECTED: &str = "no line of lackey's (I, L, S or M, then address,size); \
    keep the program's own output apart: valgrind --tool=lackey --trace-mem=yes --log-file=FILE PROGRAM";

pub(super) fn read(mut source: impl BufRead, path: &Path, importer: &mut Importer) -> Result<(), TraceError> {
    let mut text = Vec::new();
    let mut line = 0;
    let (mut instructions, mut pc) = (0, 0);
    loop {
        text.clear();
        line += 1;
        let fault = |what: String| TraceError::Import { path: path.to_owned(), line, what };
        if source.read_until(b'\n', &mut text).map_err(TraceError::io(path, "read it"))? == 0 {
            return Ok(());
        }
        let text = text.trim_ascii();
        // Valgrind's own messages.
        if text.is_empty() || text.starts_with(b"==") || text.starts_with(b"--") {
            continue;
        }
        let (kind, address, size) = parse(text).ok_or_else(|| fault(EXPECTED.to_owned()))?;
        let row = Row { address, size, pc, ..Row::event(0, Kind::Access, instructions) };
        if kind == b'I' {
            instructions += 1;
            pc = address;
        }
        if kind == b'L' || kind == b'M' {
            importer.access(row.clone())?.map_err(&fault)?;
        }
        if kind == b'S' || kind == b'M' {
            importer.access(Row { write: true, ..row })?.map_err(&fault)?;
        }
    }
}

fn parse(text: &[u8]) -> Option<(u8, u64, u64)> {
    let text = str::from_utf8(text).ok()?;
    let (kind, rest) = text.split_once(' ')?;
    let (address, size) = rest.trim_start().split_once(',')?;
    let kind = *kind.as_bytes().first().filter(|kind| kind.is_ascii() && b"ILSM".contains(kind))?;
    Some((kind, u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
}
