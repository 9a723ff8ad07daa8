//! What a storm comes to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Kind;
use super::check::Facts;
use super::violation::Violation;

/// The summary, as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    database: Kind,
    seed: u64,
    /// Faults by kind.
    faults: BTreeMap<&'static str, u32>,
    faults_total: u32,
    #[serde(flatten)]
    facts: Facts,
    /// Servers that could not start because their database was broken, and were started again.
    restarts: u32,
    storm_s: f64,
    settled_s: f64,
    pub(super) violations: Vec<Violation>,
}

impl Summary {
    #[expect(clippy::too_many_arguments, reason = "it is made in one place, of everything")]
    pub(super) fn new(
        database: Kind,
        seed: u64,
        faults: BTreeMap<&'static str, u32>,
        facts: Facts,
        storm: Duration,
        settled: Duration,
        restarts: u32,
        violations: Vec<Violation>,
    ) -> Self {
        let faults_total = faults.values().sum();
        let (storm_s, settled_s) = (storm.as_secs_f64(), settled.as_secs_f64());
        Self { database, seed, faults, faults_total, facts, restarts, storm_s, settled_s, violations }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} faults on {:?}, seed {}", self.faults_total, self.database, self.seed)?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>5} {kind}")?;
        }
        writeln!(f, "{}", self.facts)?;
        writeln!(f, "storm {:.0} s, then {:.1} s until the last run was over", self.storm_s, self.settled_s)?;
        if self.violations.is_empty() {
            write!(f, "everything held")
        } else {
            writeln!(f, "{} VIOLATIONS", self.violations.len())?;
            self.violations.iter().try_for_each(|violation| writeln!(f, "  {violation}"))
        }
    }
}
