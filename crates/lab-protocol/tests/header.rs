//! The C and C++ header.

use std::path::Path;
use std::process::Command;

#[test]
fn header_marks_compile_and_are_noops_outside_the_lab() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("marked.c"), folder.path().join("marked"));
    let text = "#include \"memtide_mark.h\"\nint main(void) { memtide_begin(); memtide_end(); return 7; }\n";
    std::fs::write(&source, text).expect("the program is written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let cc = ["-Wall", "-Wextra", "-Werror", "-std=c99", "-O2", "-I"];
    let compiled = Command::new("cc").args(cc).arg(include).arg(&source).arg("-o").arg(&program).status();
    assert!(compiled.expect("a C compiler").success());
    assert_eq!(Command::new(&program).status().expect("it runs").code(), Some(7));
    let code = std::fs::read(&program).expect("its code");
    for command in [1, 2] {
        let mark = [0xb8, command, 0, 0, 0, 0x66, 0x87, 0xdb];
        assert!(code.windows(8).any(|bytes| bytes == mark), "mark {command} is not in it");
    }
}
