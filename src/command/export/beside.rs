//! `nightshift export kernelbench --beside`: what another evaluation said of programs, and what this one found.

use std::borrow::Cow;

use nightshift_client::Client;
use nightshift_protocol::api::CampaignDetail;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::verdict::{Answer, Severity};
use serde::Serialize;

use crate::failure::Result;
use crate::kernelbench::claims::{Claimed, Claims};
use crate::kernelbench::layout::{self, Fast, Place};
use crate::kernelbench::results::{Claim, LeftOut};
use crate::output::{Output, Tone, printable};
use crate::present;

/// Nanoseconds of a millisecond.
const NS_PER_MS: f64 = 1e6;

/// Programs that both judged.
#[derive(Debug, Default, Serialize)]
pub(super) struct Comparison {
    rows: Vec<Row>,
    /// Programs of which both have a verdict.
    both: usize,
    /// Of these, programs that one calls correct and the other does not.
    disagree_on_correctness: usize,
    /// Programs that both call correct, and one calls faster than the reference and the other does not.
    disagree_on_speed: usize,
    /// The published figures by what was said: over the reference alone, because a claim has no time of another baseline.
    said_fast: Vec<Fast>,
    /// The same by what was found, over the reference and over the fastest baseline.
    found_fast: Vec<Fast>,
    left_out: Vec<LeftOut>,
}

/// A program.
#[derive(Debug, Serialize)]
struct Row {
    task: String,
    level: u32,
    problem: u32,
    sample: u32,
    attempt: u32,
    said: Option<Said>,
    found: Found,
    /// Whether both say the same of its results; none where one of them has no verdict.
    agree: Option<bool>,
}

/// What the other evaluation says.
#[derive(Debug, Serialize)]
struct Said {
    compiled: bool,
    correct: bool,
    runtime_ms: Option<f64>,
    /// Mean time of the reference by that of the program.
    ratio: Option<f64>,
}

/// What this one found.
#[derive(Debug, Serialize)]
struct Found {
    outcome: AttemptOutcome,
    /// None as long as there is no verdict.
    correct: Option<bool>,
    /// The gravest thing that was seen.
    finding: Option<String>,
    runtime_ms: Option<f64>,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    /// Speedup over the fastest baseline, where that is known.
    over_fastest: Option<Interval>,
    #[serde(skip)]
    fast: Answer,
}

/// Lays the verdicts of a campaign beside what was claimed.
pub(super) async fn compare(client: &Client, campaign: &CampaignDetail, claims: &[Claims]) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    for claims in claims {
        if let Some(run) = campaign.runs.iter().find(|run| run.digest.task == claims.task) {
            let view = client.run(&run.id).await?.view;
            comparison.take(claims, &view.attempts, view.prepared.as_ref());
        } else {
            let message = "the campaign has no run of this task";
            comparison.left_out.push(LeftOut::new(claims.task.clone(), "results.unknown_task", message));
        }
    }
    comparison.rows.sort_by_key(|row| (row.level, row.problem, row.sample));
    let place = |row: &Row| Place { level: row.level, problem: row.problem, sample: row.sample };
    let said = |row: &Row| row.said.as_ref().filter(|said| said.correct)?.ratio;
    comparison.said_fast = layout::fast_of(comparison.rows.iter().map(|row| (place(row), said(row), None)));
    let over_fastest = |row: &Row| row.found.over_fastest.map(|speedup| speedup.estimate);
    let found = comparison.rows.iter().map(|row| (place(row), row.found.ratio, over_fastest(row)));
    comparison.found_fast = layout::fast_of(found);
    Ok(comparison)
}

impl Comparison {
    fn take(&mut self, claims: &Claims, attempts: &[Attempt], prepared: Option<&PreparedTask>) {
        for claimed in &claims.programs {
            let what = || format!("{}, sample {}", claims.task, claimed.sample);
            let Some(attempt) = attempts.iter().find(|attempt| attempt.number == claimed.attempt) else {
                let message = format!("the run has no attempt {} (yet)", claimed.attempt);
                self.left_out.push(LeftOut::new(what(), "results.not_judged", message));
                continue;
            };
            if attempt.source.as_ref() != Some(&claimed.source) {
                let message = format!("attempt {} of the run is another program", claimed.attempt);
                self.left_out.push(LeftOut::new(what(), "results.other_program", message));
                continue;
            }
            match said(claims, claimed) {
                Ok(said) => self.add(claims, claimed, said, found(attempt, prepared)),
                Err(message) => self.left_out.push(LeftOut::new(what(), "results.bad_entry", message)),
            }
        }
    }

    fn add(&mut self, claims: &Claims, claimed: &Claimed, said: Option<Said>, found: Found) {
        let agree = said.as_ref().zip(found.correct).map(|(said, correct)| said.correct == correct);
        if let Some(agree) = agree {
            self.both = self.both.saturating_add(1);
            self.disagree_on_correctness = self.disagree_on_correctness.saturating_add(usize::from(!agree));
        }
        let faster = said.as_ref().filter(|said| said.correct).and_then(|said| said.ratio).map(|ratio| ratio > 1.0);
        let disagree = match (faster, found.correct, found.fast) {
            (Some(faster), Some(true), Answer::Pass) => !faster,
            (Some(faster), Some(true), Answer::Fail) => faster,
            _ => false,
        };
        self.disagree_on_speed = self.disagree_on_speed.saturating_add(usize::from(disagree));
        self.rows.push(Row {
            task: claims.task.clone(),
            level: claims.level,
            problem: claims.problem,
            sample: claimed.sample,
            attempt: claimed.attempt,
            said,
            found,
            agree,
        });
    }

    /// A line for each program, and what they come to.
    pub(super) fn show(&self, output: Output) -> Result<()> {
        let mut table = output.table(&[
            "task",
            "sample",
            "said",
            "time",
            "ratio",
            "found",
            "time",
            "over the reference",
            "over the fastest baseline",
        ]);
        for row in &self.rows {
            let (said, found) = (row.said.as_ref(), &row.found);
            let tone = if row.agree == Some(false) { Tone::Caution } else { Tone::Plain };
            table.add_row([
                output.cell(printable(&row.task), Tone::Plain),
                output.cell(row.sample, Tone::Plain),
                output.cell(said.map_or(present::NONE, Said::words), tone),
                output.cell(time(said.and_then(|said| said.runtime_ms)), Tone::Plain),
                output.cell(said.and_then(|said| said.ratio).map_or_else(none, present::factor), Tone::Plain),
                output.cell(found.words(), tone),
                output.cell(time(found.runtime_ms), Tone::Plain),
                output.cell(found.interval(), Tone::Plain),
                output.cell(found.over_fastest.map_or_else(none, present::interval), Tone::Plain),
            ]);
        }
        output.text(&table.to_string())?;
        output.text(&format!(
            "{}: {} with a verdict of both, of which {} disagree on correctness; {} on whether a correct program is faster",
            present::count(self.rows.len(), "program"),
            self.both,
            self.disagree_on_correctness,
            self.disagree_on_speed
        ))?;
        for (whose, levels) in [("said", &self.said_fast), ("found", &self.found_fast)] {
            for level in levels {
                output.text(&format!("{whose}, {}", level.line()))?;
                if let Some(line) = level.line_over_fastest() {
                    output.text(&format!("{whose}, {line}"))?;
                }
            }
        }
        for LeftOut { what, code, message } in &self.left_out {
            output.note(&printable(&format!("left out: {what}: {code}: {message}")));
        }
        Ok(())
    }
}

fn none() -> String {
    present::NONE.to_owned()
}

fn time(runtime_ms: Option<f64>) -> String {
    runtime_ms.map_or_else(none, |time| present::nanoseconds(time * NS_PER_MS))
}

impl Said {
    fn words(&self) -> &'static str {
        match (self.compiled, self.correct) {
            (_, true) => "correct",
            (true, false) => "incorrect",
            (false, false) => "does not compile",
        }
    }
}

impl Found {
    fn words(&self) -> Cow<'static, str> {
        match &self.finding {
            Some(finding) => Cow::Owned(format!("{}: {}", self.outcome.as_str(), printable(finding))),
            None => Cow::Borrowed(self.outcome.as_str()),
        }
    }

    fn interval(&self) -> String {
        match (self.ratio, self.ratio_low, self.ratio_high) {
            (Some(ratio), Some(low), Some(high)) => format!("{} [{low:.2}, {high:.2}]", present::factor(ratio)),
            _ => none(),
        }
    }
}

fn said(claims: &Claims, claimed: &Claimed) -> std::result::Result<Option<Said>, String> {
    let Some(said) = &claimed.said else { return Ok(None) };
    let (Claim { compiled, correct, runtime_ms, .. }, _) = Claim::read(said)?;
    let ratio = claims.reference_ms.zip(runtime_ms).map(|(reference, own)| reference / own);
    Ok(Some(Said { compiled, correct, runtime_ms, ratio: ratio.filter(|ratio| ratio.is_finite()) }))
}

fn found(attempt: &Attempt, prepared: Option<&PreparedTask>) -> Found {
    let verdict = &attempt.verdict;
    let keeps_rules = verdict.contract_compliant != Answer::Fail;
    let correct = (attempt.outcome != AttemptOutcome::Pending).then(|| attempt.outcome.is_correct() && keeps_rules);
    let measured = attempt.published().filter(|_| correct == Some(true));
    let gravest = attempt.findings.iter().filter(|finding| finding.severity > Severity::Note);
    let finding = gravest.max_by_key(|finding| finding.severity).map(|finding| finding.code.clone());
    Found {
        outcome: attempt.outcome,
        correct,
        finding: finding.or_else(|| present::compiler_error(attempt)),
        runtime_ms: measured.and_then(|measured| mean_ms(&measured.candidate_samples_ns)),
        ratio: measured.map(|measured| measured.speedup.estimate),
        ratio_low: measured.map(|measured| measured.speedup.low),
        ratio_high: measured.map(|measured| measured.speedup.high),
        over_fastest: measured.and_then(|measured| prepared?.over_fastest(measured)),
        fast: verdict.fast,
    }
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 nanoseconds")]
fn mean_ms(samples_ns: &[u64]) -> Option<f64> {
    let sum_ns: f64 = samples_ns.iter().map(|sample| *sample as f64).sum();
    (!samples_ns.is_empty()).then(|| sum_ns / samples_ns.len() as f64 / NS_PER_MS)
}
