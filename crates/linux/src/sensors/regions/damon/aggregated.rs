//! DAMON's regions at the end of each aggregation interval, from its tracepoint `damon_aggregated`, read by
//! perf_event_open(2).

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use memtide_core::Time;
use perf_event::data::{Record, Sample};
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};

use super::{Found, Remedy, Unusable};

const TRACEFS: &str = "/sys/kernel/tracing";
const TRACEPOINT: &str = "events/damon/damon_aggregated";

/// Maximum bytes per region record, and the number of intervals buffered until they are read.
const RECORD_BYTES: usize = 80;
const INTERVALS_KEPT: u32 = 8;

/// The regions reported by one of DAMON's threads.
pub struct Aggregated {
    sampler: Sampler,
    layout: Layout,
    /// Maximum age; older ones are out of date.
    kept: Duration,
    targets: Vec<Target>,
    /// Whether an interval was completed since the last call of [`Aggregated::take_new`].
    is_new: bool,
}

#[derive(Debug, Default)]
struct Target {
    /// Those of the interval being received.
    partial: Vec<Found>,
    /// Those of the last complete interval, and its time.
    latest: Vec<Found>,
    at: Duration,
    /// Whether the interval being received began before a change of the sampling interval.
    is_mixed: bool,
}

/// Whether the tracepoint can be read.
///
/// # Errors
/// Why it cannot.
pub fn check() -> Result<(), Unusable> {
    Layout::read().map(drop).map_err(|error| match Path::new(TRACEFS).join("events").exists() {
        true => Unusable { why: error.to_string(), remedy: None },
        false => Unusable {
            why: format!("tracefs is not mounted on {TRACEFS}"),
            remedy: Some(Remedy::Command(format!("mount -t tracefs tracefs {TRACEFS}"))),
        },
    })
}

impl Aggregated {
    /// Receives the reports of a thread of DAMON's with at most this many regions.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(thread: i32, regions_max: usize, interval: Time) -> io::Result<Aggregated> {
        let id = read(&format!("{TRACEPOINT}/id"))?;
        let id = id.trim();
        let id = id.parse().map_err(|_| io::Error::other(format!("{TRACEPOINT}/id is '{id}'")))?;
        let sampler = Builder::new(Tracepoint::with_id(id))
            .observe_pid(thread)
            .any_cpu()
            .include_kernel()
            .sample_period(1)
            .sample(SampleFlag::RAW | SampleFlag::TIME)
            .clockid(Clock::MONOTONIC)
            .build()
            .and_then(|mut counter| {
                counter.enable()?;
                counter.sampled(regions_max * RECORD_BYTES * INTERVALS_KEPT as usize)
            })
            .map_err(|error| io::Error::new(error.kind(), format!("perf_event_open of DAMON: {error}")))?;
        let kept = Duration::from_nanos(interval.as_ns() as u64) * INTERVALS_KEPT;
        Ok(Aggregated { sampler, layout: Layout::read()?, kept, targets: Vec::new(), is_new: false })
    }

    /// Reads the records since the last call.
    pub fn update(&mut self) {
        while let Some(record) = self.sampler.next_record() {
            let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
            if let Some((target, regions, found)) = self.layout.region(&sample) {
                let at = Duration::from_nanos(sample.time().unwrap_or(0));
                self.is_new |= target_of(&mut self.targets, target).take_in(found, regions, at);
            }
        }
    }

    /// Whether any target's interval was completed since the last call.
    pub fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Drops the intervals in progress: DAMON adds samples of two sampling intervals in them.
    pub fn drop_partial(&mut self) {
        self.targets.iter_mut().for_each(|target| target.is_mixed = true);
    }

    /// Forgets the regions of a target.
    pub fn forget(&mut self, target: usize) {
        *target_of(&mut self.targets, target) = Target::default();
    }

    /// A target's regions in address order, as last reported; `None` if they are out of date.
    pub fn latest(&self, target: usize) -> Vec<Found> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::try_from(now).expect("time goes forward");
        let told = self.targets.get(target).filter(|told| told.at + self.kept >= now);
        told.map_or_else(Vec::new, |told| {
            told.latest.iter().filter(|found| found.pages > 0).copied().collect()
        })
    }
}

impl std::fmt::Debug for Aggregated {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Aggregated").field("targets", &self.targets).finish_non_exhaustive()
    }
}

fn target_of(targets: &mut Vec<Target>, number: usize) -> &mut Target {
    if targets.len() <= number {
        targets.resize_with(number + 1, Target::default);
    }
    &mut targets[number]
}

impl Target {
    /// Adds the next region in address order; a target's interval has this many. Returns whether it is
    /// complete.
    fn take_in(&mut self, found: Found, regions: usize, at: Duration) -> bool {
        if self.partial.last().is_some_and(|last| last.start >= found.start) {
            // The rest of the previous interval was lost.
            self.partial.clear();
        }
        self.partial.push(found);
        if self.partial.len() != regions {
            return false;
        }
        if std::mem::take(&mut self.is_mixed) {
            self.partial.clear();
            return false;
        }
        self.latest.clear();
        std::mem::swap(&mut self.partial, &mut self.latest);
        self.at = at;
        true
    }
}

/// Offsets of a record's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    target_id: Field,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Field,
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    bytes: usize,
}

/// Above any number of targets in use.
const TARGETS_MAX: u64 = 1 << 20;

impl Layout {
    fn read() -> io::Result<Layout> {
        let text = read(&format!("{TRACEPOINT}/format"))?;
        let field = |name| {
            Field::named(name, &text).ok_or_else(|| {
                io::Error::other(format!("{TRACEPOINT}/format has no {name} that can be read"))
            })
        };
        Ok(Layout {
            target_id: field("target_id")?,
            nr_regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            nr_accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// A region, its target, and the target's number of regions.
    fn region(&self, sample: &Sample) -> Option<(usize, usize, Found)> {
        let raw = sample.raw()?;
        let target = self.target_id.of(raw).filter(|&target| target < TARGETS_MAX)?;
        let [start, end] = [self.start.of(raw)? / 4096, self.end.of(raw)? / 4096];
        let [accesses, age] = [self.nr_accesses, self.age].map(|field| u32::try_from(field.of(raw)?).ok());
        let found = Found { start, pages: end.saturating_sub(start), accesses: accesses?, age: age? };
        Some((target as usize, self.nr_regions.of(raw)? as usize, found))
    }
}

impl Field {
    /// From a line of the tracepoint's `format` (Documentation/trace/events.rst).
    fn named(name: &str, format: &str) -> Option<Field> {
        let line = format.lines().find(|line| {
            let declared = line.split(';').next().unwrap_or_default();
            declared.trim().starts_with("field:") && declared.ends_with(&format!(" {name}"))
        })?;
        let number = |key: &str| {
            let value = line.split(';').find_map(|part| part.trim().strip_prefix(key))?;
            value.parse().ok()
        };
        let field = Field { offset: number("offset:")?, bytes: number("size:")? };
        (field.bytes <= 8).then_some(field)
    }

    fn of(self, raw: &[u8]) -> Option<u64> {
        let mut number = [0; 8];
        number[..self.bytes].copy_from_slice(raw.get(self.offset..self.offset + self.bytes)?);
        Some(u64::from_le_bytes(number))
    }
}

fn read(file: &str) -> io::Result<String> {
    let file = Path::new(TRACEFS).join(file);
    fs::read_to_string(&file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: damon_aggregated\nID: 734\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:char name[32];\toffset:20;\tsize:32;\tsigned:0;\n";

    #[test]
    fn field_is_found_by_format() {
        let field = Field::named("nr_regions", FORMAT).expect("a field");
        assert_eq!(field, Field { offset: 16, bytes: 4 });
        let raw: Vec<u8> = (0..24).collect();
        assert_eq!(field.of(&raw), Some(0x1312_1110));
        assert_eq!(field.of(&raw[..19]), None, "a record that is cut");
        for name in ["regions", "age", "name[32]", "format"] {
            assert_eq!(Field::named(name, FORMAT), None, "{name}");
        }
    }

    #[test]
    fn interval_counts_once_complete() {
        let found = |start| Found { start, pages: 4, accesses: 1, age: 2 };
        let mut target = Target::default();
        let mut report = |starts: &[u64], at| {
            for &start in starts {
                target.take_in(found(start), 3, Duration::from_secs(at));
            }
            (target.latest.iter().map(|found| found.start).collect::<Vec<u64>>(), target.at.as_secs())
        };
        assert_eq!(report(&[1, 5], 1), (vec![], 0));
        assert_eq!(report(&[9], 1), (vec![1, 5, 9], 1));
        assert_eq!(report(&[1, 5], 2), (vec![1, 5, 9], 1), "one is missing");
        assert_eq!(report(&[1, 6, 8], 3), (vec![1, 6, 8], 3), "and stays so");
    }

    #[test]
    fn interval_with_samples_of_two_sampling_intervals_does_not_count() {
        let found = |start| Found { start, pages: 4, accesses: 1, age: 2 };
        let mut target = Target::default();
        let mut report = |start, at| target.take_in(found(start), 1, Duration::from_secs(at));
        assert!(report(1, 1));
        target.is_mixed = true;
        let mut report = |start, at| target.take_in(found(start), 1, Duration::from_secs(at));
        assert!(!report(2, 2));
        assert!(report(3, 3));
        assert_eq!((target.latest[0].start, target.at.as_secs()), (3, 3));
    }
}
