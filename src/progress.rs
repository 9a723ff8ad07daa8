//! Progress on standard error: bars on a terminal, plain lines in a pipe.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nightshift_protocol::api::RunSummary;
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
    },
    /// Lines.
    Lines {
        /// Where to.
        output: Output,
        /// What was said last about each run.
        said: BTreeMap<RunId, String>,
    },
}

impl Progress {
    /// Bars or lines, as standard error is.
    pub(crate) fn new(output: Output) -> Self {
        if !output.shows_bars() {
            return Self::Lines { output, said: BTreeMap::new() };
        }
        let all = output.bars();
        let whole = all.add(ProgressBar::new(0));
        whole.set_style(style("{bar:24} {pos}/{len} runs ended, {elapsed} elapsed"));
        whole.enable_steady_tick(TICK);
        Self::Bars { all, whole, runs: BTreeMap::new() }
    }

    /// Shows the runs as they are now, and what some of them wait for.
    pub(crate) fn show(&mut self, summaries: &[RunSummary], waits: &BTreeMap<RunId, String>) {
        match self {
            Self::Bars { all, whole, runs } => {
                whole.set_length(u64::try_from(summaries.len()).unwrap_or(u64::MAX));
                let ended = summaries.iter().filter(|run| run.status.is_final()).count();
                whole.set_position(u64::try_from(ended).unwrap_or(u64::MAX));
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
            Self::Lines { output, said } => {
                for run in summaries {
                    let line = line(run, waits.get(&run.id));
                    // A wait that only got shorter is no news.
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

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// One line about a run.
fn line(run: &RunSummary, wait: Option<&String>) -> String {
    let attempts = present::count(usize::try_from(run.digest.attempts).unwrap_or(usize::MAX), "attempt");
    let best = run.digest.best_speedup.map_or_else(String::new, |speedup| {
        let confirmed = if run.digest.best_confirmed { ", confirmed" } else { "" };
        format!(", best {}{confirmed}", present::factor(speedup.estimate))
    });
    let what = if run.status.is_final() { present::ending(run) } else { run.digest.activity.clone() };
    let wait = wait.map_or_else(String::new, |wait| format!(" ({wait})"));
    printable(&format!("{attempts}{best}: {what}{wait}")).replace('\n', " ")
}
