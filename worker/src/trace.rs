//! Where a step belongs in the trace of its run.

use nightshift_protocol::api::LeasedStep;

/// The span of a step: what is logged within it carries these fields.
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

/// The trace's id within a W3C `traceparent`: `00-<trace id>-<parent id>-<flags>`.
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
