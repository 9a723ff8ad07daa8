//! The rules of the house, derived from `cargo metadata` and the sources: who may use whom, what a crate never names,
//! where unsafe code and processes may live.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::{SHIPPED, root, sources};

#[expect(clippy::disallowed_methods, reason = "the test asks cargo about the workspace")]
fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// Package name to the names of its dependencies that are not for tests only: those of the program and of its build.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    metadata()["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let names = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
                .collect();
            (package["name"].as_str().unwrap().to_owned(), names)
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("nightshift-protocol", &[][..]),
        ("nightshift-engine", &["nightshift-protocol"][..]),
        ("nightshift-store", &["nightshift-engine", "nightshift-protocol"][..]),
        ("nightshift-optimizer", &["nightshift-engine", "nightshift-protocol"][..]),
        ("nightshift-client", &["nightshift-protocol"][..]),
        (
            "nightshift-server",
            &["nightshift-engine", "nightshift-store", "nightshift-optimizer", "nightshift-protocol"][..],
        ),
        ("nightshift-sandbox", &["nightshift-protocol"][..]),
        ("nightshift-toolchain", &["nightshift-protocol", "nightshift-sandbox"][..]),
        (
            "nightshift-worker",
            &["nightshift-client", "nightshift-protocol", "nightshift-sandbox", "nightshift-toolchain"][..],
        ),
        ("nightshift-dashboard", &["nightshift-client", "nightshift-protocol"][..]),
        ("nightshift-testbed", &[][..]),
        // For measurements only: it drives everything else.
        (
            "nightshift-bench-engine",
            &[
                "nightshift-client",
                "nightshift-engine",
                "nightshift-optimizer",
                "nightshift-protocol",
                "nightshift-sandbox",
                "nightshift-server",
                "nightshift-store",
                "nightshift-worker",
            ][..],
        ),
        // For tests only: it breaks everything else.
        (
            "nightshift-chaos",
            &[
                "nightshift-client",
                "nightshift-engine",
                "nightshift-optimizer",
                "nightshift-protocol",
                "nightshift-sandbox",
                "nightshift-server",
                "nightshift-store",
                "nightshift-testbed",
                "nightshift-worker",
            ][..],
        ),
    ]);
    let dependencies = dependencies();
    for (package, allowed) in allowed {
        let ours: Vec<&String> = dependencies
            .get(package)
            .unwrap_or_else(|| panic!("{package} is no package of the workspace"))
            .iter()
            .filter(|name| name.starts_with("nightshift"))
            .collect();
        for name in ours {
            assert!(allowed.contains(&name.as_str()), "{package} may not use {name}");
        }
    }
}

#[test]
fn no_crate_depends_on_what_it_must_not_know() {
    let forbidden: [(&str, &[&str]); 7] = [
        ("nightshift-protocol", &["tokio", "sqlx", "axum", "reqwest"]),
        ("nightshift-engine", &["sqlx", "sea-query", "axum", "reqwest", "cudarc"]),
        ("nightshift-store", &["axum", "reqwest"]),
        ("nightshift-optimizer", &["sqlx", "axum", "cudarc"]),
        ("nightshift-server", &["cudarc", "sqlx"]),
        ("nightshift-worker", &["sqlx"]),
        ("nightshift", &["sqlx", "sea-query"]),
    ];
    let dependencies = dependencies();
    for (package, names) in forbidden {
        for name in names {
            assert!(!dependencies[package].contains(*name), "{package} may not use {name}");
        }
    }
}

#[test]
fn what_is_for_tests_is_used_by_tests_only() {
    for (package, names) in dependencies() {
        let is_for_tests = package == "nightshift-chaos";
        assert!(
            is_for_tests || !names.contains("nightshift-testbed"),
            "{package} may use nightshift-testbed in its tests only"
        );
        assert!(!names.contains("nightshift-chaos"), "{package} may not use nightshift-chaos");
        assert!(!names.contains("nightshift-bench-engine"), "{package} may not use nightshift-bench-engine");
    }
}

#[test]
fn the_pure_crates_name_no_clock_environment_file_or_process() {
    for folder in ["protocol/src", "engine/src"] {
        for (path, text) in sources(&root().join(folder)) {
            for name in ["std::fs", "std::env", "std::process", "SystemTime", "Instant::now", "std::net"] {
                assert!(!text.contains(name), "{} names {name}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_lives_where_the_system_is_called() {
    let allowed = ["worker/sandbox/src", "worker/src/runner", "worker/src/gpu", "src/memory.rs"];
    for folder in SHIPPED {
        for (path, text) in sources(&root().join(folder)) {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            if allowed.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                assert!(!line.contains("unsafe {") && !line.contains("unsafe fn"), "{name} holds unsafe code: {line}");
            }
        }
    }
}

#[test]
fn only_the_workers_process_module_and_the_command_model_start_processes() {
    for folder in SHIPPED {
        for (path, text) in sources(&root().join(folder)) {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            // Inside the jail a process becomes the program (`exec`): that starts no further one.
            let becomes =
                ["worker/sandbox/src/supervisor/program.rs", "worker/src/runner/python.rs"].contains(&name.as_str());
            // A local agent's command answers for a model: it runs beside the agents, where the keys are, not on a worker.
            if name.starts_with("worker/sandbox/src/process") || name.starts_with("optimizer/src/model/command") {
                continue;
            }
            assert!(becomes || !text.contains("process::Command"), "{name} names std::process::Command");
            for call in [".spawn()?", ".status()?", ".output()?"] {
                assert!(!text.contains(call), "{name} starts a process: {call}");
            }
        }
    }
}

#[test]
fn only_the_model_module_names_the_http_client_in_the_optimizer() {
    for (path, text) in sources(&root().join("optimizer/src")) {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if !name.starts_with("optimizer/src/model") {
            assert!(!text.contains("reqwest"), "{name} names reqwest");
        }
    }
}

#[test]
fn sql_lives_in_the_store() {
    for folder in [
        "src",
        "protocol/src",
        "engine/src",
        "optimizer/src",
        "client/src",
        "server/src",
        "worker/src",
        "dashboard/src",
    ] {
        for (path, text) in sources(&root().join(folder)) {
            // Nsight Systems hands its timelines out as SQLite files. What reads them asks questions and changes nothing.
            let reads_timelines = path.starts_with(root().join("worker/src/profilers/nsys"));
            for name in ["SELECT ", "INSERT INTO", "DELETE FROM"] {
                let allowed = reads_timelines && name == "SELECT ";
                assert!(allowed || !text.contains(name), "{} holds SQL: {name}", path.display());
            }
        }
    }
}

/// The modules of the sandbox, each of which uses only those before it.
const SANDBOX_MODULES: [&str; 15] = [
    "report",
    "limits",
    "procfs",
    "end",
    "wire",
    "device",
    "user",
    "plan",
    "access",
    "cgroup",
    "isolation",
    "break_out",
    "supervisor",
    "process",
    "probe",
];

#[test]
fn modules_of_the_sandbox_use_only_those_before_them() {
    let folder = root().join("worker/sandbox/src");
    for (path, text) in sources(&folder) {
        let name = path.strip_prefix(&folder).unwrap().with_extension("");
        let module = name.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        if module == "lib" {
            continue;
        }
        let position = |name: &str| SANDBOX_MODULES.iter().position(|known| *known == name);
        let own = position(&module).unwrap_or_else(|| panic!("{module} is not in the list"));
        for used in text.split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let used = position(used).unwrap_or_else(|| panic!("{} uses crate::{used}", path.display()));
            assert!(used <= own, "{} uses {}, which comes after it", path.display(), SANDBOX_MODULES[used]);
        }
        // What a module uses of the root of the crate would hide its origin.
        assert!(!text.contains("use super::super::super"), "{}", path.display());
    }
}

#[test]
fn no_module_hides_behind_an_empty_name() {
    for folder in SHIPPED {
        for (path, _) in sources(&root().join(folder)) {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(
                !["mod", "util", "utils", "helper", "helpers", "manager"].contains(&stem.as_str()),
                "{}",
                path.display()
            );
        }
    }
}
