//! The document: head, header, content, footer.

use leptos::prelude::*;

use super::{Page, help, navigation};
use crate::assets::Assets;
use crate::form::Form;
use crate::island::{LinkState, ThemeSwitch};
use crate::saved_view::save_href;
use crate::theme::Theme;
use crate::visitor::Visitor;

/// Seconds after which a page about unfinished work loads itself again where no script runs.
const REFRESH_S: u32 = 5;

pub(super) fn frame(visitor: &Visitor, page: Page, assets: &'static Assets) -> impl IntoView + use<> {
    let title = format!("{} · Nightshift", page.title);
    let theme = visitor.theme;
    let live = page.live.query();
    let is_live = live.is_some();
    // Without scripts: a page with a form to fill in is left alone.
    let reloads = is_live && page.live != super::Live::Summed;
    // Known before the first row arrives: a page that grows while it loads would move.
    let wide = page.is_list.then_some("wide");
    let back = visitor.address.clone();
    let keys = visitor.keys_are_off.then_some(crate::keys::OFF);
    let keyboard = help::dialog(visitor.keys_are_off, &back);
    let is_limited = visitor.who.limited_to().is_some();
    // Visitors with a shared link have no views.
    let keep = (page.is_list && !is_limited).then(|| {
        let href = save_href(&visitor.address);
        view! { <p class="keep"><a href=href>"Save this view"</a></p> }
    });
    let above = page.crumbs.into_iter().filter(|crumb| visitor.who.reaches(&crumb.href)).collect();
    let crumbs = navigation::crumbs(above, &page.title);
    view! {
        <html lang="en" data-theme=theme.as_str() data-keys=keys>
            <head>
                <meta charset="utf-8" />
                <meta name="viewport" content="width=device-width, initial-scale=1" />
                <meta name="color-scheme" content=theme.color_scheme() />
                <title>{title}</title>
                <link rel="stylesheet" href=assets.style.path.as_str() />
                <link rel="icon" type="image/svg+xml" href=assets.icon.path.as_str() />
                {assets.bundle.as_ref().map(program)}
                {reloads.then(|| view! { <noscript><meta http-equiv="refresh" content=REFRESH_S.to_string() /></noscript> })}
            </head>
            <body>
                <a class="skip" href="#main">"Skip to the content"</a>
                <header class="bar">
                    <a class="brand" href=visitor.who.home()>"Nightshift"</a>
                    {navigation::bar(page.section, &visitor.who)}
                    <div class="tools">
                        <LinkState live=is_live />
                        {session(visitor)}
                        {theme_switch(theme, back)}
                    </div>
                </header>
                {crumbs}
                <main id="main" tabindex="-1" class=wide data-live=live>{page.content}{keep}</main>
                {footer()}
                {keyboard}
            </body>
        </html>
    }
}

fn program(bundle: &'static crate::assets::Bundle) -> impl IntoView {
    let (boot, script, program) =
        (bundle.boot.path.as_str(), bundle.script.path.as_str(), bundle.program.path.as_str());
    view! {
        <link rel="modulepreload" href=script />
        <link rel="preload" r#as="fetch" r#type="application/wasm" crossorigin="anonymous" href=program />
        <script r#async=true src=boot data-script=script data-program=program></script>
    }
}

/// Renders the visitor's name with the sign-out form, or the sign-in link.
fn session(visitor: &Visitor) -> impl IntoView + use<> {
    let words = visitor.who.words();
    let who = words.map(|words| view! { <span class="who" title=words.clone()>{words.clone()}</span> });
    if visitor.who.is_signed_in() {
        let button = view! { <button type="submit" class="plain">"Sign out"</button> };
        let sign_out = Form::new("DELETE", "/session", "").action("/sign-out".to_owned()).next("/");
        let sign_out = sign_out.around(button.into_any());
        return view! { {who}{sign_out} }.into_any();
    }
    view! { {who}<a class="sign" href=visitor.sign_in()>"Sign in"</a> }.into_any()
}

fn theme_switch(theme: Theme, back: String) -> impl IntoView {
    view! { <ThemeSwitch chosen=theme.as_str().to_owned() back=back /> }
}

fn footer() -> impl IntoView {
    let version = format!("Nightshift {}", env!("CARGO_PKG_VERSION"));
    view! {
        <footer class="foot">
            <span>{version}</span>
            <span>"Times are UTC."</span>
            <button type="button" class="plain needs-script" data-help="">"Keyboard: "<kbd>"?"</kbd></button>
        </footer>
    }
}
