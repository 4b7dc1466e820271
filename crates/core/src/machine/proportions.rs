//! Whether a reduced machine still has the proportions of the whole one.

use super::field_error::FieldError;
use super::{Cache, Machine};
use crate::units::LINE_BYTES;

/// Relative difference that comes from rounding to whole sets.
const ROUNDING: f64 = 0.05;

impl Machine {
    /// Warnings that what its `slice` and `scale` leave differs in proportion from the whole machine, so that
    /// results may differ, too: a private cache that outgrew its share of the next one, a prefetcher its
    /// cache, a period of the hint scanner what it marks. Each with its figures and the largest scale
    /// without it.
    pub fn reduction_warnings(&self) -> Vec<String> {
        disproportions(self).into_iter().map(|doubt| format!("{}: {}", doubt.field, doubt.message)).collect()
    }
}

/// The same with their fields.
pub(super) fn disproportions(machine: &Machine) -> Vec<FieldError> {
    if machine.reduction() == 1 {
        return Vec::new();
    }
    let small = machine.reduced();
    let found = found(machine, &small);
    if found.is_empty() {
        return Vec::new();
    }
    let fits = |scale: &u32| {
        let other = Machine { scale: *scale, ..machine.clone() };
        self::found(&other, &other.reduced()).is_empty()
    };
    let scales = std::iter::successors(Some(machine.scale / 2), |scale| Some(scale / 2));
    let advice = match scales.take_while(|&scale| scale > 0).find(fits) {
        Some(scale) => format!("lower `scale` to {scale} or less"),
        None => "results may differ from the whole machine's".to_owned(),
    };
    let (slice, scale) = (machine.slice, machine.scale);
    let doubt = |(field, what): (&str, String)| {
        FieldError::new(field, format!("at slice {slice} and scale {scale}, {what}; {advice}"))
    };
    found.into_iter().map(doubt).collect()
}

fn found(whole: &Machine, small: &Machine) -> Vec<(&'static str, String)> {
    let mut found: Vec<_> = caches(whole, small).into_iter().map(|what| ("scale", what)).collect();
    found.extend(prefetcher(whole, small).map(|what| ("prefetcher", what)));
    found.extend(scan(whole, small).map(|what| ("kernel.numa_scan_period_ms", what)));
    found
}

/// A CPU's share of a cache level, in KiB.
fn share_kib(cache: &Cache) -> f64 {
    cache.capacity_kib as f64 / f64::from(cache.shared_by)
}

/// Private caches that outgrew a CPU's share of the next level, or did by more than on the whole machine.
fn caches(whole: &Machine, small: &Machine) -> Vec<String> {
    let pairs = small.caches.windows(2).zip(whole.caches.windows(2));
    let outgrown = pairs.filter_map(|(small, whole)| {
        let [[inner, outer], [whole_inner, whole_outer]] =
            [small, whole].map(|pair| [&pair[0], &pair[1]].map(share_kib));
        let allowed = (whole_inner / whole_outer).max(1.0) * (1.0 + ROUNDING);
        (!small[0].is_shared() && inner / outer > allowed).then(|| {
            let [name, next] = [&small[0].name, &small[1].name];
            format!(
                "'{name}' has {inner:.0} KiB and a CPU's share of '{next}' {outer:.0} KiB (whole machine: \
                 {whole_inner:.0} and {whole_outer:.0})"
            )
        })
    });
    outgrown.collect()
}

/// A prefetcher whose lines no longer fit a CPU's share of the cache that they go into, the last shared one.
fn prefetcher(whole: &Machine, small: &Machine) -> Option<String> {
    let prefetcher = small.prefetcher.as_ref()?;
    let lines = u64::from(prefetcher.streams) * u64::from(prefetcher.distance_lines);
    let kib = (lines * LINE_BYTES) as f64 / 1024.0;
    let share = |machine: &Machine| {
        machine
            .caches
            .last()
            .filter(|cache| cache.is_shared())
            .map(|cache| (cache.name.clone(), share_kib(cache)))
    };
    let ((name, left), (_, before)) = (share(small)?, share(whole)?);
    (kib > left && kib <= before).then(|| {
        format!(
            "the prefetcher fetches up to {kib:.0} KiB ahead into a CPU's share of '{name}' of {left:.0} KiB"
        )
    })
}

/// A scanner that marks a page at a time and so waits longer than the scale says.
fn scan(whole: &Machine, small: &Machine) -> Option<String> {
    let period_ms = small.kernel.numa_scan_period_ms;
    let expected_ms = whole.kernel.numa_scan_period_ms / f64::from(whole.scale);
    (small.kernel.numa_scan_pages() == 1 && period_ms > expected_ms * (1.0 + ROUNDING)).then(|| {
        format!(
            "the hint scanner marks a page each {period_ms:.3} ms: its part of {} MiB each {expected_ms:.3} \
             ms is less than a page",
            whole.kernel.numa_scan_mib
        )
    })
}
