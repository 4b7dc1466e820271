//! Cooldown: pages that moved recently do not move again, which prevents ping-pong.

use std::collections::BTreeMap;

use crate::ids::{NodeId, TaskId};
use crate::policy::Move;
use crate::units::{HUGE_PAGE_BYTES, PAGE_BYTES, Time};

/// Base pages per block; a block is tracked as one.
const BLOCK_PAGES: u64 = HUGE_PAGE_BYTES / PAGE_BYTES;

/// Maximum number of times that a wait doubles.
const DOUBLINGS_MAX: u32 = 6;

/// Maximum number of tracked blocks; beyond it, those whose wait is over are dropped.
const BLOCKS_MAX: usize = 1 << 16;

/// The last move of each 2 MiB block of memory.
#[derive(Clone, Debug)]
pub(super) struct Cooldown {
    time: Time,
    moved: BTreeMap<(TaskId, u64), Moved>,
}

#[derive(Clone, Copy, Debug)]
struct Moved {
    at: Time,
    from: NodeId,
    to: NodeId,
    returns: u32,
}

impl Cooldown {
    pub fn new(time: Time) -> Cooldown {
        Cooldown { time, moved: BTreeMap::new() }
    }

    /// Sets the wait from now on.
    pub fn set_time(&mut self, time: Time) {
        self.time = time;
    }

    fn until(&self, moved: &Moved) -> Time {
        moved.at + Time(self.time.0 << moved.returns.min(DOUBLINGS_MAX))
    }

    fn make_room(&mut self, now: Time) {
        if self.moved.len() >= BLOCKS_MAX {
            let waits: Vec<_> = self.moved.iter().filter(|(_, moved)| now < self.until(moved)).collect();
            self.moved = waits.into_iter().map(|(key, moved)| (*key, *moved)).collect();
        }
    }

    /// Whether a page may move, given the last move of its block.
    pub fn allows(&self, now: Time, wanted: &Move) -> bool {
        let moved = self.moved.get(&key(wanted));
        moved.is_none_or(|moved| moved.to == wanted.to || now >= self.until(moved))
    }

    /// Records that a page may not move; its neighbours probably may not, either.
    pub fn record_refused(&mut self, now: Time, wanted: &Move) {
        let Move { from, .. } = *wanted;
        if self.time > Time::ZERO {
            self.make_room(now);
            self.moved.insert(key(wanted), Moved { at: now, from, to: from, returns: DOUBLINGS_MAX });
        }
    }

    /// Records a move.
    pub fn record_move(&mut self, now: Time, made: &Move) {
        if self.time == Time::ZERO {
            return;
        }
        self.make_room(now);
        let new = Moved { at: now, from: made.from, to: made.to, returns: 0 };
        self.moved
            .entry(key(made))
            .and_modify(|moved| {
                let returns = moved.returns + u32::from(moved.from == made.to && moved.to != made.to);
                *moved = Moved { returns, ..new };
            })
            .or_insert(new);
    }
}

fn key(wanted: &Move) -> (TaskId, u64) {
    (wanted.task, wanted.page.0 / BLOCK_PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Frame;
    use crate::units::{PageSize, Vpn};

    fn to(node: u8, page: u64) -> Move {
        let (task, page, size) = (TaskId(1), Vpn(page), PageSize::Base);
        Move { task, page, size, from: NodeId(1 - node), to: NodeId(node), wish: Frame::ANY }
    }

    #[test]
    fn moved_page_cools_down_longer_each_time() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        let mut now = Time::ZERO;
        cooldown.record_move(now, &to(0, 5));
        assert!(cooldown.allows(now, &to(0, 6)), "the same way");
        assert!(cooldown.allows(now, &to(1, 512)), "elsewhere");
        for (node, wait_ms) in [(1, 10), (0, 20), (1, 40), (0, 80), (1, 160), (0, 320), (1, 640), (0, 640)] {
            let end = now + Time::from_ms(wait_ms);
            assert!(
                !cooldown.allows(end - Time(1), &to(node, 7)) && cooldown.allows(end, &to(node, 7)),
                "{wait_ms}"
            );
            now = end;
            cooldown.record_move(now, &to(node, 7));
        }
    }

    #[test]
    fn refused_page_backs_off() {
        let mut cooldown = Cooldown::new(Time::from_ms(10));
        cooldown.record_refused(Time::ZERO, &to(0, 5));
        assert!(
            !cooldown.allows(Time::from_ms(639), &to(0, 6)) && cooldown.allows(Time::from_ms(640), &to(0, 6))
        );
    }

    #[test]
    fn zero_cooldown_delays_nothing() {
        let mut cooldown = Cooldown::new(Time::ZERO);
        cooldown.record_move(Time::ZERO, &to(0, 5));
        assert!(cooldown.allows(Time::ZERO, &to(1, 5)) && cooldown.moved.is_empty());
    }
}
