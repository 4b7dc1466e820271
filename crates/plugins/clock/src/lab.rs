//! The modelled machine and its virtual CPUs.

use memtide_core::machine::Machine;
use memtide_core::{CpuId, Time};
use memtide_memory::curve::{Access, Config, Curve, Results, Touched};

use crate::op::{MAX_VCPUS, Op};
use crate::regions::{Counts, Spaces};
use crate::vcpu::Vcpu;

/// Time that a virtual CPU runs before the next one does.
pub const QUANTUM: Time = Time::from_us(20);

/// Everything that the plugin knows beside QEMU.
#[derive(Debug)]
pub struct Lab {
    pub config: Config,
    pub curve: Curve,
    pub vcpus: Vec<Vcpu>,
    pub spaces: Spaces,
    pub results: Results,
    /// The model is on: a region of interest is under way.
    pub on: bool,
    /// Time of an instruction on the modelled core, in ps.
    model_ps: f64,
    /// What had been counted when the region of interest under way began.
    begun: Option<Counts>,
}

impl Lab {
    /// Reads a configuration and the machine in it.
    pub fn read(file: &str) -> Result<Lab, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let config: Config = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
        let machine = Machine::parse(file, &config.machine).map_err(|error| error.to_string())?;
        let count = config.vcpu_initiators.len();
        if count == 0 || count > MAX_VCPUS {
            return Err(format!("{file}: 1 to {MAX_VCPUS} virtual CPUs are allowed, not {count}"));
        }
        if machine.nodes.iter().any(|node| node.given.is_none()) {
            return Err(format!("{file}: every node must be given"));
        }
        Ok(Lab {
            curve: Curve::new(&machine, &config),
            vcpus: (0..count).map(|cpu| Vcpu::new(cpu == 0)).collect(),
            spaces: Spaces::new(machine.nodes.len()),
            results: Results::default(),
            on: false,
            model_ps: 1e6 / (machine.core.clock_mhz * machine.core.instructions_per_cycle),
            begun: None,
            config,
        })
    }

    /// Time of an instruction at present, in ps.
    pub fn instruction_ps(&self) -> f64 {
        if self.on { self.model_ps } else { self.config.boot_ps as f64 }
    }

    /// Turns the model on or off; each virtual CPU has executed so many instructions. False if nothing
    /// changes.
    pub fn turn(&mut self, on: bool, instructions: &[u64]) -> bool {
        if self.on == on {
            return false;
        }
        self.on = on;
        let ps = self.instruction_ps();
        for (cpu, &instruction) in instructions.iter().enumerate() {
            let cpu = CpuId::from(cpu);
            self.curve.drain(cpu, instruction);
            self.curve.change_rate(cpu, instruction, ps);
        }
        true
    }

    fn counts(&self, time: Time, instructions: &[u64]) -> Counts {
        let accesses = self.vcpus.iter().map(|vcpu| vcpu.accesses).sum();
        Counts::of(time, instructions.iter().sum(), accesses, &self.curve, &self.spaces)
    }

    /// A region of interest begins.
    pub fn begin(&mut self, time: Time, instructions: &[u64]) {
        self.begun = Some(self.counts(time, instructions));
    }

    /// Whether one is under way.
    pub fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// It has ended; results are written.
    pub fn end(&mut self, time: Time, instructions: &[u64]) {
        let Some(begun) = self.begun.take() else { return };
        let region = self.counts(time, instructions).since(&begun);
        self.results.regions.push(region);
        self.write();
    }

    /// Writes the results; a reader sees the old file or the new one.
    pub fn write(&self) {
        let file = &self.config.results;
        let new = file.with_extension("new");
        let text = serde_json::to_vec(&self.results).unwrap_or_default();
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = written {
            eprintln!("memtide clock: {}: {error}", file.display());
        }
    }

    /// An access that may not be in the first cache, or whose page was not seen lately (`translation` above zero).
    /// `instruction` says, if need be, how many the CPU has executed before it. False if it took no time.
    #[inline]
    pub fn access(
        &mut self,
        cpu: CpuId,
        op: &Op,
        line: u64,
        write: bool,
        translation: Time,
        instruction: impl FnOnce() -> u64,
    ) -> bool {
        let touched = self.curve.touch(cpu, line, write);
        if touched == Touched::First && translation == Time::ZERO {
            return false;
        }
        self.open(
            cpu,
            op,
            Access { instruction: instruction(), line, write, ready: Time::ZERO, translation },
            touched,
        );
        true
    }

    fn open(&mut self, cpu: CpuId, op: &Op, access: Access, touched: Touched) {
        let vcpu = &self.vcpus[cpu.index()];
        let ready = if self.curve.waits_for_lines(cpu, access.instruction) {
            op.address_ready(cpu, &vcpu.writers, &self.curve)
        } else {
            Time::ZERO
        };
        if let Some(node) = self.curve.open(cpu, Access { ready, ..access }, touched) {
            self.spaces.read(vcpu.space, node);
        }
    }
}
