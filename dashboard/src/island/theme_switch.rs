//! The theme switch: dark, light or the system's theme. Without scripts it is a form that the server answers.

use leptos::prelude::*;

use crate::browser::page;
use crate::theme::Theme;

/// Renders the switch.
#[island]
pub(crate) fn ThemeSwitch(
    /// Theme that the page was rendered with.
    chosen: String,
    /// Path and query of the page.
    back: String,
) -> impl IntoView {
    let theme = RwSignal::new(Theme::parse(&chosen));
    let buttons = Theme::ALL
        .into_iter()
        .map(|choice| {
            let (label, sign) = match choice {
                Theme::System => ("Colours of the system", "◐"),
                Theme::Light => ("Light colours", "☀"),
                Theme::Dark => ("Dark colours", "☾"),
            };
            view! {
                <button
                    name="theme"
                    value=choice.as_str()
                    title=label
                    aria-label=label
                    aria-pressed=move || if theme.get() == choice { "true" } else { "false" }
                    on:click=move |event| {
                        event.prevent_default();
                        page::show_theme(choice);
                        theme.set(choice);
                    }
                >
                    {sign}
                </button>
            }
        })
        .collect::<Vec<_>>();
    view! { <form class="themes" method="post" action=format!("/theme?back={back}")>{buttons}</form> }
}
