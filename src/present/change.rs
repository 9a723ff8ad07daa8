//! What an attempt was asked to change, what that brought beside what was expected, which versions of it were fixed, and
//! what was said about it.

use nightshift_protocol::attempt::{AgentTool, AgentTurn, Attempt};

/// The change that was asked for, and its gain.
pub(crate) fn asked(attempt: &Attempt) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(asked) = &attempt.modification {
        lines.push(format!("asked for: {} (advised on attempt {})", asked.text, asked.diagnosed_on));
        if let Some(repeats) = asked.repeats {
            let because = asked.because.as_deref().unwrap_or("no reason given");
            lines.push(format!("  attempt {repeats} failed with the same change; again because: {because}"));
        }
    }
    lines.extend(gain(attempt));
    lines
}

/// The versions of its program that were fixed before, each with why it failed; of an agent session its turns.
pub(crate) fn fixed(attempt: &Attempt) -> Vec<String> {
    if !attempt.turns.is_empty() {
        return attempt.turns.iter().map(|turn| in_turn(attempt, turn)).collect();
    }
    let versions = (1..).zip(&attempt.earlier_versions);
    versions
        .map(|(number, version): (u32, _)| {
            let why = version.reason().map_or_else(String::new, |why| format!(": {why}"));
            format!("version {number}, fixed since: {}{why} ({})", version.outcome.as_str(), version.source)
        })
        .collect()
}

/// A turn of an agent session: the tool, and what it found.
fn in_turn(attempt: &Attempt, turn: &AgentTurn) -> String {
    let tool = turn.tool.map_or("no tool", AgentTool::as_str);
    let version = attempt.earlier_versions.iter().find(|version| version.turn == Some(turn.number));
    let found = match version {
        Some(version) => {
            let speedup = version.measurement.as_ref().map(|measured| format!(", {:.2}x", measured.speedup.estimate));
            let why = version.reason().map_or_else(String::new, |why| format!(": {why}"));
            format!(": {}{}{why} ({})", version.result(), speedup.unwrap_or_default(), version.source)
        }
        None => turn.problem.as_ref().map_or_else(String::new, |problem| format!(": {problem}")),
    };
    let note = if turn.note.is_empty() { String::new() } else { format!("; {}", turn.note) };
    format!("turn {}, {tool}{found}{note}", turn.number)
}

/// One line for each attempt whose change was timed.
pub(crate) fn gains(attempts: &[Attempt]) -> Vec<String> {
    attempts
        .iter()
        .filter_map(|attempt| {
            let asked = attempt.modification.as_ref().map_or("", |asked| asked.text.as_str());
            Some(format!("attempt {}: {}: {asked}", attempt.number, gain(attempt)?))
        })
        .collect()
}

fn gain(attempt: &Attempt) -> Option<String> {
    let gain = attempt.gain?;
    let expected = gain.expected.map_or_else(|| "no expected gain".to_owned(), |g| format!("expected {g:.2}x"));
    Some(format!("gain over attempt {}: {expected}, measured {:.2}x", gain.over, gain.measured))
}

/// The Verifier's words, with the metrics that they rest on.
pub(crate) fn said(attempt: &Attempt) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(diagnosis) = &attempt.diagnosis {
        lines.push(format!("critical issue: {} (bound by {})", diagnosis.critical_issue, diagnosis.bound.as_str()));
        lines.extend(diagnosis.metrics.iter().map(|metric| format!("  evidence: {metric}")));
        lines.extend(diagnosis.unsupported.iter().map(|metric| format!("  named without evidence: {metric}")));
        let gain = diagnosis.expected_gain.map_or_else(String::new, |gain| format!(" (expected: {gain:.2}x)"));
        lines.push(format!("modification: {}{gain}", diagnosis.modification));
        lines.extend(diagnosis.repeat_reason.iter().map(|reason| format!("  although it failed before: {reason}")));
    }
    if let Some(correction) = &attempt.correction {
        lines.push(format!("cause: {} {}", correction.critical_issue, correction.why_it_matters));
        lines.push(format!("smallest change that mends it: {}", correction.minimal_fix));
    }
    lines
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::attempt::{AttemptOutcome, Bound, Diagnosis, Route, Stage};
    use nightshift_protocol::attempt_memory::{Gain, Modification};
    use nightshift_protocol::verdict::Verdict;

    use super::*;

    fn attempt() -> Attempt {
        let value = serde_json::json!({
            "number": 3, "plan_version": 1, "subtask": 1, "stage": Stage::Optimize, "findings": [], "calls": [],
            "outcome": AttemptOutcome::CorrectFaster, "verdict": Verdict::default(),
        });
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_change_is_shown_with_what_was_expected_and_what_was_measured() {
        let mut attempt = attempt();
        assert!(asked(&attempt).is_empty() && gains(std::slice::from_ref(&attempt)).is_empty());
        attempt.modification = Some(Modification {
            text: "Keep the row.".to_owned(),
            from: 2,
            diagnosed_on: 2,
            expected_gain: Some(1.4),
            repeats: Some(1),
            because: Some("the tail was forgotten".to_owned()),
        });
        attempt.gain = Some(Gain { over: 2, expected: Some(1.4), measured: 1.25 });
        let lines = asked(&attempt).join("\n");
        assert!(lines.contains("Keep the row. (advised on attempt 2)"), "{lines}");
        assert!(lines.contains("again because: the tail was forgotten"), "{lines}");
        let expected = "attempt 3: gain over attempt 2: expected 1.40x, measured 1.25x: Keep the row.";
        assert_eq!(gains(&[attempt]), [expected]);
    }

    #[test]
    fn a_diagnosis_is_shown_with_its_evidence() {
        let mut attempt = attempt();
        attempt.diagnosis = Some(Diagnosis {
            bound: Bound::Memory,
            critical_issue: "Three passes.".to_owned(),
            modification: "One pass.".to_owned(),
            metrics: vec!["roofline_share = 40 %".to_owned()],
            unsupported: Vec::new(),
            expected_gain: Some(2.0),
            route: Route::Optimize,
            repeat_reason: None,
        });
        let expected = [
            "critical issue: Three passes. (bound by memory)",
            "  evidence: roofline_share = 40 %",
            "modification: One pass. (expected: 2.00x)",
        ];
        assert_eq!(said(&attempt), expected);
    }
}
