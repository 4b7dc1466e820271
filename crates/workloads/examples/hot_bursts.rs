//! Random updates in bursts, nine tenths of them in a hot fifth of the memory that is filled last. Marks tell
//! `memtide lab compare --region marks` to measure the last part, after tiering has had time to act. Idle
//! time of a guest costs its host little, so that a run may take as many of its seconds as tiering needs.

use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use memtide_workloads::Random;
use rustix::thread::disable_transparent_huge_pages;

/// Updates between two looks at the clock.
const BURST: u64 = 20_000;
const WORD_BYTES: usize = 8;

/// Update memory at random, most of it in a hot fifth
#[derive(Parser)]
struct Arguments {
    /// Memory, in MiB
    #[arg(long, default_value_t = 512)]
    mib: usize,
    /// Size of the pieces that the hot fifth is scattered in, in KiB; 0: it is in one piece
    #[arg(long, default_value_t = 0)]
    piece_kib: usize,
    /// Time before the measured updates, in s
    #[arg(long, default_value_t = 14.0)]
    warm_up: f64,
    /// Updates that are measured
    #[arg(long, default_value_t = 6_000_000)]
    updates: u64,
    /// Share of the time in which it works, in %
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100))]
    duty: u32,
    /// Milliseconds from one read of every page to the next; 0: none
    #[arg(long, default_value_t = 0)]
    sweep_ms: u64,
    /// In the first half of the warm-up, the fifth that is filled first is hot
    #[arg(long)]
    moves: bool,
    /// The hot fifth is filled first, pieces in base pages, so that first touch is the best placement
    #[arg(long)]
    hot_first: bool,
    /// Base pages, whatever the system's setting of transparent huge pages
    #[arg(long)]
    base_pages: bool,
}

fn main() {
    let arguments = Arguments::parse();
    // In the second case a huge page would take cold pieces along.
    if arguments.base_pages || arguments.hot_first && arguments.piece_kib > 0 {
        disable_transparent_huge_pages(true).expect("Linux 3.15 or later");
    }
    let mut memory = Memory::new(&arguments);
    mark(WARM_UP, 0);
    let begin = Instant::now();
    while let elapsed = begin.elapsed().as_secs_f64()
        && elapsed < arguments.warm_up
    {
        memory.burst(arguments.moves && elapsed < arguments.warm_up / 2.0);
    }
    mark(BEGIN, 0);
    let begin = Instant::now();
    for _ in 0..arguments.updates.div_ceil(BURST) {
        memory.burst(false);
    }
    let time = begin.elapsed();
    mark(END, 0);
    println!("{:.1} ms", time.as_secs_f64() * 1e3);
}

struct Memory {
    words: Vec<u64>,
    /// First words of its pieces, the hot ones last.
    pieces: Vec<usize>,
    piece_words: usize,
    random: Random,
    /// Idle time per busy time.
    idle: f64,
    sweep: Option<Duration>,
    swept: Instant,
}

impl Memory {
    /// Memory that is filled piece by piece, the hot ones last, or first.
    fn new(arguments: &Arguments) -> Memory {
        let all = (arguments.mib.max(1) << 20) / WORD_BYTES;
        let piece_words = match arguments.piece_kib {
            0 => all / 5,
            kib => kib.saturating_mul(1024 / WORD_BYTES).min(all / 5),
        };
        let mut random = Random::new(1, 0);
        let mut pieces: Vec<usize> = (0..all / piece_words).map(|piece| piece * piece_words).collect();
        if arguments.piece_kib > 0 {
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        let mut words = vec![0; pieces.len() * piece_words];
        let mut fill = |first: &usize| words[*first..*first + piece_words].fill(1);
        match arguments.hot_first {
            true => pieces.iter().rev().for_each(&mut fill),
            false => pieces.iter().for_each(&mut fill),
        }
        let idle = f64::from(100 - arguments.duty) / f64::from(arguments.duty);
        let sweep = (arguments.sweep_ms > 0).then(|| Duration::from_millis(arguments.sweep_ms));
        Memory { words, pieces, piece_words, random, idle, sweep, swept: Instant::now() }
    }

    /// Updates words, most of them in the first pieces or in the last ones.
    fn burst(&mut self, first: bool) {
        let begin = Instant::now();
        let all = self.pieces.len();
        let hot = (all / 5).max(1);
        for _ in 0..BURST {
            let is_hot = self.random.below(10) < 9;
            let place = match is_hot {
                true if first => self.random.below(hot as u64) as usize,
                true => all - hot + self.random.below(hot as u64) as usize,
                false => self.random.below(all as u64) as usize,
            };
            let word = self.random.below(self.piece_words as u64) as usize;
            self.words[self.pieces[place] + word] += 1;
        }
        if self.sweep.is_some_and(|sweep| self.swept.elapsed() >= sweep) {
            self.swept = Instant::now();
            let pages = self.words.chunks(4096 / WORD_BYTES);
            std::hint::black_box(pages.fold(0, |sum: u64, page| sum.wrapping_add(page[0])));
        }
        if self.idle > 0.0 {
            thread::sleep(begin.elapsed().mul_f64(self.idle));
        }
    }
}
