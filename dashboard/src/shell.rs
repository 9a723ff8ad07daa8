//! What every page has around its content.

use leptos::prelude::*;

/// Seconds after which a page about unfinished work loads itself again.
const REFRESH_S: u32 = 3;

/// A whole HTML document.
pub(crate) fn document(title: &str, live: bool, content: impl IntoView + 'static) -> String {
    let title = format!("{title} · Nightshift");
    let owner = Owner::new();
    let html = owner.with(|| {
        view! {
            <html lang="en">
                <head>
                    <meta charset="utf-8" />
                    <meta name="viewport" content="width=device-width, initial-scale=1" />
                    <meta name="color-scheme" content="light dark" />
                    {live.then(|| view! { <meta http-equiv="refresh" content=REFRESH_S.to_string() /> })}
                    <title>{title}</title>
                    <link rel="stylesheet" href="/style.css" />
                </head>
                <body>
                    <header>
                        <a class="brand" href="/">"Nightshift"</a>
                        <span class="quiet">{live.then_some("updates by itself")}</span>
                    </header>
                    <main>{content}</main>
                </body>
            </html>
        }
        .to_html()
    });
    format!("<!DOCTYPE html>{html}")
}

/// A label for replies that were written beforehand.
pub(crate) fn model_label(model: &str, scripted: bool) -> impl IntoView + use<> {
    let model = model.to_owned();
    if scripted {
        view! { <span class="tag scripted" title="replies come from files, not from a live model">"scripted"</span> }
            .into_any()
    } else {
        view! { <span class="tag">{model}</span> }.into_any()
    }
}
