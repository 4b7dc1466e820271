//! The daemon's control socket: a line of JSON in, a line of JSON out. Who asks is known from the kernel.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a request at most.
const REQUEST_MAX: u64 = 4096;

/// Clients served at a time.
const CLIENTS_MAX: usize = 16;

/// How long a client may take to ask, and to read.
const PATIENCE: Duration = Duration::from_secs(2);

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
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer.
    Done(Value),
    /// Why there is none.
    Refused(String),
}

/// A request, who makes it, and where the reply goes.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub request: Request,
    /// The user who asks.
    pub uid: u32,
    /// Takes the reply.
    pub reply: Sender<Reply>,
}

/// The socket's file; removed when dropped.
#[derive(Debug)]
pub struct Socket {
    file: PathBuf,
    /// What clients ask for.
    pub asked: Receiver<Asked>,
}

/// Where the daemon of this user listens.
pub fn default_file() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| PathBuf::from("/run/memtide"), PathBuf::from).join("memtide.sock")
}

impl Socket {
    /// Listens; a socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// The system's, or that a daemon listens there already.
    pub fn listen(file: &Path) -> io::Result<Socket> {
        if UnixStream::connect(file).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "a memtide daemon listens there already"));
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::symlink_metadata(file) {
            Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file that is no socket",
                ));
            }
            Ok(_) => fs::remove_file(file)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(file)?;
        // Whoever asks is told of their own processes alone: see `Asked::uid`.
        fs::set_permissions(file, fs::Permissions::from_mode(0o666))?;
        let (sender, asked) = channel();
        thread::spawn(move || serve(&listener, &sender));
        Ok(Socket { file: file.to_owned(), asked })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.file);
    }
}

fn serve(listener: &UnixListener, asked: &Sender<Asked>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let Ok(client) = client else {
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            // They may have gone; there is nobody else to tell.
            let _ = answer(&client, &Reply::Refused("too many clients at a time".to_owned()));
            continue;
        }
        let (asked, clients) = (asked.clone(), Arc::clone(&clients));
        thread::spawn(move || {
            // A client that leaves is no error of the daemon's.
            let _ = attend(&client, &asked);
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn attend(client: &UnixStream, asked: &Sender<Asked>) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let uid = socket_peercred(client)?.uid.as_raw();
    let mut line = Vec::new();
    BufReader::new(client.take(REQUEST_MAX)).read_until(b'\n', &mut line)?;
    let request = match serde_json::from_slice(&line) {
        Ok(request) => request,
        Err(error) => return answer(client, &Reply::Refused(format!("not a request: {error}"))),
    };
    let (reply, replied) = channel();
    let gone = || Reply::Refused("the daemon is ending".to_owned());
    let told = match asked.send(Asked { request, uid, reply }) {
        Ok(()) => replied.recv().unwrap_or_else(|_| gone()),
        Err(_) => gone(),
    };
    answer(client, &told)
}

fn answer(mut client: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// Asks the daemon that listens at a socket.
///
/// # Errors
/// If nobody listens, or the answer is none.
pub fn ask(file: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(file)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::other)
}
