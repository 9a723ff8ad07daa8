//! What the charts of a campaign know about its attempts.

use nightshift_client::Client;
use nightshift_protocol::api::{CampaignDetail, RunDetail};
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::cost::RoleCost;
use nightshift_protocol::id::RunId;
use nightshift_protocol::models::AgentRole;

use crate::page::failure::PageError;

/// Most runs whose attempts are drawn, newest first.
pub(crate) const MAX_DRAWN_RUNS: usize = 50;

/// An attempt, as far as charts show it.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) run: RunId,
    pub(crate) task: String,
    pub(crate) number: u32,
    pub(crate) outcome: AttemptOutcome,
    pub(crate) speedup: Option<f64>,
    /// Whether it was the best of its run when it was made.
    pub(crate) kept: bool,
    /// Who wrote it.
    pub(crate) model: String,
}

/// Attempts of a campaign, run by run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    pub(crate) marks: Vec<Mark>,
    /// What model calls cost.
    pub(crate) cost: Vec<RoleCost>,
    /// Runs that are not among them.
    pub(crate) left_out_runs: usize,
}

impl Marks {
    /// Reads them.
    pub(crate) async fn read(client: &Client, campaign: &CampaignDetail) -> Result<Self, PageError> {
        let mut found = Self { left_out_runs: campaign.runs.len().saturating_sub(MAX_DRAWN_RUNS), ..Self::default() };
        for run in campaign.runs.iter().take(MAX_DRAWN_RUNS).filter(|run| run.digest.attempts > 0) {
            found.add(&client.run(&run.id).await?);
        }
        Ok(found)
    }

    fn add(&mut self, run: &RunDetail) {
        let mut best = 0.0;
        for attempt in &run.view.attempts {
            let speedup = attempt.speedup().map(|interval| interval.estimate).filter(|_| attempt.outcome.is_correct());
            let kept = speedup.is_some_and(|speedup| speedup > best);
            best = if kept { speedup.unwrap_or(best) } else { best };
            self.marks.push(Mark {
                run: run.summary.id.clone(),
                task: run.summary.digest.task.clone(),
                number: attempt.number,
                outcome: attempt.outcome,
                speedup,
                kept,
                model: author(attempt).unwrap_or(&run.summary.digest.model).to_owned(),
            });
        }
        for cost in &run.cost {
            self.add_cost(cost);
        }
    }

    fn add_cost(&mut self, cost: &RoleCost) {
        let Some(known) = self.cost.iter_mut().find(|known| known.role == cost.role) else {
            self.cost.push(cost.clone());
            return;
        };
        known.calls = known.calls.saturating_add(cost.calls);
        known.input_tokens = known.input_tokens.saturating_add(cost.input_tokens);
        known.output_tokens = known.output_tokens.saturating_add(cost.output_tokens);
        known.uncounted_calls = known.uncounted_calls.saturating_add(cost.uncounted_calls);
        known.price_microusd = known.price_microusd.saturating_add(cost.price_microusd);
        known.unpriced_calls = known.unpriced_calls.saturating_add(cost.unpriced_calls);
        known.fallback_calls = known.fallback_calls.saturating_add(cost.fallback_calls);
        for (model, calls) in &cost.models {
            let of_model = known.models.entry(model.clone()).or_default();
            *of_model = of_model.saturating_add(*calls);
        }
    }
}

/// Who wrote the program: the model of the Coder's last call.
fn author(attempt: &Attempt) -> Option<&str> {
    let calls = attempt.calls.iter().rev();
    calls.filter(|call| call.role == Some(AgentRole::Coder)).map(|call| call.model.as_str()).next()
}
