use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;

fn memory(nodes: usize) -> Vec<AtomicU64> {
    (0..bytes(nodes) / 8).map(|_| AtomicU64::new(0)).collect()
}

fn read(memory: &[AtomicU64]) -> Result<Snapshot, ReadError> {
    let load = |words: Range<usize>| memory[words].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    super::read(memory.len(), |words| Ok(load(words)))
}

/// A process whose figures all derive from `n`.
fn process(n: u64, who: Who) -> Process {
    let node = |node| NodeCounts { reads: n, prefetches: n + 1, writes: node, latency: Time(n * 1000) };
    let counts = Counts {
        instructions: 10 * n,
        user_instructions: 9 * n,
        accesses: 3 * n,
        llc_misses: n,
        page_walks: n,
        nodes: vec![node(5), node(6)],
    };
    Process { root: n << 12, name: format!("process-{n}"), who, counts }
}

#[test]
fn written_counters_read_back_with_sum_first() {
    let memory = memory(2);
    let mut writer = Writer::new(&memory, &[0, 2]);
    assert_eq!(read(&memory), Err(ReadError::Foreign), "before anything is written");
    let processes = [process(1, Who::Kernel), process(2, Who::Agent), process(3, Who::Program)];
    writer.write(77, true, &processes);
    let seen = read(&memory).expect("counters");
    assert_eq!((seen.guest_ns, seen.on, &seen.nodes[..]), (77, true, &[0, 2][..]));
    assert_eq!(seen.processes, processes);
    assert_eq!(seen.total.instructions, 60);
    assert_eq!(seen.total.nodes[1].writes, 18);
}

/// The table in docs/lab.md, which other programs rely on.
#[test]
fn word_offsets_match_docs() {
    let memory = memory(2);
    Writer::new(&memory, &[0, 2]).write(77, true, &[process(7, Who::Program)]);
    let words: Vec<u64> = memory.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))).collect();
    assert_eq!(&words[0].to_le_bytes(), b"memtide\0");
    assert_eq!(words[1..10], [1, 2, 77, 1, 2, 2, 0, 0, 2]);
    let (sum, process) = (&words[10..30], &words[30..50]);
    assert_eq!(process[..2], [7 << 12, 3]);
    assert_eq!(&process[2].to_le_bytes(), b"process-");
    assert_eq!(process[3..12], [u64::from(b'7'), 0, 0, 70, 63, 21, 7, 7, 0]);
    assert_eq!(process[12..], [7, 8, 5, 7000, 7, 8, 6, 7000]);
    assert_eq!((&sum[..6], &sum[6..]), (&[0; 6][..], &process[6..]));
    assert_eq!(bytes(2), 1 << 16, "257 records of 160 bytes");
}

#[test]
fn long_name_is_cut_at_char_boundary() {
    let memory = memory(2);
    let name = "a".repeat(30) + "\u{e9}";
    let process = Process { name, ..process(1, Who::Program) };
    Writer::new(&memory, &[0, 1]).write(1, true, &[process]);
    assert_eq!(read(&memory).expect("counters").processes[0].name, "a".repeat(30));
}

#[test]
fn reader_never_sees_torn_write() {
    let memory = memory(2);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut writer = Writer::new(&memory, &[0, 1]);
        writer.write(0, true, &[process(0, Who::Program), process(0, Who::Program)]);
        let until = &ended;
        scope.spawn(move || {
            let mut n = 0;
            while !until.load(Ordering::Relaxed) {
                n += 1;
                writer.write(n, true, &[process(n, Who::Program), process(n, Who::Program)]);
            }
        });
        let (mut seen, mut last) = (0, 0);
        while seen < 2000 || last < 2000 {
            match read(&memory) {
                Ok(snapshot) => {
                    let n = snapshot.guest_ns;
                    assert_eq!(snapshot.processes, [process(n, Who::Program), process(n, Who::Program)]);
                    assert!(n >= last, "time goes back");
                    (seen, last) = (seen + 1, n);
                }
                Err(ReadError::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn stuck_writer_and_other_layout_are_errors() {
    let memory = memory(1);
    Writer::new(&memory, &[0]).write(1, false, &[]);
    memory[1].store(2u64.to_le(), Ordering::Relaxed);
    assert_eq!(read(&memory), Err(ReadError::Version(2)));
    memory[SEQUENCE].store(1u64.to_le(), Ordering::Relaxed);
    assert_eq!(read(&memory), Err(ReadError::Busy));
}

#[test]
fn foreign_writes_do_not_affect_writer() {
    let memory = memory(2);
    let mut writer = Writer::new(&memory, &[0, 1]);
    writer.write(1, true, &[process(1, Who::Program)]);
    memory.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    writer.write(2, true, &[process(2, Who::Program)]);
    let seen = read(&memory).expect("counters");
    assert_eq!((seen.guest_ns, seen.processes), (2, vec![process(2, Who::Program)]));
}

proptest! {
    /// Any content: reading terminates and stays in bounds.
    #[test]
    fn any_memory_is_read_or_refused(
        words in prop::collection::vec(prop_oneof![0u64..300, any::<u64>()], 0..200),
        headed: bool,
    ) {
        let mut words = words;
        for (word, value) in words.iter_mut().zip([MAGIC, COUNTERS_LAYOUT, 2]).filter(|_| headed) {
            *word = value;
        }
        let memory: Vec<AtomicU64> = words.into_iter().map(|word| AtomicU64::new(word.to_le())).collect();
        if let Ok(seen) = read(&memory) {
            prop_assert!(seen.processes.len() <= PROCESSES && seen.nodes.len() <= NODES);
        }
    }
}
