//! `nightshift list attempts`.

use nightshift_client::Client;
use nightshift_protocol::api::{AttemptFilter, AttemptPage, AttemptQuery, AttemptRow, SortOrder};

use super::end_of_page;
use crate::args::List;
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::resolve;

pub(super) async fn list(context: &Context, client: &Client, args: List) -> Result<()> {
    let query = query(client, args).await?;
    let page = client.attempts(&query).await?;
    if context.output.is_json() {
        return context.output.json(&page);
    }
    table(context, &page)?;
    if !page.items.is_empty() {
        context.output.note(&format!("{} of {} attempts", page.items.len(), page.total));
    }
    end_of_page(context, page.items.is_empty(), "attempts", page.next.as_deref());
    Ok(())
}

pub(super) async fn query(client: &Client, args: List) -> Result<AttemptQuery> {
    let flags = args.attempts;
    let campaign = match &args.campaign {
        Some(text) => Some(resolve::campaign(client, text).await?),
        None => None,
    };
    let run = match &flags.run {
        Some(text) => Some(resolve::run(client, text).await?),
        None => None,
    };
    Ok(AttemptQuery {
        filter: AttemptFilter {
            campaign,
            run,
            task: flags.task,
            model: flags.model,
            strategy: flags.strategy,
            device: flags.device,
            outcomes: flags.outcome,
            stages: flags.stage,
            correct: flags.correct,
            confirmed: flags.confirmed,
            min_speedup: flags.min_speedup,
            max_speedup: flags.max_speedup,
            min_speedup_over_fastest: flags.min_speedup_over_fastest,
            max_speedup_over_fastest: flags.max_speedup_over_fastest,
            min_reward: flags.min_reward,
            max_reward: flags.max_reward,
            tag: flags.tag,
            text: flags.text,
        },
        sort: flags.sort.unwrap_or_default(),
        order: if flags.ascending { SortOrder::Asc } else { SortOrder::Desc },
        limit: Some(args.limit),
        before: args.before,
        facets: false,
    })
}

fn table(context: &Context, page: &AttemptPage) -> Result<()> {
    let output = context.output;
    let mut table = output.table(&[
        "attempt",
        "task",
        "model",
        "began",
        "outcome",
        "over the reference",
        "over the fastest baseline",
        "reward",
        "cost",
    ]);
    for row in &page.items {
        let (speedup, tone) = speedup(row);
        let over_fastest = row.speedup_over_fastest.filter(|_| row.outcome.is_correct());
        table.add_row([
            output.cell(format!("{}/{}", row.run.short(), row.number), Tone::Plain),
            output.cell(printable(&row.task), Tone::Plain),
            output.cell(printable(&row.model), Tone::Plain),
            output.cell(present::minute(row.created_at), Tone::Plain),
            output.cell(row.outcome.as_str(), if row.outcome.is_correct() { Tone::Plain } else { Tone::Caution }),
            output.cell(speedup, tone),
            output.cell(over_fastest.map_or_else(|| NONE.to_owned(), present::interval), Tone::Plain),
            output.cell(row.reward.map_or_else(|| NONE.to_owned(), |reward| format!("{reward:.2}")), Tone::Plain),
            output.cell(row.cost_usd.map_or_else(|| NONE.to_owned(), |cost| format!("${cost:.4}")), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())
}

/// What was measured beside a wrong result is worth nothing.
fn speedup(row: &AttemptRow) -> (String, Tone) {
    match row.speedup.filter(|_| row.outcome.is_correct()) {
        Some(speedup) => {
            let best = if row.best { ", best" } else { "" };
            (format!("{}{best}", present::interval(speedup)), if row.best { Tone::Good } else { Tone::Plain })
        }
        None => (NONE.to_owned(), Tone::Plain),
    }
}
