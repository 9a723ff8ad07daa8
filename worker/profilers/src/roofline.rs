//! Computes the roofline of a program on its device.

use nightshift_protocol::device_peaks::DevicePeaks;
use nightshift_protocol::profile::{Arithmetic, KernelProfile, Profile, TierPurpose, TierReport, roofline_share};

use super::tier::unused;
use crate::subject::ProfiledProgram;

/// Activity of the tensor pipe from which a kernel is one that uses it.
const TENSOR_SHARE: f64 = 0.01;

/// Puts the program under the roofline, and says whether that was possible.
pub(super) fn place(profile: &mut Profile, subject: &ProfiledProgram<'_>) -> TierReport {
    let tier = unused(TierPurpose::Roofline, "analytic_roofline");
    let without = |reason: &str| TierReport { reason: Some(reason.to_owned()), ..tier.clone() };
    "unknown".clone_into(&mut profile.roofline_bound);
    let Some(peaks) = subject.gpu.map(DevicePeaks::of) else { return without("the device is not known") };
    // Where nothing tells, the roof is the one that no program breaks, as in the plan.
    let kind = match uses_tensor_cores(profile, subject) {
        Some(false) => Arithmetic::Fp32,
        Some(true) | None => Arithmetic::Tensor,
    };
    profile.peak_arithmetic = Some(kind);
    let arithmetic = match kind {
        Arithmetic::Fp32 => peaks.fp32_flops_per_s,
        Arithmetic::Tensor => peaks.tensor_flops_per_s,
    };
    profile.peak_flops_per_s = arithmetic.unwrap_or(0.0);
    profile.peak_bytes_per_s = peaks.bytes_per_s.unwrap_or(0.0);
    let known = |value: Option<f64>| value.filter(|number| number.is_finite() && *number > 0.0);
    let (flops, bytes) = (known(subject.flops), known(subject.bytes));
    profile.arithmetic_intensity = flops.zip(bytes).map(|(flops, bytes)| flops / bytes);
    let (Some(peak_flops), Some(peak_bytes)) = (known(arithmetic), known(peaks.bytes_per_s)) else {
        return without("the peaks of the device are not known: its model, its clocks or the width of its memory");
    };
    let seconds = (flops.map(|flops| flops / peak_flops), bytes.map(|bytes| bytes / peak_bytes));
    let (floor_s, bound) = match seconds {
        (Some(compute), Some(memory)) if memory >= compute => (memory, "memory"),
        (Some(compute), Some(_)) => (compute, "compute"),
        _ => return without("the task does not say both `flops` and `bytes`"),
    };
    bound.clone_into(&mut profile.roofline_bound);
    let Some(median_ns) = known(subject.median_ns) else {
        return without("the time of a call was not measured");
    };
    let share = floor_s * 1e9 / median_ns;
    profile.roofline_share = roofline_share(share);
    let reason = profile.roofline_share.is_none().then(|| {
        "the program is faster than its bytes or operations allow: its data stay in a cache, or the task counts more than is needed"
            .to_owned()
    });
    TierReport { used: true, reason, ..tier }
}

/// Whether its kernels use the tensor cores: by the counters, else by their instructions. None where neither is known.
fn uses_tensor_cores(profile: &Profile, subject: &ProfiledProgram<'_>) -> Option<bool> {
    let counted = |kernel: &KernelProfile| {
        !kernel.tensor_ops.is_empty() || kernel.tensor_share.is_some_and(|s| s >= TENSOR_SHARE)
    };
    // Only Hopper's list of counters has those of the tensor cores.
    if profile.kernels.iter().any(|kernel| kernel.tensor_share.is_some() || !kernel.tensor_ops.is_empty()) {
        return Some(profile.kernels.iter().any(counted));
    }
    let cuda = subject.cuda?;
    // A library's kernels are in no report of the build.
    let calls_library = cuda.libraries.iter().any(|name| name.starts_with("libcublas"));
    let mut counts = cuda.kernels.iter().filter_map(|kernel| kernel.sass).peekable();
    if calls_library {
        return Some(true);
    }
    counts.peek()?;
    Some(counts.any(|sass| sass.tensor_core > 0))
}
