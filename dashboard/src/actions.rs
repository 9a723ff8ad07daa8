//! Actions on a run, a campaign, a worker or a device. Each action is one call of the API with the visitor's
//! rights. Visitors without the right see the disabled action with the reason.

use leptos::prelude::*;
use nightshift_protocol::api::{CampaignSummary, QuarantineView, RunSummary, WorkerView};
use nightshift_protocol::run::{RunStatus, RunTransition};

use crate::form::{Form, hidden, hidden_json};
use crate::format::words;
use crate::who::Who;

/// Longest hint and longest reason, in characters; the server has the last word.
const MAX_TEXT_CHARS: u32 = 4_000;

/// Something that can be done to a run or to all runs of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Pause,
    Resume,
    Retry,
    Cancel,
    Hint,
}

impl Deed {
    fn label(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Retry => "Retry",
            Self::Cancel => "Cancel",
            Self::Hint => "Give a hint",
        }
    }

    /// The form that does it to a `noun` with this path below `/api/v1`.
    fn form(self, path: &str, noun: &'static str) -> AnyView {
        let control = |action: &'static str, done: &'static str| {
            let form = Form::new("POST", &format!("{path}/control"), done).key(format!("{path} {action}"));
            (form, hidden("action", action))
        };
        match self {
            Self::Pause => with_button(control("pause", "It is paused."), self.label()),
            Self::Resume => with_button(control("resume", "It goes on."), self.label()),
            Self::Retry => Form::new("POST", &format!("{path}/retry"), "It is tried again.").button(self.label()),
            Self::Cancel => {
                let (form, action) = control("cancel", "It is being cancelled.");
                let (yes, no) = if noun == "run" {
                    ("Cancel the run", "Keep running")
                } else {
                    ("Cancel the campaign", "Keep running")
                };
                form.with(action).asking_or(
                    "Cancel",
                    "Cancelling stops what is running and cannot be taken back.",
                    yes,
                    no,
                )
            }
            Self::Hint => {
                let form =
                    Form::new("POST", &format!("{path}/signals"), "The hint is given.").key(format!("{path} hint"));
                let wanted = "Advice for the agents: they read it with their next prompts";
                form.with(hidden("signal", "hint")).folded(self.label(), text("text", wanted, "Send the hint"))
            }
        }
    }
}

/// Forms for a run.
pub(crate) fn of_run(who: &Who, run: &RunSummary) -> AnyView {
    let path = format!("/runs/{}", run.id);
    let offers = offers(run.status);
    if !who.may_operate() {
        let gates = run.awaits.iter().map(|gate| format!("Approve {}", words(gate)));
        return refused(who, offers.iter().map(|deed| deed.label().to_owned()).chain(gates).collect());
    }
    let deeds = offers.into_iter().map(|deed| deed.form(&path, "run"));
    let gates = run.awaits.iter().flat_map(|gate| answers(&path, gate));
    row(deeds.chain(gates).collect())
}

/// Forms for all runs of a campaign that are not over.
pub(crate) fn of_campaign(who: &Who, campaign: &CampaignSummary) -> AnyView {
    let runs = campaign.runs;
    let statuses = [
        (RunStatus::Running, runs.running),
        (RunStatus::Paused, runs.paused),
        (RunStatus::Cancelling, runs.cancelling),
    ];
    let possible: Vec<Deed> =
        statuses.into_iter().filter(|(_, count)| *count > 0).flat_map(|(status, _)| offers(status)).collect();
    // Hints and retries are about one run.
    let offers = [Deed::Pause, Deed::Resume, Deed::Cancel].into_iter().filter(|deed| possible.contains(deed));
    if !who.may_operate() {
        return refused(who, offers.map(|deed| deed.label().to_owned()).collect());
    }
    let path = format!("/campaigns/{}", campaign.id);
    row(offers.map(|deed| deed.form(&path, "campaign")).collect())
}

/// The form that drains a worker, or lets it take work again.
pub(crate) fn of_worker(who: &Who, worker: &WorkerView) -> AnyView {
    let label = if worker.draining { "Take work again" } else { "Drain" };
    if !who.may_operate() {
        return refused(who, vec![label.to_owned()]);
    }
    let form = Form::new("POST", &format!("/workers/{}/drain", worker.id), "It is told.").key(format!(
        "{} {}",
        worker.id,
        if worker.draining { "undrain" } else { "drain" }
    ));
    let form = form.with(hidden_json("draining", (!worker.draining).to_string()));
    if worker.draining {
        return form.button(label);
    }
    let question = "A drained worker ends what it has, takes nothing new, and ends.";
    form.asking_or(label, question, "Drain the worker", "Not now")
}

/// The form that has a device tested and used again.
pub(crate) fn of_device(who: &Who, device: &QuarantineView) -> AnyView {
    let label = "Test it and use it again";
    if !who.may_operate() {
        return refused(who, vec![label.to_owned()]);
    }
    Form::new("POST", &format!("/devices/{}/release", device.device), "It is asked for.").button(label)
}

/// Letting a run go on at a gate, or not.
fn answers(path: &str, gate: &str) -> [AnyView; 2] {
    let form = |signal: &'static str| {
        let form = Form::new("POST", &format!("{path}/signals"), "It is told.").key(format!("{path} {signal} {gate}"));
        form.with(view! { {hidden("signal", signal)}{hidden("gate", gate)} }.into_any())
    };
    let name = words(gate);
    let reject = format!("Reject {name}");
    let fields = text("reason", "Reason, which the agents read", reject.clone());
    [form("approved").button(format!("Approve {name}")), form("rejected").folded(reject, fields)]
}

fn with_button((form, field): (Form, AnyView), label: &'static str) -> AnyView {
    form.with(field).button(label)
}

/// A text that has to be written, and the button that sends it.
fn text(name: &'static str, wanted: &'static str, send: impl Into<String>) -> AnyView {
    let send = send.into();
    view! {
        <label>{wanted}<textarea name=name rows="3" required=true maxlength=MAX_TEXT_CHARS.to_string()></textarea></label>
        <div class="buttons">
            <button type="submit" class="strong">{send}</button>
            <button type="button" data-close="">"Not now"</button>
        </div>
    }
    .into_any()
}

fn row(forms: Vec<AnyView>) -> AnyView {
    if forms.is_empty() {
        return ().into_any();
    }
    view! { <div class="actions buttons">{forms}</div> }.into_any()
}

/// Renders disabled actions with the reason.
fn refused(who: &Who, labels: Vec<String>) -> AnyView {
    let Some(reason) = who.needs_operator().filter(|_| !labels.is_empty()) else {
        return ().into_any();
    };
    // Reading is all that a link is for.
    let buttons = who.limited_to().is_none().then(|| {
        let buttons = labels.into_iter().map(|label| view! { <button type="button" disabled=true>{label}</button> });
        view! { <div class="buttons">{buttons.collect::<Vec<_>>()}</div> }
    });
    view! { <div class="actions">{buttons}{reason}</div> }.into_any()
}

/// Returns the actions that the status allows and that would change something.
fn offers(status: RunStatus) -> Vec<Deed> {
    let deeds = [
        (Deed::Pause, RunTransition::Pause),
        (Deed::Resume, RunTransition::Resume),
        (Deed::Retry, RunTransition::Retry),
        (Deed::Cancel, RunTransition::Cancel),
    ];
    let allowed = deeds
        .into_iter()
        .filter(|(_, transition)| status.next(*transition).is_ok_and(|next| next != status))
        .map(|(deed, _)| deed);
    let hint = (!status.is_final() && status != RunStatus::Cancelling).then_some(Deed::Hint);
    allowed.chain(hint).collect()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::access::Role;

    use super::*;
    use crate::page::sample::Sample;

    #[test]
    fn only_what_changes_something_is_offered() {
        assert_eq!(offers(RunStatus::Running), [Deed::Pause, Deed::Cancel, Deed::Hint]);
        assert_eq!(offers(RunStatus::Paused), [Deed::Resume, Deed::Cancel, Deed::Hint]);
        assert_eq!(offers(RunStatus::Failed), [Deed::Retry]);
        assert!(offers(RunStatus::Cancelling).is_empty());
        assert!(offers(RunStatus::Completed).is_empty());
    }

    #[test]
    fn a_visitor_without_the_right_sees_the_reason() {
        let mut run = Sample::read().detail.summary;
        run.status = RunStatus::Running;
        run.awaits = vec!["plan".to_owned()];
        let html = |who: Who| Owner::new().with(|| of_run(&who, &run).to_html());
        let operator = html(Who::sample("ci", Role::Operator));
        for part in
            ["Cancel the run", "Keep running", "value=\"pause\"", "Approve plan", "Reject plan", "name=\"reason\""]
        {
            assert!(operator.contains(part), "{part} in {operator}");
        }
        let viewer = html(Who::sample("reader", Role::Viewer));
        assert!(viewer.contains("disabled") && viewer.contains("You are reader · viewer"), "{viewer}");
        assert!(!viewer.contains("data-call"), "{viewer}");
        let anonymous = html(Who::default());
        assert!(anonymous.contains("You are not signed in") && !anonymous.contains("data-call"), "{anonymous}");
    }
}
