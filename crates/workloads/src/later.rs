//! A program whose region of interest begins later than it marks.

use memtide_core::{Access, Batch, Mark, Program, ProgramError, Stage, Then, ThreadId};

use crate::entry::BoxedProgram;

/// A program that warms up for a number of accesses at the start of its region of interest.
///
/// Thread 0 counts its share of them and makes the mark, so that no thread's stream depends on another's
/// speed.
struct Later {
    program: BoxedProgram,
    /// Stage of the program itself.
    stage: Stage,
    /// Accesses of thread 0 that are left before the region; `None` once it has begun.
    left: Option<u64>,
    /// What follows the mark in thread 0's batch.
    rest: Option<Batch>,
    /// Whether the first mark is still to be made: the program has none.
    opening: bool,
}

/// The program, with its first `accesses` of the region of interest as a warm-up: those of all threads
/// together, in equal parts. A program without marks warms up from its start.
///
/// If the region is shorter, it never begins, which the simulator refuses.
pub fn begin_later(program: BoxedProgram, accesses: u64) -> BoxedProgram {
    if accesses == 0 {
        return program;
    }
    let marked = program.has_region();
    Box::new(Later {
        left: Some(accesses.div_ceil(program.threads() as u64)),
        stage: if marked { Stage::Initialisation } else { Stage::Region },
        program,
        rest: None,
        opening: !marked,
    })
}

impl Later {
    /// Ends the batch with the mark if its accesses reach the region.
    fn split(&mut self, batch: &mut Batch) {
        let Some(left) = self.left.filter(|_| self.stage == Stage::Region) else { return };
        let made = batch.accesses.len() as u64;
        if made < left {
            self.left = Some(left - made);
            return;
        }
        let accesses: Vec<Access> = batch.accesses.split_off(left as usize);
        self.rest = Some(Batch { accesses, then: std::mem::take(&mut batch.then) });
        self.left = None;
        batch.then = Then::Mark(Mark::Begin);
    }

    /// Follows the program's mark, which is a warm-up's as long as the region has not begun.
    fn follow(&mut self, batch: &mut Batch) {
        if let Then::Mark(mark) = batch.then {
            self.stage = self.stage.after(mark);
            if self.left.is_some() && mark == Mark::Begin {
                batch.then = Then::Mark(Mark::WarmUp);
            }
        }
    }
}

impl Program for Later {
    fn threads(&self) -> usize {
        self.program.threads()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        if thread != ThreadId(0) {
            return self.program.next(thread, batch);
        }
        if std::mem::take(&mut self.opening) {
            batch.clear();
            batch.then = Then::Mark(Mark::WarmUp);
            return Ok(());
        }
        match self.rest.take() {
            Some(rest) => *batch = rest,
            None => {
                self.program.next(thread, batch)?;
                self.split(batch);
            }
        }
        if self.rest.is_none() {
            self.follow(batch);
        }
        Ok(())
    }

    fn has_region(&self) -> bool {
        true
    }

    fn progress(&self) -> Option<f64> {
        self.program.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use crate::{Params, program};

    /// Accesses of thread 0 before each of its marks, and the recorded streams.
    fn marks(params: &str, name: &str, warm_up: u64) -> (Vec<(Mark, usize)>, Vec<Vec<Access>>) {
        let make = || program(name, &params.parse::<Params>().unwrap(), 1).unwrap();
        let streams = record(begin_later(make(), warm_up).as_mut(), true).streams;
        let mut later = begin_later(make(), warm_up);
        let (mut made, mut marks, mut batch) = (0, Vec::new(), Batch::default());
        while batch.then != Then::End {
            later.next(ThreadId(0), &mut batch).unwrap();
            made += batch.accesses.len();
            if let Then::Mark(mark) = batch.then {
                marks.push((mark, made));
            }
        }
        assert_eq!(made, streams[0].len());
        assert!(streams == record(make().as_mut(), true).streams, "its accesses differ");
        (marks, streams)
    }

    #[test]
    fn region_begins_after_the_share_of_its_accesses() {
        let params = "footprint_mib=1,threads=1,operations=10000";
        for warm_up in [1, 4_095, 4_096, 4_097, 9_000] {
            let (found, _) = marks(params, "uniform", warm_up);
            let pages = 256;
            assert_eq!(found, [(Mark::WarmUp, pages), (Mark::Begin, pages + warm_up as usize)]);
        }
        let (found, _) = marks(params, "uniform", 0);
        assert_eq!(found, [(Mark::Begin, 256)]);
    }

    #[test]
    fn region_that_ends_in_between_is_left_out_of_the_warm_up() {
        // Each iteration of `is` begins with new keys, outside of the region.
        let params = "footprint_mib=1,threads=1,iterations=2";
        let (plain, _) = marks(params, "is", 0);
        let [(Mark::Begin, first), (Mark::End, end), (Mark::Begin, second)] = plain[..] else {
            panic!("{plain:?}")
        };
        let (found, _) = marks(params, "is", (end - first + 10) as u64);
        let expected =
            [(Mark::WarmUp, first), (Mark::End, end), (Mark::WarmUp, second), (Mark::Begin, second + 10)];
        assert_eq!(found, expected);
    }
}
