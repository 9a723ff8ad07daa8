//! Progress on standard error: bars on a terminal, plain lines in a pipe.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::id::RunId;

use crate::output::{Output, printable};
use crate::present;

/// Bars at once; with more runs, only a bar for the whole.
const MAX_BARS: usize = 20;
/// How often a bar moves by itself.
const TICK: Duration = Duration::from_millis(120);

/// Shows how runs move.
pub(crate) enum Progress {
    /// Bars.
    Bars {
        /// All bars.
        all: &'static MultiProgress,
        /// Runs that ended, of all.
        whole: ProgressBar,
        /// One for each run.
        runs: BTreeMap<RunId, ProgressBar>,
        /// Estimates the remaining time.
        preparation: Preparation,
    },
    /// Lines.
    Lines {
        /// Where to.
        output: Output,
        /// What was said last about each run.
        said: BTreeMap<RunId, String>,
        /// Number of prepared tasks in the last line about them.
        prepared: usize,
        /// Estimates the remaining time.
        preparation: Preparation,
    },
}

impl Progress {
    /// Bars or lines, as standard error is.
    pub(crate) fn new(output: Output) -> Self {
        if !output.shows_bars() {
            return Self::Lines { output, said: BTreeMap::new(), prepared: 0, preparation: Preparation::default() };
        }
        let all = output.bars();
        let whole = all.add(ProgressBar::new(0));
        whole.set_style(style("{bar:24} {pos}/{len} runs ended, {elapsed} elapsed{msg}"));
        whole.enable_steady_tick(TICK);
        Self::Bars { all, whole, runs: BTreeMap::new(), preparation: Preparation::default() }
    }

    /// Shows the runs as they are now, and what some of them wait for.
    pub(crate) fn show(&mut self, summaries: &[RunSummary], waits: &BTreeMap<RunId, String>) {
        match self {
            Self::Bars { all, whole, runs, preparation } => {
                whole.set_length(u64::try_from(summaries.len()).unwrap_or(u64::MAX));
                let ended = summaries.iter().filter(|run| run.status.is_final()).count();
                whole.set_position(u64::try_from(ended).unwrap_or(u64::MAX));
                let preparing = preparation.describe(summaries, Instant::now());
                whole.set_message(preparing.map_or_else(String::new, |preparing| format!("; {preparing}")));
                for run in summaries {
                    if !runs.contains_key(&run.id) {
                        if runs.len() >= MAX_BARS {
                            continue;
                        }
                        let bar = all.insert_before(whole, ProgressBar::new_spinner());
                        bar.set_style(style("{spinner} {prefix:20} {wide_msg}"));
                        bar.set_prefix(run.digest.task.clone());
                        bar.enable_steady_tick(TICK);
                        runs.insert(run.id.clone(), bar);
                    }
                    let Some(bar) = runs.get(&run.id) else { continue };
                    if run.status.is_final() {
                        if !bar.is_finished() {
                            bar.finish_with_message(line(run, None));
                        }
                    } else {
                        bar.set_message(line(run, waits.get(&run.id)));
                    }
                }
            }
            Self::Lines { output, said, prepared, preparation } => {
                let now = summaries.iter().filter(|run| is_prepared(run)).count();
                if now != std::mem::replace(prepared, now)
                    && let Some(preparing) = preparation.describe(summaries, Instant::now())
                {
                    output.note(&preparing);
                }
                for run in summaries {
                    let line = line(run, waits.get(&run.id));
                    // A shorter remaining wait is not printed again.
                    let news: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
                    let key = if waits.contains_key(&run.id) { news } else { line.clone() };
                    if said.get(&run.id) != Some(&key) {
                        output.note(&format!("{:20} {line}", printable(&run.digest.task)));
                        said.insert(run.id.clone(), key);
                    }
                }
            }
        }
    }

    /// Leaves the screen to what follows.
    pub(crate) fn finish(self) {
        if let Self::Bars { whole, runs, .. } = self {
            for bar in runs.values().filter(|bar| !bar.is_finished()) {
                bar.abandon();
            }
            whole.abandon();
        }
    }
}

/// Returns whether a run's task is prepared, or never will be.
fn is_prepared(run: &RunSummary) -> bool {
    run.digest.fastest_baseline.is_some() || run.digest.attempts > 0 || run.status.is_final()
}

/// Counts prepared tasks, and estimates the time that the others take.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    /// The first observation: its time, and the number of prepared tasks.
    first: Option<(Instant, u32)>,
}

impl Preparation {
    /// Describes how many tasks are prepared, and how long the others take at the rate seen so far. Returns nothing where all are.
    fn describe(&mut self, runs: &[RunSummary], now: Instant) -> Option<String> {
        let prepared = runs.iter().filter(|run| is_prepared(run)).count();
        let (done, all) = (u32::try_from(prepared).ok()?, u32::try_from(runs.len()).ok()?);
        let (began, before) = *self.first.get_or_insert((now, done));
        let open = all.checked_sub(done).filter(|open| *open > 0 && all > 1)?;
        let seen = done.saturating_sub(before);
        let left = now.duration_since(began).checked_mul(open).and_then(|time| time.checked_div(seen));
        let left = left.map_or_else(String::new, |left| format!(", about {} left", HumanDuration(left)));
        Some(format!("{done} of {all} tasks prepared{left}"))
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// One line about a run.
fn line(run: &RunSummary, wait: Option<&String>) -> String {
    let attempts = present::count(run.digest.attempts, "attempt");
    let best = run.digest.best_speedup.map_or_else(String::new, |speedup| {
        let confirmed = if run.digest.best_confirmed { ", confirmed" } else { "" };
        let over = run.digest.best_speedup_over_fastest.zip(run.digest.fastest_baseline);
        let over = over
            .filter(|(_, fastest)| fastest.kind != BaselineKind::Reference)
            .map_or_else(String::new, |(speedup, fastest)| {
                format!(", {} over {}", present::factor(speedup.estimate), fastest.kind.label())
            });
        format!(", best {}{confirmed}{over}", present::factor(speedup.estimate))
    });
    let what = if run.status.is_final() { present::ending(run) } else { run.digest.activity.clone() };
    let wait = wait.map_or_else(String::new, |wait| format!(" ({wait})"));
    printable(&format!("{attempts}{best}: {what}{wait}")).replace('\n', " ")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(status: &str, prepared: bool) -> RunSummary {
        let fastest =
            json!({"kind": "reference", "median_ns": 1.0, "speedup": {"estimate": 1.0, "low": 1.0, "high": 1.0}});
        serde_json::from_value(json!({
            "id": "run_018f0000000070008000000000000001", "campaign": "cmp_018f0000000070008000000000000002", "status": status,
            "created_at": 0, "finished_at": null, "failure": null,
            "digest": {
                "task": "t", "model": "scripted", "scripted": true, "attempts": 0, "best_attempt": null, "best_speedup": null,
                "fastest_baseline": if prepared { Some(fastest) } else { None }, "best_confirmed": false, "stop_reason": null,
                "activity": "prepare",
            },
        }))
        .unwrap()
    }

    #[test]
    fn while_tasks_are_prepared_it_says_how_many_and_for_how_long() {
        let (began, minute) = (Instant::now(), Duration::from_mins(1));
        let runs = |prepared: [bool; 4]| prepared.map(|prepared| run("running", prepared));
        let mut preparation = Preparation::default();
        let first = preparation.describe(&runs([true, false, false, false]), began);
        assert_eq!(first.as_deref(), Some("1 of 4 tasks prepared"), "of the one before it no time is known");
        let second = preparation.describe(&runs([true, true, false, false]), began + minute);
        assert_eq!(second.as_deref(), Some("2 of 4 tasks prepared, about 2 minutes left"));
        assert_eq!(preparation.describe(&runs([true; 4]), began + minute), None);
        let ended = [run("failed", false), run("running", false)];
        assert_eq!(Preparation::default().describe(&ended, began).as_deref(), Some("1 of 2 tasks prepared"));
        assert_eq!(Preparation::default().describe(&ended[1..], began), None, "of one task there is nothing to count");
    }
}
