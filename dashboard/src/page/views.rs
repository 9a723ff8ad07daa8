//! Saved views: named addresses of pages with their filters, private or shared with the team.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{MAX_LABEL_CHARS, Page as Rows, SavedView, SessionView};

use crate::address::Address;
use crate::failure::PageError;
use crate::form::{Form, hidden};
use crate::format::{counted, when};
use crate::saved_view::{href, stored};
use crate::shell::{Page, Section};
use crate::visitor::Visitor;

/// Views of one page.
const PER_PAGE: u32 = 100;

/// `GET /views`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let session = visitor.client.session().await?;
    let found = visitor.client.saved_views(address.get("page"), Some(PER_PAGE), address.get("before")).await?;
    Ok(page(&address, &session, &found))
}

fn page(address: &Address, session: &SessionView, found: &Rows<SavedView>) -> Page {
    let me = session.name.as_deref();
    let rows = found.items.iter().map(|view| row(view, me)).collect::<Vec<_>>();
    let none = rows.is_empty().then(|| {
        view! {
            <p class="empty">
                "No view is saved yet. Choose what you want to see again on a list, for example on "
                <a href="/attempts">"Attempts"</a>", and follow \u{201c}Save this view\u{201d} at its end."
            </p>
        }
    });
    let next = found.next.as_deref().map(|cursor| address.with("before", Some(cursor)).href());
    Page::new(
        "Saved views",
        view! {
            <div class="head">
                <h1>"Saved views"</h1>
                <span class="quiet">{counted(u64::try_from(rows.len()).unwrap_or(u64::MAX), "view", "views")}</span>
            </div>
            <p class="quiet">"Your own views, and those that are shared with the team."</p>
            {save(address, me)}
            {none}
            <ul class="plain views">{rows}</ul>
            <nav class="pages" aria-label="Pages">
                {next.map(|href| view! { <a rel="next" href=href>"Older"</a> })}
            </nav>
        },
    )
    .section(Section::Views)
}

/// The form that saves what `of` and `query` of the address name.
fn save(address: &Address, me: Option<&str>) -> AnyView {
    let Some(page) = address.get("of") else { return ().into_any() };
    let query = address.get("query").unwrap_or_default();
    let href = href(page, query);
    if me.is_none() {
        let next = Address::parse("/sign-in").with("next", Some(&address.href())).href();
        return view! {
            <p class="notice">"A view is kept under a name: "<a href=next>"sign in"</a>" to save "<a href=href.clone()>{href.clone()}</a>"."</p>
        }
        .into_any();
    }
    let fields = view! {
        <h2>"Save a view"</h2>
        <p>"Of "<a href=href.clone()>{href.clone()}</a></p>
        {hidden("page", stored(page))}
        {hidden("query", query)}
        <label>"Name"<input type="text" name="name" required=true maxlength=MAX_LABEL_CHARS.to_string() /></label>
        {shared(false)}
        <button type="submit" class="strong">"Save the view"</button>
    };
    Form::new("POST", "/views", "It is saved.").next("/views").around(fields.into_any())
}

fn shared(is_shared: bool) -> AnyView {
    view! {
        <label class="ticked">
            <input type="checkbox" name="shared" data-kind="flag" checked=is_shared />" the team sees it, too"
        </label>
    }
    .into_any()
}

fn row(view: &SavedView, me: Option<&str>) -> AnyView {
    let href = href(&view.page, &view.query);
    let path = format!("/views/{}", view.id);
    let is_mine = me == Some(view.owner.as_str());
    let tools = is_mine.then(|| {
        let fields = view! {
            {hidden("page", view.page.clone())}
            {hidden("query", view.query.clone())}
            <label>
                "Name"
                <input type="text" name="name" required=true maxlength=MAX_LABEL_CHARS.to_string() value=view.name.clone() />
            </label>
            {shared(view.shared)}
            <button type="submit">"Save it like this"</button>
        };
        let rename = Form::new("PUT", &path, "It is changed.").next("/views").around(fields.into_any());
        let delete = Form::new("DELETE", &path, "It is deleted.");
        view! {
            <div class="buttons">
                <details class="asks needs-script"><summary>"Change it"</summary>{rename}</details>
                {delete.asking("Delete it", format!("Delete the view \u{201c}{}\u{201d}?", view.name), "Yes, delete it")}
            </div>
        }
    });
    let shared = view.shared.then(|| view! { " "<span class="tag">"for the team"</span> });
    view! {
        <li data-row="" data-key=view.id.to_string()>
            <p>
                <a href=href.clone()>{view.name.clone()}</a>{shared}" "
                <span class="quiet">"by "{view.owner.clone()}", "{when(view.edited_at.unwrap_or(view.created_at))}</span>
            </p>
            <p class="quiet"><code>{href}</code></p>
            {tools}
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_another_owner_can_be_opened_but_not_changed() {
        let text = serde_json::json!({
            "id": "viw_0123456789abcdef0123456789abcdef", "name": "<b>fast</b>", "page": "attempts", "query": "sort=speedup",
            "owner": "ada", "shared": true, "created_at": 0,
        });
        let view: SavedView = serde_json::from_value(text).unwrap_or_else(|error| panic!("{error}"));
        let html = |me: Option<&str>| Owner::new().with(|| row(&view, me).to_html());
        assert!(html(Some("ada")).contains("data-call=\"DELETE /api/v1/views/"));
        for other in [None, Some("bob")] {
            let html = html(other);
            assert!(html.contains("/attempts?sort=speedup") && !html.contains("data-call"), "{html}");
            assert!(html.contains("&lt;b&gt;fast"), "{html}");
        }
    }
}
