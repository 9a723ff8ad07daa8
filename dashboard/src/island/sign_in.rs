//! Signing in and out. A session is a cookie that scripts cannot read; the server keeps what it stands for.

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::browser::fetch::{self, Refusal};
use crate::browser::page;

/// Where sessions begin and end.
const SESSION: &str = "/api/v1/session";

/// How the secrets of links begin.
const LINK_PREFIX: &str = "nsh_";

/// Where signing in stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Idle,
    Busy,
    Failed(Refusal),
}

/// The form that takes a token.
#[island]
pub(crate) fn SignIn(
    /// Path and query of the page to go to afterwards.
    next: String,
) -> impl IntoView {
    let phase = RwSignal::new(Phase::Idle);
    let token = RwSignal::new(String::new());
    let sign_in = move || {
        if phase.get_untracked() == Phase::Busy {
            return;
        }
        phase.set(Phase::Busy);
        let (body, next) = (format!(r#"{{"token":{}}}"#, fetch::json_text(token.get_untracked().trim())), next.clone());
        spawn_local(async move {
            match fetch::post(SESSION, &body, None).await {
                Ok(()) => page::go(&next),
                Err(refusal) => phase.set(Phase::Failed(refusal)),
            }
        });
    };
    let by_link = sign_in.clone();
    // A link that somebody shared carries its secret behind `#`, which browsers keep to themselves.
    Effect::new(move |_| {
        if let Some(secret) = page::take_fragment().filter(|secret| secret.starts_with(LINK_PREFIX)) {
            token.set(secret);
            by_link();
        }
    });
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        sign_in();
    };
    let is_busy = move || phase.with(|phase| *phase == Phase::Busy);
    let said = move || match phase.get() {
        Phase::Idle => ().into_any(),
        Phase::Busy => view! { <p class="quiet">"Signing in …"</p> }.into_any(),
        Phase::Failed(refusal) => {
            view! { <p class="problem">{refusal.message}" "<code>{refusal.code}</code></p> }.into_any()
        }
    };
    view! {
        <form class="sign-in needs-script" on:submit=submit>
            <label>
                "Token"
                <input
                    type="password"
                    name="token"
                    autocomplete="current-password"
                    required=true
                    prop:value=token
                    on:input=move |event| token.set(event_target_value(&event))
                />
            </label>
            <button type="submit" class="strong" disabled=is_busy>"Sign in"</button>
            <div role="status" aria-live="polite">{said}</div>
        </form>
    }
}

/// Ends the session.
#[island]
pub(crate) fn SignOut() -> impl IntoView {
    let failed = RwSignal::new(false);
    let sign_out = move |_| {
        spawn_local(async move {
            match fetch::delete(SESSION).await {
                Ok(()) => page::go("/"),
                Err(_) => failed.set(true),
            }
        });
    };
    let label = move || if failed.get() { "Sign out: try again" } else { "Sign out" };
    view! { <button type="button" class="plain needs-script" on:click=sign_out>{label}</button> }
}
