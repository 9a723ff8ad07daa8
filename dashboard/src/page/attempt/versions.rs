//! Versions of the program that the Coder fixed or tried out within the attempt, and the turns of an agent session.

use leptos::prelude::*;
use nightshift_protocol::attempt::{AgentTool, AgentTurn, Attempt, EarlierVersion};

use crate::format::words;
use crate::page::components::{Cell, artifact, table};

/// The section; none when the first version was the last one.
pub(super) fn section(attempt: &Attempt) -> Option<AnyView> {
    if attempt.earlier_versions.is_empty() && attempt.turns.is_empty() {
        return None;
    }
    if !attempt.turns.is_empty() {
        return Some(session(attempt));
    }
    let rows: Vec<Vec<Cell>> = (1..).zip(&attempt.earlier_versions).map(row).collect();
    let versions = table(&["Version", "Outcome", "Why", "Source", "Compiler output"], &rows);
    let note =
        "The Coder fixed these versions within the attempt. What the page shows otherwise is about the last version.";
    Some(view! { <p class="quiet">{note}</p>{versions} }.into_any())
}

/// The turns of an agent session, with what the tools found.
fn session(attempt: &Attempt) -> AnyView {
    let rows: Vec<Vec<Cell>> = attempt.turns.iter().map(|turn| turn_row(attempt, turn)).collect();
    let turns = table(&["Turn", "Tool", "Result", "Why", "Speedup", "Program", "Note"], &rows);
    let note =
        "The Coder worked on this attempt with tools. What the page shows otherwise is about the submitted program.";
    view! { <p class="quiet">{note}</p>{turns} }.into_any()
}

fn turn_row(attempt: &Attempt, turn: &AgentTurn) -> Vec<Cell> {
    let version = attempt.earlier_versions.iter().find(|version| version.turn == Some(turn.number));
    let result = match (version, turn.tool) {
        (Some(version), _) => version.result(),
        (None, Some(AgentTool::Submit)) => attempt.outcome.as_str(),
        (None, Some(_)) => "",
        (None, None) if turn.problem.is_some() => "unusable",
        (None, None) => "open",
    };
    let why = version.and_then(EarlierVersion::reason).or_else(|| turn.problem.clone()).unwrap_or_default();
    let speedup = match (version, turn.tool) {
        (Some(version), _) => version.measurement.as_ref().map(|measurement| measurement.speedup),
        (None, Some(AgentTool::Submit)) => attempt.speedup(),
        (None, _) => None,
    };
    vec![
        Cell::Number(turn.number.to_string()),
        turn.tool.map_or("", AgentTool::as_str).into(),
        if result.is_empty() { "".into() } else { Cell::Tag(result.to_owned(), words(result)) },
        why.into(),
        speedup.map_or_else(String::new, |speedup| format!("{:.2}x", speedup.estimate)).into(),
        turn.source.as_ref().map_or_else(|| "".into(), artifact),
        turn.note.clone().into(),
    ]
}

fn row((number, version): (u32, &EarlierVersion)) -> Vec<Cell> {
    let outcome = version.outcome.as_str();
    vec![
        Cell::Number(number.to_string()),
        Cell::Tag(outcome.to_owned(), words(outcome)),
        version.reason().unwrap_or_default().into(),
        artifact(&version.source),
        version.build.as_ref().map_or_else(|| "it was not built".into(), |build| artifact(&build.log)),
    ]
}
