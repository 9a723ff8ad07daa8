//! The rules of the house, derived from `cargo metadata` and the sources: who may use whom, what a crate never names,
//! where unsafe code and processes may live.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/modules.rs"]
mod modules;
#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use modules::Modules;
use sources::{SHIPPED, root, sources, sources_in};

/// Maximum number of lines of a file of the worker, which is Rust or Python.
const MOST_LINES: usize = 500;

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
        ("nightshift-mcp", &["nightshift-client", "nightshift-protocol"][..]),
        (
            "nightshift-server",
            &["nightshift-engine", "nightshift-store", "nightshift-optimizer", "nightshift-protocol"][..],
        ),
        ("nightshift-sandbox", &["nightshift-protocol"][..]),
        ("nightshift-toolchain", &["nightshift-protocol", "nightshift-sandbox"][..]),
        ("nightshift-evaluator", &["nightshift-protocol", "nightshift-sandbox", "nightshift-toolchain"][..]),
        (
            "nightshift-profilers",
            &["nightshift-evaluator", "nightshift-protocol", "nightshift-sandbox", "nightshift-toolchain"][..],
        ),
        (
            "nightshift-worker",
            &[
                "nightshift-client",
                "nightshift-evaluator",
                "nightshift-profilers",
                "nightshift-protocol",
                "nightshift-sandbox",
                "nightshift-toolchain",
            ][..],
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
    let forbidden: [(&str, &[&str]); 10] = [
        ("nightshift-protocol", &["tokio", "sqlx", "axum", "reqwest"]),
        ("nightshift-engine", &["sqlx", "sea-query", "axum", "reqwest", "cudarc"]),
        ("nightshift-store", &["axum", "reqwest"]),
        ("nightshift-optimizer", &["sqlx", "axum", "cudarc"]),
        ("nightshift-server", &["cudarc", "sqlx"]),
        ("nightshift-mcp", &["sqlx", "sea-query", "reqwest", "cudarc"]),
        // What judges programs knows no lease, no network and no database.
        ("nightshift-evaluator", &["tokio", "sqlx", "sea-query", "axum", "reqwest", "hyper"]),
        ("nightshift-profilers", &["tokio", "sqlx", "sea-query", "axum", "reqwest", "hyper"]),
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
    let allowed = [
        "worker/sandbox/src",
        "worker/evaluator/src/device",
        "worker/evaluator/src/memory",
        "worker/evaluator/src/runner",
        "worker/profilers/src/cupti_tracer.rs",
        "worker/src/gpu",
        "src/memory.rs",
    ];
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
            let becomes = ["worker/sandbox/src/supervisor/program.rs", "worker/evaluator/src/runner/python.rs"]
                .contains(&name.as_str());
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
        "worker/evaluator/src",
        "worker/profilers/src",
        "worker/sandbox/src",
        "worker/toolchain/src",
        "dashboard/src",
    ] {
        for (path, text) in sources(&root().join(folder)) {
            // Nsight Systems hands its timelines out as SQLite files. What reads them asks questions and changes nothing.
            let reads_timelines = path.starts_with(root().join("worker/profilers/src/nsys"));
            for name in ["SELECT ", "INSERT INTO", "DELETE FROM"] {
                // Their tests make such files.
                let allowed = reads_timelines && (name == "SELECT " || path.ends_with("tests.rs"));
                assert!(allowed || !text.contains(name), "{} holds SQL: {name}", path.display());
            }
        }
    }
}

/// A circle of files of which none is above another one is also a circle of modules of one folder: that of the innermost folder
/// that holds them all.
#[test]
fn modules_of_every_crate_import_each_other_in_no_circle() {
    let metadata = metadata();
    let mut imports = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = std::path::Path::new(package["manifest_path"].as_str().unwrap());
        let modules = Modules::read(&manifest.with_file_name("src"));
        imports += modules.imports().len();
        let circles = modules.circles();
        assert!(circles.is_empty(), "{}:\n{}", package["name"], circles.join("\n"));
    }
    assert!(imports > 1_000, "only {imports} imports were found");
}

#[test]
fn a_circle_of_modules_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    write("lib.rs", "mod a;\nmod b;\npub(crate) use self::a::inner::Thing;\n");
    write("a.rs", "mod inner;\nuse crate::b::{self, other::{X, Y}};\n");
    write("a/inner.rs", "use super::Part;\npub struct Thing;\n");
    write("b.rs", "pub struct Alone;\n// use crate::a;\n");
    assert_eq!(Modules::read(folder.path()).circles(), Vec::<String>::new());
    // Through a name that the root hands on.
    write("b.rs", "use crate::Thing;\n");
    assert_eq!(Modules::read(folder.path()).circles(), ["a imports b", "b imports a"]);
    write("b.rs", "fn f() { super::a::g(); }\n#[cfg(test)]\nmod tests {}\n");
    assert_eq!(Modules::read(folder.path()).circles(), ["a imports b", "b imports a"]);
    // Through what a parent imports for itself.
    write("b.rs", "pub struct Alone;\n");
    write("a.rs", "mod inner;\nmod other;\nuse other::Part;\n");
    write("a/other.rs", "use super::inner::Thing;\npub struct Part;\n");
    assert_eq!(Modules::read(folder.path()).circles(), ["a::inner imports a::other", "a::other imports a::inner"]);
    // Below modules that are declared for tests.
    write("a.rs", "mod inner;\n#[cfg(test)]\nmod tests;\nmod other;\nuse other::Part;\n");
    assert_eq!(Modules::read(folder.path()).circles(), ["a::inner imports a::other", "a::other imports a::inner"]);
    // A module for tests may import everything.
    write("a.rs", "mod inner;\n#[cfg(test)]\n#[expect(dead_code)]\npub(crate) mod other;\nuse other::Part;\n");
    assert_eq!(Modules::read(folder.path()).circles(), Vec::<String>::new());
}

/// The dashboard knows no strategy, so its glossary lists them again.
#[test]
fn the_glossary_explains_every_strategy() {
    let glossary = std::fs::read_to_string(root().join("dashboard/src/page/glossary.rs")).unwrap();
    for (name, _) in nightshift_optimizer::strategy::known() {
        assert!(glossary.contains(&format!("(\"{name}\", ")), "{name}");
    }
}

#[test]
fn files_of_the_worker_can_be_read_in_one_sitting() {
    for (path, text) in sources_in(&root().join("worker"), &["rs", "py"]) {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines", path.display());
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
