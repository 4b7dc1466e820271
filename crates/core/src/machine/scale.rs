//! Scaled-down machines of the same shape, on which short programs meet the same memory pressure.

use super::Machine;

impl Machine {
    /// The machine with its `scale` applied: divides capacities, shared caches, TLB reach, and the kernel's
    /// periods and page counts by it; private caches, latencies and bandwidths stay. The result has scale 1.
    ///
    /// The cost of a monitor's sample is divided, too: as many regions are sampled in a shorter time, at the
    /// same share of a CPU.
    ///
    /// A shared cache keeps at least one set, a TLB level at least one set.
    pub fn scaled(&self) -> Machine {
        let mut machine = self.clone();
        let by = u64::from(self.scale);
        for node in &mut machine.nodes {
            node.capacity_mib = (node.capacity_mib / by).max(1);
        }
        for cache in machine.caches.iter_mut().filter(|c| c.is_shared()) {
            let set_kib = u64::from(cache.ways).div_ceil(16);
            cache.capacity_kib = (cache.capacity_kib / by).max(set_kib);
        }
        for tlb in &mut machine.tlbs {
            tlb.entries = (tlb.entries / self.scale).max(u32::from(tlb.ways));
        }
        machine.kernel.numa_scan_period_ms /= by as f64;
        machine.kernel.sample_ns /= by as f64;
        machine.kernel.numa_scan_mib = (machine.kernel.numa_scan_mib / by).max(1);
        machine.scale = 1;
        machine
    }
}
