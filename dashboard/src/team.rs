//! What the team left beside a campaign, a run or an attempt: notes, tags, a pin; and ways to leave more.

use leptos::prelude::*;
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Remark, Target};

use crate::form::{Form, hidden, hidden_json};
use crate::format::when;
use crate::markdown;
use crate::page::failure::PageError;
use crate::shell::Page;

/// Notes that are shown; the newest ones.
const MAX_NOTES: u32 = 100;
/// Longest note, in characters; the server has the last word.
const MAX_NOTE_CHARS: u32 = 16_000;
/// Longest tag, in characters.
const MAX_TAG_CHARS: u32 = 50;
/// How long a link is valid, in milliseconds: a week.
const LINK_VALID_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// The section; none where the visitor may not read it.
async fn section(client: &Client, target: Target) -> Option<AnyView> {
    read(client, target).await.ok()
}

/// The page with the section about `target` (`cmp_…`, `run_…` or `run_…/3`) below its content.
pub(crate) async fn below(client: &Client, page: Result<Page, PageError>, target: &str) -> Result<Page, PageError> {
    let page = page?;
    Ok(match target.parse() {
        Ok(target) => page.below(section(client, target).await),
        Err(_) => page,
    })
}

async fn read(client: &Client, target: Target) -> Result<AnyView, ClientError> {
    let about = Some((&target, false));
    let notes = client.notes(about, Some(MAX_NOTES), None).await?;
    let tags = client.tags(about, None, None).await?;
    let pins = client.pins(about, Some(1), None).await?;
    let tags: Vec<String> = tags.items.into_iter().map(|tag| tag.tag).collect();
    let pin = pins.items.into_iter().next();
    let is_pinned = pin.is_some();
    let pinned = pin.map(|pin| {
        let label = if pin.label.is_empty() { String::new() } else { format!(": {}", pin.label) };
        view! { <p>"Pinned by "{pin.author}{label}"."</p> }
    });
    let chips = tags.iter().map(|tag| view! { <li class="tag">{tag.clone()}</li> }).collect::<Vec<_>>();
    let chips = (!chips.is_empty()).then(|| view! { <ul class="chips" aria-label="Tags">{chips}</ul> });
    let is_empty = notes.items.is_empty() && tags.is_empty() && !is_pinned;
    let more = notes.next.is_some().then(|| view! { <p class="quiet">"Older notes are not shown here."</p> });
    let notes = notes.items.into_iter().map(note).collect::<Vec<_>>();
    let tools = tools(&target, &tags, is_pinned);
    Ok(view! {
        <section id="team" class="team" aria-labelledby="team-title">
            <h2 id="team-title">"Notes"</h2>
            {is_empty.then(|| view! { <p class="quiet">"Nobody left a note yet."</p> })}
            {pinned}
            {chips}
            {notes}
            {more}
            <details class="needs-script" data-key="team-tools">
                <summary>"Leave a note, a tag or a pin"</summary>
                {tools}
            </details>
        </section>
    }
    .into_any())
}

fn note(note: Remark) -> AnyView {
    let html = markdown::to_html(&note.text);
    view! {
        <article class="note" data-key=note.id.to_string()>
            <p class="quiet">{note.author}" · "{when(note.edited_at.unwrap_or(note.created_at))}{note.edited_at.map(|_| " (changed)")}</p>
            <div class="written" inner_html=html></div>
            {Form::new("DELETE", &format!("/notes/{}", note.id), "It is deleted.").button("Delete")}
        </article>
    }
    .into_any()
}

/// Everything that can be left beside a target.
fn tools(target: &Target, tags: &[String], is_pinned: bool) -> AnyView {
    let own = || hidden("target", target.to_string());
    let note = view! {
        {own()}
        <label>"Note (Markdown)"<textarea name="text" rows="4" required=true maxlength=MAX_NOTE_CHARS.to_string()></textarea></label>
        <button type="submit">"Add the note"</button>
    };
    let tag = view! {
        {own()}
        <label>"Tag"<input type="text" name="add" data-kind="words" required=true maxlength=MAX_TAG_CHARS.to_string() /></label>
        <button type="submit">"Add the tag"</button>
    };
    let (pin, done) =
        if is_pinned { ("Take the pin away", "It is not pinned any more.") } else { ("Pin it", "It is pinned.") };
    let pin = view! { {own()}{hidden_json("pinned", (!is_pinned).to_string())}<button type="submit">{pin}</button> };
    let share = (!matches!(target, Target::Attempt(..))).then(|| link(target));
    let removers = tags.iter().map(|tag| {
        let fields = view! {
            {own()}
            <input type="hidden" name="remove" data-kind="words" value=tag.clone() />
            <button type="submit">{format!("Remove the tag {tag}")}</button>
        };
        Form::new("POST", "/tags", "The tag is gone.").key(format!("remove {tag}")).around(fields.into_any())
    });
    view! {
        {Form::new("POST", "/notes", "The note is there.").around(note.into_any())}
        {Form::new("POST", "/tags", "The tag is there.").key("add a tag").around(tag.into_any())}
        <div class="buttons">
            {Form::new("POST", "/pins", done).key(format!("pinned {is_pinned}")).around(pin.into_any())}
            {share}
            {removers.collect::<Vec<_>>()}
        </div>
    }
    .into_any()
}

/// Makes an address that opens the target. The secret stands behind `#`: browsers send that to nobody.
fn link(target: &Target) -> AnyView {
    let path = if matches!(target, Target::Campaign(_)) { "campaigns" } else { "runs" };
    let fields = view! {
        {hidden("target", target.to_string())}
        {hidden_json("valid_for_ms", LINK_VALID_MS.to_string())}
        <button type="submit">"Make a link for others to read"</button>
    };
    Form::new("POST", "/shares", "Whoever has this link can read this for a week. It is shown this once: ")
        .shows("secret")
        .before(format!("/sign-in?next=/{path}/{target}#"))
        .around(fields.into_any())
}
