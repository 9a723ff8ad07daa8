//! The team section of a campaign, a run or an attempt: notes, tags, pins, and forms to add them.

use futures::future::{join, try_join, try_join3};
use leptos::prelude::*;
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Remark, Share, Target};
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::failure::PageError;
use crate::form::{Form, hidden, hidden_json};
use crate::format::{moment, when};
use crate::markdown;
use crate::shell::Page;
use crate::visitor::Visitor;
use crate::who::Who;

/// Notes that are shown; the newest ones.
const MAX_NOTES: u32 = 100;
/// Links among which those to a target are looked for; the newest ones.
const MAX_LINKS: u32 = 100;
/// Longest note, in characters; the server has the last word.
const MAX_NOTE_CHARS: u32 = 16_000;
/// Longest tag, in characters.
const MAX_TAG_CHARS: u32 = 50;
/// How long a link is valid, in milliseconds: a week.
const LINK_VALID_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Where everything with this tag is listed.
pub(crate) fn tag_href(tag: &str) -> String {
    Address::parse("/").with("tag", Some(tag)).href()
}

/// The page with the section about `target` (`cmp_…`, `run_…` or `run_…/3`) below its content; without it where the visitor
/// may not read it.
pub(crate) async fn below(
    visitor: &Visitor,
    page: impl Future<Output = Result<Page, PageError>>,
    target: &str,
) -> Result<Page, PageError> {
    let section = async {
        let target = target.parse().ok()?;
        read(&visitor.client, &visitor.who, target).await.ok()
    };
    let (page, section) = join(page, section).await;
    Ok(page?.below(section))
}

async fn read(client: &Client, who: &Who, target: Target) -> Result<AnyView, ClientError> {
    let about = Some((&target, false));
    let (notes, tags, pins) = try_join3(
        client.notes(about, Some(MAX_NOTES), None),
        client.tags(about, None, None),
        client.pins(about, Some(1), None),
    )
    .await?;
    let tags: Vec<String> = tags.items.into_iter().map(|tag| tag.tag).collect();
    let pin = pins.items.into_iter().next();
    let is_pinned = pin.is_some();
    let pinned = pin.map(|pin| {
        let label = if pin.label.is_empty() { String::new() } else { format!(": {}", pin.label) };
        view! { <p>{format!("Pinned by {}{label}.", pin.author)}</p> }
    });
    let chips = tags.iter().map(|tag| {
        let href = tag_href(tag);
        // Visitors with a shared link may not read the list of tagged objects.
        if who.reaches(&href) {
            view! { <li><a href=href>{tag.clone()}</a></li> }.into_any()
        } else {
            view! { <li class="tag">{tag.clone()}</li> }.into_any()
        }
    });
    let chips = chips.collect::<Vec<_>>();
    let chips = (!chips.is_empty()).then(|| view! { <ul class="chips" aria-label="Tags">{chips}</ul> });
    let is_empty = notes.items.is_empty() && tags.is_empty() && !is_pinned;
    let more = notes.next.is_some().then(|| view! { <p class="quiet">"Older notes are not shown here."</p> });
    let notes = notes.items.into_iter().map(|found| note(found, who)).collect::<Vec<_>>();
    let tools = match who.needs_operator() {
        // Reading is all that a link is for.
        Some(_) if who.limited_to().is_some() => ().into_any(),
        Some(reason) => reason,
        None => {
            let tools = tools(&target, &tags, is_pinned, &links(client, &target).await?);
            view! {
                <details class="needs-script" data-key="team-tools">
                    <summary>"Leave a note, a tag or a pin, or share it"</summary>
                    {tools}
                </details>
            }
            .into_any()
        }
    };
    Ok(view! {
        <section id="team" class="team" aria-labelledby="team-title">
            <h2 id="team-title">"Notes"</h2>
            {is_empty.then(|| view! { <p class="quiet">"There are no notes yet."</p> })}
            {pinned}
            {chips}
            {notes}
            {more}
            {tools}
        </section>
    }
    .into_any())
}

fn note(note: Remark, who: &Who) -> AnyView {
    let html = markdown::to_html(&note.text);
    let path = format!("/notes/{}", note.id);
    let tools = who.may_change(&note.author).then(|| {
        let fields = view! {
            <label>
                "The note (Markdown)"
                <textarea name="text" rows="4" required=true maxlength=MAX_NOTE_CHARS.to_string()>{note.text.clone()}</textarea>
            </label>
            <div class="buttons">
                <button type="submit" class="strong">"Save the note"</button>
                <button type="button" data-close="">"Leave it as it is"</button>
            </div>
        };
        let change = Form::new("PUT", &path, "It is changed.").folded("Change", fields.into_any());
        let delete = Form::new("DELETE", &path, "It is deleted.").asking("Delete", "Delete this note for good?", "Yes, delete it");
        view! { <div class="buttons">{change}{delete}</div> }
    });
    view! {
        <article class="note" data-key=note.id.to_string()>
            <p class="quiet">{note.author}" · "{when(note.edited_at.unwrap_or(note.created_at))}{note.edited_at.map(|_| " (changed)")}</p>
            <div class="written" inner_html=html></div>
            {tools}
        </article>
    }
    .into_any()
}

/// Returns the newest valid links to the target; an attempt has no links.
async fn links(client: &Client, target: &Target) -> Result<Vec<Share>, ClientError> {
    if matches!(target, Target::Attempt(..)) {
        return Ok(Vec::new());
    }
    let (health, found) = try_join(client.health(), client.shares(Some(MAX_LINKS), None)).await?;
    Ok(found.items.into_iter().filter(|link| is_valid(link, target, health.now)).collect())
}

fn is_valid(link: &Share, target: &Target, now: TimestampMs) -> bool {
    link.target == *target && link.revoked_at.is_none() && link.expires_at > now
}

fn link_row(link: &Share) -> AnyView {
    let end = Form::new("POST", &format!("/shares/{}/revoke", link.id), "It is ended.").asking(
        "End",
        "End this link at once? It stops working for all who have it.",
        "Yes, end it",
    );
    view! {
        <li data-key=link.id.to_string()>
            {format!("A link by {}, valid until {}", link.author, moment(link.expires_at))}" "{end}
        </li>
    }
    .into_any()
}

/// Renders the forms for notes, tags, pins and links.
fn tools(target: &Target, tags: &[String], is_pinned: bool, links: &[Share]) -> AnyView {
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
    let links = links.iter().map(link_row).collect::<Vec<_>>();
    let links = (!links.is_empty()).then(|| view! { <ul class="plain links" aria-label="Links to this">{links}</ul> });
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
        {links}
    }
    .into_any()
}

/// Renders the form that creates a shared link. The secret follows `#`, which browsers do not send.
fn link(target: &Target) -> AnyView {
    let path = if matches!(target, Target::Campaign(_)) { "campaigns" } else { "runs" };
    let fields = view! {
        {hidden("target", target.to_string())}
        {hidden_json("valid_for_ms", LINK_VALID_MS.to_string())}
        <button type="submit">"Make a link for others to read"</button>
    };
    Form::new("POST", "/shares", "Everyone with this link can read this page for a week. It is shown only once: ")
        .shows("secret")
        .before(format!("/sign-in?next=/{path}/{target}#"))
        .around(fields.into_any())
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::access::Role;

    use super::*;

    fn read_as<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_note_can_be_changed_by_its_author_and_deleting_it_asks_first() {
        let written: Remark = read_as(serde_json::json!({
            "id": "nte_0123456789abcdef0123456789abcdef", "target": format!("run_{}", "0".repeat(32)),
            "text": "a </textarea><script>", "author": "ci", "created_at": 0,
        }));
        let html = |who: Who| Owner::new().with(|| note(written.clone(), &who).to_html());
        let own = html(Who::sample("ci", Role::Operator));
        assert!(own.contains("data-call=\"PUT /api/v1/notes/") && own.contains("Yes, delete it"), "{own}");
        assert!(own.contains("a &lt;/textarea&gt;&lt;script&gt;"), "{own}");
        let other = html(Who::sample("late shift", Role::Operator));
        assert!(!other.contains("data-call") && other.contains("a "), "{other}");
    }

    #[test]
    fn links_that_are_over_or_lead_elsewhere_are_not_listed() {
        let run = format!("run_{}", "0".repeat(32));
        let link = |target: &str, revoked_at: serde_json::Value| -> Share {
            read_as(serde_json::json!({
                "id": "shr_0123456789abcdef0123456789abcdef", "target": target, "label": "", "author": "ci",
                "created_at": 0, "expires_at": 10, "revoked_at": revoked_at,
            }))
        };
        let target: Target = run.parse().unwrap_or_else(|error| panic!("{error}"));
        let none = serde_json::Value::Null;
        assert!(is_valid(&link(&run, none.clone()), &target, TimestampMs(9)));
        assert!(!is_valid(&link(&run, none.clone()), &target, TimestampMs(10)));
        assert!(!is_valid(&link(&run, 5.into()), &target, TimestampMs(9)));
        assert!(!is_valid(&link(&format!("run_{}", "1".repeat(32)), none), &target, TimestampMs(9)));
        let html = Owner::new().with(|| link_row(&link(&run, serde_json::Value::Null)).to_html());
        assert!(html.contains("/shares/shr_") && html.contains("valid until 1970-01-01"), "{html}");
    }
}
