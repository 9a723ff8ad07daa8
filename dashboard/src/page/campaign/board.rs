//! Who wrote the programs, and what the agents' calls cost.

use std::collections::BTreeMap;

use leptos::prelude::*;
use nightshift_protocol::cost::RoleCost;

use super::marks::{Mark, Marks};
use crate::format::{count, money};

/// What one model did.
#[derive(Debug, Default, PartialEq)]
struct Standing {
    attempts: u64,
    right: u64,
    faster: u64,
    best: Option<f64>,
    speedups: Vec<f64>,
}

pub(super) fn board(marks: &Marks) -> impl IntoView + use<> {
    (!marks.marks.is_empty())
        .then(|| view! { <h2 id="models">"Models"</h2>{standings(&marks.marks)}{costs(&marks.cost)} })
}

fn standings(marks: &[Mark]) -> impl IntoView + use<> {
    let mut found: Vec<(String, Standing)> = by_model(marks).into_iter().collect();
    found.sort_by(|(_, a), (_, b)| b.best.unwrap_or(0.0).total_cmp(&a.best.unwrap_or(0.0)));
    let share = |part: u64, all: u64| if all == 0 { "–".to_owned() } else { format!("{} %", part * 100 / all) };
    let times = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}×"));
    let rows = found
        .into_iter()
        .map(|(model, standing)| {
            let median = median(standing.speedups);
            view! {
                <tr>
                    <th scope="row">{model}</th>
                    <td class="number">{count(standing.attempts)}</td>
                    <td class="number">{share(standing.right, standing.attempts)}</td>
                    <td class="number">{share(standing.faster, standing.attempts)}</td>
                    <td class="number">{times(median)}</td>
                    <td class="number">{times(standing.best)}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    view! {
        <div class="scroll">
            <table>
                <caption>"Programs by who wrote them"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Model"</th><th scope="col" class="number">"Attempts"</th>
                        <th scope="col" class="number">"Right"</th><th scope="col" class="number">"Faster"</th>
                        <th scope="col" class="number">"Median speedup"</th><th scope="col" class="number">"Best"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

fn by_model(marks: &[Mark]) -> BTreeMap<String, Standing> {
    let mut found: BTreeMap<String, Standing> = BTreeMap::new();
    for mark in marks {
        let standing = found.entry(mark.model.clone()).or_default();
        standing.attempts += 1;
        standing.right += u64::from(mark.outcome.is_correct());
        if let Some(speedup) = mark.speedup {
            standing.faster += u64::from(speedup > 1.0);
            standing.best = Some(standing.best.map_or(speedup, |best| best.max(speedup)));
            standing.speedups.push(speedup);
        }
    }
    found
}

/// Of an even number the lower one: a value that was measured.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn costs(costs: &[RoleCost]) -> impl IntoView + use<> {
    let rows = costs
        .iter()
        .map(|cost| {
            let role = cost.role.map_or("not known", |role| role.as_str());
            let unknown = match (cost.unpriced_calls, cost.uncounted_calls) {
                (0, 0) => String::new(),
                (unpriced, uncounted) => {
                    format!("price unknown for {unpriced} calls, tokens for {uncounted}")
                }
            };
            view! {
                <tr>
                    <th scope="row">{role}</th>
                    <td class="number">{cost.calls}</td>
                    <td class="number">{count(cost.input_tokens)}</td>
                    <td class="number">{count(cost.output_tokens)}</td>
                    <td class="number">{money(cost.price_microusd)}</td>
                    <td class="quiet">{unknown}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    (!rows.is_empty()).then(|| {
        view! {
            <div class="scroll">
                <table>
                    <caption>"Answered calls by the role that asked"</caption>
                    <thead>
                        <tr>
                            <th scope="col">"Role"</th><th scope="col" class="number">"Calls"</th>
                            <th scope="col" class="number">"Tokens in"</th><th scope="col" class="number">"Tokens out"</th>
                            <th scope="col" class="number">"Price"</th><th scope="col">"What is not known"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }
}
