use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use memtide_core::epoch::{Host, Limits, PolicyRunner, Watcher};
use memtide_core::machine::bundled;
use memtide_core::policy::{
    Completion, Event, HintFault, Migration, NodeView, Outcome, Plan, Planned, Refusal, Region, TaskView,
    Traffic, View,
};
use memtide_core::{CpuId, Machine, NodeId, PageSize, TaskId, ThreadId, Time, Vpn};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::faults::Faults;
use super::reader::{RATIO_MAX, RECORD_MAX};
use super::record::{Epoch, EventEntry, MOVES_MAX, Record};
use super::replay::{ReplayError, Replayed, replay};
use super::runs::PlanEntry;
use super::statuses::statuses;
use super::writer::{Journal, check_owner};
use super::{Head, reader::Reader};
use crate::policy::migration;
use crate::status::Status;

const POLICY: &str = "hot-cold:cold_epochs=1:pages=2000";

fn machine() -> Machine {
    bundled::machine("hinuma").expect("a bundled machine").expect("a sound one")
}

const BY_FAULTS: &str = "bw-migration:threshold=1000";

/// Regions with random accesses, and hint faults on some of their pages; some moves fail.
struct Bench {
    draws: Xoshiro256PlusPlus,
    now: Time,
    nodes: Vec<u8>,
    hint_faults: bool,
    done: Vec<Completion>,
}

impl Bench {
    fn new(policy: &dyn Migration) -> Bench {
        let (draws, hint_faults) = (Xoshiro256PlusPlus::seed_from_u64(1), policy.sensors().hint_faults());
        Bench { draws, now: Time::ZERO, nodes: vec![1; 40], hint_faults, done: Vec::new() }
    }

    fn fault(&self, at: usize, page: u64) -> Event {
        Event::HintFault(HintFault {
            time: self.now + Time(at as u64 * 1000 + page),
            task: TaskId(7 + at as u32 / 20),
            thread: ThreadId(1),
            // Threads change sockets now and then.
            cpu: CpuId(8 * (self.now.0 / Time::from_ms(6000).0 % 2) as u16),
            page: Vpn(at as u64 * 1000 + page),
            size: PageSize::Base,
            node: NodeId(self.nodes[at]),
            write: false,
            pass: 0,
            idle: None,
        })
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws.next_u64() % below
    }
}

impl Host for Bench {
    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        self.now += Time::from_ms(2000);
        view.time = self.now;
        if self.hint_faults {
            let pages = (0..self.nodes.len()).flat_map(|at| (0..8).map(move |page| (at, page)));
            events.extend(pages.map(|(at, page)| self.fault(at, page)));
        }
        for at in 0..self.nodes.len() {
            let (task, size) = (TaskId(7 + at as u32 / 20), PageSize::Base);
            let (start, node) = (Vpn(at as u64 * 1000), NodeId(self.nodes[at]));
            let (pages, reads) = (1 + self.draw(400), (self.draw(3) * 10) as u32);
            view.regions.push(Region { task, start, pages, size, node, reads, writes: 0, age: 500 });
        }
        let node = |node| NodeView {
            node: NodeId(node),
            pages: 100_000,
            free_pages: 50_000,
            per_cpu_pages: 7,
            watermarks: None,
            traffic: Some(Traffic { read_bytes: 7, written_bytes: 5 }),
            loaded_latency: None,
        };
        view.nodes = vec![node(0), node(1)];
    }

    fn act(&mut self, actions: &[Planned]) {
        for planned in actions {
            let [wanted] = planned.action.moves() else { panic!("{planned:?} is no move") };
            self.nodes[(wanted.page.0 / 1000) as usize] = wanted.to.0;
            let busy = self.draw(50) == 0;
            let outcome = if busy { Outcome::Refused(Refusal::Busy) } else { Outcome::MADE };
            self.done.push(Completion { time: self.now, planned: planned.clone(), outcome });
        }
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}

fn head(text: &str, policy: &dyn Migration) -> Head {
    Head::new(text, machine().to_toml(), policy.state())
}

/// Runs a fake daemon for this many epochs, with a journal of this size.
fn recorded(path: &Path, limit_bytes: u64, epochs: usize) {
    recorded_by(POLICY, path, limit_bytes, epochs);
}

fn recorded_by(text: &str, path: &Path, limit_bytes: u64, epochs: usize) {
    let policy = migration(text, &machine()).expect("a policy");
    let mut journal = Journal::open(path, limit_bytes, head(text, policy.as_ref())).expect("a journal");
    let mut bench = Bench::new(policy.as_ref());
    let mut runner = PolicyRunner::new(policy, Limits::default());
    for _ in 0..epochs {
        if journal.must_rotate() {
            journal.begin(head(text, runner.policy()));
        }
        runner.epoch(&mut bench, &mut journal);
    }
    assert_eq!(journal.take_trouble(), None);
}

fn counts(replayed: &Replayed) -> (u64, u64, u64) {
    let sum = |of: fn(&super::replay::Part) -> u64| replayed.parts.iter().map(of).sum();
    (sum(|part| part.epochs), sum(|part| part.planned_pages), sum(|part| part.differing))
}

fn small() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    recorded(&path, 1 << 30, 5);
    fs::read(path).expect("a journal")
}

#[test]
fn same_policy_decides_the_same_and_another_differs() {
    let journal = small();
    let same = replay(&journal, None).expect("a journal");
    let (epochs, pages, differing) = counts(&same);
    assert!(epochs == 5 && pages > 1000 && differing == 0, "{same:?}");
    assert_eq!((same.torn_bytes, same.difference, same.parts[0].recorded_pages), (0, None, pages));
    let other = replay(&journal, Some("hot-cold:pages=100")).expect("a journal");
    let (_, fewer, differing) = counts(&other);
    assert!(fewer < pages && differing > 3, "{other:?}");
    assert!(
        other.difference.as_ref().is_some_and(|described| described.contains(": recorded ")),
        "{other:?}"
    );
    for (policy, says) in [("anb", "in the kernel"), ("bw-migration", "does not contain")] {
        let refused = replay(&journal, Some(policy)).expect_err("it cannot be asked");
        assert!(matches!(&refused, ReplayError::Policy(why) if why.contains(says)), "{refused}");
    }
}

#[test]
fn statuses_of_a_journal_count_its_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    recorded(&path, 1 << 30, 50);
    let statuses = statuses(&fs::read(path).expect("a journal")).expect("a journal");
    assert_eq!(statuses.iter().map(|status| status.epochs).collect::<Vec<_>>(), (1..=50).collect::<Vec<_>>());
    assert!(statuses.is_sorted_by(|a, b| a.uptime_s < b.uptime_s));
    let moved = |status: &Status| status.moved.iter().map(|(.., pages)| pages).sum::<u64>();
    let last = &statuses[49];
    assert!(statuses.is_sorted_by_key(moved) && moved(last) > 1000, "{last:?}");
    let newest = &last.recent[0];
    assert!(newest.seconds_ago < 10.0 && newest.pages > 0, "{newest:?}");
    assert_eq!(last.nodes.iter().map(|node| node.tier).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn long_journal_has_fewer_statuses_over_all_of_it() {
    let epoch = Epoch::new(&[], &empty_nodes(1000), &Plan::default());
    let statuses = statuses(&repeated(POLICY, &machine(), epoch, 5000)).expect("a journal");
    let epochs: Vec<u64> = statuses.iter().map(|status| status.epochs).collect();
    assert_eq!((epochs[0], epochs.len(), epochs.last()), (2, 2500, Some(&5000)));
}

#[test]
fn hint_faults_and_their_policy_state_are_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    recorded_by(BY_FAULTS, &path, 1 << 30, 4);
    recorded_by(BY_FAULTS, &path, 40_000, 40);
    let journal = fs::read(&path).expect("a journal");
    let (epochs, pages, differing) = counts(&replay(&journal, None).expect("a journal"));
    assert!(
        epochs > 4 && pages > 100 && differing == 0,
        "{epochs} epochs, {pages} pages, {differing} differ"
    );
}

#[test]
fn rotated_journal_replays_from_saved_policy_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let bound = 20_000;
    recorded(&path, bound, 200);
    let files = [Journal::older(&path), path].map(|path| fs::read(path).expect("a file"));
    let bytes: usize = files.iter().map(Vec::len).sum();
    assert!(bytes as u64 <= bound + 4096, "{bytes}");
    for file in &files {
        let replayed = replay(file, None).expect("a journal");
        let (epochs, _, differing) = counts(&replayed);
        assert!((2..150).contains(&epochs) && differing == 0, "{replayed:?}");
    }
    let whole = replay(&files[0], None).map(|replayed| counts(&replayed));
    let fresh = replay(&files[0], Some(POLICY)).map(|replayed| counts(&replayed));
    assert_ne!(whole, fresh, "the state at its head makes a difference");
}

#[test]
fn cut_journal_reads_to_last_whole_epoch_and_continues() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let journal = small();
    let mut ends = vec![0];
    let mut reader = Reader::new(&journal);
    while reader.next_text().expect("a record").is_some() {
        ends.push(reader.at());
    }
    assert_eq!(ends.len(), 7);
    for cut in (0..journal.len()).step_by(13).chain(ends.iter().copied()) {
        let whole = ends.iter().rposition(|&end| end <= cut).expect("an end");
        match replay(&journal[..cut], None) {
            Ok(replayed) => {
                assert_eq!((counts(&replayed).0, counts(&replayed).2), (whole as u64 - 1, 0), "{cut}");
                assert_eq!(replayed.torn_bytes, cut - ends[whole], "{cut}");
            }
            Err(why) => assert!(whole == 0 && why.to_string().contains("no records"), "{cut}: {why}"),
        }
        if whole > 0 {
            fs::write(&path, &journal[..cut]).expect("a file");
            recorded(&path, 1 << 30, 2);
            let replayed = replay(&fs::read(&path).expect("a file"), None).expect("a journal");
            assert_eq!((replayed.parts.len(), replayed.torn_bytes), (2, 0), "{cut}");
            assert_eq!(counts(&replayed).0, whole as u64 - 1 + 2, "{cut}");
        }
    }
}

#[test]
fn journal_is_private_locked_and_replaces_no_other_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| {
        let policy = migration(POLICY, &machine()).expect("a policy");
        Journal::open(&folder.path().join(name), 1 << 30, head(POLICY, policy.as_ref()))
    };
    let first = open("journal").expect("a journal");
    let path = folder.path().join("journal");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(open("journal").is_err_and(|error| error.to_string().contains("another daemon")));
    drop(first);
    open("journal").expect("it is free again");
    fs::write(folder.path().join("text"), "precious").expect("a file");
    assert!(open("text").is_err_and(|error| error.to_string().contains("not a journal")));
    assert_eq!(fs::read(folder.path().join("text")).expect("a file"), b"precious");
    symlink(&path, folder.path().join("link")).expect("a link");
    assert!(open("link").is_err_and(|error| error.to_string().contains("symbolic link")));
}

#[test]
fn journal_of_another_user_or_with_hard_links_is_refused_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    fs::write(&path, &small()[..100]).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its owner's");
    let open = || {
        let policy = migration(POLICY, &machine()).expect("a policy");
        Journal::open(&path, 1 << 30, head(POLICY, policy.as_ref()))
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let unchanged = || {
        let found = fs::metadata(&path).expect("a file");
        (found.len(), found.permissions().mode() & 0o777) == (100, 0o644)
    };
    let me = rustix::process::geteuid().as_raw();
    let found = fs::metadata(&path).expect("a file");
    assert!(check_owner(&found, me).is_ok());
    let refused = check_owner(&found, me + 1).expect_err("another user's").to_string();
    assert!(refused.starts_with(&format!("it belongs to user {me}, ")), "{refused}");
    if me == 0 {
        chown(&path, Some(65534), None).expect("root may");
        assert!(open().is_err_and(|why| why.starts_with("it belongs to user 65534, ")) && unchanged());
        chown(&path, Some(me), None).expect("root may");
    }
    let other = folder.path().join("other");
    fs::hard_link(&path, &other).expect("a link");
    assert!(open().is_err_and(|why| why.starts_with("it has 2 hard links")) && unchanged());
}

#[test]
fn removed_journal_is_created_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let policy = migration(POLICY, &machine()).expect("a policy");
    let mut journal = Journal::open(&path, 1 << 30, head(POLICY, policy.as_ref())).expect("a journal");
    fs::rename(&path, folder.path().join("elsewhere")).expect("a file");
    assert!(journal.must_rotate());
    journal.begin(head(POLICY, policy.as_ref()));
    let mut bench = Bench::new(policy.as_ref());
    PolicyRunner::new(policy, Limits::default()).epoch(&mut bench, &mut journal);
    assert_eq!((journal.must_rotate(), journal.take_trouble()), (false, None));
    let replayed = replay(&fs::read(&path).expect("a journal"), None).expect("a journal");
    assert_eq!(counts(&replayed).0, 1);
    assert!(!Journal::older(&path).exists());
}

#[test]
fn error_ends_journal_with_one_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let policy = migration(POLICY, &machine()).expect("a policy");
    let mut journal = Journal::open(&path, 1 << 30, head(POLICY, policy.as_ref())).expect("a journal");
    journal.file = Some(File::open(&path).expect("the file, to be read alone"));
    for _ in 0..3 {
        journal.planned(&[], &View::default(), &Plan::default());
    }
    assert!(journal.take_trouble().is_some_and(|described| described.contains("the journal ends here")));
    journal.planned(&[], &View::default(), &Plan::default());
    assert_eq!(journal.take_trouble(), None);
    assert_eq!(replay(&fs::read(&path).expect("a file"), None).map(|replayed| replayed.parts.len()), Ok(1));
}

/// The records of a journal, each as a line.
fn lines(journal: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(journal);
    let mut lines = Vec::new();
    while let Some(text) = reader.next_text().expect("a record") {
        lines.push(String::from_utf8(text).expect("text"));
    }
    lines
}

fn packed(lines: &[String]) -> Vec<u8> {
    let frame = |line: &String| zstd::encode_all(line.as_bytes(), 1).expect("memory takes all");
    lines.iter().flat_map(frame).collect()
}

#[test]
fn errors_include_their_position() {
    let lines = lines(&small());
    let with = |at: usize, from: &str, to: &str| {
        let mut lines = lines.clone();
        assert!(lines[at].contains(from), "{from}");
        lines[at] = lines[at].replacen(from, to, 1);
        let packed = packed(&lines);
        let why = replay(&packed, None).expect_err(to).to_string();
        // A status needs neither policy nor state.
        if !["\"policy\"", "\"state\""].iter().any(|key| from.starts_with(key)) {
            assert_eq!(statuses(&packed).expect_err(to), why);
        }
        why
    };
    for (at, from, to, described) in [
        (0, "\"format\":2", "\"format\":3", "record 1, which ends at byte"),
        (0, "\"policy\":\"hot-cold", "\"policy\":\"hot-code", "hot-code"),
        (0, "\"state\":\"", "\"state\":\"x", "state: "),
        (2, "\"node\":0", "\"node\":9", "nodes: "),
        (2, "\"starts\":[0,", "\"starts\":[4503599627370496,", "out of order"),
        (2, "\"starts\":[0,1000", "\"starts\":[0,0", "out of order"),
        (2, "\"to\":", "\"to\":25", "on a machine with 2 nodes"),
        (2, "\"regions\"", "\"region\"", "unknown field"),
    ] {
        let why = with(at, from, to);
        assert!(why.contains(described) && why.starts_with("record "), "{from}: {why}");
    }
    let described = |journal: &[u8]| replay(journal, None).expect_err("no whole journal").to_string();
    assert!(described(&packed(&lines[1..])).contains("before any head"));
    for garbage in [&b"garbage, and more of it"[..], b"no", &[0; 64]] {
        assert_eq!(described(garbage), "not a memtide journal");
    }
    assert!(
        described(&packed(&["{}".to_owned()]))
            .starts_with("not a memtide journal, or one of another version")
    );
    let mut broken = small();
    let middle = broken.len() / 2;
    broken[middle] ^= 1;
    assert!(described(&broken).contains("from byte"));
}

/// A text after this many spaces, which JSON allows anywhere.
fn padded(spaces: u64, text: &str) -> Vec<u8> {
    zstd::encode_all(std::io::repeat(b' ').take(spaces).chain(text.as_bytes()), 1).expect("memory takes all")
}

#[test]
fn decompression_bombs_are_refused() {
    let described = |journal: &[u8]| replay(journal, None).expect_err("a bomb").to_string();
    let small = small();
    let lines = lines(&small);
    let text: usize = lines.iter().map(String::len).sum();
    assert!(text < small.len() * RATIO_MAX as usize / 8, "{text} bytes of text in {}", small.len());
    let bomb = padded(64 << 20, &lines[0]);
    assert_eq!(
        described(&bomb),
        "record 1, from byte 0: the records so far are more than 512 times as large as their file"
    );
    // None is larger than the limit of a journal's first record.
    let mut bombs = packed(&lines[..1]);
    let each = padded(4 << 20, &lines[1]);
    (0..20).for_each(|_| bombs.extend(&each));
    assert!(described(&bombs).contains("more than 512 times as large"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut noise = vec![b' '; (RECORD_MAX + 1) as usize];
    noise[..1 << 19].iter_mut().for_each(|byte| *byte = b'!' + (random.next_u32() % 90) as u8);
    let large = zstd::encode_all(&noise[..], 1).expect("memory takes all");
    assert!(described(&large).contains("larger than 64 MiB"), "{} bytes", large.len());
}

/// A journal of a policy: a head, and the same epoch many times.
fn repeated(policy: &str, machine: &Machine, epoch: Epoch, times: usize) -> Vec<u8> {
    let made = migration(policy, machine).expect("a policy");
    let head = Record::Head(Head::new(policy, machine.to_toml(), made.state()));
    let epoch = Record::Epoch(Box::new(epoch));
    let [head, epoch] = [head, epoch].map(|record| serde_json::to_string(&record).expect("text"));
    packed(&[vec![head], vec![epoch; times]].concat())
}

/// A view of empty nodes with these numbers of pages.
fn empty_nodes(pages: u64) -> View {
    let node = |node| NodeView::new(NodeId(node), pages, pages);
    View { nodes: vec![node(0), node(1)], ..View::default() }
}

#[test]
fn announced_pages_are_bounded_by_journal_size() {
    let Event::HintFault(first) =
        Bench::new(migration(BY_FAULTS, &machine()).expect("a policy").as_ref()).fault(0, 0)
    else {
        panic!("no hint fault");
    };
    let epoch = |pages| Epoch {
        events: vec![EventEntry::HintFaults(Faults { pages, ..Faults::of(&first) })],
        ..Epoch::new(&[], &empty_nodes(1000), &Plan::default())
    };
    let few = replay(&repeated(POLICY, &machine(), epoch(MOVES_MAX), 4), None).expect("a journal");
    assert_eq!(counts(&few), (4, 0, 0));
    let described = |journal: &[u8]| replay(journal, None).expect_err("too many pages").to_string();
    let many = described(&repeated(POLICY, &machine(), epoch(MOVES_MAX), 40));
    assert!(many.contains("more than 256 pages moved for each byte of the journal"), "{many}");
    let one = described(&repeated(POLICY, &machine(), epoch(MOVES_MAX + 1), 1));
    assert!(one.contains("faults: more than 1048576 in an epoch"), "{one}");
}

#[test]
fn plan_above_epoch_limit_is_refused() {
    let mut view = empty_nodes(1 << 40);
    let (task, start, pages, size, node) = (TaskId(7), Vpn(0), 1 << 39, PageSize::Base, NodeId(0));
    view.regions.push(Region { task, start, pages, size, node, reads: 0, writes: 0, age: 1_000_000 });
    let epoch = Epoch::new(&[], &view, &Plan::default());
    // At full scale: a scaled machine's epochs have fewer pages.
    let full = bundled::machine("pms").expect("a bundled machine").expect("a sound one");
    let described = |pages: u64| {
        let policy = format!("hot-cold:cold_epochs=1:pages={pages}");
        replay(&repeated(&policy, &full, epoch.clone(), 1), None).map(|replayed| counts(&replayed))
    };
    assert_eq!(described(MOVES_MAX), Ok((1, MOVES_MAX, 1)));
    let why = described(MOVES_MAX + 1).expect_err("too large").to_string();
    assert!(why.contains("the policy plans more than 1048576 actions"), "{why}");
}

#[test]
fn epoch_with_text_above_record_limit_ends_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let policy = migration(POLICY, &machine()).expect("a policy");
    let mut journal = Journal::open(&path, 1 << 30, head(POLICY, policy.as_ref())).expect("a journal");
    let name = "x".repeat(RECORD_MAX as usize);
    let task = TaskView {
        task: TaskId(7),
        name,
        owner: None,
        priority: None,
        page_faults: None,
        resident_pages: 0,
        footprint: Vec::new(),
        rule: None,
    };
    journal.planned(&[], &View { tasks: vec![task], ..empty_nodes(1000) }, &Plan::default());
    assert!(journal.take_trouble().is_some_and(|described| described.contains("more than 64 MiB of text")));
    assert_eq!(replay(&fs::read(&path).expect("a file"), None).map(|replayed| replayed.parts.len()), Ok(1));
}

#[test]
fn changed_decision_is_detected() {
    let mut lines = lines(&small());
    let Record::Epoch(mut epoch) = serde_json::from_str(&lines[3]).expect("a record") else {
        panic!("{}", lines[3]);
    };
    let Some(PlanEntry::Moves(run)) = epoch.plan.first_mut() else { panic!("{epoch:?}") };
    run.pages += 1;
    lines[3] = serde_json::to_string(&Record::Epoch(epoch)).expect("text");
    let replayed = replay(&packed(&lines), None).expect("a journal");
    assert_eq!(counts(&replayed).2, 1);
    assert!(
        replayed.difference.as_ref().is_some_and(|described| described.starts_with("epoch 3 of its part")),
        "{replayed:?}"
    );
}

/// The reason for refusing a journal with a changed first epoch.
fn refused(change: impl FnOnce(&mut Epoch)) -> String {
    let mut lines = lines(&small());
    let Record::Epoch(mut epoch) = serde_json::from_str(&lines[2]).expect("a record") else {
        panic!("{}", lines[2]);
    };
    change(&mut epoch);
    lines[2] = serde_json::to_string(&Record::Epoch(epoch)).expect("text");
    replay(&packed(&lines), None).expect_err("it is refused").to_string()
}

#[test]
fn node_larger_than_any_machine_is_refused() {
    let why = refused(|epoch| epoch.view.nodes[0].pages = u64::MAX);
    assert!(why.contains("nodes: ") && why.contains("more than 4503599627370496 pages"), "{why}");
}

#[test]
fn exhausted_action_ids_are_refused() {
    let why = refused(|epoch| epoch.first_action.0 = u64::MAX);
    assert!(why.contains("action 18446744073709551615 is beyond the last one"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = replay(&bytes, None);
    }

    #[test]
    fn broken_journals_never_panic(changes in vec((any::<Index>(), any::<u8>()), 1..4)) {
        let mut journal = small();
        for (at, byte) in changes {
            let at = at.index(journal.len());
            journal[at] = byte;
        }
        let _ = replay(&journal, None);
    }

    #[test]
    fn records_with_changed_numbers_never_panic(
        line in 0..6usize,
        at in any::<Index>(),
        new in prop_oneof![any::<u64>(), 0..300u64, Just(u64::MAX), Just(1 << 52)],
    ) {
        let mut lines = lines(&small());
        let text = &lines[line];
        let starts: Vec<usize> = (1..text.len())
            .filter(|&at| text.as_bytes()[at].is_ascii_digit() && !text.as_bytes()[at - 1].is_ascii_digit())
            .collect();
        let start = starts[at.index(starts.len())];
        let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
        lines[line] = format!("{}{new}{}", &text[..start], &text[start + digits..]);
        let _ = replay(&packed(&lines), None);
    }
}
