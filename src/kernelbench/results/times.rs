//! Times of references, as files below `results/timing/` hold them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{LeftOut, milliseconds, text};
use crate::failure::{Failure, Result};
use crate::kernelbench::layout::{level_of, problem_of};

/// Largest file of times, in bytes: four levels take some hundred kilobytes.
const MAX_TIMES_BYTES: u64 = 16 << 20;

/// Times of references.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times {
    /// The file, without folders.
    pub(crate) file: String,
    /// Where they were taken, as the file says.
    pub(crate) hardware: BTreeSet<String>,
    /// Mean time of a call in milliseconds, by level and number.
    pub(crate) mean_ms: BTreeMap<(u32, u32), f64>,
    /// What could not be used.
    pub(crate) left_out: Vec<LeftOut>,
}

/// Reads such a file.
pub(crate) fn read(path: &Path) -> Result<Times> {
    let levels = text::object(path, MAX_TIMES_BYTES)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut times = Times { file, hardware: BTreeSet::new(), mean_ms: BTreeMap::new(), left_out: Vec::new() };
    for (name, tasks) in levels.0 {
        match (level_of(&name), tasks) {
            (Some(level), Value::Object(tasks)) => {
                for (task, stats) in &tasks {
                    times.take(level, task, stats);
                }
            }
            _ => times.leave_out(&name, "results.bad_entry", "it is no level with times by task"),
        }
    }
    if times.mean_ms.is_empty() {
        let message = format!("`{}` holds no time of a reference", path.display());
        return Err(Failure::new("results.malformed", message)
            .hint("name a file of results/timing/HARDWARE/, as KernelBench's generate_baseline_time.py writes it"));
    }
    Ok(times)
}

impl Times {
    fn take(&mut self, level: u32, task: &str, stats: &Value) {
        let what = format!("level{level}/{task}");
        let Some(problem) = problem_of(task) else {
            return self.leave_out(&what, "results.bad_entry", "its name does not begin with the number of a task");
        };
        let Some(mean_ms) = stats.get("mean").and_then(milliseconds) else {
            return self.leave_out(&what, "results.bad_time", "it has no mean time that can be one");
        };
        match self.mean_ms.entry((level, problem)) {
            Entry::Vacant(place) => {
                place.insert(mean_ms);
            }
            Entry::Occupied(_) => {
                return self.leave_out(&what, "results.duplicate_sample", "another task of this number came before it");
            }
        }
        if let Some(hardware) = stats.get("hardware").and_then(Value::as_str) {
            self.hardware.insert(hardware.to_owned());
        }
    }

    fn leave_out(&mut self, what: &str, code: &'static str, message: &str) {
        self.left_out.push(LeftOut::new(format!("{}: {what}", self.file), code, message));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Times> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("baseline_time_torch.json");
        std::fs::write(&file, text).unwrap();
        read(&file)
    }

    #[test]
    fn times_are_read_by_level_and_number_and_what_is_none_is_named() {
        let times = read_text(
            r#"{"level1": {"1_a.py": {"mean": 2.5, "hardware": "GPU"}, "2_b.py": null, "3_c.py": {"mean": -1.0},
                "4_d.py": {"mean": NaN}, "nothing.py": {"mean": 1.0}, "1_again.py": {"mean": 9.0}},
                "level2": {"1_a.py": {"mean": 4}}, "note": 3}"#,
        )
        .unwrap();
        assert_eq!(times.mean_ms, BTreeMap::from([((1, 1), 2.5), ((2, 1), 4.0)]));
        assert_eq!(times.hardware, BTreeSet::from(["GPU".to_owned()]));
        let codes: Vec<&str> = times.left_out.iter().map(|left_out| left_out.code.as_ref()).collect();
        let bad = ["results.duplicate_sample", "results.bad_time", "results.bad_time", "results.bad_time"];
        assert_eq!(codes, [&bad[..], &["results.bad_entry", "results.bad_entry"]].concat());
    }

    #[test]
    fn a_file_without_any_time_is_refused() {
        for text in ["{}", r#"{"level1": {}}"#, r#"{"1": [{"sample_id": 0}]}"#] {
            assert_eq!(read_text(text).unwrap_err().error.code, "results.malformed", "{text}");
        }
    }
}
