//! Measures the phases of a step.

use std::time::Instant;

use nightshift_protocol::measurement::CostPart;

/// Takes the time of one phase after another.
#[derive(Debug)]
pub struct PhaseTimer {
    phases: Vec<CostPart>,
    since: Instant,
}

impl PhaseTimer {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { phases: Vec::new(), since: Instant::now() }
    }

    /// Ends a phase. Times of phases with the same name are added.
    pub fn end(&mut self, name: &str) {
        let now = Instant::now();
        let ms = now.duration_since(self.since).as_secs_f64() * 1e3;
        self.since = now;
        match self.phases.iter_mut().find(|phase| phase.name == name) {
            Some(phase) => phase.ms += ms,
            None => self.phases.push(CostPart { name: name.to_owned(), ms }),
        }
    }

    /// Adds phases that were timed elsewhere, in the place of the time since the last phase.
    pub fn add(&mut self, phases: &[CostPart]) {
        self.since = Instant::now();
        self.phases.extend_from_slice(phases);
    }

    /// Returns every phase so far.
    #[must_use]
    pub fn phases(&self) -> Vec<CostPart> {
        self.phases.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_same_phase_are_added() {
        let mut timer = PhaseTimer::start();
        for name in ["contexts", "samples", "contexts"] {
            timer.end(name);
        }
        let names: Vec<String> = timer.phases().into_iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["contexts", "samples"]);
    }
}
