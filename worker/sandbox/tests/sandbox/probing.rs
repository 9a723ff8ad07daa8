//! What the probe reports.

use nightshift_sandbox::probe;
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};

use crate::machine::{REPORT, choices, detail, host, in_force, namespaces, nothing};
use crate::{Test, tests};

/// What the probe tries.
const ATTEMPTS: [&str; 8] = [
    "probe_write_outside",
    "probe_read_outside",
    "probe_connect",
    "probe_write_settings",
    "probe_signal_worker",
    "probe_see_processes",
    "probe_exceed_processes",
    "probe_root_outside",
];

pub(crate) fn tests() -> Vec<Test> {
    tests![
        nothing => every_means_is_reported_once,
        namespaces => with_everything_in_force_no_attempt_succeeds,
        nothing => without_isolation_the_attempts_succeed,
        nothing => a_probe_leaves_nothing_behind,
    ]
}

fn every_means_is_reported_once() {
    let names: Vec<&str> = REPORT.means.iter().map(|means| means.name.as_str()).collect();
    let expected = [
        "user_namespace",
        "unprivileged_user",
        "cgroup",
        "freeze",
        "signals",
        "proc",
        "rlimits",
        "no_capabilities",
        "no_new_privileges",
        "landlock",
        "seccomp",
    ];
    for name in expected.iter().chain(&ATTEMPTS) {
        assert_eq!(names.iter().filter(|known| *known == name).count(), 1, "{name}: {names:?}");
    }
}

fn with_everything_in_force_no_attempt_succeeds() {
    for name in ATTEMPTS {
        assert!(in_force(&REPORT, name), "{name} succeeded: {:?}", *REPORT);
    }
    let folder = tempfile::tempdir().unwrap();
    for means in choices() {
        let report = probe(&host(means), folder.path(), &CancelFlag::default()).unwrap();
        assert!(report.is_sufficient(), "{means:?}: {report:?}");
    }
}

fn without_isolation_the_attempts_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let report = probe(&host(SandboxChoice::None), folder.path(), &CancelFlag::default()).unwrap();
    assert!(!report.isolates_files && !report.isolates_network, "{report:?}");
    for name in
        ["probe_write_outside", "probe_read_outside", "probe_connect", "probe_signal_worker", "probe_see_processes"]
    {
        assert!(!in_force(&report, name), "{name}: {report:?}");
    }
    let is_root = crate::machine::is_root();
    assert_eq!(in_force(&report, "probe_root_outside"), !is_root);
    assert_eq!(in_force(&report, "probe_write_settings"), !is_root);
    assert!(!detail(&report, "proc").is_empty());
}

fn a_probe_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    probe(&host(SandboxChoice::Best), folder.path(), &CancelFlag::default()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
