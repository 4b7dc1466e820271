//! Which process did what in regions of interest.

use memtide_lab_protocol::counters::PROCESSES;
use memtide_lab_protocol::{Counts, Process, Who};

/// The address space of the kernel before any other.
const FIRST_ROOT: u64 = 0;

/// Processes, and which of them each virtual CPU runs. All that are too many count as the last.
#[derive(Clone, Debug)]
pub struct Ledger {
    nodes: usize,
    processes: Vec<Process>,
    cpus: Vec<Cpu>,
}

/// A virtual CPU.
#[derive(Clone, Debug)]
struct Cpu {
    process: usize,
    /// It has not returned to a program since it changed its address space.
    fresh: bool,
    /// What it had counted when its process last got its share.
    settled: Counts,
}

impl Ledger {
    /// So many virtual CPUs and nodes.
    pub fn new(cpus: usize, nodes: usize) -> Ledger {
        let cpu = Cpu { process: 0, fresh: false, settled: Counts::none(nodes) };
        let mut ledger = Ledger { nodes, processes: Vec::new(), cpus: vec![cpu; cpus] };
        ledger.number(FIRST_ROOT);
        ledger
    }

    /// A virtual CPU runs the process with this page table from now on.
    pub fn enter(&mut self, cpu: usize, root: u64) {
        let process = self.number(root);
        self.cpus[cpu] = Cpu { process, fresh: true, ..self.cpus[cpu].clone() };
    }

    /// Whether a virtual CPU that returns to a program does so for the first time in an address space.
    pub fn returns(&mut self, cpu: usize) -> bool {
        std::mem::take(&mut self.cpus[cpu].fresh)
    }

    /// A program begins in the address space of a virtual CPU; what ran there before has ended.
    pub fn start(&mut self, cpu: usize, name: &str) {
        let before = &mut self.processes[self.cpus[cpu].process];
        if before.counts.user_instructions > 0 {
            let root = before.root;
            self.add(root);
            self.cpus[cpu].process = self.processes.len() - 1;
        }
        name.clone_into(&mut self.processes[self.cpus[cpu].process].name);
    }

    /// The process that a virtual CPU runs is the lab's agent.
    pub fn is_agent(&mut self, cpu: usize) {
        self.processes[self.cpus[cpu].process].who = Who::Agent;
    }

    /// What a virtual CPU has counted up to now is of no interest.
    pub fn skip(&mut self, cpu: usize, counted: Counts) {
        self.cpus[cpu].settled = counted;
    }

    /// What a virtual CPU has counted up to now is its process's.
    pub fn settle(&mut self, cpu: usize, counted: Counts) {
        let cpu = &mut self.cpus[cpu];
        let process = &mut self.processes[cpu.process];
        process.counts.add(&counted.since(&cpu.settled));
        cpu.settled = counted;
        if process.who == Who::Kernel && process.counts.user_instructions > 0 {
            process.who = Who::Program;
        }
    }

    /// All processes, with what they did so far.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The number of the process that has this page table, or had it last.
    fn number(&mut self, root: u64) -> usize {
        let known = self.processes.iter().rposition(|process| process.root == root);
        known.unwrap_or_else(|| {
            self.add(root);
            self.processes.len() - 1
        })
    }

    fn add(&mut self, root: u64) {
        if self.processes.len() < PROCESSES {
            let counts = Counts::none(self.nodes);
            self.processes.push(Process { root, name: String::new(), who: Who::Kernel, counts });
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_lab_protocol::between;

    use super::*;

    fn counted(instructions: u64, user_instructions: u64) -> Counts {
        Counts { instructions, user_instructions, ..Counts::none(1) }
    }

    #[test]
    fn each_process_gets_what_was_counted_while_it_ran() {
        let mut ledger = Ledger::new(2, 1);
        ledger.enter(0, 0x1000);
        ledger.is_agent(0);
        ledger.enter(1, 0x2000);
        ledger.skip(0, counted(1000, 900));
        let before = ledger.processes().to_vec();
        ledger.settle(0, counted(1010, 905));
        ledger.enter(0, 0x2000);
        ledger.settle(0, counted(1030, 920));
        ledger.settle(1, counted(7, 7));
        ledger.enter(1, 0x3000);
        ledger.settle(1, counted(9, 7));
        let did = between(&before, ledger.processes());
        let did: Vec<_> =
            did.iter().map(|p| (p.root, p.who, p.counts.instructions, p.counts.user_instructions)).collect();
        assert_eq!(
            did,
            [
                (0x1000, Who::Agent, 10, 5),
                (0x2000, Who::Program, 20 + 7, 15 + 7),
                (0x3000, Who::Kernel, 2, 0)
            ]
        );
    }

    #[test]
    fn a_program_that_begins_where_another_ran_is_another_process() {
        let mut ledger = Ledger::new(1, 1);
        ledger.enter(0, 0x1000);
        assert!(ledger.returns(0) && !ledger.returns(0), "once for each change");
        ledger.start(0, "sh");
        ledger.start(0, "sh");
        ledger.settle(0, counted(5, 5));
        ledger.enter(0, 0x2000);
        ledger.enter(0, 0x1000);
        ledger.start(0, "sort");
        ledger.settle(0, counted(12, 12));
        ledger.enter(0, 0x1000);
        ledger.settle(0, counted(20, 20));
        let did = between(&[], ledger.processes());
        let did: Vec<_> = did.iter().map(|p| (p.name.as_str(), p.counts.instructions)).collect();
        assert_eq!(did, [("sh", 5), ("sort", 15)]);
    }

    #[test]
    fn more_processes_than_are_told_apart_count_as_the_last() {
        let mut ledger = Ledger::new(1, 1);
        for root in 1..=300 {
            ledger.enter(0, root << 12);
            ledger.settle(0, counted(root, root));
        }
        let processes = ledger.processes();
        assert_eq!(processes.len(), PROCESSES);
        assert_eq!(processes[PROCESSES - 1].counts.instructions, 300 - 254);
    }
}
