//! The spans that this worker adds to the trace of a run.

use std::sync::{Arc, OnceLock};

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::{Span, SpanId, SpanKind, SpanSink, TraceParent};

/// The span exporter of this process. Like the logger, the composition root sets it once.
static SPANS: OnceLock<Spans> = OnceLock::new();

/// The exporter of spans and their resource.
pub struct Spans {
    /// Receives the spans.
    pub sink: Arc<dyn SpanSink>,
    /// The clock.
    pub now: fn() -> TimestampMs,
    /// Display name of the worker.
    pub worker: String,
}

/// Sets the exporter of this process. A second call changes nothing and returns its argument.
pub fn send_spans(spans: Spans) -> Result<(), Spans> {
    SPANS.set(spans)
}

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spans").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The span of a step, exported at its end. Its parent is the server's span of the try, from claim to report. The
/// difference between both is transfer time.
pub(crate) struct StepSpan<'a>(Option<(&'static Spans, &'a LeasedStep, TraceParent, TimestampMs)>);

impl<'a> StepSpan<'a> {
    /// Begins the span of a step. A step without a trace records nothing.
    pub(crate) fn begin(step: &'a LeasedStep) -> Self {
        let place = step.traceparent.as_deref().and_then(TraceParent::parse);
        Self(SPANS.get().zip(place).map(|(spans, place)| (spans, step, place, (spans.now)())))
    }

    /// Ends the span with the outcome of the step.
    pub(crate) fn end<T>(self, result: &Result<T, StepFailure>) {
        let Some((spans, step, place, begin)) = self.0 else { return };
        let kind = step.input.kind().as_str();
        spans.sink.take(Span {
            trace: place.trace,
            id: SpanId::derived(&[step.step.as_str(), &step.epoch.to_string(), "carry out"]),
            parent: Some(place.span),
            name: format!("carry out {kind}"),
            kind: SpanKind::Internal,
            begin,
            end: (spans.now)(),
            attributes: vec![
                ("worker.name", spans.worker.as_str().into()),
                ("run.id", step.run.as_str().into()),
                ("step.key", step.key.as_str().into()),
                ("lease.epoch", step.epoch.into()),
            ],
            error: result.as_ref().err().map(|failure| failure.code.clone()),
        });
    }
}

/// Creates the log span of a step, whose fields all log messages within it carry.
pub(crate) fn step_span(step: &LeasedStep) -> tracing::Span {
    let trace_id = step.traceparent.as_deref().and_then(trace_id);
    tracing::info_span!(
        "step",
        trace.id = trace_id,
        run.id = %step.run,
        step.key = %step.key,
        lease.epoch = step.epoch,
    )
}

/// Returns the trace id of a W3C `traceparent`: `00-<trace id>-<parent id>-<flags>`.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_set = |text: &str| text.bytes().any(|b| b != b'0');
    let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    (well_formed && version != "ff" && is_set(trace) && is_set(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_trace_is_read_from_what_the_server_sends() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id(&format!("00-{trace}-b7ad6b7169203331-01")), Some(trace));
    }

    #[test]
    fn what_is_no_trace_has_no_id() {
        let zero = "00000000000000000000000000000000";
        for text in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            &format!("00-{zero}-b7ad6b7169203331-01"),
        ] {
            assert_eq!(trace_id(text), None, "{text}");
        }
    }
}
