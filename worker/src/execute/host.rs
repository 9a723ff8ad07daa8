//! Profiles on the host, and the roofline that measurements there are compared with.

use std::sync::MutexGuard;

use nightshift_profilers::host::{Peaks, faster_than_roofline, measure_peaks, profile};
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{TaskBundle, TaskSpec};
use nightshift_sandbox::process::{JailedCommand, ProcessError, run_jailed};

use super::step::Step;

impl Step<'_> {
    pub(super) fn profile(
        &self,
        task: &TaskBundle,
        build: &BuildReport,
        measurement: &Measurement,
    ) -> Result<StepOutput, StepFailure> {
        let peaks = self.peaks()?;
        let profile = profile(&peaks, &task.spec, &build.report, measurement);
        Ok(StepOutput::Profiled { profile: Box::new(profile) })
    }

    /// Adds the finding that a measurement is too good to be true. Without peaks there is nothing to compare with.
    pub(super) fn with_roofline(&self, spec: &TaskSpec, mut output: StepOutput) -> StepOutput {
        if let StepOutput::Measured { measurement, findings } = &mut output
            && spec.flops.is_some()
        {
            let beyond = |peaks: Peaks| faster_than_roofline(&peaks, spec, measurement);
            let found = self.peaks().and_then(|peaks| match beyond(peaks) {
                None => Ok(None),
                Some(_) => self.peaks_again().map(beyond),
            });
            match found {
                Ok(finding) => findings.extend(finding),
                Err(failure) => tracing::warn!(error = %failure, "a measurement is not compared with the roofline"),
            }
        }
        output
    }

    pub(super) fn peaks(&self) -> Result<Peaks, StepFailure> {
        let known = *self.lock_peaks()?;
        known.map_or_else(|| self.peaks_again(), Ok)
    }

    fn lock_peaks(&self) -> Result<MutexGuard<'_, Option<Peaks>>, StepFailure> {
        Ok(self.cancel.lock(&self.bench.peaks).ok_or(ProcessError::Cancelled)?)
    }

    /// Measures the peaks; the best that was ever seen counts.
    fn peaks_again(&self) -> Result<Peaks, StepFailure> {
        // Held while measuring: two measurements at once would disturb each other.
        let mut known = self.lock_peaks()?;
        let run = |command: &JailedCommand| run_jailed(&self.bench.host.jail, command, self.cancel);
        let mut peaks = measure_peaks(&self.bench.toolchain, &self.bench.machine, self.folder, &run)?;
        if let Some(before) = *known {
            peaks.flops_per_s = peaks.flops_per_s.max(before.flops_per_s);
            peaks.bytes_per_s = peaks.bytes_per_s.max(before.bytes_per_s);
        }
        tracing::info!(
            peak.flops_per_s = peaks.flops_per_s,
            peak.bytes_per_s = peaks.bytes_per_s,
            "the peaks of this machine are measured"
        );
        *known = Some(peaks);
        Ok(peaks)
    }
}
