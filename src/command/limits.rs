//! `nightshift limits`: what a campaign may use and when it may work; with flags, it changes them.

use nightshift_protocol::api::{CampaignDetail, SetLimits};
use nightshift_protocol::budget::{BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::{Lifted, Limits};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Tone, printable};
use crate::present::limits as words;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Limits) -> Result<ExitCode> {
    let schedule = args.window.schedule()?;
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let id = resolve::campaign(client, &args.id).await?;
        let mut detail = client.campaign(&id).await?;
        let before = caps(&detail.budget);
        let after = changed(before, args.budget.caps(), args.lifted);
        let change = SetLimits {
            budget: (after != before).then_some(after),
            schedule,
            no_schedule: args.lifted.no_window,
            weight: args.weight,
        };
        if change != SetLimits::default() {
            detail = client.set_campaign_limits(&id, &change).await?;
        }
        show(context, &detail)?;
        Ok(ExitCode::Ok)
    })
    .await
}

fn show(context: &Context, detail: &CampaignDetail) -> Result<()> {
    let output = context.output;
    let summary = &detail.summary;
    if output.is_json() {
        return output.json(&json!({
            "campaign": summary.id,
            "budget": detail.budget,
            "schedule": summary.schedule,
            "priority": summary.priority,
            "weight": summary.weight,
        }));
    }
    output.text(&printable(&format!("{}  {}", summary.id, summary.name)))?;
    let mut table = output.table(&["resource", "used", "reserved", "cap"]);
    for line in &detail.budget {
        let amount = |amount| words::amount(line.resource, amount);
        let tone = if line.is_exhausted_for(1) { Tone::Bad } else { Tone::Plain };
        table.add_row([
            output.cell(words::resource(line.resource), Tone::Plain),
            output.cell(amount(line.used), tone),
            output.cell(amount(line.reserved), Tone::Plain),
            output.cell(line.cap.map_or_else(|| "none".to_owned(), amount), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    output.text(&printable(&format!("works: {}", words::schedule(summary.schedule.as_ref()))))?;
    output.text(&format!("priority: {}, weight: {}", priority(detail), summary.weight))
}

/// Formats the priority of the campaign's steps. Each run can have its own.
fn priority(detail: &CampaignDetail) -> String {
    let open = detail.runs.iter().filter(|run| !run.status.is_final()).map(|run| run.priority);
    match (open.clone().min(), open.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}, as its runs have it"),
        _ => detail.summary.priority.to_string(),
    }
}

/// The caps in force.
fn caps(budget: &[BudgetLine]) -> BudgetCaps {
    let cap = |resource| budget.iter().find(|line| line.resource == resource).and_then(|line| line.cap);
    BudgetCaps {
        cost_microusd: cap(Resource::CostMicrousd),
        tokens: cap(Resource::Tokens),
        device_ms: cap(Resource::DeviceMs),
        attempts: cap(Resource::Attempts),
        wall_ms: cap(Resource::WallMs),
    }
}

/// The caps in force with what is given over them, and without what is lifted.
fn changed(before: BudgetCaps, given: BudgetCaps, lifted: Lifted) -> BudgetCaps {
    let cap = |before: Option<u64>, given: Option<u64>, lifted: bool| if lifted { None } else { given.or(before) };
    BudgetCaps {
        cost_microusd: cap(before.cost_microusd, given.cost_microusd, lifted.no_max_cost),
        tokens: cap(before.tokens, given.tokens, lifted.no_max_tokens),
        device_ms: cap(before.device_ms, given.device_ms, lifted.no_max_device_time),
        attempts: cap(before.attempts, given.attempts, lifted.no_max_total_attempts),
        wall_ms: cap(before.wall_ms, given.wall_ms, lifted.no_max_wall_time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_cap_leaves_the_others_and_a_lifted_one_is_gone() {
        let before = BudgetCaps { tokens: Some(10), attempts: Some(5), ..BudgetCaps::default() };
        let given = BudgetCaps { cost_microusd: Some(7), tokens: Some(20), ..BudgetCaps::default() };
        let lifted = Lifted { no_max_total_attempts: true, ..Lifted::default() };
        let after = changed(before, given, lifted);
        assert_eq!(after, BudgetCaps { cost_microusd: Some(7), tokens: Some(20), ..BudgetCaps::default() });
    }
}
