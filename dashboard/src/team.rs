//! What the team left beside a campaign, a run or an attempt: notes, tags, a pin; and ways to leave more.

use leptos::prelude::*;
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Remark, Target};

use crate::format::when;
use crate::island::{NoteTools, TeamTools};
use crate::markdown;
use crate::page::failure::PageError;
use crate::shell::Page;

/// Notes that are shown; the newest ones.
const MAX_NOTES: u32 = 100;

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
    let may_share = !matches!(target, Target::Attempt(..));
    // The type of the whole would be too deep for the compiler.
    let tools =
        view! { <TeamTools target=target.to_string() tags=tags pinned=is_pinned may_share=may_share /> }.into_any();
    Ok(view! {
        <section id="team" class="team" aria-labelledby="team-title">
            <h2 id="team-title">"Notes"</h2>
            {is_empty.then(|| view! { <p class="quiet">"Nobody left a note yet."</p> })}
            {pinned}
            {chips}
            {notes}
            {more}
            // Outside of the island, so that it stays open when that is made anew.
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
            <NoteTools id=note.id.to_string() />
        </article>
    }
    .into_any()
}
