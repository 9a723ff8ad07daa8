//! What a run came to, by the rules under which `KernelBench` publishes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use super::times::Times;
use super::{Claim, OtherRun};
use crate::kernelbench::layout::{self, Fast};

/// Counts and shares of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Name of the run.
    pub(crate) run: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Level of its tasks.
    pub(crate) level: u32,
    /// All tasks: those with a time of the reference, and those that the run has something of.
    pub(crate) tasks: usize,
    /// Tasks whose program 0 has a result.
    pub(crate) evaluated: usize,
    /// Results of all programs.
    pub(crate) results: usize,
    /// Files with programs.
    pub(crate) programs: usize,
    /// Tasks whose program 0 was built.
    pub(crate) compiled: usize,
    /// Tasks whose program 0 is right.
    pub(crate) correct: usize,
    /// Share of all tasks whose program 0 is right and more than so many times as fast, by threshold; none without times of
    /// references.
    pub(crate) fast: Option<BTreeMap<String, f64>>,
    /// Geometric mean of the speedups of right programs.
    pub(crate) geometric_mean: Option<f64>,
    /// Tasks without a time of the reference: they count as not faster.
    pub(crate) without_baseline: Vec<u32>,
    /// Tasks whose program 0 is right and was not timed: they count as not faster.
    pub(crate) without_time: Vec<u32>,
}

impl Figures {
    /// The published figures, for people; none without times of references.
    pub(crate) fn published(&self) -> Option<Fast> {
        let Self { level, tasks, geometric_mean, .. } = *self;
        Some(Fast { level, tasks, share: self.fast.clone()?, geometric_mean, over_fastest: None })
    }
}

/// What a run came to.
pub(crate) fn of(run: &OtherRun, times: Option<&Times>) -> Figures {
    let level = run.level;
    let with_time = times.into_iter().flat_map(|times| times.mean_ms.keys()).filter(|place| place.0 == level);
    let problems: BTreeSet<u32> =
        with_time.map(|place| place.1).chain(run.samples.keys().map(|place| place.problem)).collect();
    let first = |problem: u32| -> Option<&Claim> { run.sample(problem, 0)?.claim.as_ref() };
    let baseline_ms = |problem: u32| times?.mean_ms.get(&(level, problem)).copied();
    let counted = |wanted: &dyn Fn(&Claim) -> bool| {
        problems.iter().filter(|problem| first(**problem).is_some_and(wanted)).count()
    };
    let speedup = |problem: &u32| {
        let claim = first(*problem).filter(|claim| claim.correct)?;
        Some(baseline_ms(*problem)? / claim.runtime_ms?)
    };
    let fast = times.map(|_| layout::published(level, &problems.iter().map(speedup).collect::<Vec<_>>()));
    let is_untimed = |problem: &u32| first(*problem).is_some_and(|claim| claim.correct && claim.runtime_ms.is_none());
    Figures {
        run: run.name.clone(),
        folder: run.folder.clone(),
        level,
        tasks: problems.len(),
        evaluated: counted(&|_| true),
        results: run.samples.values().filter(|sample| sample.claim.is_some()).count(),
        programs: run.samples.values().filter(|sample| sample.file.is_some()).count(),
        compiled: counted(&|claim| claim.compiled),
        correct: counted(&|claim| claim.correct),
        geometric_mean: fast.as_ref().and_then(|fast| fast.geometric_mean),
        fast: fast.map(|fast| fast.share),
        without_baseline: problems
            .iter()
            .copied()
            .filter(|problem| times.is_some() && baseline_ms(*problem).is_none())
            .collect(),
        without_time: problems.iter().copied().filter(is_untimed).collect(),
    }
}
