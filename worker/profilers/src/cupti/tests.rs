//! What becomes of a trace that a program took of itself.

use super::*;
use crate::cupti_library::find;
use crate::tests::{Setup, tools};
use nightshift_sandbox::process::JailedCommand;

/// Two calls, each with one kernel and a copy, between their marks.
const TRACE_OF_TWO: &str = r#"{
    "version": 26, "dropped": 0,
    "names": ["_Z6doublePKfPfl", "cuProfilerStart", "cuProfilerStop", "cudaLaunchKernel_v7000", ""],
    "kernels": [
        {"start_ns": 2300, "end_ns": 2800, "stream": 13, "correlation": 8, "name": 0, "grid": [4, 1, 1], "block": [256, 1, 1],
         "registers": 16, "shared_bytes": 0},
        {"start_ns": 1300, "end_ns": 1700, "stream": 13, "correlation": 4, "name": 0, "grid": [4, 1, 1], "block": [256, 1, 1],
         "registers": 16, "shared_bytes": 128}
    ],
    "copies": [
        {"start_ns": 1750, "end_ns": 1760, "stream": 13, "correlation": 5, "direction": 8, "bytes": 64},
        {"start_ns": 2810, "end_ns": 2820, "stream": 13, "correlation": 9, "direction": null, "bytes": 32}
    ],
    "calls": [
        {"start_ns": 1000, "end_ns": 1100, "thread": 7, "correlation": 1, "name": 1},
        {"start_ns": 1110, "end_ns": 1200, "thread": 7, "correlation": 4, "name": 3},
        {"start_ns": 1900, "end_ns": 1910, "thread": 7, "correlation": 6, "name": 2},
        {"start_ns": 2000, "end_ns": 2100, "thread": 7, "correlation": 7, "name": 1},
        {"start_ns": 2110, "end_ns": 2200, "thread": 7, "correlation": 8, "name": 3},
        {"start_ns": 2900, "end_ns": 2910, "thread": 7, "correlation": 10, "name": 2}
    ]
}"#;

#[test]
fn calls_are_told_apart_by_their_marks_and_kernels_have_the_names_of_their_author() {
    let (activity, dropped) = activity_of(TRACE_OF_TWO).unwrap();
    assert_eq!((dropped, activity.cut), (0, false));
    assert_eq!(activity.kernels[0].span, Span { start_ns: 300, end_ns: 700 }, "in order, and from the first event on");
    let traced = Traced::of(&activity, 2);
    assert!(traced.marked);
    assert_eq!(traced.launched, [("double(float const*, float*, long)".to_owned(), "double".to_owned())]);
    let timeline = traced.timeline;
    assert_eq!((timeline.calls, timeline.kernels.len()), (2, 1));
    assert_eq!(timeline.kernels[0].times.count, 2);
    assert!(timeline.api.iter().any(|call| call.name == "cudaLaunchKernel"), "{:?}", timeline.api);
}

#[test]
fn a_trace_that_is_none_is_said_and_never_believed() {
    assert!(activity_of("").unwrap_err().contains("cannot be read"));
    assert!(activity_of("[1, 2]").unwrap_err().contains("cannot be read"));
    let empty = r#"{"version": 1, "dropped": 0, "names": [], "kernels": [], "copies": [], "calls": []}"#;
    assert!(activity_of(empty).unwrap_err().contains("no CUDA activity"));
    // Numbers of names that do not exist, ends before beginnings and extents below nothing.
    let forged = TRACE_OF_TWO
        .replace("\"name\": 0", "\"name\": 99")
        .replace("\"end_ns\": 2800", "\"end_ns\": 1")
        .replace("[4, 1, 1]", "[-4, 1, 1]");
    let (activity, _) = activity_of(&forged).unwrap();
    assert_eq!(activity.kernels.len(), 1, "one that ends before it begins is passed over");
    assert_eq!((activity.kernels[0].name.as_ref(), activity.kernels[0].grid), ("(nameless)", [0, 1, 1]));
}

#[test]
fn what_was_left_out_is_said() {
    let (activity, dropped) = activity_of(&TRACE_OF_TWO.replace("\"dropped\": 0", "\"dropped\": 12")).unwrap();
    assert_eq!((dropped, activity.cut), (12, true));
}

#[test]
fn kernels_are_selected_by_their_bare_names() {
    for (name, bare) in [
        ("double(float const*, float*, long)", "double"),
        ("void softmax<float, 4>(float const*, float*)", "softmax"),
        ("void (anonymous namespace)::rows<(Kind)2>(float*)", "rows"),
        ("void a::b<c::d<int> >::e<7>(int)", "e"),
        ("plain", "plain"),
        ("", ""),
    ] {
        assert_eq!(bare_name(name), bare, "{name}");
    }
}

#[test]
fn the_library_is_looked_for_beside_the_compilers_and_in_the_toolkits_extras() {
    let root = tempfile::tempdir().unwrap();
    assert!(find(root.path(), &[]).unwrap_err().reason.contains("libcupti.so"));
    let extras = root.path().join("toolkit/extras/CUPTI/lib64");
    let libraries = root.path().join("toolkit/lib64");
    std::fs::create_dir_all(&extras).unwrap();
    std::fs::create_dir_all(&libraries).unwrap();
    std::fs::write(extras.join("libcupti.so.2025.3.1"), "").unwrap();
    std::os::unix::fs::symlink("libcupti.so.2025.3.1", extras.join("libcupti.so.13")).unwrap();
    let found = find(root.path(), &[libraries]).unwrap();
    assert_eq!(found.version, "2025.3.1");
    assert_eq!(found.folders, [extras.canonicalize().unwrap()]);
}

#[test]
fn a_worker_without_the_library_says_how_to_get_it() {
    let missing = find(std::path::Path::new("/nowhere"), &[]).unwrap_err();
    let none = Profilers { cupti: Err(missing), ..tools() };
    let setup = Setup::new();
    let run = |_: &JailedCommand| panic!("there is nothing to run");
    let (tier, traced) = trace(&none, &setup.replay(&run)).unwrap();
    assert!(traced.is_none() && !tier.used);
    assert_eq!((tier.tool.as_str(), tier.code.as_deref()), ("cupti", Some("profile.tool_missing")));
    assert!(tier.remedy.unwrap().contains("cuda-cupti"));
}
