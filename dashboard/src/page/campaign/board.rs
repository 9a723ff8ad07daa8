//! Who wrote the programs, how good they were, what they cost, and what they were timed on.

use leptos::prelude::*;
use nightshift_protocol::api::{CampaignResults, DeviceUse, FAST_P_THRESHOLDS, ModelBoard};
use nightshift_protocol::budget::{BudgetLine, Resource};

use crate::address::Address;
use crate::format::{count, counted, device as short_name, dollars, milliseconds, percent, tokens, when};
use crate::meter;
use crate::page::components::times;
use crate::page::models::{FAST_P_NAMES, shares};
use crate::shell::model_label;

pub(super) fn board(results: &CampaignResults) -> impl IntoView + use<> {
    let rows = ranked(&results.models).into_iter().map(standing).collect::<Vec<_>>();
    let fast = FAST_P_NAMES.map(|name| view! { <th scope="col" class="number">{name}</th> });
    let fast = fast.into_iter().collect::<Vec<_>>();
    (!rows.is_empty()).then(|| {
        view! {
            <h2 id="models">"Models and strategies"</h2>
            <div class="scroll" tabindex="0">
                <table class="list">
                    <caption>
                        "fast_p: the share of runs whose best program is correct and more than p times as fast as its reference; in the second line, as the fastest baseline, where that is known"
                    </caption>
                    <thead>
                        <tr>
                            <th scope="col">"Model"</th><th scope="col">"Strategy"</th>
                            <th scope="col" class="number">"Runs"</th><th scope="col" class="number">"Attempts"</th>
                            <th scope="col" class="number">"Right"</th>
                            <th scope="col" class="number">"Median of the bests"</th>
                            <th scope="col" class="number">"Over the fastest"</th>
                            {fast}
                            <th scope="col" class="number">"Tokens"</th><th scope="col" class="number">"Cost"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
    })
}

/// The fastest first.
fn ranked(boards: &[ModelBoard]) -> Vec<&ModelBoard> {
    let mut ranked: Vec<&ModelBoard> = boards.iter().collect();
    let best = |board: &ModelBoard| board.median_best_speedup.unwrap_or(0.0);
    ranked.sort_by(|a, b| best(b).total_cmp(&best(a)).then_with(|| a.model.cmp(&b.model)));
    ranked
}

fn standing(board: &ModelBoard) -> impl IntoView + use<> {
    let unpriced = (board.unpriced_attempts > 0).then(|| {
        view! { " "<span class="quiet">{format!("price unknown for {}", count(board.unpriced_attempts))}</span> }
    });
    let fast = (0..FAST_P_THRESHOLDS.len())
        .map(|index| view! { <td class="number">{shares(board, index)}</td> })
        .collect::<Vec<_>>();
    view! {
        <tr>
            <th scope="row">{model_label(&board.model, board.model == "scripted")}</th>
            <td>{board.strategy.clone()}</td>
            <td class="number">{count(board.runs)}</td>
            <td class="number">{count(board.attempts)}</td>
            <td class="number">{percent(board.correct_share)}</td>
            <td class="number">{times(board.median_best_speedup)}</td>
            <td class="number">{times(board.median_best_speedup_over_fastest)}</td>
            {fast}
            <td class="number">{tokens(Some(board.tokens), board.model == "scripted")}</td>
            <td class="number">{dollars(board.cost_usd, board.model == "scripted")}{unpriced}</td>
        </tr>
    }
}

/// What attempts were timed on, and how long machines worked for the campaign.
pub(super) fn devices(campaign: &str, results: &CampaignResults, budget: &[BudgetLine]) -> impl IntoView + use<> {
    let timed_ms = results.devices.iter().map(|device| device.device_ms);
    let spent_ms = timed_ms.fold(results.untimed_device_ms, u64::saturating_add);
    let used_ms = budget.iter().find(|line| line.resource == Resource::DeviceMs).map_or(0, |line| line.used);
    let whole_ms = used_ms.max(spent_ms);
    let rows = results.devices.iter().map(|device| device_row(campaign, device, whole_ms)).collect::<Vec<_>>();
    let of_no_device =
        [("never timed", results.untimed_device_ms), ("preparing tasks, lost tries", whole_ms - spent_ms)];
    let of_no_device = of_no_device.into_iter().filter(|(_, ms)| *ms > 0).map(|(name, ms)| {
        view! {
            <tr>
                <th scope="row">{name}</th>
                <td></td><td></td>
                {device_time(ms, whole_ms)}
                <td></td><td></td><td></td><td></td>
            </tr>
        }
    });
    let of_no_device = of_no_device.collect::<Vec<_>>();
    let text = format!(
        "{} of time on devices, for {}.",
        milliseconds(whole_ms),
        counted(results.attempts, "attempt", "attempts")
    );
    (!rows.is_empty() || !of_no_device.is_empty()).then(|| {
        view! {
            <h2 id="devices">"Devices"</h2>
            <p class="quiet">{text}</p>
            <div class="scroll" tabindex="0">
                <table>
                    <thead>
                        <tr>
                            <th scope="col">"Device"</th><th scope="col" class="number">"Runs"</th>
                            <th scope="col" class="number">"Attempts timed"</th>
                            <th scope="col" class="number">"Time of steps"</th>
                            <th scope="col" class="number">"Best over the reference"</th>
                            <th scope="col" class="number">"Over the fastest"</th>
                            <th scope="col">"First used"</th><th scope="col">"Last used"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}{of_no_device}</tbody>
                </table>
            </div>
        }
    })
}

/// For how long steps were on a device, and which share of all such time that is.
fn device_time(ms: u64, of_ms: u64) -> AnyView {
    view! { <td class="number progress">{milliseconds(ms)}{meter::meter(ms, 0, of_ms, "share of the time on devices")}</td> }.into_any()
}

fn device_row(campaign: &str, device: &DeviceUse, whole_ms: u64) -> impl IntoView + use<> {
    let href = Address::parse("/attempts").with("campaign", Some(campaign)).with("device", Some(&device.device)).href();
    view! {
        <tr>
            <th scope="row" title=device.device.clone()><a href=href>{short_name(&device.device)}</a></th>
            <td class="number">{count(device.runs)}</td>
            <td class="number">{count(device.attempts)}</td>
            {device_time(device.device_ms, whole_ms)}
            <td class="number">{times(device.best_speedup)}</td>
            <td class="number">{times(device.best_speedup_over_fastest)}</td>
            <td>{when(device.first_at)}</td>
            <td>{when(device.last_at)}</td>
        </tr>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_model_stands_first_and_one_without_a_time_last() {
        let board = |model: &str, median: Option<f64>| ModelBoard {
            model: model.to_owned(),
            strategy: "stitch".to_owned(),
            runs: 1,
            attempts: 1,
            finished: 1,
            correct_share: None,
            median_best_speedup: median,
            median_best_speedup_over_fastest: None,
            fast_p: Vec::new(),
            fast_p_over_fastest: Vec::new(),
            tokens: 0,
            cost_usd: 0.0,
            unpriced_attempts: 0,
        };
        let boards = [board("none", None), board("slow", Some(0.5)), board("fast", Some(3.0))];
        assert_eq!(
            ranked(&boards).iter().map(|board| board.model.as_str()).collect::<Vec<_>>(),
            ["fast", "slow", "none"]
        );
    }

    #[test]
    fn all_time_on_devices_is_in_the_table() {
        let value = serde_json::json!({"attempts": 2, "outcomes": [], "kept": 1, "discarded": 0, "failed": 1,
            "pending": 0, "marks": [], "lines": [], "timed_runs": 1, "speedups": [], "timed": 1, "fast_p": [],
            "models": [], "untimed_device_ms": 1_000, "devices": [{"device": "NVIDIA H200", "runs": 1, "attempts": 1,
            "device_ms": 3_000, "best_speedup": 2.0, "first_at": 0, "last_at": 0}]});
        let results = serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"));
        let html = |used| {
            let line = BudgetLine { resource: Resource::DeviceMs, cap: None, used, reserved: 0 };
            Owner::new().with(|| devices("cmp", &results, &[line]).to_html())
        };
        let shown = html(10_000);
        assert!(
            shown.contains("10.0 s of time on devices") && shown.contains("preparing tasks, lost tries"),
            "{shown}"
        );
        for part in ["3.0 s", "1.0 s", "6.0 s"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(shown.contains("30 %") && shown.contains("60 %"), "shares are those of all time on devices: {shown}");
        assert!(!html(4_000).contains("preparing tasks"), "nothing is left");
    }
}
