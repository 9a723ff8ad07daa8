//! What it used up, against what it may use.

use leptos::prelude::*;
use nightshift_protocol::api::CampaignDetail;
use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::time::TimestampMs;

use crate::format::{count, milliseconds, money, price};
use crate::meter;
use crate::page::resource::resource_name;

pub(super) fn usage(detail: &CampaignDetail, now: TimestampMs) -> impl IntoView + use<> {
    let lines = detail.budget.iter().map(|line| row(line, detail, now)).collect::<Vec<_>>();
    let window = detail.summary.schedule.as_ref().map(|schedule| {
        let text = format!("Works daily from {}, time zone {}.", schedule.window, schedule.time_zone);
        view! { <p class="quiet">{text}" Steps that could not end in time do not begin."</p> }
    });
    (!lines.is_empty()).then(|| {
        view! {
            <h2 id="budget">"Cost and budget"</h2>
            {window}
            <div class="scroll" tabindex="0">
                <table>
                    <thead>
                        <tr>
                            <th scope="col">"What"</th><th scope="col" class="number">"Used"</th>
                            <th scope="col" class="number">"Reserved"</th><th scope="col" class="number">"Limit"</th>
                            <th scope="col" class="wide">"Share"</th>
                        </tr>
                    </thead>
                    <tbody>{lines}</tbody>
                </table>
            </div>
        }
    })
}

fn row(line: &BudgetLine, detail: &CampaignDetail, now: TimestampMs) -> impl IntoView + use<> {
    let used = match line.resource {
        // Elapsed time is not stored with the budget, so it is computed here.
        Resource::WallMs => line.used.max(passed_ms(detail, now)),
        _ => line.used,
    };
    // An attempt that ended without a result is not taken from the limit.
    let name = match line.resource {
        Resource::Attempts => "Attempts that count against the limit",
        resource => resource_name(resource),
    };
    let used_up = match line.resource {
        Resource::CostMicrousd => price(used, detail.summary.scripted),
        resource => shown(resource, used),
    };
    let share = match line.cap {
        Some(cap) => meter::budget(used, line.reserved, cap, resource_name(line.resource)).into_any(),
        None => view! { <span class="quiet">"no limit"</span> }.into_any(),
    };
    let cap = line.cap.map_or_else(|| "–".to_owned(), |cap| shown(line.resource, cap));
    let reserved = if line.reserved == 0 { "–".to_owned() } else { shown(line.resource, line.reserved) };
    view! {
        <tr>
            <th scope="row">{name}</th>
            <td class="number">{used_up}</td>
            <td class="number">{reserved}</td>
            <td class="number">{cap}</td>
            <td class="wide">{share}</td>
        </tr>
    }
}

fn passed_ms(detail: &CampaignDetail, now: TimestampMs) -> u64 {
    let is_over = detail.summary.runs.unfinished() == 0;
    let end = detail.runs.iter().filter_map(|run| run.finished_at).max().filter(|_| is_over).unwrap_or(now);
    end.since_ms(detail.summary.created_at)
}

fn shown(resource: Resource, amount: u64) -> String {
    match resource {
        Resource::CostMicrousd => money(amount),
        Resource::Tokens | Resource::Attempts => count(amount),
        Resource::DeviceMs | Resource::WallMs => milliseconds(amount),
    }
}
