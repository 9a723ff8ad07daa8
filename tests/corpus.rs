//! A sample of the corpus: honest programs for the host are called right, and attacks that a check finds are not. All of it is
//! judged by `scripts/evidence-trust`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod binary;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use binary::{json_lines, nightshift};

/// Judges programs of one task, and returns their verdicts by name.
fn verdicts(task: &str, programs: &[PathBuf]) -> BTreeMap<String, String> {
    let data = tempfile::tempdir().unwrap();
    let corpus = corpus();
    let own = corpus.join("tasks").join(task);
    let task = if own.is_dir() { own } else { PathBuf::from(task) };
    let output = nightshift(data.path()).args(["--json", "verify"]).arg(task).args(programs).output().unwrap();
    let report = json_lines(&output).pop().unwrap_or_default();
    let judged = report["programs"].as_array().unwrap_or_else(|| panic!("no report: {output:?}"));
    let of = |entry: &serde_json::Value| {
        let name = Path::new(entry["program"].as_str().unwrap()).file_name().unwrap().to_string_lossy().into_owned();
        (name, entry["verdict"].as_str().map_or_else(|| entry["fault"].to_string(), str::to_owned))
    };
    judged.iter().map(of).collect()
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn expect(task: &str, honest: &[&str], attacks: &[&str]) {
    let path = |kind: &str, name: &str| corpus().join(kind).join("cpu").join(name);
    let honest_paths = honest.iter().map(|name| path("honest", name));
    let paths: Vec<PathBuf> = honest_paths.chain(attacks.iter().map(|name| path("attacks", name))).collect();
    let verdicts = verdicts(task, &paths);
    for name in honest {
        assert!(verdicts[*name].starts_with("correct_"), "{name}: {verdicts:?}");
    }
    for name in attacks {
        assert!(["incorrect", "not_compliant"].contains(&verdicts[*name].as_str()), "{name}: {verdicts:?}");
    }
}

#[test]
fn programs_for_a_softmax() {
    let attacks = ["mutated_equal_rows_softmax.cpp", "whole_vector_stores_softmax.cpp", "whole_vectors_softmax.cpp"];
    expect("row_softmax", &["softmax_intrinsics.cpp", "softmax_vector_types.cpp"], &attacks);
}

#[test]
fn programs_for_smoothing_a_series() {
    let attacks = ["constant_level_holt.cpp", "unwritten_unless_poisoned_holt.cpp"];
    expect("holt_smoothing", &["holt_interleaved_c.cpp"], &attacks);
}

#[test]
fn programs_for_a_product_of_matrices() {
    expect("matmul_bias_relu", &["matmul_masked_intrinsics.cpp"], &["remembered_first_weights_matmul.cpp"]);
}

#[test]
fn programs_for_a_stencil() {
    expect("stencil_2d", &["stencil_padded_rows.cpp"], &["mutated_weights_stencil.cpp"]);
}

#[test]
fn programs_for_gathering_rows() {
    expect("gather_scale", &["gather_row_by_row.cpp"], &["mutated_index_gather.cpp"]);
}

#[test]
fn programs_for_other_tasks() {
    expect("column_mean", &[], &["zero_means_column_mean.cpp"]);
    expect("pairwise_distance", &["distance_tiles.cpp"], &[]);
    expect("layernorm_gelu", &["layernorm_vector_types.cpp"], &[]);
}

#[test]
fn attacks_name_twins_that_there_are_and_every_twin_serves_one() {
    let names = |folder: PathBuf| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.to_string_lossy().into_owned()).collect()
    };
    for form in ["cpu", "cuda", "torch"] {
        let attacks = corpus().join("attacks").join(form);
        let named: BTreeSet<String> = names(attacks.clone())
            .iter()
            .filter_map(|name| {
                let text = String::from_utf8_lossy(&std::fs::read(attacks.join(name)).unwrap()).into_owned();
                let line = text.lines().take(8).find_map(|line| line.split_once(" twin: "))?;
                Some(line.1.trim().to_owned())
            })
            .collect();
        assert_eq!(named, names(corpus().join("twins").join(form)), "{form}");
    }
}
