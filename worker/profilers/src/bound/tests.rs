//! What is decided, and by which numbers.

use nightshift_protocol::profile::{CopyTime, Gaps, Launches, Stall, Times};
use proptest::prelude::*;

use super::*;

fn kernel(duration_ns: f64, memory: f64, dram: f64, pipe: f64, issue: f64) -> KernelProfile {
    KernelProfile {
        name: "k(float *)".to_owned(),
        duration_ns: Some(duration_ns),
        memory_share: Some(memory),
        dram_share: Some(dram),
        l1_share: Some(memory),
        busiest_pipe: Some(("fma".to_owned(), pipe)),
        issue_share: Some(issue),
        ..KernelProfile::default()
    }
}

fn decided(kernel: &KernelProfile) -> Option<Bound> {
    bound_of_kernel(kernel).bound
}

#[test]
fn the_busiest_unit_limits_a_kernel() {
    assert_eq!(decided(&kernel(1e5, 0.9, 0.9, 0.3, 0.2)), Some(Bound::Memory));
    assert_eq!(decided(&kernel(1e5, 0.3, 0.2, 0.85, 0.5)), Some(Bound::Compute));
    let tensor = KernelProfile { tensor_share: Some(0.7), ..kernel(1e5, 0.5, 0.4, 0.1, 0.2) };
    let bound = bound_of_kernel(&tensor);
    assert_eq!(bound.bound, Some(Bound::Compute));
    assert!(bound.evidence[0].contains("70 % (tensor cores)"), "{bound:?}");
}

#[test]
fn without_counters_of_pipes_the_multiprocessors_stand_for_them() {
    let kernel = KernelProfile { busiest_pipe: None, compute_share: Some(0.9), ..kernel(1e5, 0.5, 0.4, 0.0, 0.2) };
    let bound = bound_of_kernel(&kernel);
    assert_eq!(bound.bound, Some(Bound::Compute));
    assert!(bound.evidence[0].contains("90 % (multiprocessors)"), "{bound:?}");
}

#[test]
fn a_level_of_memory_is_named() {
    assert!(bound_of_kernel(&kernel(1e5, 0.9, 0.9, 0.1, 0.1)).evidence[0].contains("90 %"));
    let shared = bound_of_kernel(&kernel(1e5, 0.94, 0.01, 0.1, 0.1));
    assert!(shared.evidence[0].contains("L1 cache and shared memory"), "{shared:?}");
}

#[test]
fn the_threshold_belongs_to_the_unit() {
    assert_eq!(decided(&kernel(1e5, BUSY_SHARE, 0.1, 0.1, 0.1)), Some(Bound::Memory));
    assert_eq!(decided(&kernel(1e5, BUSY_SHARE - 0.001, 0.1, 0.1, 0.1)), Some(Bound::Latency));
}

#[test]
fn waiting_is_explained_by_stalls_occupancy_and_the_grid() {
    let stall = |reason: &str, share| Stall { reason: reason.to_owned(), warps: 1.0, share };
    let kernel = KernelProfile {
        occupancy: Some(0.24),
        occupancy_limit: Some(0.25),
        occupancy_limited_by: Some("shared_memory".to_owned()),
        waves: Some(0.5),
        sectors_per_load: Some(32.0),
        stalls: vec![stall("barrier", 0.5), stall("wait", 0.1)],
        ..kernel(1e5, 0.3, 0.3, 0.2, 0.2)
    };
    let bound = bound_of_kernel(&kernel);
    assert_eq!(bound.bound, Some(Bound::Latency));
    let said = bound.evidence.join("\n");
    for part in ["limited by shared memory", "0.50 waves", "`barrier` (other warps at a barrier)", "32.0 sectors"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("`wait`"), "too little to be worth a line");
}

#[test]
fn a_kernel_that_is_shorter_than_its_start_is_bound_by_it() {
    assert_eq!(decided(&kernel(2_000.0, 0.2, 0.2, 0.1, 0.1)), Some(Bound::Launch));
    assert_eq!(decided(&kernel(2_000.0, 0.9, 0.9, 0.1, 0.1)), Some(Bound::Memory), "not when a unit is busy");
}

#[test]
fn nothing_is_decided_without_numbers() {
    let bound = bound_of_kernel(&KernelProfile::default());
    assert!(bound.bound.is_none() && !bound.evidence.is_empty());
}

/// A timeline of ten calls of 100 us.
fn timeline(busy_ns: u64) -> Timeline {
    Timeline {
        calls: 10,
        span_ns: 1_000_000,
        busy_ns,
        host_share: 1.0 - super::super::timeline::share(busy_ns, 1_000_000),
        ..Timeline::default()
    }
}

fn with_bound(bound: Bound, time_share: f64) -> KernelProfile {
    KernelProfile {
        time_share: Some(time_share),
        bound: BoundBy { bound: Some(bound), evidence: vec!["because".to_owned()] },
        ..kernel(1e5, 0.9, 0.9, 0.1, 0.1)
    }
}

fn program(timeline: &Timeline, kernels: &[KernelProfile], median_ns: Option<f64>) -> Option<Bound> {
    bound_of_program(Some(timeline), kernels, Roof::default(), median_ns).bound
}

#[test]
fn a_device_that_idles_is_held_back_by_launches_or_by_the_host() {
    let launches =
        Launches { host: Times { count: 100, total_ns: 500_000, min_ns: 1, max_ns: 9 }, ..Launches::default() };
    let idle = timeline(300_000);
    assert_eq!(program(&Timeline { launches, ..idle.clone() }, &[], None), Some(Bound::Launch));
    assert_eq!(program(&idle, &[with_bound(Bound::Memory, 1.0)], None), Some(Bound::Host));
}

#[test]
fn the_time_without_a_tool_counts_when_it_is_shorter() {
    // Under the tool 70 % idle; without it a call takes 35 us, of which the device works 30.
    let idle = timeline(300_000);
    assert_eq!(program(&idle, &[with_bound(Bound::Memory, 1.0)], Some(35_000.0)), Some(Bound::Memory));
    assert_eq!(program(&idle, &[], Some(f64::NAN)), Some(Bound::Host), "a time that is none is not believed");
}

#[test]
fn copies_from_and_to_the_host_are_the_hosts() {
    let copies = vec![CopyTime {
        direction: CopyDirection::HostToDevice,
        times: Times { count: 1, total_ns: 800_000, min_ns: 1, max_ns: 1 },
        bytes: 1,
    }];
    let copying = Timeline { copies, ..timeline(950_000) };
    assert_eq!(program(&copying, &[with_bound(Bound::Memory, 1.0)], None), Some(Bound::Host));
}

#[test]
fn else_the_kernels_with_most_of_the_time_decide() {
    let busy = timeline(950_000);
    let kernels = [with_bound(Bound::Memory, 0.4), with_bound(Bound::Compute, 0.25), with_bound(Bound::Compute, 0.3)];
    let bound = bound_of_program(Some(&busy), &kernels, Roof::default(), None);
    assert_eq!(bound.bound, Some(Bound::Compute));
    assert!(bound.evidence[0].contains("55 %") && bound.evidence[1].contains("because"), "{bound:?}");
    let scattered = [with_bound(Bound::Memory, 0.3), with_bound(Bound::Compute, 0.2)];
    let unknown = bound_of_program(Some(&busy), &scattered, Roof::default(), None);
    assert_eq!(unknown.bound, None, "what was not profiled may be anything");
    assert!(unknown.evidence[0].contains("memory 30 %, compute 20 %"), "{unknown:?}");
}

/// What is said of a program without a timeline.
fn untimed(kernels: &[KernelProfile], roof: Roof<'_>, median_ns: f64) -> BoundBy {
    bound_of_program(None, kernels, roof, Some(median_ns))
}

#[test]
fn without_a_timeline_the_durations_of_the_launches_say_which_kernels_matter() {
    let counted = |bound, duration_ns, launches| KernelProfile {
        time_share: None,
        duration_ns: Some(duration_ns),
        launches,
        ..with_bound(bound, 0.0)
    };
    let lone = counted(Bound::Latency, 1e4, 1);
    assert_eq!(untimed(std::slice::from_ref(&lone), Roof::default(), 1e5).bound, Some(Bound::Latency));
    // Three launches of 10 us against one of 20 us.
    let several = [counted(Bound::Memory, 2e4, 1), counted(Bound::Compute, 1e4, 3)];
    let bound = untimed(&several, Roof::default(), 1e5);
    assert_eq!(bound.bound, Some(Bound::Compute));
    assert!(bound.evidence[0].contains("60 % of the time of the counted launches"), "{bound:?}");
}

#[test]
fn without_counters_the_roofline_and_the_time_of_a_call_are_left() {
    let roof = |bound, share| Roof { bound, share: Some(share), arithmetic: None };
    assert_eq!(untimed(&[], roof("memory", 0.8), 1e5).bound, Some(Bound::Memory));
    assert_eq!(untimed(&[], roof("compute", 0.7), 1e5).bound, Some(Bound::Compute));
    assert_eq!(untimed(&[], roof("memory", 0.1), 3_000.0).bound, Some(Bound::Launch));
}

#[test]
fn what_nothing_decides_is_unknown_and_says_why() {
    let far = untimed(&[], Roof { bound: "memory", share: Some(0.3), arithmetic: None }, 1e5);
    assert_eq!(far.bound, None);
    assert!(far.evidence[0].contains("no kernel was counted") && far.evidence[1].contains("30 %"), "{far:?}");
    let nothing = bound_of_program(None, &[], Roof::default(), None);
    assert!(nothing.bound.is_none() && nothing.evidence[1].contains("not known either"), "{nothing:?}");
    // Counters that were given, and say nothing.
    let silent = KernelProfile::default();
    let silent = KernelProfile { bound: bound_of_kernel(&silent), ..silent };
    assert!(untimed(&[silent], Roof::default(), 1e5).evidence[0].contains("none is known"));
}

#[test]
fn pauses_are_part_of_the_evidence() {
    let between = Times { count: 20, total_ns: 600_000, min_ns: 1, max_ns: 1 };
    let idle = Timeline { gaps: Gaps { between, ..Gaps::default() }, ..timeline(300_000) };
    let bound = bound_of_program(Some(&idle), &[], Roof::default(), None);
    assert!(bound.evidence.iter().any(|line| line.contains("20 pauses") && line.contains("30.0 us")), "{bound:?}");
}

proptest! {
    #[test]
    fn no_numbers_make_deciding_panic(numbers in prop::array::uniform8(any::<f64>()), calls in any::<u32>(), ns in any::<[u64; 3]>()) {
        let kernel = KernelProfile {
            tensor_share: Some(numbers[5]), waves: Some(numbers[6]), time_share: Some(numbers[7]),
            ..kernel(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
        };
        let kernel = KernelProfile { bound: bound_of_kernel(&kernel), ..kernel };
        let timeline = Timeline { calls, span_ns: ns[0], busy_ns: ns[1], host_share: numbers[0], ..Timeline::default() };
        let roof = Roof { bound: "memory", share: Some(numbers[2]), arithmetic: None };
        let _ = bound_of_program(Some(&timeline), std::slice::from_ref(&kernel), roof, Some(numbers[1]));
        let _ = bound_of_program(None, &[kernel.clone(), kernel], roof, Some(numbers[1]));
    }
}
