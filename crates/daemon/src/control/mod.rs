//! The daemon's control socket: a line of JSON in, a line of JSON out. Who asks is known from the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memtide_linux::processes::User;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a request at most.
const REQUEST_MAX: usize = 4096;

/// Clients served at a time, and of them those of one user other than root.
pub const CLIENTS_MAX: usize = 64;
const CLIENTS_OF_USER_MAX: usize = 16;

/// Clients of root, and of the daemon's own user, for which others leave room.
const RESERVED: usize = 8;

/// How long a client may take to ask, and to read each answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a daemon may be silent before a client gives it up: it answers between two epochs, and tells of a migration as it goes.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// How soon a client sees that it is to end.
const POLL: Duration = Duration::from_millis(100);

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What the daemon watches, and what it has done.
    Status,
    /// Why a page lies where it lies.
    Why {
        /// Whose.
        pid: i32,
        /// An address in it.
        address: u64,
    },
    /// Nothing is to be moved until [`Request::Resume`].
    Pause,
    /// Pages may be moved again.
    Resume,
    /// What a process has on some nodes is to go to others.
    Migrate(Migrate),
}

/// A request to move a process's pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migrate {
    /// Whose.
    pub pid: i32,
    /// The nodes that they are to leave, as numactl(8) lists them.
    pub from: String,
    /// The nodes that they are to go to.
    pub to: String,
    /// Most that may move, in MB/s; at least 1.
    pub max_rate_mbps: u64,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// How far it is; more follows.
    Progress(Value),
    /// The answer.
    Done(Value),
    /// Why there is none.
    Refused(String),
    /// There is none, for the daemon is paused.
    Paused,
}

/// A request, who makes it, and where the reply goes.
#[derive(Debug)]
pub struct ClientRequest {
    /// What is asked for.
    pub request: Request,
    /// The user who asks.
    pub user: User,
    /// Takes the reply.
    pub reply: Sender<Reply>,
}

/// The socket's file; removed when dropped.
#[derive(Debug)]
pub struct Socket {
    file: PathBuf,
    /// The clients' requests.
    pub requests: Receiver<ClientRequest>,
}

/// Where the system's daemon listens.
const OF_SYSTEM: &str = "/run/memtide/memtide.sock";

/// Where a daemon of this user listens.
pub fn default_file() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| PathBuf::from(OF_SYSTEM), |folder| PathBuf::from(folder).join("memtide.sock"))
}

/// Where a daemon is to be found: this user's if there is one, else the system's.
pub fn found_file() -> PathBuf {
    let listens = |file: &PathBuf| UnixStream::connect(file).is_ok();
    Some(default_file()).filter(listens).unwrap_or_else(|| PathBuf::from(OF_SYSTEM))
}

impl Socket {
    /// Listens; a socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// The system's, or that a daemon listens there already.
    pub fn listen(file: &Path) -> io::Result<Socket> {
        Socket::listen_with(file, peer)
    }

    /// Listens, with another way to know a client's user.
    fn listen_with(
        file: &Path,
        peer: impl Fn(&UnixStream) -> io::Result<User> + Send + 'static,
    ) -> io::Result<Socket> {
        if UnixStream::connect(file).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens there"));
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::symlink_metadata(file) {
            Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is not a socket is there",
                ));
            }
            Ok(_) => fs::remove_file(file)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(file)?;
        // What a client may see depends on its user: see `ClientRequest::user`.
        fs::set_permissions(file, fs::Permissions::from_mode(0o666))?;
        let (sender, requests) = channel();
        thread::spawn(move || serve(&listener, &sender, peer));
        Ok(Socket { file: file.to_owned(), requests })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.file);
    }
}

/// Clients that are served, by their users.
struct Clients {
    counts: Mutex<BTreeMap<u32, usize>>,
    /// Users with reserved places: root and the daemon's own.
    privileged: BTreeSet<u32>,
}

impl Clients {
    /// No clients yet, of a daemon that runs as this user.
    fn new(own: u32) -> Clients {
        Clients { counts: Mutex::default(), privileged: BTreeSet::from([0, own]) }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more of a user, if there may be one. What is reserved for another user stays free.
    fn admit(&self, uid: u32) -> bool {
        let mut counts = self.counts();
        let of = |uid: u32| counts.get(&uid).copied().unwrap_or(0);
        let (all, same) = (counts.values().sum::<usize>(), of(uid));
        let others = self.privileged.iter().filter(|&&other| other != uid);
        let reserved: usize = others.map(|&other| RESERVED.saturating_sub(of(other))).sum();
        let admitted = all + reserved < CLIENTS_MAX && (uid == 0 || same < CLIENTS_OF_USER_MAX);
        if admitted {
            counts.insert(uid, same + 1);
        }
        admitted
    }

    fn release(&self, uid: u32) {
        let mut counts = self.counts();
        if let Some(own) = counts.get_mut(&uid) {
            *own -= 1;
        }
        counts.retain(|_, own| *own > 0);
    }
}

/// A client's user, as the kernel knows it.
fn peer(client: &UnixStream) -> io::Result<User> {
    let credentials = socket_peercred(client)?;
    Ok(User { uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() })
}

fn serve(
    listener: &UnixListener,
    requests: &Sender<ClientRequest>,
    peer: impl Fn(&UnixStream) -> io::Result<User>,
) {
    let clients = Arc::new(Clients::new(rustix::process::geteuid().as_raw()));
    for client in listener.incoming() {
        let Ok((user, client)) = client.and_then(|client| Ok((peer(&client)?, client))) else {
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !clients.admit(user.uid) {
            // They may have gone; there is nobody else to tell.
            let _ = answer(&client, &Reply::Refused("too many clients".to_owned()));
            continue;
        }
        let (requests, of_thread) = (requests.clone(), Arc::clone(&clients));
        let attended = thread::Builder::new().spawn(move || {
            // A client that leaves is no error of the daemon's.
            let _ = attend(&client, user, &requests);
            of_thread.release(user.uid);
        });
        if attended.is_err() {
            clients.release(user.uid);
        }
    }
}

fn attend(client: &UnixStream, user: User, requests: &Sender<ClientRequest>) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    let request = match serde_json::from_slice(&line(client)?) {
        Ok(request) => request,
        Err(error) => return answer(client, &Reply::Refused(format!("not a request: {error}"))),
    };
    let (reply, replied) = channel();
    // If the daemon ends, nobody holds the other end any more.
    let _ = requests.send(ClientRequest { request, user, reply });
    for reply in replied {
        answer(client, &reply)?;
        if !matches!(reply, Reply::Progress(_)) {
            return Ok(());
        }
    }
    answer(client, &Reply::Refused("the daemon is ending".to_owned()))
}

/// What a client sends up to the end of a line, or as far as a request may go.
fn line(mut client: &UnixStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut part = [0; 512];
    while line.len() < REQUEST_MAX && !line.contains(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match client.read(&mut part)? {
            0 => break,
            read => line.extend(&part[..read]),
        }
    }
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    line.truncate(end);
    Ok(line)
}

fn answer(mut client: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// Asks the daemon that listens at a socket, and hands on what it tells meanwhile.
///
/// # Errors
/// If nobody listens or answers, or the answer is none; `Interrupted` soon after `stop` is set, which is looked at every 100 ms.
pub fn ask(
    file: &Path,
    request: &Request,
    stop: &AtomicBool,
    mut progress: impl FnMut(Value),
) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(file)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    match stream.write_all(&line) {
        // Who has no time for another client says so at once, and closes.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    stream.set_read_timeout(Some(POLL))?;
    let mut stream = BufReader::new(stream);
    let mut answer = Vec::new();
    let mut heard = Instant::now();
    loop {
        match stream.read_until(b'\n', &mut answer) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon has ended")),
            Ok(_) => match serde_json::from_slice(&answer).map_err(io::Error::other)? {
                Reply::Progress(value) => progress(value),
                reply => return Ok(reply),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                if heard.elapsed() > SILENT_MAX {
                    let why = format!("no reply from the daemon for {} s", SILENT_MAX.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        answer.clear();
        heard = Instant::now();
    }
}

#[cfg(test)]
mod tests;
