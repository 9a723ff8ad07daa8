//! What a visitor can do to a run, a campaign, a worker or a device. Each button is one call of the API, with the visitor's own rights.

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::browser::fetch::{self, Refusal};
use crate::browser::page;

/// Longest hint, in characters; the server has the last word.
const MAX_HINT_CHARS: u32 = 4_000;

/// Something that can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Deed {
    Control(&'static str),
    Retry,
    Hint,
    Drain(bool),
    Release,
    Pass(String),
    Refuse(String),
}

impl Deed {
    /// The deed that a page names.
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "pause" => Self::Control("pause"),
            "resume" => Self::Control("resume"),
            "cancel" => Self::Control("cancel"),
            "retry" => Self::Retry,
            "hint" => Self::Hint,
            "drain" => Self::Drain(true),
            "undrain" => Self::Drain(false),
            "release" => Self::Release,
            _ => return None,
        })
    }

    fn label(&self) -> String {
        match self {
            Self::Control("pause") => "Pause".to_owned(),
            Self::Control("resume") => "Resume".to_owned(),
            Self::Control(_) => "Cancel".to_owned(),
            Self::Retry => "Retry".to_owned(),
            Self::Hint => "Give a hint".to_owned(),
            Self::Drain(true) => "Drain".to_owned(),
            Self::Drain(false) => "Take work again".to_owned(),
            Self::Release => "Test it and use it again".to_owned(),
            Self::Pass(gate) => format!("Approve {gate}"),
            Self::Refuse(gate) => format!("Reject {gate}"),
        }
    }

    /// What has to be asked before it is done.
    fn question(&self) -> Option<&'static str> {
        match self {
            Self::Control("cancel") => Some("Cancelling stops what is running and cannot be taken back. Cancel?"),
            Self::Drain(true) => Some("A drained worker ends what it has, takes nothing new, and ends. Drain it?"),
            _ => None,
        }
    }

    /// What the visitor has to write.
    fn wants_text(&self) -> Option<&'static str> {
        match self {
            Self::Hint => Some("Advice for the agents: they read it with their next prompts"),
            Self::Refuse(_) => Some("Why not? The reason is given to the agents"),
            _ => None,
        }
    }

    /// Last part of the path, and body of the call.
    fn call(&self, text: &str) -> (&'static str, String) {
        let text = fetch::json_text(text);
        match self {
            Self::Control(action) => ("control", format!(r#"{{"action":"{action}"}}"#)),
            Self::Retry => ("retry", "{}".to_owned()),
            Self::Drain(draining) => ("drain", format!(r#"{{"draining":{draining}}}"#)),
            Self::Release => ("release", "{}".to_owned()),
            Self::Hint => ("signals", format!(r#"{{"signal":"hint","text":{text}}}"#)),
            Self::Pass(gate) => ("signals", format!(r#"{{"signal":"approved","gate":{}}}"#, fetch::json_text(gate))),
            Self::Refuse(gate) => {
                ("signals", format!(r#"{{"signal":"rejected","gate":{},"reason":{text}}}"#, fetch::json_text(gate)))
            }
        }
    }
}

/// Where a deed stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The visitor is asked, or writes.
    Asking(Deed),
    Busy(Deed),
    Done(Deed),
    Failed(Refusal),
}

/// The buttons.
#[island]
pub(crate) fn Actions(
    /// Of what, as in the path of its calls: `runs/run_1`, `workers/wrk_1`.
    subject: String,
    /// Names of the deeds that are possible now, see [`Deed::parse`].
    offers: Vec<String>,
    /// Gates at which the run waits for a person.
    gates: Vec<String>,
) -> impl IntoView {
    let phase = RwSignal::new(Phase::Idle);
    let text = RwSignal::new(String::new());
    let perform = move |deed: Deed| {
        let (part, body) = deed.call(&text.get_untracked());
        let (path, key) = (format!("/api/v1/{subject}/{part}"), fetch::new_key());
        phase.set(Phase::Busy(deed.clone()));
        spawn_local(async move {
            match fetch::post(&path, &body, Some(&key)).await {
                Ok(()) => {
                    text.set(String::new());
                    phase.set(Phase::Done(deed));
                    page::ask_refresh();
                }
                Err(refusal) => phase.set(Phase::Failed(refusal)),
            }
        });
    };
    let deeds = offers.iter().filter_map(|name| Deed::parse(name));
    let gates = gates.into_iter().flat_map(|gate| [Deed::Pass(gate.clone()), Deed::Refuse(gate)]);
    let buttons = deeds
        .chain(gates)
        .map(|deed| {
            let (label, perform) = (deed.label(), perform.clone());
            let is_busy = move || phase.with(|phase| matches!(phase, Phase::Busy(_)));
            let begin = move |_| {
                let asks = deed.question().is_some() || deed.wants_text().is_some();
                if asks { phase.set(Phase::Asking(deed.clone())) } else { perform(deed.clone()) }
            };
            view! { <button type="button" disabled=is_busy on:click=begin>{label}</button> }
        })
        .collect::<Vec<_>>();
    let said = move || match phase.get() {
        Phase::Idle => ().into_any(),
        Phase::Asking(deed) => {
            let perform = perform.clone();
            asking(deed, text, phase, perform).into_any()
        }
        Phase::Busy(deed) => view! { <p class="quiet">{deed.label()}" …"</p> }.into_any(),
        Phase::Done(deed) => view! { <p class="good">{deed.label()}": done."</p> }.into_any(),
        Phase::Failed(refusal) => {
            view! { <p class="problem">{refusal.message}" "<code>{refusal.code}</code></p> }.into_any()
        }
    };
    view! {
        <div class="actions needs-script">
            <div class="buttons">{buttons}</div>
            <div class="said" role="status" aria-live="polite">{said}</div>
        </div>
    }
}

/// Asks for a word before something is done.
fn asking(
    deed: Deed,
    text: RwSignal<String>,
    phase: RwSignal<Phase>,
    perform: impl Fn(Deed) + Clone + 'static,
) -> impl IntoView {
    let label = deed.label();
    let field = deed.wants_text().map(|wanted| {
        view! {
            <label>
                {wanted}
                <textarea
                    rows="3"
                    maxlength=MAX_HINT_CHARS.to_string()
                    prop:value=text
                    on:input=move |event| text.set(event_target_value(&event))
                ></textarea>
            </label>
        }
    });
    let needs_text = field.is_some();
    let is_empty = move || needs_text && text.with(|text| text.trim().is_empty());
    let question = deed.question();
    view! {
        <div class="asking">
            {question.map(|question| view! { <p>{question}</p> })}
            {field}
            <div class="buttons">
                <button type="button" class="strong" disabled=is_empty on:click=move |_| perform(deed.clone())>{label}</button>
                <button type="button" on:click=move |_| phase.set(Phase::Idle)>"Leave it"</button>
            </div>
        </div>
    }
}
