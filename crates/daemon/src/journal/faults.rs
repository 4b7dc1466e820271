//! Hint faults of consecutive pages, recorded as one run.

use memtide_core::policy::HintFault;
use memtide_core::{Time, Vpn};
use serde::{Deserialize, Serialize};

/// Equal hint faults of consecutive pages at equal intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// The fault of the first page.
    pub first: HintFault,
    /// Number of pages of its size.
    pub pages: u64,
    /// Interval between faults.
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

    /// Appends a fault that continues this run; returns whether it did.
    pub fn add(&mut self, fault: &HintFault) -> bool {
        let since = Time(fault.time.0.saturating_sub(self.first.time.0));
        let step = if self.pages == 1 { since } else { self.step };
        let adds = Faults { step, ..*self }.at(self.pages) == *fault;
        if adds {
            (self.pages, self.step) = (self.pages + 1, step);
        }
        adds
    }

    /// Each fault.
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
    fn consecutive_faults_at_equal_intervals_round_trip_as_one_run() {
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
            idle: None,
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
