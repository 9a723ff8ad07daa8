//! How much of a program's time on the device goes to kernels of its own, rather than to those of a library.

use std::collections::BTreeSet;

use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::cuda_build::KernelBuild;
use nightshift_protocol::profile::{KernelTime, Profile};

/// Share of the time of all kernels that was spent in kernels which were built from the candidate's source, 0 to 1. None
/// when no timeline was taken, when nothing is known of the build's kernels, and when no kernel ran.
///
/// Kernels that cuBLAS or cuDNN bring along are not in the build. Kernels of a library of headers are: the candidate's
/// source instantiates them, and chooses their tiles and types. Of files of Python the worker says which kernels are theirs.
pub(super) fn own_kernel_share(build: Option<&BuildReport>, profile: &Profile) -> Option<f64> {
    let timeline = profile.timeline.as_ref().filter(|timeline| !timeline.kernels.is_empty())?;
    if timeline.kernels.iter().any(|kernel| kernel.own.is_some()) {
        return share_of(&timeline.kernels, |kernel| kernel.own == Some(true));
    }
    let own = &build?.cuda.as_ref()?.kernels;
    let symbols: BTreeSet<&str> = own.iter().map(|kernel| kernel.symbol.as_str()).collect();
    let names = |wanted: fn(&&KernelBuild) -> bool| -> BTreeSet<String> {
        own.iter().filter(wanted).map(|kernel| bare(&kernel.name)).collect()
    };
    let (all, without_symbol) = (names(|_| true), names(|kernel| kernel.symbol.is_empty()));
    let is_own = |kernel: &KernelTime| match &kernel.mangled {
        Some(mangled) => symbols.contains(mangled.as_str()) || without_symbol.contains(&bare(&kernel.name)),
        None => all.contains(&bare(&kernel.name)),
    };
    share_of(&timeline.kernels, is_own)
}

fn share_of(kernels: &[KernelTime], is_own: impl Fn(&KernelTime) -> bool) -> Option<f64> {
    // An empty sum of floats is negative zero.
    let share = kernels.iter().filter(|kernel| is_own(kernel)).fold(0.0, |sum, kernel| sum + kernel.share);
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

/// A name without what tools write differently: blanks, and the result type that templates carry.
fn bare(name: &str) -> String {
    name.strip_prefix("void ").unwrap_or(name).split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::cuda_build::CudaBuild;
    use nightshift_protocol::profile::Timeline;
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_python_say_whose_kernels_are_theirs() {
        let kernel = |share, own| KernelTime { share, own, ..KernelTime::default() };
        let profile =
            |kernels| Profile { timeline: Some(Timeline { kernels, ..Timeline::default() }), ..Profile::default() };
        let of = |kernels| own_kernel_share(None, &profile(kernels));
        assert_eq!(of(vec![kernel(0.25, Some(true)), kernel(0.75, Some(false))]), Some(0.25));
        assert_eq!(of(vec![kernel(1.0, Some(false))]).map(f64::is_sign_positive), Some(true));
        assert_eq!(of(vec![kernel(1.0, None)]), None);
    }

    fn build(kernels: &[(&str, &str)]) -> BuildReport {
        let hash = "0".repeat(64);
        let mut report: BuildReport = serde_json::from_value(json!({
            "library": hash, "end": {"kind": "finished"}, "messages": [], "log": hash, "build_key": "k",
            "toolchain": {"program": "nvcc", "path": "nvcc", "version": "13.0", "flags": [], "fingerprint": "f"},
            "cached": false, "duration_ms": 1, "report": nightshift_protocol::measurement::CompilerReport::default(),
            "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        let kernels = kernels.iter().map(|(name, symbol)| KernelBuild {
            name: (*name).to_owned(),
            symbol: (*symbol).to_owned(),
            ..KernelBuild::default()
        });
        report.cuda = Some(CudaBuild { arch: "sm_90a".to_owned(), kernels: kernels.collect(), ..CudaBuild::default() });
        report
    }

    fn profile(kernels: &[(&str, Option<&str>, f64)]) -> Profile {
        let kernels = kernels.iter().map(|(name, mangled, share)| KernelTime {
            name: (*name).to_owned(),
            mangled: mangled.map(str::to_owned),
            share: *share,
            ..KernelTime::default()
        });
        Profile { timeline: Some(Timeline { kernels: kernels.collect(), ..Timeline::default() }), ..Profile::default() }
    }

    fn is_about(share: Option<f64>, expected: f64) -> bool {
        share.is_some_and(|share| (share - expected).abs() < 1e-9)
    }

    #[test]
    fn kernels_of_the_build_are_told_from_those_of_a_library_by_their_symbols() {
        let build = build(&[("relu(float*, int)", "_Z4reluPfi"), ("pack(float*)", "_Z4packPf")]);
        let ran = profile(&[
            (
                "cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>",
                Some("_ZN7cutlass7Kernel2"),
                0.7,
            ),
            ("relu(float*, int)", Some("_Z4reluPfi"), 0.2),
            ("pack(float *)", Some("_Z4packPf"), 0.1),
        ]);
        assert!(is_about(own_kernel_share(Some(&build), &ran), 0.3));
        // A library may name a kernel as the candidate does.
        let namesake = profile(&[("relu(float*, int)", Some("_ZN6vendor4reluEPfi"), 1.0)]);
        assert!(is_about(own_kernel_share(Some(&build), &namesake), 0.0));
    }

    #[test]
    fn without_symbols_the_names_decide_however_they_are_spaced() {
        let build = build(&[("void tile<128, 64>(float const*, float*)", "_Z4tileILi128ELi64EEvPKfPf")]);
        let ran = profile(&[("tile<128,64>(float const *, float *)", None, 0.9), ("gemv", None, 0.1)]);
        assert!(is_about(own_kernel_share(Some(&build), &ran), 0.9));
    }

    #[test]
    fn an_unknown_share_is_not_guessed() {
        let known = build(&[("relu(float*, int)", "_Z4reluPfi")]);
        let ran = profile(&[("relu(float*, int)", Some("_Z4reluPfi"), 1.0)]);
        assert_eq!(own_kernel_share(None, &ran), None);
        assert_eq!(own_kernel_share(Some(&known), &Profile::default()), None);
        assert_eq!(own_kernel_share(Some(&known), &profile(&[])), None);
        let on_a_processor = BuildReport { cuda: None, ..known };
        assert_eq!(own_kernel_share(Some(&on_a_processor), &ran), None);
    }
}
