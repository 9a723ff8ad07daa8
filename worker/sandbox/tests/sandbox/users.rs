//! The user that programs run as when the worker runs as root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use nightshift_sandbox::probe;
use nightshift_sandbox::process::{CancelFlag, Jail, ProcessError, SandboxChoice, UnprivilegedUser};
use rustix::process::{Pid, Signal, kill_process};

use crate::jails::{HOSTED, Kind, attack, plan, run, start};
use crate::machine::{
    WITHOUT_SETUID, administrator_with_landlock, choices, detail, host, in_force, is_mode, is_root, isolated_files,
    root, run_mode, status_field, within,
};
use crate::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        isolated_files => programs_run_as_an_unprivileged_user,
        root => files_of_the_scratch_folder_change_hands_and_stay_usable_for_the_worker,
        administrator_with_landlock => a_path_that_the_user_cannot_reach_is_an_error_that_says_so,
        root => a_program_dies_with_init_after_its_user_changed,
        root => a_worker_of_root_that_cannot_map_programs_is_not_sufficient,
        root => another_user_can_be_chosen,
    ]
}

/// Prints the identity of this process and creates a file.
pub(crate) fn print_identity() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for name in ["Uid", "Gid", "Groups", "CapEff", "CapPrm", "NoNewPrivs"] {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        println!("{name} {}", value.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let _ = std::fs::write("created", "");
}

fn expected_uid() -> u32 {
    let own = rustix::process::geteuid().as_raw();
    if own == 0 { UnprivilegedUser::default().uid } else { own }
}

fn programs_run_as_an_unprivileged_user() {
    let uid = expected_uid();
    for means in choices() {
        for kind in HOSTED.into_iter().filter(|kind| *kind != Kind::Native) {
            let (ended, scratch) = attack(kind, means, "identity");
            let line =
                |name: &str| ended.lines.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
            assert_eq!(line("Uid"), format!("{uid} {uid} {uid} {uid}"), "{means:?} {kind:?}: {:?}", ended.lines);
            assert_eq!(
                (line("CapEff"), line("CapPrm")),
                ("0000000000000000", "0000000000000000"),
                "{means:?} {kind:?}"
            );
            assert_eq!(line("NoNewPrivs"), "1");
            assert!(!is_root() || line("Groups").is_empty(), "{means:?} {kind:?}: {}", line("Groups"));
            assert_eq!(scratch.path().join("created").metadata().unwrap().uid(), uid, "{means:?} {kind:?}");
            assert!(in_force(&ended.report, "unprivileged_user"), "{means:?} {kind:?}");
            assert!(ended.report.is_sufficient(), "{means:?} {kind:?}: {:?}", ended.report);
        }
    }
}

fn files_of_the_scratch_folder_change_hands_and_stay_usable_for_the_worker() {
    for means in choices() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("inner")).unwrap();
        for name in ["given", "inner/given"] {
            std::fs::write(folder.join(name), "given").unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o600)).unwrap();
        }
        let script = "cat given inner/given && echo more >> given && rm inner/given && echo made > inner/made";
        let ended = run(&plan(Kind::Command, means, script, Some(&folder)));
        assert_eq!(ended.lines, ["givengiven"], "{means:?}: {}", ended.stderr);
        assert_eq!(std::fs::read_to_string(folder.join("inner/made")).unwrap(), "made\n", "{means:?}");
        assert!(
            std::fs::read_to_string(folder.join("given")).unwrap().ends_with("more\n")
                && !folder.join("inner/given").exists()
        );
        // The worker uses the folder again.
        std::fs::write(folder.join("second"), "second").unwrap();
        let ended = run(&plan(Kind::Command, means, "echo x >> second && cat second", Some(&folder)));
        assert_eq!(ended.lines, ["secondx"], "{means:?}: {}", ended.stderr);
    }
}

fn a_path_that_the_user_cannot_reach_is_an_error_that_says_so() {
    let hidden = tempfile::tempdir().unwrap();
    let folder = hidden.path().canonicalize().unwrap();
    let file = folder.join("file");
    std::fs::write(&file, "text").unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut plan = plan(Kind::Command, SandboxChoice::Landlock, "true", Some(scratch.path()));
    plan.read_only = vec![file.clone()];
    let error = setup_error(&plan);
    assert!(error.contains("cannot read") && error.contains("start the worker as an ordinary user"), "{error}");
    // A private root needs the file to be readable, but not the folders above it.
    plan.means = SandboxChoice::Best;
    assert_eq!(run(&plan).end.and_then(|end| end.status), Some(0));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(setup_error(&plan).contains("cannot read"));
}

fn setup_error(plan: &nightshift_sandbox::JailPlan) -> String {
    let mut jail = Jail::start(&host(plan.means), plan, &[], &CancelFlag::default()).unwrap();
    assert!(within(Duration::from_secs(30), || {
        jail.pump(Duration::from_millis(5), None).unwrap();
        jail.has_ended()
    }));
    assert!(
        jail.setup_error.is_some(),
        "{:?} {:?} {}",
        jail.ended,
        jail.report,
        String::from_utf8_lossy(&jail.stderr.take())
    );
    jail.setup_error.take().unwrap()
}

/// A change of the user clears the signal, and nothing else ends a program whose supervisor is stopped.
fn a_program_dies_with_init_after_its_user_changed() {
    let parent = |pid: i32| Pid::from_raw(status_field(pid, "PPid")?.parse().ok()?);
    for kind in [Kind::Native, Kind::Python] {
        let scratch = tempfile::tempdir().unwrap();
        let mut jail = start(&plan(kind, SandboxChoice::Landlock, "sleep", Some(scratch.path())), &[]);
        let program = jail.program.unwrap();
        let init = parent(program).unwrap();
        let supervisor = parent(init.as_raw_nonzero().get()).unwrap();
        let uid = UnprivilegedUser::default().uid;
        assert_eq!(status_field(program, "Uid").unwrap(), format!("{uid} {uid} {uid} {uid}"));
        kill_process(supervisor, Signal::STOP).unwrap();
        kill_process(init, Signal::KILL).unwrap();
        let is_over = || matches!(status_field(program, "State").as_deref(), None | Some("Z (zombie)"));
        assert!(within(Duration::from_secs(30), is_over), "{kind:?}: the program outlived init");
        kill_process(supervisor, Signal::CONT).unwrap();
        jail.kill();
    }
}

fn a_worker_of_root_that_cannot_map_programs_is_not_sufficient() {
    if !is_mode(WITHOUT_SETUID) {
        run_mode(WITHOUT_SETUID, "a_worker_of_root_that_cannot_map_programs_is_not_sufficient");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = probe(&host(SandboxChoice::Best), folder.path(), &CancelFlag::default()).unwrap();
    assert!(report.isolates_files && report.isolates_network, "{report:?}");
    assert!(!in_force(&report, "unprivileged_user") && !in_force(&report, "probe_root_outside"));
    assert!(!report.is_sufficient(), "{report:?}");
    let missing = report.insufficiency().unwrap();
    assert!(missing.contains("CAP_SETUID") && missing.contains("start the worker as an ordinary user"), "{missing}");
}

fn another_user_can_be_chosen() {
    let scratch = tempfile::tempdir().unwrap();
    let plan = plan(Kind::Command, SandboxChoice::Best, "echo > created", Some(scratch.path()));
    let user = UnprivilegedUser { uid: 4711, gid: 4712 };
    let host = nightshift_sandbox::process::JailHost { user, ..host(SandboxChoice::Best) };
    let mut jail = Jail::start(&host, &plan, &[], &CancelFlag::default()).unwrap();
    assert!(within(Duration::from_secs(30), || {
        jail.pump(Duration::from_millis(5), None).unwrap();
        jail.has_ended()
    }));
    assert_eq!(jail.setup_error, None);
    let data = scratch.path().join("created").metadata().unwrap();
    assert_eq!((data.uid(), data.gid()), (4711, 4712));
    assert_eq!(detail(jail.report.as_ref().unwrap(), "unprivileged_user"), "user 4711, group 4712");
    assert!(!matches!(jail.freeze(), Err(ProcessError::Cancelled)));
}
