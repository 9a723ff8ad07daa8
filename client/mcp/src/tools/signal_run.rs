//! `signal_run`.

use nightshift_protocol::access::Role;
use nightshift_protocol::signal::{Gate, MAX_HINT_CHARS, Signal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::create_campaign::key;
use crate::error::ToolError;
use crate::lookup;
use crate::text::name;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct SignalRun;

/// A kind of signal.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Advice for its agents, in `text`.
    Hint,
    /// Approves the gate `gate`.
    Approve,
    /// Rejects the gate `gate`; the run plans again. `text` gives the reason.
    Reject,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// hint, approve or reject.
    signal: Kind,
    /// The advice, or the reason of a rejection; at most 4000 characters.
    text: Option<String>,
    /// The gate, required for approve and reject: plan or new_best.
    gate: Option<String>,
    /// A key of your choice, 1 to 128 characters. Repeating the same signal with the same key has no effect.
    idempotency_key: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the run.
    run: String,
    /// The signal that was sent.
    told: String,
}

impl Tool for SignalRun {
    const NAME: &'static str = "signal_run";
    const TITLE: &'static str = "Advise a run";
    const DESCRIPTION: &'static str = "Gives the agents of a run a piece of advice, which they read with their next prompts, or answers a gate (`gate`) that \
        the run waits at. Approving spends money and device time: gates are there for the user's decision, so ask first.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let key = key(&arguments.idempotency_key)?;
        let text = arguments.text.unwrap_or_default().trim().to_owned();
        let needs_text = !matches!(arguments.signal, Kind::Approve);
        if (needs_text && text.is_empty()) || text.chars().count() > MAX_HINT_CHARS {
            return Err(ToolError::new(
                "request.invalid_arguments",
                format!("`text` has to have 1 to {MAX_HINT_CHARS} characters"),
            ));
        }
        let connection = call.connect().await?;
        let client = &connection.client;
        let run = lookup::run(client, &arguments.run).await?;
        let gate = async || {
            // A repeated call must be the same request also after the run has left the gate: the gate is never inferred.
            if let Some(text) = arguments.gate.as_deref() {
                return Gate::parse(text).ok_or_else(|| no_gate(&format!("there is no gate `{}`", name(text))));
            }
            let awaits = client.run(&run).await?.summary.awaits;
            let open = if awaits.is_empty() { "no gate".to_owned() } else { awaits.join(", ") };
            Err(no_gate(&format!("approve and reject need `gate`; the run waits now at: {open}")))
        };
        let signal = match arguments.signal {
            Kind::Hint => Signal::Hint { text },
            Kind::Approve => Signal::Approved { gate: gate().await? },
            Kind::Reject => Signal::Rejected { gate: gate().await?, reason: text },
        };
        client.signal_run(&run, &signal, key).await?;
        let told = match &signal {
            Signal::Hint { .. } => "the advice: its agents read it with their next prompts".to_owned(),
            Signal::Approved { gate } => format!("that it may pass the gate {}", gate.as_str()),
            Signal::Rejected { gate, .. } => format!("that it may not pass the gate {}", gate.as_str()),
        };
        Ok(Answer { run: run.to_string(), told })
    }
}

fn no_gate(message: &str) -> ToolError {
    ToolError::new("request.invalid_arguments", message)
        .hint("`gate` is plan or new_best; describe_run shows what the run awaits")
}
