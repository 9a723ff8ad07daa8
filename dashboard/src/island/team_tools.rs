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

/// What can be left beside one target, and where that stands.
#[derive(Debug, Clone)]
struct Tools {
    target: String,
    phase: RwSignal<Phase>,
    note: RwSignal<String>,
    tag: RwSignal<String>,
}

impl Tools {
    /// Posts an object: the target, which has nothing that JSON writes otherwise, and these members.
    fn post(&self, path: &'static str, members: &str, done: &'static str) {
        let Self { target, phase, note, tag } = self.clone();
        let body = format!(r#"{{"target":"{target}",{members}}}"#);
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
    }

    fn add_note(&self) {
        let text = fetch::json_text(self.note.get_untracked().trim());
        self.post("/api/v1/notes", &format!(r#""text":{text}"#), "The note is there.");
    }

    fn add_tag(&self) {
        let text = fetch::json_text(self.tag.get_untracked().trim());
        self.post("/api/v1/tags", &format!(r#""add":[{text}]"#), "The tag is there.");
    }

    fn remove_tag(&self, tag: &str) {
        let text = fetch::json_text(tag);
        self.post("/api/v1/tags", &format!(r#""remove":[{text}]"#), "The tag is gone.");
    }

    fn pin(&self, pinned: bool) {
        let done = if pinned { "It is pinned." } else { "It is not pinned any more." };
        self.post("/api/v1/pins", &format!(r#""pinned":{pinned}"#), done);
    }

    fn share(&self) {
        let Self { target, phase, .. } = self.clone();
        let body = format!(r#"{{"target":"{target}","valid_for_ms":{LINK_VALID_MS}}}"#);
        phase.set(Phase::Busy);
        spawn_local(async move {
            match fetch::post_for("/api/v1/shares", &body, "secret").await {
                Ok(secret) => phase.set(Phase::Linked(link(&target, &secret))),
                Err(refusal) => phase.set(Phase::Failed(refusal)),
            }
        });
    }
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
    let tools = Tools { target, phase, note: RwSignal::new(String::new()), tag: RwSignal::new(String::new()) };
    let removers = tags
        .into_iter()
        .map(|tag| {
            let (label, tools) = (format!("Remove the tag {tag}"), tools.clone());
            view! { <button type="button" on:click=move |_| tools.remove_tag(&tag)>{label}</button> }
        })
        .collect::<Vec<_>>();
    let (pinning, sharing) = (tools.clone(), tools.clone());
    let share = may_share.then(|| {
        view! { <button type="button" on:click=move |_| sharing.share()>"Make a link for others to read"</button> }
    });
    view! {
        <div class="tools">
            {forms(&tools)}
            <div class="buttons">
                <button type="button" on:click=move |_| pinning.pin(!pinned)>
                    {if pinned { "Take the pin away" } else { "Pin it" }}
                </button>
                {share}
                {removers}
            </div>
            <div role="status" aria-live="polite">{move || said(phase.get())}</div>
        </div>
    }
}

/// The fields for a note and for a tag.
fn forms(tools: &Tools) -> impl IntoView + use<> {
    let (note, tag) = (tools.note, tools.tag);
    let (noting, tagging) = (tools.clone(), tools.clone());
    let add_note = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        noting.add_note();
    };
    let add_tag = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        tagging.add_tag();
    };
    view! {
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
    }
}

/// What became of the last deed.
fn said(phase: Phase) -> AnyView {
    match phase {
        Phase::Idle => ().into_any(),
        Phase::Busy => view! { <p class="quiet">"…"</p> }.into_any(),
        Phase::Done(words) => view! { <p class="good">{words}</p> }.into_any(),
        Phase::Linked(address) => {
            let words = "Whoever has this link can read this for a week. It is shown this once: ";
            view! { <p>{words}<code class="link">{address}</code></p> }.into_any()
        }
        Phase::Failed(refusal) => {
            view! { <p class="problem">{refusal.message}" "<code>{refusal.code}</code></p> }.into_any()
        }
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
