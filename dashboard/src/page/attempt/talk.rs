//! What models were asked and what they replied: prompts with the notes that were retrieved for them, tokens, price.

use leptos::prelude::*;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::model_call::{ModelCallSummary, StopCause};

use super::look::{Look, Talk};
use super::material::{Material, Stored};
use crate::chart::float_u64;
use crate::format::{money, tokens};
use crate::page::components::{Cell, artifact, chip, facts, folded, milliseconds, sentences, table, verbatim};
use crate::page::retrieved;
use crate::shell::model_label;

/// Longest prompt or reply that is shown, in bytes.
const MAX_TEXT_BYTES: usize = 96 << 10;
/// Maximum number of parts of a text that are folded one by one.
const MAX_CHAPTERS: usize = 80;
/// Most text of all calls together, in bytes: what comes after it is a download.
const MAX_TALK_BYTES: usize = 1 << 20;

/// Renders the section with the model calls. Returns `None` when the attempt made no call.
pub(super) fn section(attempt: &Attempt, material: &Material, look: &Look) -> Option<AnyView> {
    if attempt.calls.is_empty() {
        return None;
    }
    let rows: Vec<Vec<Cell>> = attempt.calls.iter().map(row).collect();
    let head = [
        "Asked by",
        "Model",
        "Turn",
        "Tokens in",
        "Tokens out",
        "Price",
        "Took",
        "Ended",
        "After failures of",
        "Prompt",
        "Reasoning",
        "Reply",
    ];
    let summary = table(&head, &rows);
    let mut room = MAX_TALK_BYTES;
    let calls = attempt
        .calls
        .iter()
        .enumerate()
        .map(|(place, call)| shown(place, call, material, look, &mut room))
        .collect::<Vec<_>>();
    let note = "Prompts are folded by their headings. Notes and lessons that were retrieved for a call are parts of its prompt, as \
        the model saw them.";
    let all = if look.talk == Talk::All {
        chip(look.talking(Talk::Folded).href("conversation"), "Fold everything".to_owned(), false)
    } else {
        chip(look.talking(Talk::All).href("conversation"), "Show every prompt and reply".to_owned(), false)
    };
    let given = retrieved::given(&material.retrievals, look.talk != Talk::Folded);
    Some(view! { {summary}<p class="quiet">{note}</p><ul class="chips look">{all}</ul>{calls}{given} }.into_any())
}

/// One call: its texts where they are asked for, else the way to them.
fn shown(place: usize, call: &ModelCallSummary, material: &Material, look: &Look, room: &mut usize) -> AnyView {
    let anchor = format!("call-{place}");
    let content = if let Some(texts) = material.calls.get(&place) {
        let prompt = said("Prompt", &texts.prompt, room);
        let reasoning = said("Reasoning", &texts.reasoning, room);
        let reply = said("Reply", &texts.reply, room);
        let version = facts(&[("Version of the prompt", Cell::Code(call.prompt_version.clone()))]);
        view! { {version}{prompt}{reasoning}{reply} }.into_any()
    } else {
        let href = look.talking(Talk::Call(place)).href(&anchor);
        view! { <p><a href=href>"Show the prompt and the reply"</a></p> }.into_any()
    };
    view! {
        <h3 id=anchor>{asked_by(call)}", turn "{call.turn}" "{model_label(&call.model, call.scripted)}</h3>
        {content}
    }
    .into_any()
}

fn asked_by(call: &ModelCallSummary) -> String {
    call.role.map_or_else(|| "not recorded".to_owned(), |role| role.as_str().to_owned())
}

fn row(call: &ModelCallSummary) -> Vec<Cell> {
    let tokens = |number: Option<u64>, part: Option<u64>, what: &str| {
        let part = part.map_or_else(String::new, |part| format!(", {} {what}", tokens(Some(part), false)));
        Cell::Number(format!("{}{part}", tokens(number, call.scripted)))
    };
    // A file has no price and takes no time.
    let unless_scripted = |words: String| Cell::Number(if call.scripted { "–".to_owned() } else { words });
    let none = if call.scripted { "–" } else { "not given" };
    let ended = match call.stop {
        StopCause::End => "the model was done",
        StopCause::Length => "cut off at the limit of tokens",
        StopCause::Refusal => "refused",
        StopCause::Other => "something else",
    };
    let fell_back =
        call.fell_back.iter().map(|fell| format!("{} ({})", fell.model, fell.code)).collect::<Vec<_>>().join(", ");
    vec![
        asked_by(call).into(),
        call.model.clone().into(),
        Cell::Number(call.turn.to_string()),
        tokens(call.input_tokens, call.cached_input_tokens, "from the cache"),
        tokens(call.output_tokens, call.reasoning_tokens, "of reasoning"),
        unless_scripted(call.price_microusd.map_or_else(|| "not known".to_owned(), money)),
        unless_scripted(milliseconds(float_u64(call.latency_ms))),
        ended.into(),
        fell_back.into(),
        artifact(&call.prompt),
        call.reasoning.as_ref().map_or_else(|| Cell::Quiet(none.to_owned()), artifact),
        artifact(&call.reply),
    ]
}

fn said(what: &str, stored: &Stored, room: &mut usize) -> AnyView {
    match stored {
        Stored::Here(text) => {
            let shown = MAX_TEXT_BYTES.min(*room);
            *room = room.saturating_sub(text.len().min(shown));
            let lines = text.lines().count();
            folded(format!("{what}: {lines} lines, {} bytes", text.len()), by_chapter(text, shown))
        }
        Stored::Gone(why) => sentences(&[format!("{what} cannot be shown: {why}")]),
        Stored::Never => ().into_any(),
    }
}

/// A text by its headings, each part folded away under its own: notes that were retrieved are one of a prompt's parts.
fn by_chapter(text: &str, most_bytes: usize) -> AnyView {
    let shown = text.get(..text.floor_char_boundary(most_bytes)).unwrap_or_default();
    let chapters = chapters(shown);
    if chapters.len() < 2 || chapters.len() > MAX_CHAPTERS || shown.len() < text.len() {
        return verbatim(text, most_bytes);
    }
    let parts = chapters
        .into_iter()
        .map(|(heading, body)| {
            let heading = heading.map_or("Before the first heading", |heading| heading.trim_start_matches('#').trim());
            let lines = body.lines().count();
            folded(format!("{heading} ({lines} lines)"), verbatim(body.trim_matches('\n'), most_bytes))
        })
        .collect::<Vec<_>>();
    view! { <div class="chapters">{parts}</div> }.into_any()
}

/// Headings of Markdown outside of fenced code, each with what stands below it; what is empty is left out.
fn chapters(text: &str) -> Vec<(Option<&str>, &str)> {
    let mut chapters = Vec::new();
    let (mut heading, mut body_at, mut at) = (None, 0, 0);
    let mut fence: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let ticks = line.trim_start().chars().take_while(|character| *character == '`').count();
        match fence {
            Some(open) if ticks >= open && line.trim().chars().all(|character| character == '`') => fence = None,
            None if ticks >= 3 => fence = Some(ticks),
            _ => {}
        }
        if fence.is_none() && (line.starts_with("# ") || line.starts_with("## ")) {
            chapters.push((heading, &text[body_at..at]));
            heading = Some(line.trim_end());
            body_at = at + line.len();
        }
        at += line.len();
    }
    chapters.push((heading, &text[body_at..at]));
    chapters.retain(|(_, body)| !body.trim().is_empty());
    chapters
}

#[cfg(test)]
mod tests {
    use super::chapters;

    #[test]
    fn a_prompt_is_read_by_its_headings_and_code_has_none() {
        let prompt = "# System\n\nYou are.\n## Notes that may help\n- one\n```c++\n# define X\n## no heading\n```\n## Empty\n\n## Last\nend";
        let found = chapters(prompt);
        let headings: Vec<_> = found.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(headings, [Some("# System"), Some("## Notes that may help"), Some("## Last")]);
        assert!(found[1].1.contains("## no heading"));
        assert_eq!(chapters("no heading at all").len(), 1);
        assert!(chapters("").is_empty());
    }
}
