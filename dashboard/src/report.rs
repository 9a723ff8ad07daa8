//! A report: a page as one file with its stylesheet, without scripts and external resources.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leptos::prelude::*;
use nightshift_client::Client;
use sha2::{Digest as _, Sha256};

use crate::format::moment;
use crate::markup::visible;
use crate::shell::Page;
use crate::style::SHEET;

/// Content security policy of a report: only its own stylesheet. The file contains it, for use without a server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(Sha256::digest(SHEET.as_bytes()));
    format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
});

/// The page as an answer.
pub(crate) async fn answer(client: &Client, page: Page) -> Response {
    // Without the server's time, the report does not show when it was made.
    let made =
        client.health().await.ok().map(|health| format!("{}, Nightshift {}", moment(health.now), health.version));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, POLICY.clone()),
        (CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    (headers, html(page, made)).into_response()
}

/// The file.
pub(crate) fn html(page: Page, made: Option<String>) -> String {
    visible(&without_dead_links(&document(page, made))).into_owned()
}

/// Renders the report with all links of the page, for tests.
#[cfg(test)]
pub(crate) fn with_links(page: Page) -> String {
    visible(&document(page, None)).into_owned()
}

fn document(page: Page, made: Option<String>) -> String {
    let (title, content) = page.into_parts();
    let owner = Owner::new();
    let html = owner.with(|| {
        view! {
            <html lang="en" data-theme="system">
                <head>
                    <meta charset="utf-8" />
                    <meta name="viewport" content="width=device-width, initial-scale=1" />
                    <meta http-equiv="Content-Security-Policy" content=POLICY.as_str() />
                    <meta name="robots" content="noindex" />
                    <title>{format!("{title} · Nightshift")}</title>
                    <style inner_html=SHEET></style>
                </head>
                <body class="report">
                    <main>
                        {content}
                        <p class="quiet">{made.map(|made| format!("Report of {made}. "))}"Times are UTC."</p>
                    </main>
                </body>
            </html>
        }
        .to_html()
    });
    format!("<!DOCTYPE html>{}", without_offers(&html))
}

/// Removes page-only content. Text of models and programs cannot imitate its tag, because `<` is escaped.
fn without_offers(html: &str) -> String {
    let mut parts = html.split("<page-only>");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once("</page-only>").map_or("", |(_, rest)| rest));
    }
    kept
}

/// Keeps links within the file and to the web. Other links become text.
fn without_dead_links(html: &str) -> String {
    let mut parts = html.split("<a ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("<a ");
        // Attribute values are escaped, so the first `>` ends the tag.
        let (tag, rest) = part.split_at(part.find('>').unwrap_or(part.len()));
        let is_dead = |address: &str| !["#", "http://", "https://"].iter().any(|alive| address.starts_with(alive));
        match address(tag).filter(|(_, address, _)| is_dead(address)) {
            Some((before, _, after)) => kept.extend([before, after]),
            None => kept.push_str(tag),
        }
        kept.push_str(rest);
    }
    kept
}

/// Splits a tag into its address and the text before and after it.
fn address(tag: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = tag.split_once("href=\"")?;
    let (address, after) = rest.split_once('"')?;
    Some((before, address, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_file_that_runs_and_fetches_nothing() {
        let page = Page::new("<b>", view! { <p>"<script>alert(1)</script>"</p> });
        let html = html(page, Some("today".to_owned()));
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "{html}");
        assert!(!html.contains("<link") && !html.contains("src=") && html.contains(&SHEET[..60]));
        assert!(html.contains("default-src &#x27;none&#x27;") || html.contains("default-src 'none'"));
    }

    #[test]
    fn links_that_lead_nowhere_from_a_disk_are_words() {
        let page = Page::new(
            "x",
            view! {
                <p>
                    <a class="q" href="/runs/1?a=<b>">"one"</a><a href="./2#x">"two"</a><a href="#x">"three"</a>
                    <a href="https://example.org/">"four"</a><a title=">href=" href="relative">"five"</a>
                </p>
            },
        );
        let html = html(page, None);
        assert!(html.contains("href=\"#x\">three") && html.contains("href=\"https://example.org/\">four"), "{html}");
        assert!(!html.contains("/runs/1") && !html.contains("./2") && !html.contains("\"relative\""), "{html}");
        assert!(["one", "two", "five"].iter().all(|words| html.contains(&format!(">{words}</a>"))), "{html}");
    }

    #[test]
    fn a_report_offers_nothing_that_only_a_page_can() {
        let offer =
            |words: &'static str| crate::page::components::on_page_only(view! { <a href="/x">{words}</a> }.into_any());
        let page = Page::new("x", view! { <p>"before "{offer("one")}" between "{offer("two")}" <page-only>after"</p> });
        let html = html(page, None);
        assert!(
            html.contains("before ") && html.contains(" between ") && html.contains("&lt;page-only&gt;after"),
            "{html}"
        );
        assert!(!html.contains(">one<") && !html.contains(">two<"), "{html}");
    }

    #[test]
    fn the_stylesheet_cannot_end_its_element() {
        assert!(!SHEET.contains("</"));
    }
}
