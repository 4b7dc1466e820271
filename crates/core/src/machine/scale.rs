//! Scaled-down machines of the same shape, on which short programs meet the same memory pressure.

use super::{Kernel, Machine};

impl Machine {
    /// The machine with its `scale` applied: divides capacities, caches, TLB reach, and the kernel's periods
    /// and page counts by it; latencies and bandwidths stay. The result has scale 1.
    ///
    /// The first private cache stays, as the accesses that it serves have the distances of the whole program;
    /// a further one keeps at least the capacity of the one before it, or its own. The cost of a monitor's
    /// sample and of a sampled access is divided, too: as many regions and accesses are sampled in a shorter
    /// time, at the same share of a CPU.
    ///
    /// A cache keeps at least one set, a TLB level at least one set.
    pub fn scaled(&self) -> Machine {
        let mut machine = self.clone();
        machine.scale = 1;
        if self.scale <= 1 {
            return machine;
        }
        let by = u64::from(self.scale);
        for node in &mut machine.nodes {
            node.capacity_mib = (node.capacity_mib / by).max(1);
        }
        let mut before_kib = None;
        for cache in &mut machine.caches {
            let whole_kib = cache.capacity_kib;
            let scaled_kib = cache.whole_sets(whole_kib / by);
            cache.capacity_kib = match before_kib {
                _ if cache.is_shared() => scaled_kib,
                None => whole_kib,
                Some(before_kib) => scaled_kib.max(cache.sets_for(before_kib)).min(whole_kib),
            };
            before_kib = Some(cache.capacity_kib);
        }
        for tlb in &mut machine.tlbs {
            tlb.entries = (tlb.entries / self.scale).max(u32::from(tlb.ways));
        }
        machine.kernel.numa_scan_period_ms /= by as f64;
        machine.kernel.sample_ns /= by as f64;
        machine.kernel.access_sample_ns /= by as f64;
        machine.kernel.divide_scan(by);
        machine
    }
}

impl Kernel {
    /// Divides the memory that the hint scanner marks per step, to whole pages and at least one. Where it is
    /// rounded, the period changes with it, so that as much is marked per second as by an exact part.
    pub(super) fn divide_scan(&mut self, by: u64) {
        let exact_mib = self.numa_scan_mib / by as f64;
        self.numa_scan_mib = exact_mib;
        self.numa_scan_mib = self.numa_scan_pages() as f64 * Kernel::SCAN_MIB_MIN;
        self.numa_scan_period_ms *= self.numa_scan_mib / exact_mib;
    }
}
