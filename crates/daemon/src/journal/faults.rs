//! Hint faults of neighbouring pages, told as one.

use memtide_core::policy::HintFault;
use memtide_core::{Time, Vpn};
use serde::{Deserialize, Serialize};

/// Hint faults of neighbouring pages that are alike and come at equal times one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// That of the first page.
    pub first: HintFault,
    /// How many pages of its size.
    pub pages: u64,
    /// The time between one and the next.
    pub step: Time,
}

impl Faults {
    /// A run of one fault.
    pub fn of(fault: &HintFault) -> Faults {
        Faults { first: *fault, pages: 1, step: Time::ZERO }
    }

    fn at(&self, number: u64) -> HintFault {
        let HintFault { time, page, size, .. } = self.first;
        HintFault {
            time: Time(time.0 + self.step.0 * number),
            page: Vpn(page.0 + size.base_pages() * number),
            ..self.first
        }
    }

    /// Adds a fault if it goes on where this ends, and tells whether it did.
    pub fn add(&mut self, fault: &HintFault) -> bool {
        let since = Time(fault.time.0.saturating_sub(self.first.time.0));
        let step = if self.pages == 1 { since } else { self.step };
        let adds = Faults { step, ..*self }.at(self.pages) == *fault;
        if adds {
            (self.pages, self.step) = (self.pages + 1, step);
        }
        adds
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = HintFault> + use<> {
        let all = *self;
        (0..all.pages).map(move |number| all.at(number))
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{CpuId, NodeId, PageSize, TaskId, ThreadId};

    use super::*;

    #[test]
    fn neighbours_at_equal_times_are_one_run_and_each_is_told_again() {
        let fault = |time, page, node| HintFault {
            time: Time(time),
            task: TaskId(1),
            thread: ThreadId(2),
            cpu: CpuId(3),
            page: Vpn(page),
            size: PageSize::Huge,
            node: NodeId(node),
            write: false,
            pass: 4,
        };
        let all = [
            fault(10, 512, 0),
            fault(13, 1024, 0),
            fault(16, 1536, 0),
            fault(20, 2048, 0),
            fault(23, 2560, 1),
            fault(26, 9 * 512, 1),
        ];
        let mut runs: Vec<Faults> = Vec::new();
        for fault in &all {
            if !runs.last_mut().is_some_and(|last| last.add(fault)) {
                runs.push(Faults::of(fault));
            }
        }
        assert_eq!(
            runs.iter().map(|run| (run.pages, run.step.0)).collect::<Vec<_>>(),
            [(3, 3), (1, 0), (1, 0), (1, 0)]
        );
        assert_eq!(runs.iter().flat_map(Faults::each).collect::<Vec<_>>(), all);
    }
}
