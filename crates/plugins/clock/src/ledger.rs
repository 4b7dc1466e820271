//! Per-process counters in regions of interest.

use memtide_lab_protocol::counters::PROCESSES;
use memtide_lab_protocol::{Counts, Process, Who};

/// The kernel's first address space.
const FIRST_ROOT: u64 = 0;

/// Processes, and which one each virtual CPU runs. Processes beyond the limit count as the last.
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
    /// Whether it has not returned to user mode since it changed its address space.
    fresh: bool,
    /// Its counters when they were last added to a process.
    settled: Counts,
}

impl Ledger {
    /// For `cpus` virtual CPUs and `nodes` nodes.
    pub fn new(cpus: usize, nodes: usize) -> Ledger {
        let cpu = Cpu { process: 0, fresh: false, settled: Counts::none(nodes) };
        let mut ledger = Ledger { nodes, processes: Vec::new(), cpus: vec![cpu; cpus] };
        ledger.number(FIRST_ROOT);
        ledger
    }

    /// Switches a virtual CPU to the process with this page table.
    pub fn enter(&mut self, cpu: usize, root: u64) {
        let process = self.number(root);
        self.cpus[cpu] = Cpu { process, fresh: true, ..self.cpus[cpu].clone() };
    }

    /// The page table of the process that a virtual CPU runs.
    pub fn root(&self, cpu: usize) -> u64 {
        self.processes[self.cpus[cpu].process].root
    }

    /// Whether this is a virtual CPU's first return to user mode in an address space.
    pub fn returns(&mut self, cpu: usize) -> bool {
        std::mem::take(&mut self.cpus[cpu].fresh)
    }

    /// A program starts in a virtual CPU's address space; a previous process there has ended.
    pub fn start(&mut self, cpu: usize, name: &str) {
        let before = &mut self.processes[self.cpus[cpu].process];
        if before.counts.user_instructions > 0 {
            let root = before.root;
            self.add(root);
            self.cpus[cpu].process = self.processes.len() - 1;
        }
        name.clone_into(&mut self.processes[self.cpus[cpu].process].name);
    }

    /// Marks a virtual CPU's process as the lab's agent.
    pub fn is_agent(&mut self, cpu: usize) {
        self.processes[self.cpus[cpu].process].who = Who::Agent;
    }

    /// Discards a virtual CPU's counts up to now.
    pub fn skip(&mut self, cpu: usize, counted: Counts) {
        self.cpus[cpu].settled = counted;
    }

    /// Adds a virtual CPU's counts up to now to its process.
    pub fn settle(&mut self, cpu: usize, counted: Counts) {
        let cpu = &mut self.cpus[cpu];
        let process = &mut self.processes[cpu.process];
        process.counts.add(&counted.since(&cpu.settled));
        cpu.settled = counted;
        if process.who == Who::Kernel && process.counts.user_instructions > 0 {
            process.who = Who::Program;
        }
    }

    /// All processes with their counters.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Index of the process with this page table, or of the last one that had it.
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
    fn counts_go_to_running_process() {
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
    fn new_program_in_address_space_is_new_process() {
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
    fn excess_processes_count_as_last() {
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
