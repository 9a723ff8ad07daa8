//! Leaving notes, tags and pins, and making links for others to read.

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::browser::fetch::{self, Refusal};
use crate::browser::page;

/// Longest note, in characters; the server has the last word.
const MAX_NOTE_CHARS: u32 = 16_000;
/// Longest tag, in characters.
const MAX_TAG_CHARS: u32 = 50;
/// How long a link is valid, in milliseconds: a week.
const LINK_VALID_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Where a deed stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Idle,
    Busy,
    Done(&'static str),
    Linked(String),
    Failed(Refusal),
}

/// Everything that can be left beside one target.
#[island]
pub(crate) fn TeamTools(
    /// `cmp_…`, `run_…` or `run_…/3`.
    target: String,
    /// Its tags.
    tags: Vec<String>,
    /// Whether it is pinned.
    pinned: bool,
    /// Whether a link to it can be made.
    may_share: bool,
) -> impl IntoView {
    let phase = RwSignal::new(Phase::Idle);
    let (note, tag) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    // An id has nothing that JSON writes otherwise.
    let named = format!("\"{target}\"");
    let act = move |path: &'static str, body: String, done: &'static str| {
        phase.set(Phase::Busy);
        spawn_local(async move {
            match fetch::post(path, &body, Some(&fetch::new_key())).await {
                Ok(()) => {
                    note.set(String::new());
                    tag.set(String::new());
                    phase.set(Phase::Done(done));
                    page::ask_refresh();
                }
                Err(refusal) => phase.set(Phase::Failed(refusal)),
            }
        });
    };
    let add_note = {
        let named = named.clone();
        move |event: leptos::ev::SubmitEvent| {
            event.prevent_default();
            let text = fetch::json_text(note.get_untracked().trim());
            act("/api/v1/notes", format!(r#"{{"target":{named},"text":{text}}}"#), "The note is there.");
        }
    };
    let add_tag = {
        let named = named.clone();
        move |event: leptos::ev::SubmitEvent| {
            event.prevent_default();
            let text = fetch::json_text(tag.get_untracked().trim());
            act("/api/v1/tags", format!(r#"{{"target":{named},"add":[{text}]}}"#), "The tag is there.");
        }
    };
    let pin = {
        let named = named.clone();
        let done = if pinned { "It is not pinned any more." } else { "It is pinned." };
        move |_| act("/api/v1/pins", format!(r#"{{"target":{named},"pinned":{}}}"#, !pinned), done)
    };
    let share = {
        let (named, target) = (named.clone(), target.clone());
        move |_| {
            let (body, target) = (format!(r#"{{"target":{named},"valid_for_ms":{LINK_VALID_MS}}}"#), target.clone());
            phase.set(Phase::Busy);
            spawn_local(async move {
                match fetch::post_for("/api/v1/shares", &body, "secret").await {
                    Ok(secret) => phase.set(Phase::Linked(link(&target, &secret))),
                    Err(refusal) => phase.set(Phase::Failed(refusal)),
                }
            });
        }
    };
    let removers = tags
        .into_iter()
        .map(|tag| {
            let (label, named) = (format!("Remove the tag {tag}"), named.clone());
            let remove = move |_| {
                let body = format!(r#"{{"target":{named},"remove":[{}]}}"#, fetch::json_text(&tag));
                act("/api/v1/tags", body, "The tag is gone.");
            };
            view! { <button type="button" on:click=remove>{label}</button> }
        })
        .collect::<Vec<_>>();
    let said = move || {
        match phase.get() {
        Phase::Idle => ().into_any(),
        Phase::Busy => view! { <p class="quiet">"…"</p> }.into_any(),
        Phase::Done(words) => view! { <p class="good">{words}</p> }.into_any(),
        Phase::Linked(address) => view! {
            <p>"Whoever has this link can read this for a week. It is shown this once: "<code class="link">{address}</code></p>
        }
        .into_any(),
        Phase::Failed(refusal) => {
            view! { <p class="problem">{refusal.message}" "<code>{refusal.code}</code></p> }.into_any()
        }
    }
    };
    view! {
        <details class="needs-script">
            <summary>"Leave a note, a tag or a pin"</summary>
            <form on:submit=add_note>
                <label>
                    "Note (Markdown)"
                    <textarea
                        rows="4"
                        required=true
                        maxlength=MAX_NOTE_CHARS.to_string()
                        prop:value=note
                        on:input=move |event| note.set(event_target_value(&event))
                    ></textarea>
                </label>
                <button type="submit">"Add the note"</button>
            </form>
            <form on:submit=add_tag>
                <label>
                    "Tag"
                    <input
                        type="text"
                        required=true
                        maxlength=MAX_TAG_CHARS.to_string()
                        prop:value=tag
                        on:input=move |event| tag.set(event_target_value(&event))
                    />
                </label>
                <button type="submit">"Add the tag"</button>
            </form>
            <div class="buttons">
                <button type="button" on:click=pin>{if pinned { "Take the pin away" } else { "Pin it" }}</button>
                {may_share.then(|| view! { <button type="button" on:click=share>"Make a link for others to read"</button> })}
                {removers}
            </div>
            <div role="status" aria-live="polite">{said}</div>
        </details>
    }
}

/// The address that opens what is shared. The secret stands behind `#`: browsers send that to nobody.
fn link(target: &str, secret: &str) -> String {
    let path = if target.starts_with("cmp_") { "campaigns" } else { "runs" };
    let origin = window().location().origin().unwrap_or_default();
    format!("{origin}/sign-in?next=/{path}/{target}#{secret}")
}

/// Deleting a note.
#[island]
pub(crate) fn NoteTools(
    /// The note.
    id: String,
) -> impl IntoView {
    let failed = RwSignal::new(None::<Refusal>);
    let delete = move |_| {
        let path = format!("/api/v1/notes/{id}");
        spawn_local(async move {
            match fetch::delete(&path).await {
                Ok(()) => page::ask_refresh(),
                Err(refusal) => failed.set(Some(refusal)),
            }
        });
    };
    let said = move || {
        failed
            .get()
            .map(|refusal| view! { <span class="problem">{refusal.message}" "<code>{refusal.code}</code></span> })
    };
    view! {
        <span class="needs-script"><button type="button" class="plain" on:click=delete>"Delete"</button>{said}</span>
    }
}
