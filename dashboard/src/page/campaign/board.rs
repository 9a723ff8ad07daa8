//! Who wrote the programs, how good they were, and what they cost.

use std::collections::BTreeMap;

use leptos::prelude::*;

use super::marks::{Mark, Marks};
use crate::format::{count, dollars};

/// What one model did.
#[derive(Debug, Default, PartialEq)]
struct Standing {
    attempts: u64,
    right: u64,
    faster: u64,
    best: Option<f64>,
    speedups: Vec<f64>,
    tokens: u64,
    cost_usd: f64,
    /// Attempts of which the price is not known.
    unpriced: u64,
}

pub(super) fn board(marks: &Marks) -> impl IntoView + use<> {
    (!marks.marks.is_empty()).then(|| view! { <h2 id="models">"Models"</h2>{standings(&marks.marks)} })
}

fn standings(marks: &[Mark]) -> impl IntoView + use<> {
    let mut found: Vec<(String, Standing)> = by_model(marks).into_iter().collect();
    found.sort_by(|(_, a), (_, b)| b.best.unwrap_or(0.0).total_cmp(&a.best.unwrap_or(0.0)));
    let share = |part: u64, all: u64| {
        (part * 100).checked_div(all).map_or_else(|| "–".to_owned(), |share| format!("{share} %"))
    };
    let times = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}×"));
    let rows = found
        .into_iter()
        .map(|(model, standing)| {
            let median = median(standing.speedups);
            let unpriced = (standing.unpriced > 0).then(
                || view! { " "<span class="quiet">{format!("price unknown for {}", count(standing.unpriced))}</span> },
            );
            view! {
                <tr>
                    <th scope="row">{model}</th>
                    <td class="number">{count(standing.attempts)}</td>
                    <td class="number">{share(standing.right, standing.attempts)}</td>
                    <td class="number">{share(standing.faster, standing.attempts)}</td>
                    <td class="number">{times(median)}</td>
                    <td class="number">{times(standing.best)}</td>
                    <td class="number">{count(standing.tokens)}</td>
                    <td class="number">{dollars(standing.cost_usd)}{unpriced}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    view! {
        <div class="scroll" tabindex="0">
            <table>
                <caption>"Attempts by who wrote their programs"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Model"</th><th scope="col" class="number">"Attempts"</th>
                        <th scope="col" class="number">"Right"</th><th scope="col" class="number">"Faster"</th>
                        <th scope="col" class="number">"Median speedup"</th><th scope="col" class="number">"Best"</th>
                        <th scope="col" class="number">"Tokens"</th><th scope="col" class="number">"Cost"</th>
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
        standing.tokens = standing.tokens.saturating_add(mark.tokens);
        standing.cost_usd += mark.cost_usd.unwrap_or(0.0);
        standing.unpriced += u64::from(mark.cost_usd.is_none());
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
