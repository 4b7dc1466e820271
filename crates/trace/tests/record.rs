//! Real recordings of small programs.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use memtide_core::{Access, Mark, Then};
use memtide_trace::{
    RecordOptions, RecordSummary, ReplayOptions, Trace, TraceError, TraceInfo, Unrecordable, record,
};
use support::{Step, accesses, run};

/// The plugin, built; if programs cannot be recorded on this system, the test is recorded as not run.
fn plugin() -> Option<&'static Path> {
    for (tool, package) in [("qemu-x86_64", "qemu-user"), ("cc", "gcc")] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
            memtide_testing::not_run(&format!("{tool} is missing: apt-get install {package}"));
            return None;
        }
    }
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    let built = PLUGIN.get_or_init(|| {
        let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "memtide-recorder", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(build.unwrap().success());
        target.join("debug/libmemtide_recorder.so")
    });
    Some(built)
}

struct Recording {
    summary: RecordSummary,
    info: TraceInfo,
    done: BTreeMap<u32, Vec<Step>>,
}

/// Compiles a program, records it, and reads the trace.
fn recording(code: &str, change: impl FnOnce(&mut RecordOptions)) -> Option<Recording> {
    let plugin = plugin()?;
    let dir = tempfile::tempdir().unwrap();
    let (source, program, output) =
        (dir.path().join("program.c"), dir.path().join("program"), dir.path().join("trace"));
    fs::write(&source, format!("{COMMON}\n{code}")).unwrap();
    let compiled = Command::new("cc")
        .args(["-O1", "-fno-tree-vectorize", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.unwrap().success());
    let mut options = RecordOptions::new(&output, vec![program.into()]);
    options.plugin = Some(plugin.to_owned());
    change(&mut options);
    let summary = record(&options, &mut |_| ()).unwrap();
    let trace = Trace::open(&output).unwrap();
    let info = trace.info(&mut |_| true).unwrap();
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "nothing but the trace is left: {left:?}");
    let done = run(&mut trace.program(ReplayOptions::default()).unwrap()).unwrap();
    Some(Recording { summary, info, done })
}

impl Recording {
    /// Accesses to the array that the program mapped.
    fn of_array(&self) -> Vec<Access> {
        let array = self.array();
        let inside = |access: &Access| array.contains(&access.address.0);
        accesses(&self.done).into_iter().filter(inside).collect()
    }

    fn array(&self) -> Range<u64> {
        let array = self.done.values().flatten().find_map(|step| match step {
            Step::Then(Then::Map(mapping)) if mapping.bytes == ARRAY_BYTES => Some(mapping.start.0),
            _ => None,
        });
        let array = array.expect("the program maps its array");
        array..array + ARRAY_BYTES
    }
}

const ARRAY_BYTES: u64 = 3 << 20;

const COMMON: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <pthread.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <sys/wait.h>
#define BYTES (3 << 20)
#define COUNT (BYTES / 8)
static uint64_t *array(void) {
    return mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
"#;

fn share(accesses: &[Access], of: impl Fn(&Access) -> bool) -> f64 {
    accesses.iter().filter(|access| of(access)).count() as f64 / accesses.len() as f64
}

#[test]
fn dependences_of_chase_and_gups_differ() {
    let chase = "int main(void) {
        uint64_t *a = array(), i, at = 0;
        for (i = 0; i < COUNT; i++) a[i] = (uint64_t)&a[(i * 5 + 12347) % COUNT];
        uint64_t *p = a;
        for (i = 0; i < 100000; i++) p = (uint64_t *)*p;
        return p == 0;
    }";
    let Some(chase) = recording(chase, |_| ()) else { return };
    let loads: Vec<Access> = chase.of_array().into_iter().filter(|access| !access.write).collect();
    assert_eq!(loads.len(), 100_000);
    assert!(share(&loads, |access| access.producer == 1) > 0.999);

    let gups = "int main(void) {
        uint64_t *a = array(), i, x = 1;
        for (i = 0; i < 100000; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            a[x % COUNT] ^= x;
        }
        return 0;
    }";
    let gups = recording(gups, |_| ()).unwrap();
    let updates = gups.of_array();
    assert_eq!(updates.len(), 200_000);
    assert_eq!(share(&updates, |access| access.write), 0.5);
    assert_eq!(share(&updates, |access| access.producer == 0), 1.0);
}

/// b[a[i]]: the first load is independent; the second depends on it, through arithmetic in between.
#[test]
fn index_depends_on_its_load() {
    let code = "int main(void) {
        uint64_t *a = array(), i, sum = 0;
        for (i = 0; i < 10000; i++) sum += a[COUNT / 2 + (a[i] * 3 + i * 7919) % (COUNT / 2)];
        return sum & 1;
    }";
    let Some(recording) = recording(code, |_| ()) else { return };
    let loads = recording.of_array();
    assert_eq!(loads.len(), 20_000);
    let producers: Vec<u32> = loads.iter().map(|access| access.producer).collect();
    assert!(producers.chunks(2).all(|pair| pair == [0, 1]), "{:?}", &producers[..8]);
}

#[test]
fn wide_atomic_and_repeated_accesses_are_right() {
    let code = r#"
    static uint64_t *a;
    static void *add(void *unused) {
        for (int i = 0; i < 5000; i++) __atomic_fetch_add(a, 1, __ATOMIC_SEQ_CST);
        return unused;
    }
    int main(void) {
        a = array();
        pthread_t thread;
        pthread_create(&thread, 0, add, 0);
        add(0);
        pthread_join(thread, 0);
        if (*a != 10000) return 1;
        for (int i = 0; i < 1000; i++)
            _mm_storeu_si128((__m128i *)(a + 1024) + i, _mm_set1_epi8(i));
        void *from = a + 8192, *to = a + 16384 + 8192;
        uint64_t count = 100000;
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
        return 0;
    }"#;
    let Some(recording) = recording(code, |_| ()) else { return };
    assert!(recording.summary.status.success());
    let all = recording.of_array();
    let count = |size: u16, write: bool| {
        all.iter().filter(|access| (access.size, access.write) == (size, write)).count()
    };
    assert_eq!((count(8, false), count(8, true)), (10_001, 10_000), "an atomic add is a load and a store");
    assert_eq!(count(16, true), 1000, "an access of 16 bytes is one");
    assert_eq!((count(1, false), count(1, true)), (100_000, 100_000));
    let copied: u64 =
        all.iter().filter(|access| access.size == 1).map(|access| u64::from(access.instructions)).sum();
    assert!(copied < 100, "a repeated instruction is one instruction, not {copied}");
}

#[test]
fn non_temporal_stores_are_recorded_as_such() {
    let code = "int main(void) {
        uint64_t *a = array(), i;
        for (i = 0; i < 1000; i++) _mm_stream_si128((__m128i *)a + i, _mm_set1_epi8(i));
        for (i = 0; i < 500; i++) _mm_stream_si64((long long *)a + 8192 + i, i);
        for (i = 0; i < 10; i++)
            _mm_maskmoveu_si128(_mm_set1_epi8(i), _mm_set1_epi8(-1), (char *)(a + 16384 + 2 * i));
        _mm_sfence();
        for (i = 0; i < 700; i++) ((volatile uint64_t *)a)[32768 + i] = a[i];
        return 0;
    }";
    let Some(recording) = recording(code, |_| ()) else { return };
    assert!(recording.summary.status.success());
    let start = recording.array().start;
    let all = recording.of_array();
    let within = |from: u64, count: u64| {
        all.iter().filter(move |access| {
            let word = (access.address.0 - start) / 8;
            (from..from + count).contains(&word) && access.write
        })
    };
    for (from, count, bytes, size) in [(0, 2000, 16_000, 16), (8192, 500, 4000, 8)] {
        assert!(within(from, count).all(|access| access.non_temporal && access.size == size));
        assert_eq!(within(from, count).map(|access| u64::from(access.size)).sum::<u64>(), bytes);
    }
    assert!(within(16_384, 20).all(|access| access.non_temporal));
    assert_eq!(within(16_384, 20).map(|access| access.size).sum::<u16>(), 160);
    assert!(within(32_768, 700).count() == 700 && within(32_768, 700).all(|access| !access.non_temporal));
    assert!(all.iter().all(|access| access.write || !access.non_temporal));
    let past = all.iter().filter(|access| access.non_temporal).count() as u64;
    // The C library may have some of its own.
    assert!(recording.info.non_temporal_writes >= past);
}

#[test]
fn threads_and_processes_are_followed() {
    let code = "
    static void *work(void *at) {
        volatile uint64_t *a = at;
        for (int i = 0; i < 1000; i++) a[i] = i;
        return 0;
    }
    int main(void) {
        uint64_t *a = array();
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, a + (i << 10));
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        if (fork() == 0) { work(a + 4096); _exit(3); }
        int status;
        wait(&status);
        return WEXITSTATUS(status) + 4;
    }";
    let Some(recording) = recording(code, |_| ()) else { return };
    let summary = &recording.summary;
    assert_eq!(summary.status.code(), Some(7), "the program's own exit status");
    assert_eq!(summary.accesses_made, summary.totals.accesses, "all accesses were recorded");
    assert_eq!((recording.info.threads, recording.info.processes), (5, 2));
    assert_eq!(recording.of_array().len(), 4000);
    let forks = recording.done[&0].iter().filter(|step| matches!(step, Step::Then(Then::Fork(_)))).count();
    assert_eq!(forks, 1);
}

const COUNTING: &str = "int main(void) {
    volatile uint64_t *a = array();
    for (uint64_t i = 0; i < 300000; i++) a[i] = i;
    kill(getpid(), SIGKILL);
}";

#[test]
fn killed_program_leaves_a_complete_trace() {
    let Some(recording) = recording(COUNTING, |_| ()) else { return };
    assert!(!recording.summary.status.success());
    assert_eq!(recording.of_array().len(), 300_000);
}

#[test]
fn part_can_be_recorded() {
    let Some(recording) = recording(COUNTING, |options| {
        options.skip = 200_000;
        options.limit = 50_000;
        options.epoch_instructions = 10_000;
    }) else {
        return;
    };
    assert_eq!(recording.summary.totals.accesses, 50_000);
    assert!(recording.summary.accesses_made >= 300_000);
    let addresses: Vec<u64> = recording.of_array().iter().map(|access| access.address.0).collect();
    assert_eq!(addresses.len(), 50_000);
    assert!(addresses.windows(2).all(|pair| pair[1] == pair[0] + 8));
    let epochs = recording.info.epochs;
    assert!((10..30).contains(&epochs), "{epochs} epochs of some 3 instructions an access");
}

#[test]
fn unrecordable_programs_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let error = |program: &str, epoch_instructions| {
        let mut options = RecordOptions::new(dir.path().join("trace"), vec![program.into()]);
        options.epoch_instructions = epoch_instructions;
        record(&options, &mut |_| ()).expect_err(program)
    };
    let told = |program: &str, epoch_instructions| error(program, epoch_instructions).to_string();
    assert!(told("no-such-program", 100_000).contains("program not found"));
    let of_script = error(script.to_str().unwrap(), 100_000);
    assert!(
        matches!(
            &of_script,
            TraceError::Record { why: Unrecordable::Script { interpreter, path }, .. }
                if interpreter == "/bin/sh" && *path == script
        ),
        "{of_script:?}"
    );
    assert!(told("/etc/passwd", 100_000).contains("not an x86-64 Linux executable"));
    assert!(told("true", 1).contains("allowed are 10000 to 1000000"));
    let onto_a_folder = RecordOptions::new(dir.path(), vec!["true".into()]);
    assert!(record(&onto_a_folder, &mut |_| ()).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn marks_of_a_program_are_recorded_where_it_makes_them() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab-protocol/include/memtide_mark.h");
    let code = format!(
        "#include \"{}\"
        int main(void) {{
            volatile uint64_t *a = array(); uint64_t i;
            for (i = 0; i < 1000; i++) a[i] = i;
            memtide_warm_up();
            for (i = 0; i < 100; i++) a[i];
            for (i = 0; i < 2; i++) {{
                memtide_begin();
                a[7];
                memtide_end();
            }}
            a[8];
            return 0;
        }}",
        header.display()
    );
    let Some(recording) = recording(&code, |_| ()) else { return };
    assert_eq!(recording.info.regions, 2);
    let array = recording.array();
    let mut events = Vec::new();
    for step in &recording.done[&0] {
        match step {
            Step::Access(access) if array.contains(&access.address.0) => match events.last_mut() {
                Some((None, count)) => *count += 1,
                _ => events.push((None, 1)),
            },
            Step::Then(Then::Mark(mark)) => events.push((Some(*mark), 0)),
            _ => {}
        }
    }
    let region = [(Some(Mark::Begin), 0), (None, 1), (Some(Mark::End), 0)];
    let before = [(None, 1000), (Some(Mark::WarmUp), 0), (None, 100)];
    assert_eq!(events, [&before[..], &region, &region, &[(None, 1)]].concat());
}
