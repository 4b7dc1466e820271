//! The daemon: its journal and its control protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use memtide_daemon::control::{Reply, Request, Socket, ask};
use memtide_daemon::journal::replay::replay;
use memtide_daemon::journal::statuses::statuses;
use serde_json::Value;
use tempfile::TempDir;

/// A journal's bytes.
pub fn journal(data: &[u8]) {
    replayed(data);
}

/// A journal's records: each line becomes a frame.
pub fn journal_records(data: &[u8]) {
    let mut journal = Vec::new();
    for line in data.split(|&byte| byte == b'\n') {
        zstd::stream::copy_encode(line, &mut journal, 1).expect("memory");
    }
    replayed(&journal);
}

fn replayed(journal: &[u8]) {
    let _ = statuses(journal);
    for other in [None, Some("hot-cold"), Some("bw-migration")] {
        let Ok(replayed) = replay(journal, other) else { continue };
        let differing: u64 = replayed.parts.iter().map(|part| part.differing).sum();
        assert!(differing <= replayed.parts.iter().map(|part| part.epochs).sum());
        assert_eq!(replayed.difference.is_some(), differing > 0);
        assert!(replayed.torn_bytes <= journal.len());
    }
}

/// A daemon that echoes each request.
struct Daemon {
    file: PathBuf,
    _folder: TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("socket");
        let mut socket = Socket::listen(&file).expect("a socket");
        thread::spawn(move || {
            let (_sender, none) = channel();
            let requests = std::mem::replace(&mut socket.requests, none);
            for asked in requests {
                let value = serde_json::to_value(&asked.request).expect("a request can be written");
                let again: Request = serde_json::from_value(value.clone()).expect("and read back");
                assert_eq!(again, asked.request);
                // The client may have disconnected.
                let _ = asked.reply.send(Reply::Done(value));
            }
        });
        Daemon { file, _folder: folder }
    }
}

/// A client's request to the daemon's socket: the reply is one line.
///
/// # Panics
/// If the reply is not one line.
pub fn control_request(data: &[u8]) {
    static DAEMON: LazyLock<Daemon> = LazyLock::new(Daemon::start);
    let mut client = UnixStream::connect(&DAEMON.file).expect("a daemon");
    // The daemon reads a request up to its limit only.
    let _ = client.write_all(data);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // Unread data resets the connection.
    if client.read_to_end(&mut answer).is_err() {
        return;
    }
    let line = answer.strip_suffix(b"\n").expect("a whole line");
    let reply: Reply = serde_json::from_slice(line).expect("an answer");
    assert!(matches!(reply, Reply::Done(_) | Reply::Refused(_)), "{reply:?}");
}

/// A server that replies with given bytes.
struct CannedServer {
    file: PathBuf,
    answers: Mutex<Sender<Vec<u8>>>,
    _folder: TempDir,
}

impl CannedServer {
    fn start() -> CannedServer {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("socket");
        let listener = UnixListener::bind(&file).expect("a socket");
        let (answers, to_give) = channel::<Vec<u8>>();
        thread::spawn(move || {
            for answer in to_give {
                let Ok((client, _)) = listener.accept() else { return };
                let mut request = Vec::new();
                // The reply is sent even if the request was not complete.
                let _ = BufReader::new(&client).read_until(b'\n', &mut request);
                let _ = (&client).write_all(&answer);
            }
        });
        CannedServer { file, answers: Mutex::new(answers), _folder: folder }
    }

    fn answers(&self) -> MutexGuard<'_, Sender<Vec<u8>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A daemon's reply to a client.
pub fn control_reply(data: &[u8]) {
    static SERVER: LazyLock<CannedServer> = LazyLock::new(CannedServer::start);
    let answers = SERVER.answers();
    answers.send(data.to_vec()).expect("a thread that answers");
    let mut progress = Vec::new();
    let reply =
        ask(&SERVER.file, &Request::Status, &AtomicBool::new(false), |value: Value| progress.push(value));
    assert!(progress.len() <= data.len());
    if let Ok(reply) = reply {
        assert!(!matches!(reply, Reply::Progress(_)), "{reply:?}");
    }
}
