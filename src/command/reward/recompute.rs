//! `nightshift reward recompute`: history under other formulas and newer rules.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::score::{AttemptScore, RewardFormula, RunScores};
use serde_json::json;

use crate::args::Recompute;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Tone;
use crate::present;
use crate::stored_runs;

pub(super) async fn run(context: &Context, args: Recompute) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let runs = stored_runs::named(client, &args.ids).await?;
        let mut all = Vec::with_capacity(runs.len());
        for run in &runs {
            all.push(client.rescore_run(run, &args.formulas).await?);
        }
        show(context, &all)?;
        Ok(ExitCode::Ok)
    })
    .await
}

fn show(context: &Context, all: &[RunScores]) -> Result<()> {
    let output = context.output;
    let scores: Vec<&AttemptScore> = all.iter().flat_map(|run| &run.scores).collect();
    if output.is_json() {
        return output.json(&json!({ "runs": all }));
    }
    let attempts: BTreeSet<_> =
        all.iter().flat_map(|run| run.scores.iter().map(|score| (&run.run, score.attempt))).collect();
    if attempts.is_empty() {
        return output.text("no attempt has a score yet");
    }
    let mut table = output.table(&["formula", "attempts", "mean reward", "best", "judge unavailable"]);
    for (formula, sum) in sums(&scores) {
        table.add_row([
            output.cell(formula.as_str(), Tone::Plain),
            output.cell(sum.count, Tone::Plain),
            output.cell(format!("{:.3}", sum.total / f64::from(sum.count)), Tone::Plain),
            output.cell(format!("{:.3}", sum.best), Tone::Plain),
            output.cell(sum.without_judge, Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    let scored = present::count(attempts.len(), "attempt");
    output.text(&format!("scored {scored} anew; `nightshift show RUN/NUMBER` shows each score"))
}

#[derive(Default)]
struct Sum {
    count: u32,
    total: f64,
    best: f64,
    without_judge: u32,
}

fn sums(scores: &[&AttemptScore]) -> BTreeMap<RewardFormula, Sum> {
    let mut sums: BTreeMap<RewardFormula, Sum> = BTreeMap::new();
    for score in scores {
        let sum = sums.entry(score.scored.formula).or_default();
        sum.count += 1;
        sum.total += score.scored.reward;
        sum.best = sum.best.max(score.scored.reward);
        sum.without_judge += u32::from(score.scored.inputs.judge_total.is_none());
    }
    sums
}
