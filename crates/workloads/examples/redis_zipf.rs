//! redis-server under a zipfian load, as YCSB's workload B makes it: 95 % reads and 5 % updates of 1 KiB
//! values, of which the popular ones are inserted last. Starts the server, fills it, warms it up at a given
//! rate, and then sends requests as fast as they are answered, twice as many as are measured. Marks tell
//! `memtide lab compare --region marks` to model all but the filling, and to measure the last part.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, thread};

use clap::Parser;
use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use memtide_workloads::{Random, Zipf};

/// Requests sent before their answers are read.
const PIPELINE: u64 = 16;
const READS_PERCENT: u64 = 95;
const VALUE_BYTES: usize = 1024;

/// Load a redis-server with zipfian requests
#[derive(Parser)]
struct Arguments {
    /// Keys, each with a value of 1 KiB
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Requests that are measured, after as many that are not
    #[arg(long, default_value_t = 500_000)]
    requests: u64,
    /// Time of requests at a limited rate before, in s
    #[arg(long, default_value_t = 20.0)]
    warm_up: f64,
    /// Requests a second in that time
    #[arg(long, default_value_t = 20_000)]
    warm_up_rate: u64,
    /// Skew, from 0 (none) to below 1
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redis_zipf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let socket = env::temp_dir().join(format!("redis-zipf-{}.sock", std::process::id()));
    let mut server = serve(&socket)?;
    let loaded = connect(&socket, &mut server).and_then(|client| load(client, arguments));
    // It may have already exited.
    let _ = server.kill();
    server.wait()?;
    loaded
}

fn serve(socket: &Path) -> io::Result<Child> {
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"]);
    server.arg(socket).spawn().map_err(|error| io::Error::new(error.kind(), format!("redis-server: {error}")))
}

fn connect(socket: &Path, server: &mut Child) -> io::Result<Client> {
    while !socket.exists() {
        if let Some(status) = server.try_wait()? {
            return Err(io::Error::other(format!("redis-server ended: {status}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let stream = UnixStream::connect(socket)?;
    Ok(Client { answers: BufReader::new(stream.try_clone()?), stream, requests: Vec::new() })
}

fn load(mut client: Client, arguments: &Arguments) -> io::Result<()> {
    let value = [b'v'; VALUE_BYTES];
    for keys in batches(arguments.keys) {
        keys.clone().for_each(|key| client.set(key, &value));
        client.exchange(keys.end - keys.start)?;
    }
    let zipf = Zipf::new(arguments.keys, arguments.theta);
    let mut random = Random::new(1, 0);
    let mut ask = |client: &mut Client, requests: u64| {
        for _ in 0..requests {
            let key = arguments.keys - 1 - zipf.rank(&mut random);
            if random.below(100) < READS_PERCENT { client.get(key) } else { client.set(key, &value) }
        }
        client.exchange(requests)
    };
    mark(WARM_UP, 0);
    let (begin, rate) = (Instant::now(), arguments.warm_up_rate as f64);
    for requests in batches((arguments.warm_up * rate) as u64) {
        let due = Duration::from_secs_f64(requests.start as f64 / rate);
        thread::sleep(due.saturating_sub(begin.elapsed()));
        ask(&mut client, requests.end - requests.start)?;
    }
    let mut ask_all = || {
        let begin = Instant::now();
        batches(arguments.requests)
            .try_for_each(|requests| ask(&mut client, requests.end - requests.start))?;
        Ok::<_, io::Error>(begin.elapsed())
    };
    // Tiering acts on the higher rate before anything is measured.
    ask_all()?;
    mark(BEGIN, 0);
    let took = ask_all()?;
    mark(END, 0);
    println!("requests a second: {:.0}", arguments.requests as f64 / took.as_secs_f64());
    Ok(())
}

fn batches(all: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..all).step_by(PIPELINE as usize).map(move |from| from..(from + PIPELINE).min(all))
}

/// A connection that speaks redis' protocol, RESP2.
struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    requests: Vec<u8>,
}

impl Client {
    fn get(&mut self, key: u64) {
        self.request(&[b"GET", format!("key:{key}").as_bytes()]);
    }

    fn set(&mut self, key: u64, value: &[u8]) {
        self.request(&[b"SET", format!("key:{key}").as_bytes(), value]);
    }

    fn request(&mut self, words: &[&[u8]]) {
        self.requests.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.requests.extend(format!("${}\r\n", word.len()).bytes());
            self.requests.extend(*word);
            self.requests.extend(b"\r\n");
        }
    }

    /// Sends the prepared requests and reads as many answers.
    fn exchange(&mut self, answers: u64) -> io::Result<()> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        (0..answers).try_for_each(|_| self.answer())
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let bulk = line.strip_prefix('$').and_then(|length| length.trim_end().parse::<u64>().ok());
        match bulk {
            Some(length) => io::copy(&mut (&mut self.answers).take(length + 2), &mut io::sink()).map(|_| ()),
            None if line == "+OK\r\n" => Ok(()),
            None => Err(io::Error::other(format!("redis-server answers {line:?}"))),
        }
    }
}
