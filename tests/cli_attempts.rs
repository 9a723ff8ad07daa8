//! `list attempts` and `search` over a database that `__generate` filled, and that filling itself.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;

use std::path::Path;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

fn json(folder: &Path, args: &[&str]) -> Value {
    let mut lines = json_lines(&expect_exit(nightshift(folder).args(args).arg("--json"), 0));
    assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
    lines.remove(0)
}

fn text(folder: &Path, args: &[&str]) -> String {
    String::from_utf8(expect_exit(nightshift(folder).args(args), 0).stdout).unwrap()
}

#[test]
fn generated_attempts_are_the_same_for_the_same_seed_and_whole_enough_for_every_command() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let generate = ["__generate", "--attempts", "90", "--seed", "7", "--complete", "1"];
    let made = json(one.path(), &generate);
    assert_eq!((&made["runs"], &made["campaigns"]), (&Value::from(5), &Value::from(1)));
    json(other.path(), &generate);
    let newest = ["list", "attempts", "--limit", "500"];
    let page = json(one.path(), &newest);
    assert_eq!(page, json(other.path(), &newest), "chance begins with the seed");
    let total = page["total"].as_u64().unwrap();
    assert_eq!(page["items"].as_array().unwrap().len() as u64, total);
    assert_eq!(made["attempts"], total);

    let best = json(one.path(), &["list", "attempts", "--correct", "--sort", "speedup", "--limit", "1"]);
    let best = &best["items"][0];
    let place = format!("{}/{}", best["run"].as_str().unwrap(), best["number"]);
    // Generated tasks have no baseline other than their reference.
    let estimate = |name: &str| best[name]["estimate"].as_f64().expect(name);
    assert!((estimate("speedup_over_fastest") - estimate("speedup")).abs() < 1e-5, "{best}");
    let over_fastest = ["list", "attempts", "--correct", "--sort", "speedup_over_fastest", "--limit", "1"];
    assert_eq!(json(one.path(), &over_fastest)["items"][0]["speedup_over_fastest"], best["speedup_over_fastest"]);
    let bound = (estimate("speedup_over_fastest") - 0.001).to_string();
    let fast = ["list", "attempts", "--correct", "--min-speedup-over-fastest", &bound];
    assert_eq!(json(one.path(), &fast)["total"], 1, "only the best one is that fast");
    let table = text(one.path(), &over_fastest);
    assert!(table.contains("fastest"), "{table}");
    let interval = format!("{:.2}x", estimate("speedup"));
    assert_eq!(table.matches(&interval).count(), 2, "{table}");
    let listed = json(one.path(), &["list", "campaigns"])["items"][0].clone();
    let mean = listed["geometric_mean"].as_f64().expect("a mean");
    assert!((listed["geometric_mean_over_fastest"].as_f64().expect("a mean") - mean).abs() < 1e-5, "{listed}");
    let table = text(one.path(), &["list", "campaigns"]);
    assert!(table.contains("fastest"), "{table}");
    assert_eq!(table.matches(&format!("{mean:.2}x")).count(), 2, "{table}");
    let shown = json(one.path(), &["show", &place]);
    assert_eq!(shown["outcome"], best["outcome"], "{place}");
    let complete = json(one.path(), &["list", "runs"])["items"].as_array().unwrap().last().unwrap()["id"].clone();
    let log = text(one.path(), &["logs", complete.as_str().unwrap()]);
    assert!(log.contains("write_code"), "the first run knows its steps:\n{log}");
}

#[test]
fn attempts_are_filtered_and_found_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    json(folder.path(), &["__generate", "--attempts", "200", "--complete", "0"]);
    let all = json(folder.path(), &["list", "attempts"])["total"].as_u64().unwrap();
    let failed = json(folder.path(), &["list", "attempts", "--correct", "false"])["total"].as_u64().unwrap();
    let right = json(folder.path(), &["list", "attempts", "--correct"])["total"].as_u64().unwrap();
    assert!(failed > 0 && right > 0 && failed + right == all, "{failed} {right} {all}");
    let table = text(folder.path(), &["list", "attempts", "--outcome", "compile_failed,incorrect", "--limit", "3"]);
    assert!(table.contains("attempt") && (table.contains("compile_failed") || table.contains("incorrect")), "{table}");
    let hits = json(folder.path(), &["search", "undefined", "--kind", "error"]);
    assert!(!hits["items"].as_array().unwrap().is_empty(), "{hits}");
    assert!(text(folder.path(), &["search", "\"bank conflicts\""]).contains("bank conflicts"));

    for args in [
        &["list", "runs", "--task", "x"][..],
        &["list", "attempts", "--outcome", "wrong"],
        &["list", "workers", "--campaign", "x"],
        &["search", "->"],
    ] {
        expect_exit(nightshift(folder.path()).args(args), 2);
    }
}
