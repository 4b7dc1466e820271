//! The daemon's control socket: a line of JSON in, a line of JSON out. The kernel identifies the client's
//! user.

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

/// Maximum request size in bytes.
const REQUEST_MAX: usize = 4096;

/// Maximum concurrent clients, and those of one user other than root.
pub const CLIENTS_MAX: usize = 64;
const CLIENTS_OF_USER_MAX: usize = 16;

/// Slots reserved for root and for the daemon's own user.
const RESERVED: usize = 8;

/// Time limit for a client to send its request, and to read each reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a client waits for a silent daemon, which replies between two epochs and reports the progress of
/// a migration.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// How often a client checks its stop flag.
const POLL: Duration = Duration::from_millis(100);

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The watched processes and the daemon's counters.
    Status,
    /// Why a page is on its node.
    Why {
        /// The process.
        pid: i32,
        /// An address in the page.
        address: u64,
    },
    /// Pauses migration until [`Request::Resume`].
    Pause,
    /// Resumes migration.
    Resume,
    /// Moves the pages of a process from some nodes to others.
    Migrate(Migrate),
}

/// A request to move a process's pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migrate {
    /// The process.
    pub pid: i32,
    /// Source nodes, in numactl(8) syntax.
    pub from: String,
    /// Target nodes.
    pub to: String,
    /// Maximum rate, in MB/s; at least 1.
    pub max_rate_mbps: u64,
}

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Progress; more messages follow.
    Progress(Value),
    /// The reply.
    Done(Value),
    /// The request failed: why.
    Refused(String),
    /// The request failed because the daemon is paused.
    Paused,
}

/// A request, its user, and the channel for the reply.
#[derive(Debug)]
pub struct ClientRequest {
    /// The request.
    pub request: Request,
    /// The client's user.
    pub user: User,
    /// Receives the reply.
    pub reply: Sender<Reply>,
}

/// The socket's file; removed when dropped.
#[derive(Debug)]
pub struct Socket {
    file: PathBuf,
    /// The clients' requests.
    pub requests: Receiver<ClientRequest>,
}

/// Socket path of the system's daemon.
const OF_SYSTEM: &str = "/run/memtide/memtide.sock";

/// Socket path of a daemon of this user.
pub fn default_file() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| PathBuf::from(OF_SYSTEM), |folder| PathBuf::from(folder).join("memtide.sock"))
}

/// Whether the daemon makes this folder: that of the system's socket.
pub(crate) fn is_made(folder: &Path) -> bool {
    Path::new(OF_SYSTEM).parent() == Some(folder)
}

/// Socket path of the running daemon: this user's if there is one, else the system's.
pub fn found_file() -> PathBuf {
    let listens = |file: &PathBuf| UnixStream::connect(file).is_ok();
    Some(default_file()).filter(listens).unwrap_or_else(|| PathBuf::from(OF_SYSTEM))
}

impl Socket {
    /// Listens; a stale socket is replaced.
    ///
    /// # Errors
    /// The system's, or that a daemon already listens there.
    pub fn listen(file: &Path) -> io::Result<Socket> {
        Socket::listen_with(file, peer)
    }

    /// Checks that a socket could be made there, without making it.
    ///
    /// # Errors
    /// The system's: there is no such folder, or this process may not write to it.
    pub fn check(file: &Path) -> io::Result<()> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = folder.parent().filter(|_| is_made(folder) && !folder.exists());
        let folder = parent.unwrap_or(folder);
        Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?)
    }

    /// Listens, with another function that identifies a client's user.
    fn listen_with(
        file: &Path,
        peer: impl Fn(&UnixStream) -> io::Result<User> + Send + 'static,
    ) -> io::Result<Socket> {
        if UnixStream::connect(file).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon listens there"));
        }
        if let Some(folder) = file.parent().filter(|folder| is_made(folder)) {
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
        // All users may connect; what a client may see depends on its user: see `ClientRequest::user`.
        fs::set_permissions(file, fs::Permissions::from_mode(0o666))?;
        let (sender, requests) = channel();
        thread::spawn(move || serve(&listener, &sender, peer));
        Ok(Socket { file: file.to_owned(), requests })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may already be gone.
        let _ = fs::remove_file(&self.file);
    }
}

/// Connected clients, by user.
struct Clients {
    counts: Mutex<BTreeMap<u32, usize>>,
    /// Users with reserved slots: root and the daemon's own.
    privileged: BTreeSet<u32>,
}

impl Clients {
    /// Without clients, for a daemon that runs as this user.
    fn new(own: u32) -> Clients {
        Clients { counts: Mutex::default(), privileged: BTreeSet::from([0, own]) }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits another client of a user, if a slot is free. Slots reserved for other users stay free.
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

/// A client's user, from the kernel.
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
            // The client may have disconnected; there is no one else to notify.
            let _ = answer(&client, &Reply::Refused("too many clients".to_owned()));
            continue;
        }
        let (requests, of_thread) = (requests.clone(), Arc::clone(&clients));
        let attended = thread::Builder::new().spawn(move || {
            // A disconnect is not an error of the daemon.
            let _ = attend(&client, user, &requests);
            of_thread.release(user.uid);
        });
        if attended.is_err() {
            clients.release(user.uid);
        }
    }
}

fn attend(client: &UnixStream, user: User, requests: &Sender<ClientRequest>) -> io::Result<()> {
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let request = match serde_json::from_slice(&line(client)?) {
        Ok(request) => request,
        Err(error) => return answer(client, &Reply::Refused(format!("not a request: {error}"))),
    };
    let (reply, replied) = channel();
    // If the daemon has stopped, the receiver is gone.
    let _ = requests.send(ClientRequest { request, user, reply });
    for reply in replied {
        answer(client, &reply)?;
        if !matches!(reply, Reply::Progress(_)) {
            return Ok(());
        }
    }
    answer(client, &Reply::Refused("the daemon is ending".to_owned()))
}

/// A client's input up to the end of a line, or to the maximum size.
fn line(mut client: &UnixStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + CLIENT_TIMEOUT;
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

/// Sends a request to the daemon at a socket, and passes on its progress reports.
///
/// # Errors
/// If no daemon listens or replies, or the reply is invalid; `Interrupted` soon after `stop` is set, which is
/// checked every 100 ms.
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
        // A daemon without a free slot replies with an error at once, and disconnects.
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
