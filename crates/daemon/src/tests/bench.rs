//! A daemon on the fake system, stepped by the test or run in a thread with a real socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memtide_core::PAGE_BYTES;
use memtide_linux::processes::User;
use tempfile::TempDir;

use super::fake::{FakeSystem, World, lock, system};
use crate::control::{ClientRequest, Migrate, Reply, Request, Socket, ask};
use crate::status::Status;
use crate::transfers::Progress;
use crate::{ConfigSource, Daemon, End, Setup};

/// Policy of most tests: epochs of 20 ms, no page ever cold.
pub const POLICY: &str = "hot-cold:epoch_ms=20:sampling_us=1000:cold_epochs=10000";

/// Maximum wait for an expected event, on any host: a guard against a hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

/// A test daemon's configuration on top of the defaults: lines of TOML.
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: String,
    pub machine: &'static str,
    /// The system's numbers of its nodes.
    pub nodes: &'static [u8],
    pub more: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { policy: POLICY.to_owned(), machine: "hinuma", nodes: &[0, 2], more: String::new() }
    }
}

impl Settings {
    pub fn with(more: &str) -> Settings {
        Settings { more: more.to_owned(), ..Settings::default() }
    }
}

/// A daemon stepped by the test.
pub struct Bench {
    pub daemon: Daemon<FakeSystem>,
    pub world: Arc<Mutex<World>>,
    pub messages: Arc<Mutex<Vec<String>>>,
    folder: TempDir,
}

impl Bench {
    pub fn new(settings: &Settings) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memtide.toml");
        write_config(&folder, settings);
        let source = ConfigSource { file: Some(file), dry_run: false };
        let config = source.read().expect("a valid configuration");
        let setup = Setup::of(&config, &system(settings.nodes)).expect("a setup");
        let sensors = crate::daemon::sensors(setup.policy.as_ref());
        let host = FakeSystem::new(settings.nodes, &sensors, config.dry_run);
        let world = Arc::clone(&host.world);
        let messages = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&messages);
        let log = Box::new(move |message: &str| log.lock().expect("a log").push(message.to_owned()));
        let daemon = Daemon::on(host, setup, source, config, log).expect("a daemon");
        Bench { daemon, world, messages, folder }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// A file in the daemon's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes another configuration, and reloads it.
    pub fn reload(&mut self, settings: &Settings) {
        write_config(&self.folder, settings);
        self.daemon.reload();
    }

    pub fn epochs(&mut self, epochs: usize) {
        (0..epochs).for_each(|_| self.daemon.epoch());
    }

    /// Sends a request as a user, without waiting.
    pub fn send(&mut self, uid: u32, request: Request) -> Receiver<Reply> {
        let (reply, replies) = channel();
        self.daemon.reply(&ClientRequest { request, user: User { uid, gid: uid }, reply });
        replies
    }

    /// Sends a request as a user and waits for the reply.
    pub fn ask(&mut self, uid: u32, request: Request) -> Reply {
        self.send(uid, request).recv().expect("a reply")
    }

    /// The daemon's status for root.
    pub fn status(&mut self) -> Status {
        status(self.ask(0, Request::Status))
    }

    /// Steps the daemon until a client has its final reply; calls `each` after each step. Returns the reports
    /// before it.
    pub fn finish(
        &mut self,
        replies: &Receiver<Reply>,
        mut each: impl FnMut(&mut Bench),
    ) -> (Vec<Progress>, Reply) {
        let (begun, mut reports) = (Instant::now(), Vec::new());
        loop {
            assert!(begun.elapsed() < HANG_TIMEOUT, "no last reply");
            self.daemon.epoch();
            self.daemon.step_transfers();
            each(self);
            for reply in replies.try_iter() {
                match reply {
                    Reply::Progress(value) => reports.push(serde_json::from_value(value).expect("progress")),
                    last => return (reports, last),
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The log so far.
    pub fn logged(&self) -> Vec<String> {
        self.messages.lock().expect("a log").clone()
    }

    /// Serves a real socket from a thread.
    pub fn run(self) -> Running {
        let Bench { mut daemon, world, messages, folder } = self;
        let socket = folder.path().join("socket");
        let (listening, stop) =
            (Socket::listen(&socket).expect("a socket"), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let end = daemon.run(&listening, &stopped).expect("a run without an error");
            (daemon, end)
        });
        Running { world, messages, socket, stop, thread, folder }
    }
}

fn write_config(folder: &TempDir, settings: &Settings) {
    let Settings { policy, machine, more, .. } = settings;
    let text = format!(
        "policy = '{policy}'\nmachine = '{machine}'\nleast_mib = 0\ncooldown_s = 0\nsocket = 'socket'\n\
         {more}\n"
    );
    std::fs::write(folder.path().join("memtide.toml"), text).expect("a file");
}

/// A daemon in a thread.
pub struct Running {
    pub world: Arc<Mutex<World>>,
    messages: Arc<Mutex<Vec<String>>>,
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Daemon<FakeSystem>, End)>,
    folder: TempDir,
}

impl Running {
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Sends a request through the socket, as this process's user.
    pub fn ask(&self, request: &Request) -> Reply {
        ask(&self.socket, request, &AtomicBool::new(false), |_| ()).expect("a reply")
    }

    pub fn status(&self) -> Status {
        status(self.ask(&Request::Status))
    }

    /// Polls the status until it is as expected.
    pub fn until(&self, what: &str, expected: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if expected(&status) {
                return status;
            }
            assert!(begun.elapsed() < HANG_TIMEOUT, "{what}: {status:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The socket path.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Waits until the daemon ends by itself.
    pub fn end(self) -> End {
        self.thread.join().expect("the daemon's thread").1
    }

    /// Stops the daemon.
    pub fn stop(self) -> Bench {
        self.stop.store(true, Ordering::Relaxed);
        let (daemon, _) = self.thread.join().expect("the daemon's thread");
        Bench { daemon, world: self.world, messages: self.messages, folder: self.folder }
    }
}

/// The status in a reply.
pub fn status(reply: Reply) -> Status {
    match reply {
        Reply::Done(value) => serde_json::from_value(value).expect("a status"),
        other => panic!("no status: {other:?}"),
    }
}

/// The last progress report among replies.
pub fn progress(reply: &Reply) -> Progress {
    match reply {
        Reply::Done(value) => serde_json::from_value(value.clone()).expect("progress"),
        other => panic!("no progress: {other:?}"),
    }
}

/// A request to move a process's pages between nodes, by the system's numbers, at the daemon's maximum rate.
pub fn migrate(pid: i32, from: &str, to: &str) -> Request {
    Request::Migrate(Migrate { pid, from: from.to_owned(), to: to.to_owned(), max_rate_mbps: 1_000_000 })
}

/// This process's user.
pub fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The bytes moved.
pub fn moved_bytes(status: &Status) -> u64 {
    status.moved.iter().map(|(_, _, pages)| pages * PAGE_BYTES).sum()
}
