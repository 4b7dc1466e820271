//! The stages of a run, by its programs' marks. The machine does not see them: only counts are split.

use memtide_core::{Mark, Stage};

use crate::SimError;
use crate::engine::Engine;
use crate::totals::Totals;

/// The current stage, and the counts of each.
pub(crate) struct Stages {
    pub current: Stage,
    /// Counts when it began; `None` at the start of the run.
    begun: Option<Totals>,
    /// Counts of each stage, in the order of [`Stage::ALL`]; `None` if the run was never in it.
    ended: [Option<Totals>; Stage::ALL.len()],
}

impl Stages {
    /// The stages of a run that begins with this one.
    pub fn new(current: Stage) -> Stages {
        Stages { current, begun: None, ended: [const { None }; Stage::ALL.len()] }
    }

    /// Ends the current stage, and begins another.
    fn enter(&mut self, stage: Stage, now: Totals) {
        let counts = self.begun.as_ref().map_or_else(|| now.clone(), |begun| now.since(begun));
        match &mut self.ended[self.current as usize] {
            Some(sum) => sum.add(&counts),
            none => *none = Some(counts),
        }
        (self.current, self.begun) = (stage, Some(now));
    }

    /// Counts of an ended stage, if the run was in it.
    pub fn of(&self, stage: Stage) -> Option<&Totals> {
        self.ended[stage as usize].as_ref()
    }

    /// Counts of the region of interest of a run that has ended; of all of it if its programs were never in
    /// their regions at the same time.
    pub fn region(&self) -> Option<&Totals> {
        self.of(Stage::Region).or(self.begun.as_ref())
    }
}

impl Engine<'_> {
    /// A program makes a mark.
    pub(crate) fn mark(&mut self, program: usize, mark: Mark) {
        let now = self.now;
        let running = &mut self.programs[program];
        if !running.feed.has_region() {
            return;
        }
        // After a barrier that opens now, no other thread has done anything yet.
        self.has_open_mark |= running.live > running.at_barrier + 1 && running.opened != now;
        let was = running.stage;
        running.stage = was.after(mark);
        if was != Stage::Region && running.stage == Stage::Region {
            running.has_begun = true;
            running.region_since = now;
        } else if was == Stage::Region && running.stage != Stage::Region {
            running.region_time += now.since(running.region_since);
        }
        self.change_stage();
    }

    /// A program has ended, and with it its region.
    pub(crate) fn end_program(&mut self, program: usize) -> Result<(), SimError> {
        let running = &mut self.programs[program];
        running.ended = self.now;
        if running.stage == Stage::Region {
            running.region_time += self.now.since(running.region_since);
        }
        if !running.has_begun {
            return Err(SimError::NoRegion { program: running.name.clone() });
        }
        self.change_stage();
        Ok(())
    }

    /// The least of the live programs' stages.
    pub(crate) fn stage(&self) -> Option<Stage> {
        self.programs.iter().filter(|program| program.live > 0).map(|program| program.stage).min()
    }

    /// Follows the programs into the next stage.
    pub(crate) fn change_stage(&mut self) {
        let Some(stage) = self.stage() else { return };
        if stage != self.stages.current {
            // Moves made so far belong to the stage that ends.
            self.collect_completions();
            let now = Totals::of(self, self.now);
            self.stages.enter(stage, now);
            self.follow_stage(stage);
        }
    }

    /// Ends the last stage with the run.
    pub(crate) fn end_stages(&mut self) {
        let ended = self.programs.iter().map(|program| program.ended).max().unwrap_or_default();
        let now = Totals::of(self, ended);
        self.stages.enter(self.stages.current, now);
    }
}
