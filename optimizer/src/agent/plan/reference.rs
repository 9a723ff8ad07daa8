//! What prompts say about the reference: its profile, the shares of its operators, and what no program can be faster than.

use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::TaskSpec;
use serde::Serialize;

use super::estimates;
use super::limits::Grounds;
use crate::prompt::GpuProfileView;

/// The values of `shared/reference_profile.md`.
#[derive(Serialize)]
pub(in crate::agent) struct ReferenceView {
    /// What the profilers saw of the reference; none on the `cpu` target.
    reference_profile: Option<GpuProfileView>,
    /// Share of a call that each operator takes, as far as the names of kernels tell.
    operator_shares: Vec<String>,
    /// Shares of operators in the task's own counts, where no profile tells more.
    operator_estimates: Vec<String>,
    /// What no program can be faster than.
    roofline: Vec<String>,
    /// What limits nothing, because a number is not known.
    roofline_unknown: Vec<String>,
}

impl ReferenceView {
    /// Returns what is known before any program was measured.
    pub(in crate::agent) fn new(spec: &TaskSpec, prepared: &PreparedTask) -> Self {
        Self::of(spec, prepared, &Grounds::of(spec, prepared, None))
    }

    pub(super) fn of(spec: &TaskSpec, prepared: &PreparedTask, grounds: &Grounds) -> Self {
        Self {
            reference_profile: prepared.profile.as_deref().map(GpuProfileView::new),
            operator_shares: grounds.shares.lines(),
            operator_estimates: estimates::lines(spec),
            roofline: grounds.roofline.lines(),
            roofline_unknown: grounds.roofline.unknown.clone(),
        }
    }
}
