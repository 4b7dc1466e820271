use std::io::ErrorKind;

use proptest::prelude::*;

use super::*;

/// A socket whose requests a thread answers with a word each, as the daemon does between two epochs.
fn socket(folder: &Path) -> PathBuf {
    let file = folder.join("socket");
    let socket = Socket::listen(&file).expect("a socket");
    thread::spawn(move || {
        for client in &socket.requests {
            let _ = client.reply.send(Reply::Progress(Value::from(0.5)));
            let _ = client.reply.send(Reply::Done(Value::from(client.user.uid)));
        }
    });
    file
}

fn is_served(file: &Path) -> bool {
    let mut progress = Vec::new();
    let reply = ask(file, &Request::Status, &AtomicBool::new(false), |value| progress.push(value));
    let mine = rustix::process::geteuid().as_raw();
    matches!(reply, Ok(Reply::Done(uid)) if uid == mine) && progress == [0.5]
}

fn send(file: &Path, bytes: &[u8]) -> io::Result<String> {
    let mut client = UnixStream::connect(file)?;
    client.write_all(bytes)?;
    client.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn arbitrary_bytes_are_refused_and_other_clients_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = socket(folder.path());
    let mut config = ProptestConfig::with_cases(64);
    config.failure_persistence = None;
    proptest!(config, |(bytes in proptest::collection::vec(any::<u8>(), 0..6000))| {
        match send(&file, &bytes) {
            Ok(answer) => prop_assert!(answer.contains("not a request"), "{}", answer),
            // Bytes after the line, or beyond the maximum length, are not read.
            Err(error) => prop_assert!(bytes.len() > REQUEST_MAX || bytes.contains(&b'\n'), "{}", error),
        }
    });
    for text in ["{\"why\":{\"pid\":1}}", "\"stop\"", "{\"migrate\":{\"pid\":1}}\n", "", "\n\"status\"\n"] {
        assert!(send(&file, text.as_bytes()).is_ok_and(|answer| answer.contains("not a request")), "{text}");
    }
    assert!(is_served(&file));
}

#[test]
fn idle_clients_are_limited_and_time_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = socket(folder.path());
    // Guards against a hang on any host: a client limited by CLIENT_TIMEOUT ends for certain.
    const HANGS: Duration = Duration::from_secs(300);
    let begun = Instant::now();
    let mut idle: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&file).expect("a client")).collect();
    for client in &mut idle {
        // Those beyond the limit have received an error and are disconnected.
        let _ = client.write_all(b"\"stat");
    }
    while !is_served(&file) {
        assert!(begun.elapsed() < HANGS, "no other client is served");
        thread::sleep(Duration::from_millis(50));
    }
    // An occasional byte does not extend the time limit.
    let mut slow = UnixStream::connect(&file).expect("a client");
    let begun = Instant::now();
    while slow.write_all(b" ").is_ok() {
        assert!(begun.elapsed() < HANGS, "a slow client stays");
        thread::sleep(CLIENT_TIMEOUT / 8);
    }
}

#[test]
fn running_daemon_and_regular_file_are_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = socket(folder.path());
    assert_eq!(Socket::listen(&file).expect_err("it is taken").kind(), ErrorKind::AddrInUse);
    let text = folder.path().join("text");
    fs::write(&text, "precious").expect("a file");
    assert_eq!(Socket::listen(&text).expect_err("it is no socket").kind(), ErrorKind::AlreadyExists);
}

#[test]
fn no_user_takes_all_slots() {
    let clients = Clients::new(0);
    assert_eq!((0..CLIENTS_MAX).filter(|_| clients.admit(1000)).count(), CLIENTS_OF_USER_MAX);
    assert_eq!((0..CLIENTS_MAX).filter(|_| clients.admit(0)).count(), CLIENTS_MAX - CLIENTS_OF_USER_MAX);
    assert!(!clients.admit(1001));
    clients.release(1000);
    assert!(clients.admit(1001) && !clients.admit(1000));
}

#[test]
fn slots_are_reserved_for_root_and_daemon_user() {
    let own = 900;
    let clients = Clients::new(own);
    let admitted = |uid| (0..CLIENTS_MAX).filter(|_| clients.admit(uid)).count();
    let others: usize = (1000..1010).map(admitted).sum();
    assert_eq!(others, CLIENTS_MAX - 2 * RESERVED);
    assert_eq!(admitted(0), RESERVED, "root leaves the daemon's user its places");
    assert_eq!(admitted(own), RESERVED);
    for uid in [0, own, 1000, 2000] {
        assert!(!clients.admit(uid), "{uid}");
    }
    clients.release(0);
    assert!(!clients.admit(1000) && !clients.admit(own) && clients.admit(0));
}

#[test]
fn root_is_served_while_four_users_use_all_their_slots() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("socket");
    let (users, accepted) = (4, std::sync::atomic::AtomicUsize::new(0));
    // The first connections belong to four users, 16 each; the next one is root's.
    let peer = move |_: &UnixStream| {
        let user = accepted.fetch_add(1, Ordering::Relaxed) / CLIENTS_OF_USER_MAX;
        Ok(if user < users { User { uid: 4_000_000 + user as u32, gid: 1 } } else { User { uid: 0, gid: 0 } })
    };
    let socket = Socket::listen_with(&file, peer).expect("a socket");
    thread::spawn(move || {
        for client in &socket.requests {
            let _ = client.reply.send(Reply::Done(Value::from(client.user.uid)));
        }
    });
    let connect = |_| UnixStream::connect(&file).expect("a connection");
    let held: Vec<UnixStream> = (0..users * CLIENTS_OF_USER_MAX).map(connect).collect();
    let reply = ask(&file, &Request::Status, &AtomicBool::new(false), |_| ()).expect("a reply");
    assert_eq!(reply, Reply::Done(Value::from(0)));
    drop(held);
}
