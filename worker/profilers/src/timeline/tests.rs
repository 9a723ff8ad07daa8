//! What is summed up of a trace, on traces made by hand.

use super::*;

fn span(start_ns: u64, end_ns: u64) -> Span {
    Span { start_ns, end_ns }
}

fn api(name: &str, start_ns: u64, end_ns: u64, correlation: u64) -> ApiCall {
    ApiCall { span: span(start_ns, end_ns), name: name.into(), thread: 7, correlation }
}

fn kernel(name: &str, stream: u64, start_ns: u64, end_ns: u64, correlation: u64) -> Kernel {
    Kernel {
        span: span(start_ns, end_ns),
        stream,
        correlation,
        name: format!("{name}(float *)").into(),
        short: name.into(),
        mangled: Some(format!("_Z1{name}Pf").into()),
        grid: [4, 1, 1],
        block: [128, 1, 1],
        registers: 24,
        shared_bytes: 512,
    }
}

fn copy(direction: CopyDirection, start_ns: u64, end_ns: u64, bytes: u64) -> Transfer {
    Transfer { span: span(start_ns, end_ns), stream: 7, correlation: 0, direction, bytes }
}

/// A warm-up and two calls: the first with two kernels side by side and a pause, the second with one and a copy.
fn two_calls() -> Activity {
    Activity {
        kernels: vec![
            kernel("f", 7, 50, 90, 1),
            kernel("f", 7, 1_100, 1_300, 2),
            kernel("g", 8, 1_200, 1_400, 3),
            kernel("f", 7, 1_500, 1_600, 4),
            kernel("f", 7, 2_200, 2_300, 5),
        ],
        copies: vec![
            copy(CopyDirection::HostToDevice, 10, 40, 64),
            copy(CopyDirection::DeviceToHost, 2_300, 2_500, 4096),
            copy(CopyDirection::Set, 2_550, 2_560, 16),
        ],
        api: vec![
            api("cudaLaunchKernel", 20, 30, 1),
            api("cuCtxSynchronize", 91, 95, 0),
            api("cuProfilerStart", 990, 1_000, 0),
            api("cudaLaunchKernel", 1_010, 1_050, 2),
            api("cudaLaunchKernel", 1_060, 1_080, 3),
            api("cudaLaunchKernel", 1_410, 1_450, 4),
            api("cuCtxSynchronize", 1_460, 1_610, 0),
            api("cuProfilerStop", 1_620, 1_630, 0),
            api("cuProfilerStart", 1_990, 2_000, 0),
            api("cudaMalloc", 2_010, 2_090, 0),
            api("cuGraphLaunch", 2_100, 2_130, 5),
            api("cuCtxSynchronize", 2_140, 2_570, 0),
            api("cuProfilerStop", 2_580, 2_590, 0),
        ],
        cut: false,
    }
}

fn times(count: u64, total_ns: u64, min_ns: u64, max_ns: u64) -> Times {
    Times { count, total_ns, min_ns, max_ns }
}

#[test]
fn only_what_lies_between_the_marks_counts() {
    let activity = two_calls();
    let calls = Calls::find(&activity, 2);
    assert_eq!(calls, Calls { spans: vec![span(1_000, 1_620), span(2_000, 2_580)], marked: true });
    let timeline = sum_up(&activity, &calls);
    assert_eq!(timeline.calls, 2);
    let named: Vec<_> = timeline.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.times)).collect();
    assert_eq!(named, [("f(float *)", times(3, 400, 100, 200)), ("g(float *)", times(1, 200, 200, 200))]);
    assert!((timeline.kernels[0].share - 4.0 / 6.0).abs() < 1e-12);
    assert_eq!((timeline.kernels[0].registers_per_thread, timeline.kernels[0].shared_bytes), (24, 512));
    assert_eq!(timeline.copies.len(), 1, "the copy before the calls is not theirs");
    assert_eq!((timeline.copies[0].direction, timeline.copies[0].bytes), (CopyDirection::DeviceToHost, 4096));
    assert_eq!(timeline.memsets.as_ref().map(|sets| (sets.times.count, sets.bytes)), Some((1, 16)));
}

#[test]
fn the_time_of_the_device_is_counted_once_and_its_pauses_are_seen() {
    let activity = two_calls();
    let timeline = sum_up(&activity, &Calls::find(&activity, 2));
    // 1100..1400 with 100 of overlap, 1500..1600, 2200..2500, 2550..2560.
    assert_eq!((timeline.busy_ns, timeline.overlap_ns), (300 + 100 + 300 + 10, 100));
    // From each call's beginning to the end of its device work.
    // The allocation of 80 happens in one of two calls, before the device begins.
    assert_eq!(timeline.span_ns, 600 + 560 - 80);
    assert!((timeline.host_share - (1.0 - 710.0 / 1_080.0)).abs() < 1e-12);
    assert_eq!(timeline.gaps.between, times(2, 150, 50, 100));
    assert_eq!(timeline.gaps.before_first, times(2, 300, 100, 200));
}

#[test]
fn an_allocation_counts_where_every_call_makes_it() {
    let mut activity = two_calls();
    let named = |calls: &[ApiTime]| calls.iter().map(|call| call.name.clone()).collect::<Vec<_>>();
    let timeline = sum_up(&activity, &Calls::find(&activity, 2));
    assert_eq!(named(&timeline.once), ["cudaMalloc"]);
    assert!(!named(&timeline.api).contains(&"cudaMalloc".to_owned()));
    activity.api.insert(3, api("cudaMalloc", 1_001, 1_009, 0));
    let timeline = sum_up(&activity, &Calls::find(&activity, 2));
    assert_eq!((timeline.span_ns, timeline.once.len()), (600 + 560, 0));
    assert!(named(&timeline.api).contains(&"cudaMalloc".to_owned()));
}

#[test]
fn what_the_device_does_meanwhile_is_not_taken_off() {
    let mut activity = two_calls();
    // It begins before the kernel of the second call, which runs from 2200 to 2300 and is followed by a copy until 2500.
    activity.api[9] = api("cudaMalloc", 2_150, 2_520, 0);
    let timeline = sum_up(&activity, &Calls::find(&activity, 2));
    assert_eq!(timeline.span_ns, 600 + 560 - (50 + 20));
}

#[test]
fn launches_are_tied_to_their_kernels() {
    let activity = two_calls();
    let launches = sum_up(&activity, &Calls::find(&activity, 2)).launches;
    assert_eq!(launches.host, times(4, 40 + 20 + 40 + 30, 20, 40));
    // 1010 to 1100, 1060 to 1200, 1410 to 1500, 2100 to 2200.
    assert_eq!(launches.until_start, times(4, 90 + 140 + 90 + 100, 90, 140));
    assert_eq!(launches.graphs, 1);
}

#[test]
fn marks_and_the_replays_own_waiting_are_no_calls_of_the_program() {
    let mut activity = two_calls();
    let calls = Calls::find(&activity, 2);
    let names = |activity: &Activity| -> Vec<String> {
        sum_up(activity, &calls).api.into_iter().map(|call| call.name).collect()
    };
    assert_eq!(names(&activity), ["cudaLaunchKernel", "cuGraphLaunch"]);
    // One that the program does by itself is one.
    activity.api.insert(4, api("cuCtxSynchronize", 1_081, 1_090, 0));
    assert!(names(&activity).contains(&"cuCtxSynchronize".to_owned()));
}

#[test]
fn streams_are_listed_by_what_they_carry() {
    let activity = two_calls();
    let streams = sum_up(&activity, &Calls::find(&activity, 2)).streams;
    let found: Vec<_> = streams.iter().map(|s| (s.stream, s.kernels, s.copies, s.busy_ns)).collect();
    assert_eq!(found, [(7, 3, 2, 610), (8, 1, 0, 200)]);
}

#[test]
fn without_marks_the_last_synchronizations_bound_the_calls() {
    let mut activity = two_calls();
    activity.api.retain(|call| !call.name.contains("Profiler"));
    let calls = Calls::find(&activity, 2);
    assert_eq!(calls, Calls { spans: vec![span(95, 1_610), span(1_610, 2_570)], marked: true });
    assert_eq!(sum_up(&activity, &calls).calls, 2);
}

#[test]
fn a_trace_without_calls_is_summed_up_as_a_whole() {
    let mut activity = two_calls();
    activity.api.clear();
    let calls = Calls::find(&activity, 2);
    assert_eq!(calls, Calls { spans: vec![span(10, 2_560)], marked: false });
    let timeline = sum_up(&activity, &calls);
    assert_eq!((timeline.calls, timeline.span_ns, timeline.kernels[0].times.count), (0, 2_550, 4));
    assert_eq!(timeline.gaps.before_first.count, 0, "the host's share of the beginning is not known");
}

#[test]
fn nothing_sums_up_to_nothing() {
    let activity = Activity::default();
    let calls = Calls::find(&activity, 3);
    assert_eq!(sum_up(&activity, &calls), Timeline::default());
}

#[test]
fn a_program_with_more_kernels_than_fit_says_how_many_are_left_out() {
    let mut activity = two_calls();
    activity.kernels = (0..50).map(|i| kernel(&format!("k{i}"), 7, 1_100 + i, 1_101 + 2 * i, i)).collect();
    let timeline = sum_up(&activity, &Calls::find(&activity, 2));
    assert_eq!((timeline.kernels.len(), timeline.kernels_left_out), (MAX_KERNELS, 18));
    assert_eq!(timeline.kernels[0].name, "k49(float *)", "the longest are kept");
}

#[test]
fn a_stop_without_a_start_is_passed_over() {
    let activity = Activity {
        api: vec![
            api("cuProfilerStop", 5, 6, 0),
            api("cuProfilerStart", 10, 11, 0),
            api("cuProfilerStart", 20, 21, 0),
            api("cuProfilerStop", 30, 31, 0),
        ],
        ..Activity::default()
    };
    assert_eq!(Calls::find(&activity, 1).spans, [span(21, 30)]);
}
