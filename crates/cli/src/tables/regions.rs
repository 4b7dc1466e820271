//! Notes on the regions of interest of several programs.
//!
//! The region of a run is the time in which all programs that have not ended are in theirs. When that begins
//! depends on the policy, and so may what the region contains.

use memtide_core::Stage;
use memtide_sim::Report;

/// Difference of the regions' accesses from which it is reported.
const SAME_WORK: f64 = 0.01;

/// Which programs ended before the regions began, and whether policies' regions contain different work.
pub fn notes(names: &[String], reports: &[Report]) -> Vec<String> {
    let mut notes: Vec<String> = reports.first().and_then(ended_before).into_iter().collect();
    notes.extend(unequal(names, reports));
    notes
}

/// Programs that ended before the region of their run began, if any.
pub fn ended_before(report: &Report) -> Option<String> {
    let before = [Stage::Initialisation, Stage::WarmUp].map(Stage::name);
    let before = report.stages.iter().filter(|stage| before.contains(&&*stage.stage));
    let begins_ms: f64 = before.map(|stage| stage.time_ms).sum();
    let ended = report.programs.iter().zip(&report.program_ended_ms).filter(|(_, ms)| **ms <= begins_ms);
    let mut programs: Vec<&str> = ended.map(|(name, _)| name.as_str()).collect();
    programs.dedup();
    (report.marked && !programs.is_empty()).then(|| {
        format!(
            "{} ended before the region of interest of the other programs began: the figures are of those \
             alone.",
            programs.join(", ")
        )
    })
}

fn unequal(names: &[String], reports: &[Report]) -> Option<String> {
    let marked = reports.iter().zip(names).filter(|(report, _)| report.marked);
    let (least, with_least) = marked.clone().min_by_key(|(report, _)| report.accesses)?;
    let (most, with_most) = marked.max_by_key(|(report, _)| report.accesses)?;
    (most.accesses as f64 > least.accesses as f64 * (1.0 + SAME_WORK)).then(|| {
        format!(
            "The regions of interest contain different work: {} loads and stores under {with_least}, {} \
             under {with_most}. Speed-ups compare unequal work; run the programs one by one.",
            least.accesses, most.accesses
        )
    })
}
