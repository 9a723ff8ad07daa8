//! `nightshift search`: sources, replies, diagnoses, errors and findings that hold some words.

use nightshift_protocol::api::{SearchHit, SearchQuery};
use nightshift_protocol::error::ExitCode;

use crate::args::Search;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Search) -> Result<ExitCode> {
    let text = args.text.join(" ");
    if !text.chars().any(char::is_alphanumeric) {
        return Err(Failure::new("usage.invalid", "there is no word to look for in the text"));
    }
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let campaign = match &args.campaign {
            Some(id) => Some(resolve::campaign(client, id).await?),
            None => None,
        };
        let run = match &args.run {
            Some(id) => Some(resolve::run(client, id).await?),
            None => None,
        };
        let query = SearchQuery {
            text,
            kinds: args.kind.clone(),
            campaign,
            run,
            task: args.task.clone(),
            limit: Some(args.limit),
            before: args.before.clone(),
        };
        let page = client.search(&query).await?;
        let output = context.output;
        if output.is_json() {
            output.json(&page)?;
            return Ok(ExitCode::Ok);
        }
        for hit in &page.items {
            show(context, hit)?;
        }
        if page.items.is_empty() {
            output.note("nothing was found");
        }
        if let Some(next) = &page.next {
            output.note(&format!("more: --before {next}"));
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// Where it is, then the lines around the place.
fn show(context: &Context, hit: &SearchHit) -> Result<()> {
    let output = context.output;
    let place = match hit.attempt {
        Some(attempt) => format!("{}/{attempt}", hit.run.short()),
        None => hit.run.short().to_owned(),
    };
    let (kind, line, at) = (hit.kind.as_str(), hit.line, present::minute(hit.at));
    output.text(&format!("{place}  {kind}, line {line}  {}  {at}", printable(&hit.task)))?;
    for line in marked(hit, |word| output.paint(word, Tone::Good)).lines() {
        output.text(&format!("    {line}"))?;
    }
    Ok(())
}

/// The excerpt, safe to print, with what was found painted.
fn marked(hit: &SearchHit, paint: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut at = 0;
    let place = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
    for (from, to) in hit.matches.iter().map(|(from, to)| (place(*from), place(*to))) {
        // Offsets come from a server, which may be another release.
        let (Some(before), Some(word)) = (hit.excerpt.get(at..from), hit.excerpt.get(from..to)) else { continue };
        text.push_str(&printable(before));
        text.push_str(&paint(&printable(word)));
        at = to;
    }
    text.push_str(&printable(hit.excerpt.get(at..).unwrap_or_default()));
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_painted_and_nothing_controls_the_terminal() {
        let hit: SearchHit = serde_json::from_value(serde_json::json!({
            "kind": "source", "run": "run_0123456789abcdef0123456789abcdef", "task": "t", "attempt": 1, "at": 0,
            "campaign": "cmp_0123456789abcdef0123456789abcdef", "line": 1,
            "excerpt": "a \u{1b}[31mtile of tiles", "matches": [[7, 11], [999, 1000], [15, 20]]
        }))
        .unwrap();
        let text = marked(&hit, |word| format!("<{word}>"));
        assert!(text.ends_with("<tile> of <tiles>"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
