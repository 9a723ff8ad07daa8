//! The spans of a run: the run as a whole, the waiting time and execution of each try, and each model call.

use nightshift_engine::store::{ModelCallRecord, RunRecord};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::{Span, SpanId, SpanKind, SpanValue, TraceId};

use super::metrics::Outcome;
use super::running_tries::RunningTry;

/// Creates the span of a run from its creation to its end. A retried run gets a span per end, with the same id.
pub(super) fn run_span(run: &RunRecord, at: TimestampMs) -> Span {
    Span {
        trace: TraceId::of_run(&run.id),
        id: SpanId::of_run(&run.id),
        parent: None,
        name: "run".to_owned(),
        kind: SpanKind::Internal,
        begin: run.created_at,
        end: at,
        attributes: vec![
            ("run.id", run.id.as_str().into()),
            ("campaign.id", run.campaign.as_str().into()),
            ("run.status", run.status.as_str().into()),
        ],
        error: run.failure.as_ref().map(|failure| failure.code.clone()),
    }
}

/// Creates the span from readiness to the claim.
pub(super) fn wait_span(held: &RunningTry) -> Span {
    Span {
        id: SpanId::derived(&[held.step.as_str(), &held.epoch.to_string(), "wait"]),
        name: format!("wait for {}", held.kind),
        kind: SpanKind::Internal,
        begin: held.ready_at,
        end: held.started_at,
        ..try_span(held, Outcome::Completed, None, held.started_at)
    }
}

/// Creates the span from claim to report.
pub(super) fn try_span(held: &RunningTry, outcome: Outcome, error: Option<String>, at: TimestampMs) -> Span {
    let mut attributes: Vec<(&'static str, SpanValue)> = vec![
        ("run.id", held.run.as_str().into()),
        ("step.id", held.step.as_str().into()),
        ("step.key", held.key.as_str().into()),
        ("step.route", held.route.as_str().into()),
        ("step.outcome", outcome.as_str().into()),
        ("step.tries", u64::from(held.tries).into()),
        ("lease.epoch", held.epoch.into()),
    ];
    attributes.extend(held.worker.as_ref().map(|worker| ("worker.id", worker.as_str().into())));
    attributes.extend(held.device.map(|device| ("device.index", u64::from(device).into())));
    Span {
        trace: TraceId::of_run(&held.run),
        id: SpanId::of_try(&held.step, held.epoch),
        parent: Some(SpanId::of_run(&held.run)),
        name: held.kind.to_owned(),
        kind: SpanKind::Consumer,
        begin: held.started_at,
        end: at,
        attributes,
        error,
    }
}

/// Creates the span of a model call, within the try that made it.
pub(super) fn model_span(call: &ModelCallRecord, summary: &ModelCallSummary, held: Option<&RunningTry>) -> Span {
    let latency_ms = i64::try_from(summary.latency_ms).unwrap_or(i64::MAX);
    let mut attributes: Vec<(&'static str, SpanValue)> = vec![
        ("run.id", call.run.as_str().into()),
        ("step.key", call.step_key.as_str().into()),
        ("gen_ai.request.model", summary.model.as_str().into()),
        ("model.turn", u64::from(call.turn).into()),
    ];
    attributes.extend(summary.input_tokens.map(|tokens| ("gen_ai.usage.input_tokens", tokens.into())));
    attributes.extend(summary.output_tokens.map(|tokens| ("gen_ai.usage.output_tokens", tokens.into())));
    let details = [
        ("gen_ai.usage.cache_read.input_tokens", summary.cached_input_tokens),
        ("gen_ai.usage.cache_write.input_tokens", summary.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", summary.reasoning_tokens),
    ];
    attributes.extend(details.into_iter().filter_map(|(name, tokens)| Some((name, tokens?.into()))));
    attributes.extend(summary.price_microusd.map(|price| ("model.price_microusd", price.into())));
    Span {
        trace: TraceId::of_run(&call.run),
        id: SpanId::derived(&[call.run.as_str(), &call.step_key, &call.turn.to_string(), "model"]),
        parent: Some(held.map_or_else(|| SpanId::of_run(&call.run), |held| SpanId::of_try(&held.step, held.epoch))),
        name: "model call".to_owned(),
        kind: SpanKind::Client,
        begin: TimestampMs(call.at.0.saturating_sub(latency_ms)),
        end: call.at,
        attributes,
        error: None,
    }
}
