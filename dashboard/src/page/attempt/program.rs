//! The source, and what differs between it and others.

use std::sync::Arc;

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::verdict::Severity;

use super::build::is_of_program;
use super::look::{Against, Look};
use super::material::{Material, Stored};
use super::verdict::severity;
use crate::format::bytes;
use crate::page::components::{artifact_href, chip, folded, layouts};
use crate::source::{Diff, Language, LineNote, diff_view, highlighted, listing};

/// Maximum number of attempts that can be chosen from a list.
const MAX_CHOICES: usize = 500;

/// The section.
pub(super) fn section(detail: &RunDetail, attempt: &Attempt, material: &Material, look: &Look) -> AnyView {
    let Some(source) = material.source.text() else {
        let why = match &material.source {
            Stored::Gone(why) => format!("The source cannot be shown: {why}"),
            Stored::Never | Stored::Here(_) => "The reply held no usable program.".to_owned(),
        };
        return said(&why);
    };
    let language = Language::of_program(source);
    let lines = highlighted(source, language);
    let (listed, is_whole) = listing(&lines, "L", &notes(attempt));
    let listed = view! { <div id="source-text">{listed.block("source")}</div> }.into_any();
    let download = attempt.source.as_ref().map(|hash| {
        view! { <a class="button" href=artifact_href(hash)>"Download"</a> }
    });
    let cut = attempt.source.as_ref().filter(|_| !is_whole).map(|hash| {
        let size = bytes(u64::try_from(source.len()).unwrap_or(u64::MAX));
        view! { <p class="notice">"The source is too long to be shown whole. "<a href=artifact_href(hash)>"All "{size}" of it"</a></p> }
    });
    let compared = look.against.map(|against| compared(material, &lines, against, look));
    let program = if compared.is_some() { folded("The whole source", listed) } else { listed };
    view! {
        {navigation(detail, attempt, look)}
        <p class="buttons">{download}{copy("source-text", is_whole)}</p>
        {taken_away(detail, attempt, material, look)}
        {cut}
        {compared}
        {program}
    }
    .into_any()
}

/// The program in the forms in which it is taken away.
fn taken_away(detail: &RunDetail, attempt: &Attempt, material: &Material, look: &Look) -> AnyView {
    let href = |form: &str| format!("/api/v1/attempts/at/{}/{}/{form}", detail.summary.id, attempt.number);
    let text = match &material.model_new {
        Stored::Never => None,
        Stored::Gone(why) => Some(said(&format!("The program cannot be given as ModelNew: {why}"))),
        Stored::Here(text) => {
            let lines = highlighted(text, Language::Python);
            let (listed, is_whole) = listing(&lines, "M", &[]);
            let listed = listed.block("source");
            let cut = (!is_whole).then(|| {
                view! { <p class="notice">"The program is too long to be shown whole: download it."</p> }
            });
            Some(
                view! {
                    <h3 id="model-new">"As ModelNew"</h3>
                    <p class="buttons">{copy("model-new-text", is_whole)}</p>
                    {cut}
                    <div id="model-new-text">{listed}</div>
                }
                .into_any(),
            )
        }
    };
    let (shown, words) = (look.as_model_new, if look.as_model_new { "Hide ModelNew" } else { "Copy as ModelNew" });
    let here = look.as_model_new(!shown).href(if shown { "source" } else { "model-new" });
    view! {
        <p class="buttons">
            <a class="button" href=here>{words}</a>
            <a class="button" href=href("model-new") download="">"Download as ModelNew"</a>
            <a class="button" href=href("project") download="">"Download as CMake project"</a>
        </p>
        {text}
    }
    .into_any()
}

/// Renders the button that copies a listing; a listing that is cut has none, because a part of a program is no program.
fn copy(id: &'static str, is_whole: bool) -> Option<AnyView> {
    let button = || view! { <button type="button" class="needs-script" data-copy=id>"Copy"</button> }.into_any();
    is_whole.then(button)
}

/// Something that is said in place of what cannot be shown.
fn said(words: &str) -> AnyView {
    let words = words.to_owned();
    view! { <p class="empty">{words}</p> }.into_any()
}

/// What it can be compared with.
fn navigation(detail: &RunDetail, attempt: &Attempt, look: &Look) -> AnyView {
    let best = detail.view.best_attempt.filter(|best| *best != attempt.number);
    let offers = [
        (Some(None), "Source".to_owned()),
        (
            attempt.parent.map(|_| Some(Against::Parent)),
            format!("Against its parent, {}", attempt.parent.unwrap_or_default()),
        ),
        (best.map(|_| Some(Against::Best)), format!("Against the best, {}", best.unwrap_or_default())),
        (Some(Some(Against::Baseline)), "Against the baseline".to_owned()),
    ];
    let links = offers
        .into_iter()
        .filter_map(|(against, words)| Some((against?, words)))
        .map(|(against, words)| chip(look.compared(against).href("source"), words, look.against == against))
        .collect::<Vec<_>>();
    let layouts = look.against.is_some().then(|| layouts(look.view, |view| look.laid_out(view).href("source")));
    let others = detail.view.attempts.iter().filter(|other| other.number != attempt.number && other.source.is_some());
    let choices = others
        .take(MAX_CHOICES)
        .map(|other| {
            let chosen = look.against == Some(Against::Attempt(other.number));
            view! { <option value=other.number.to_string() selected=chosen>{format!("attempt {}", other.number)}</option> }
        })
        .collect::<Vec<_>>();
    // What a form sends replaces the whole query: what else the address asks for goes along.
    let asked = [
        Some(("view", look.view.as_str().to_owned())),
        look.pin.map(|pin| ("pin", pin.to_string())),
        look.window_us.0.map(|from| ("from", from.to_string())),
        look.window_us.1.map(|to| ("to", to.to_string())),
        look.talk.name().map(|talk| ("talk", talk)),
    ];
    let kept = asked
        .into_iter()
        .flatten()
        .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
        .collect::<Vec<_>>();
    let any = (!choices.is_empty()).then(|| {
        view! {
            <form method="get" action="#source" class="filters">
                <label>"Against any other"<select name="diff">{choices}</select></label>
                {kept}
                <button type="submit">"Compare"</button>
            </form>
        }
    });
    view! { <div class="look"><ul class="chips">{links}</ul>{layouts}{any}</div> }.into_any()
}

fn compared(material: &Material, lines: &Arc<crate::source::Source>, against: Against, look: &Look) -> AnyView {
    let Some((name, other)) = &material.other else {
        return said(&format!("There is no `{}` to compare it with.", against.name()));
    };
    let other = match other {
        Stored::Here(text) => highlighted(text, Language::of_program(text)),
        Stored::Gone(why) => {
            return said(&format!("{name} cannot be shown: {why}"));
        }
        Stored::Never => return said(&format!("{name} has no source.")),
    };
    let diff = Diff::of(other, Arc::clone(lines));
    let words = if diff.is_same() {
        format!("The source is the same as that of {name}.")
    } else {
        format!("From {name} to this one: {} lines added, {} removed.", diff.added, diff.removed)
    };
    let shown = diff_view(&diff, look.view).block("differences");
    view! { <p>{words}</p>{shown} }.into_any()
}

/// What was said, with what it is about before it unless it says so itself.
fn begun(about: &str, said: &str) -> String {
    if said.starts_with(about) { said.to_owned() } else { format!("{about}: {said}") }
}

/// What was said about single lines: by the rules, the compiler, the sanitizers.
fn notes(attempt: &Attempt) -> Vec<LineNote> {
    let mut notes: Vec<LineNote> = Vec::new();
    let mut add = |line: Option<u32>, class: &'static str, words: String| {
        if let Some(line) = line.filter(|line| *line > 0) {
            notes.push(LineNote { line, class, words });
        }
    };
    for finding in &attempt.findings {
        let (class, _) = severity(finding.severity);
        let class = if finding.severity == Severity::Note { "note" } else { class };
        add(finding.line, class, format!("{}: {}", finding.code, finding.message));
    }
    if let Some(build) = &attempt.build {
        for message in build.messages.iter().filter(|message| is_of_program(message)) {
            let class = if message.severity == "error" { "problem" } else { "busy" };
            add(Some(message.line), class, format!("{}: {}", message.severity, message.message));
        }
        for note in &build.report.missed_loops {
            add(Some(note.line), "note", begun("not vectorized", &note.message));
        }
        for note in &build.report.vectorized_loops {
            add(Some(note.line), "note", begun("vectorized", &note.message));
        }
    }
    for run in attempt.sanitize.iter().flat_map(|report| &report.tools) {
        for issue in &run.issues {
            let class = if issue.is_error { "problem" } else { "busy" };
            add(issue.line, class, format!("{}: {}, {} times", run.tool.as_str(), issue.kind, issue.count));
        }
    }
    for tunable in &attempt.tunables {
        let values = tunable.values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        add(Some(tunable.line), "note", format!("tunable {}: {} of {values}", tunable.name, tunable.value));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::begun;

    #[test]
    fn nothing_is_said_twice_about_a_line() {
        assert_eq!(begun("not vectorized", "not vectorized: complicated access"), "not vectorized: complicated access");
        assert_eq!(begun("vectorized", "loop of 8 floats"), "vectorized: loop of 8 floats");
    }
}
