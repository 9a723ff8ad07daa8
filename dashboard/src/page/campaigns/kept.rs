//! What the team pinned and tagged, above the list of campaigns: the way back to it.

use futures::future::try_join;
use leptos::prelude::*;
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Pin, Tag, TagCount, Target};

use crate::address::Address;
use crate::format::count;
use crate::team::tag_href;

/// Pins that are shown, the latest ones.
const MAX_PINS: u32 = 12;
/// Names of tags that are shown, the most used ones.
const MAX_NAMES: usize = 20;
/// Targets of one tag that are shown, the latest ones.
const MAX_TAGGED: u32 = 100;

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pins: Vec<Pin>,
    names: Vec<TagCount>,
    /// The tag that the address asks for, and what has it.
    tagged: Option<(String, Vec<Tag>)>,
}

impl Kept {
    /// Reads what belongs above the list as a whole, and what has the tag of the address.
    pub(super) async fn read(client: &Client, address: &Address, is_whole: bool) -> Result<Self, ClientError> {
        let mut kept = Self::default();
        if is_whole {
            let (pins, names) = try_join(client.pins(None, Some(MAX_PINS), None), client.tag_names()).await?;
            (kept.pins, kept.names) = (pins.items, names);
        }
        if let Some(tag) = address.get("tag") {
            kept.tagged = Some((tag.to_owned(), client.tagged(tag, Some(MAX_TAGGED)).await?.items));
        }
        Ok(kept)
    }
}

/// The lists of links; nothing where nothing was left.
pub(super) fn view(kept: &Kept) -> AnyView {
    let pins = kept.pins.iter().map(|pin| {
        let kind = named(&pin.target);
        let words = if pin.label.is_empty() { kind } else { format!("{}: {kind}", pin.label) };
        entry(&pin.target, words, format!("by {}", pin.author))
    });
    let pins = part("pinned", "Pinned".to_owned(), pins.collect());
    let chosen = kept.tagged.as_ref().map(|(tag, _)| tag.as_str());
    let names = kept.names.iter().take(MAX_NAMES).map(|name| {
        let href = tag_href(&name.tag);
        let is_current = (chosen == Some(name.tag.as_str())).then_some("true");
        let words = format!("{} {}", name.tag, count(name.targets));
        view! { <li><a href=href aria-current=is_current>{words}</a></li> }.into_any()
    });
    let names = part("tags", "Tags".to_owned(), names.collect());
    let tagged = kept.tagged.as_ref().map(|(tag, found)| {
        let entries: Vec<AnyView> =
            found.iter().map(|one| entry(&one.target, named(&one.target), format!("by {}", one.author))).collect();
        let none = entries.is_empty().then(|| view! { <p class="empty">"Nothing has this tag."</p> });
        let attempts = Address::parse("/attempts").with("tag", Some(tag)).href();
        let all = view! { <p><a href=attempts>"Attempts with the tag, as a list"</a>" · "<a href="/">"Without the tag"</a></p> };
        view! { {part("tagged", format!("Tagged {tag}"), entries)}{none}{all} }
    });
    view! { {pins}{names}{tagged} }.into_any()
}

fn part(id: &'static str, title: String, entries: Vec<AnyView>) -> Option<AnyView> {
    if entries.is_empty() {
        return None;
    }
    Some(
        view! {
            <section aria-labelledby=id>
                <h2 id=id>{title}</h2>
                <ul class="chips">{entries}</ul>
            </section>
        }
        .into_any(),
    )
}

fn entry(target: &Target, words: String, beside: String) -> AnyView {
    let href = match target {
        Target::Campaign(id) => format!("/campaigns/{id}"),
        Target::Run(id) => format!("/runs/{id}"),
        Target::Attempt(id, number) => format!("/runs/{id}/attempts/{number}"),
    };
    view! { <li><a href=href>{words}</a>" "<span class="quiet">{beside}</span></li> }.into_any()
}

fn named(target: &Target) -> String {
    match target {
        Target::Campaign(id) => format!("campaign {}", id.short()),
        Target::Run(id) => format!("run {}", id.short()),
        Target::Attempt(id, number) => format!("attempt {number} of run {}", id.short()),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read_as<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
    }

    fn html(kept: &Kept) -> String {
        Owner::new().with(|| view(kept).to_html())
    }

    #[test]
    fn what_is_pinned_or_tagged_leads_to_its_page() {
        let (campaign, run) = (format!("cmp_{}", "0".repeat(32)), format!("run_{}", "1".repeat(32)));
        let pin = |target: &str, label: &str| -> Pin {
            read_as(json!({ "target": target, "campaign": campaign, "label": label, "author": "<b>ci", "at": 0 }))
        };
        let tag: Tag = read_as(json!({ "target": run, "tag": "keep & see", "author": "ci", "at": 0 }));
        let name: TagCount = read_as(json!({ "tag": "keep & see", "targets": 1 }));
        let html = html(&Kept {
            pins: vec![pin(&format!("{run}/3"), "baseline"), pin(&campaign, "")],
            names: vec![name],
            tagged: Some(("keep & see".to_owned(), vec![tag])),
        });
        assert!(html.contains(&format!("/runs/{run}/attempts/3")) && html.contains("baseline: attempt 3"), "{html}");
        assert!(html.contains(&format!("/campaigns/{campaign}")) && html.contains("by &lt;b&gt;ci"), "{html}");
        assert!(html.contains("/?tag=keep%20%26%20see") && html.contains("Tagged keep &amp; see"), "{html}");
        assert!(html.contains(&format!("href=\"/runs/{run}\"")), "{html}");
    }

    #[test]
    fn nothing_is_shown_where_nothing_was_left_and_an_unknown_tag_says_so() {
        assert!(!html(&Kept::default()).contains("<section"));
        let unknown = Kept { tagged: Some(("unused".to_owned(), Vec::new())), ..Kept::default() };
        assert!(html(&unknown).contains("Nothing has this tag."));
    }
}
