//! The administration page: tokens, shared links, retention. It shows no secrets, except a new one once.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_client::ClientError;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::api::{OpenSession, PruneDone, SessionView, Share};
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::failure::{PageError, needs_role};
use crate::form::{Form, hidden_json};
use crate::format::{count, counted, moment, when};
use crate::shell::{Page, Section};
use crate::visitor::Visitor;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Default retention in days of the preview.
const DEFAULT_DAYS: u64 = 30;
/// Maximum time ago that can be asked about: a century.
const MAX_DAYS: u64 = 36_500;
/// Links that are listed, the newest ones.
const MAX_LINKS: u32 = 100;
/// Longest name of a token, in characters; the server has the last word.
const MAX_NAME_CHARS: u32 = 100;
/// How long a token may be valid, for people and in days; for good without days.
const LIFETIMES: [(&str, Option<u64>); 5] =
    [("a day", Some(1)), ("a week", Some(7)), ("30 days", Some(30)), ("a year", Some(365)), ("for good", None)];

/// The data of the page.
struct Facts {
    session: SessionView,
    tokens: Vec<TokenView>,
    shares: Vec<Share>,
    sessions: Vec<OpenSession>,
    /// Retention in days and what would be deleted; `None` until the visitor asks for a preview.
    prune: Option<(u64, PruneDone)>,
    now: TimestampMs,
}

/// Answers `GET /admin`; with `?days=N` it previews what retention would delete.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let client = &visitor.client;
    let address = Address::parse(&visitor.address);
    let tokens = match client.tokens().await {
        Ok(tokens) => tokens,
        Err(error) => return refused(visitor, error),
    };
    let prune = match days(&address)? {
        Some(days) => Some((days, client.prunable(days * DAY_MS).await?)),
        None => None,
    };
    let facts = Facts {
        session: client.session().await?,
        tokens,
        shares: client.shares(Some(MAX_LINKS), None).await?.items,
        sessions: client.open_sessions().await?,
        prune,
        now: client.health().await?.now,
    };
    Ok(page(&facts))
}

fn refused(visitor: &Visitor, error: ClientError) -> Result<Page, PageError> {
    let words = "Tokens, links and retention are the administrators' business.";
    let reason = needs_role(visitor, &error, words).ok_or(error)?;
    Ok(Page::new("Administration", view! { <h1>"Administration"</h1>{reason} }).section(Section::Admin))
}

fn days(address: &Address) -> Result<Option<u64>, PageError> {
    let Some(text) = address.get("days") else { return Ok(None) };
    let days: Option<u64> = text.parse().ok();
    match days.filter(|days| (1..=MAX_DAYS).contains(days)) {
        Some(days) => Ok(Some(days)),
        None => Err(PageError::bad_query(&format!("`days`: `{text}` is no number from 1 to {MAX_DAYS}"))),
    }
}

fn page(facts: &Facts) -> Page {
    let name = facts.session.name.clone().unwrap_or_default();
    let role = facts.session.role.map(Role::as_str).unwrap_or_default();
    let until = facts.session.expires_at.map(|end| format!(", until {}", moment(end)));
    Page::new(
        "Administration",
        view! {
            <div class="head"><h1>"Administration"</h1><a href="/health">"Health"</a></div>
            <p class="quiet">"You are "<strong>{name}</strong>", "{role}{until}"."</p>
            {tokens(facts)}
            {links(facts)}
            {sessions(facts)}
            {retention(facts)}
        },
    )
    .section(Section::Admin)
}

fn tokens(facts: &Facts) -> AnyView {
    let rows = facts.tokens.iter().map(|token| token_row(token, facts.now)).collect::<Vec<_>>();
    let roles = Role::ALL
        .into_iter()
        .map(|role| view! { <option value=role.as_str()>{role.as_str()}</option> })
        .collect::<Vec<_>>();
    let lifetimes = LIFETIMES
        .into_iter()
        .map(|(label, days)| {
            let value = days.map_or_else(String::new, |days| (days * DAY_MS).to_string());
            let is_usual = days == Some(30);
            view! { <option value=value selected=is_usual>{label}</option> }
        })
        .collect::<Vec<_>>();
    let fields = view! {
        <h3>"A new token"</h3>
        <label>"Name"<input type="text" name="name" required=true maxlength=MAX_NAME_CHARS.to_string() /></label>
        <label>"It may do what this role may"<select name="role">{roles}</select></label>
        <label>"Valid for"<select name="valid_for_ms" data-kind="json">{lifetimes}</select></label>
        <button type="submit" class="strong">"Make the token"</button>
    };
    let create = Form::new("POST", "/tokens", "It is made. Its secret is shown this once: ").shows("secret");
    view! {
        <h2 id="tokens">"Tokens"</h2>
        {table(
            "Names and rights. The secrets are known to their owners alone.",
            &["Name", "Role", "State", "Created", "Last used", "Ends", "Revoke"],
            rows,
        )}
        {create.around(fields.into_any())}
    }
    .into_any()
}

/// Renders a table of this page, with an optional caption.
fn table(caption: &'static str, heads: &[&'static str], rows: Vec<AnyView>) -> AnyView {
    let caption = (!caption.is_empty()).then(|| view! { <caption>{caption}</caption> });
    let heads = heads.iter().map(|head| view! { <th scope="col">{*head}</th> }).collect::<Vec<_>>();
    view! {
        <div class="scroll" tabindex="0">
            <table>
                {caption}
                <thead>
                    <tr>{heads}</tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// Returns the state of a token or link, with its CSS class.
fn state(revoked: bool, expires_at: Option<TimestampMs>, now: TimestampMs) -> (&'static str, &'static str) {
    match (revoked, expires_at.is_some_and(|end| end <= now)) {
        (true, _) => ("revoked", "tag cancelled"),
        (false, true) => ("expired", "tag cancelled"),
        (false, false) => ("valid", "tag completed"),
    }
}

fn token_row(token: &TokenView, now: TimestampMs) -> AnyView {
    let (state, class) = state(token.revoked_at.is_some(), token.expires_at, now);
    let revoke = (state == "valid").then(|| {
        Form::new("POST", &format!("/tokens/{}/revoke", token.id), "It is revoked.").asking(
            "Revoke",
            format!("End the token \u{201c}{}\u{201d} at once? Its users lose access.", token.name),
            "Yes, revoke it",
        )
    });
    let used = token.last_used_at.map_or_else(|| "never".into_any(), |at| when(at).into_any());
    view! {
        <tr data-key=token.id.to_string()>
            <th scope="row">{token.name.clone()}</th>
            <td>{token.role.as_str()}</td>
            <td><span class=class>{state}</span></td>
            <td>{when(token.created_at)}</td>
            <td>{used}</td>
            <td>{token.expires_at.map_or_else(|| "never".to_owned(), moment)}</td>
            <td>{revoke}</td>
        </tr>
    }
    .into_any()
}

fn links(facts: &Facts) -> AnyView {
    let rows = facts.shares.iter().map(|share| share_row(share, facts.now)).collect::<Vec<_>>();
    if rows.is_empty() {
        return view! {
            <h2 id="links">"Links for others to read"</h2>
            <p class="empty">"There are no links. Create one at the end of the page of a campaign or a run."</p>
        }
        .into_any();
    }
    view! {
        <h2 id="links">"Links for others to read"</h2>
        {table("", &["To", "State", "Made by", "Made", "Ends", "Revoke"], rows)}
    }
    .into_any()
}

fn share_row(share: &Share, now: TimestampMs) -> AnyView {
    let (state, class) = state(share.revoked_at.is_some(), Some(share.expires_at), now);
    let target = share.target.to_string();
    let href = if target.starts_with("cmp_") { format!("/campaigns/{target}") } else { format!("/runs/{target}") };
    let revoke = (state == "valid").then(|| {
        Form::new("POST", &format!("/shares/{}/revoke", share.id), "It is revoked.").asking(
            "Revoke",
            "End this link at once? It stops working for all who have it.",
            "Yes, revoke it",
        )
    });
    view! {
        <tr data-key=share.id.to_string()>
            <th scope="row"><a href=href>{target}</a></th>
            <td><span class=class>{state}</span></td>
            <td>{share.author.clone()}</td>
            <td>{when(share.created_at)}</td>
            <td>{moment(share.expires_at)}</td>
            <td>{revoke}</td>
        </tr>
    }
    .into_any()
}

fn sessions(facts: &Facts) -> AnyView {
    let rows = facts.sessions.iter().map(session_row).collect::<Vec<_>>();
    if rows.is_empty() {
        return view! {
            <h2 id="sessions">"Browsers that are signed in"</h2>
            <p class="empty">"None."</p>
        }
        .into_any();
    }
    view! {
        <h2 id="sessions">"Browsers that are signed in"</h2>
        {table("", &["As", "Role", "Sees", "Signed in", "Ends", "Sign out"], rows)}
    }
    .into_any()
}

fn session_row(session: &OpenSession) -> AnyView {
    let sees = session.limited_to.as_ref().map_or_else(|| "everything".to_owned(), ToString::to_string);
    let end = if session.own {
        view! { <span class="quiet">"this browser"</span> }.into_any()
    } else {
        Form::new("POST", &format!("/sessions/{}/end", session.id), "It is signed out.").asking(
            "Sign out",
            format!("Sign out this browser of \u{201c}{}\u{201d}? With its token it can sign in again.", session.name),
            "Yes, sign it out",
        )
    };
    view! {
        <tr data-key=session.id.clone()>
            <th scope="row">{session.name.clone()}</th>
            <td>{session.role.as_str()}</td>
            <td>{sees}</td>
            <td>{when(session.created_at)}</td>
            <td>{moment(session.expires_at)}</td>
            <td>{end}</td>
        </tr>
    }
    .into_any()
}

fn retention(facts: &Facts) -> AnyView {
    let days = facts.prune.as_ref().map_or(DEFAULT_DAYS, |(days, _)| *days);
    let found = facts.prune.as_ref().map(|(days, done)| prunable(*days, done));
    view! {
        <h2 id="retention">"Retention"</h2>
        <p class="quiet">
            "Deletes campaigns whose last run ended long ago, with everything about them, and artifacts that nothing names. \
             An archive of a campaign is written by "<code>"nightshift export"</code>"."
        </p>
        <form class="filters" method="get" action="/admin#retention">
            <label>
                "Ended at least so many days ago"
                <input type="number" name="days" min="1" max=MAX_DAYS.to_string() required=true value=days.to_string() />
            </label>
            <button>"Show what would be deleted"</button>
        </form>
        {found}
    }
    .into_any()
}

fn prunable(days: u64, done: &PruneDone) -> AnyView {
    let number = u64::try_from(done.campaigns.len()).unwrap_or(u64::MAX);
    let more = if done.more { " and more" } else { "" };
    let rows = done
        .campaigns
        .iter()
        .map(|campaign| {
            let href = format!("/campaigns/{campaign}");
            view! { <li><a href=href>{campaign.to_string()}</a></li> }
        })
        .collect::<Vec<_>>();
    let what = if number == 0 {
        "No campaign ended that long ago. Artifacts that nothing names may still be deleted.".to_owned()
    } else {
        format!("{}{more} would be deleted:", counted(number, "campaign", "campaigns"))
    };
    let older_than_ms = days * DAY_MS;
    let sure = if number == 0 {
        "Yes, delete artifacts that nothing names".to_owned()
    } else {
        format!(
            "Yes, delete {} for good{}",
            counted(number, "campaign", "campaigns"),
            if done.more { ", and go on" } else { "" }
        )
    };
    let fields = view! {
        {hidden_json("older_than_ms", older_than_ms.to_string())}
        <label class="ticked"><input type="checkbox" required=true />" "{sure}</label>
        <button type="submit" class="strong">"Delete"</button>
    };
    let delete = Form::new("POST", "/prune", "It is deleted. With many campaigns, ask again whether some are left.")
        .key(format!("prune {days} {}", count(number)))
        .around(fields.into_any());
    view! { <p>{what}</p><ul class="plain">{rows}</ul>{delete} }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_days_is_one_that_makes_sense() {
        let read = |address: &str| days(&Address::parse(address)).ok().flatten();
        assert_eq!(read("/admin?days=7"), Some(7));
        assert_eq!(read("/admin"), None);
        for wrong in ["0", "x", "-1", "99999999999999999999"] {
            assert!(days(&Address::parse(&format!("/admin?days={wrong}"))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_is_valid_can_be_revoked_and_deleting_asks_first() {
        let token = |revoked_at: serde_json::Value| -> TokenView {
            serde_json::from_value(serde_json::json!({
                "id": "tok_0123456789abcdef0123456789abcdef", "name": "<b>ci", "role": "viewer", "created_at": 0,
                "expires_at": null, "revoked_at": revoked_at, "last_used_at": null,
            }))
            .unwrap_or_else(|error| panic!("{error}"))
        };
        let html = |token: &TokenView| Owner::new().with(|| token_row(token, TimestampMs(5)).to_html());
        let valid = html(&token(serde_json::Value::Null));
        assert!(valid.contains("/revoke") && valid.contains("&lt;b&gt;ci"), "{valid}");
        assert!(!html(&token(3.into())).contains("/revoke"));
        let done = PruneDone { campaigns: Vec::new(), rows: 0, artifacts: 0, more: false };
        let html = Owner::new().with(|| prunable(7, &done).to_html());
        assert!(html.contains("604800000") && html.contains("required"), "{html}");
    }
}
