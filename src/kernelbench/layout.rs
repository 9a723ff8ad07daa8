//! Results in the layout that `KernelBench`'s own scripts read: programs, `eval_results.json` and files of times.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nightshift_protocol::speedups::Speedups;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::present;

/// Thresholds of the published curve.
const THRESHOLDS: [f64; 6] = [0.0, 0.5, 0.8, 1.0, 1.5, 2.0];

/// What was found out about the programs of a run.
pub(crate) const RESULTS_FILE: &str = "eval_results.json";

/// What a run was made with.
pub(crate) const CONFIGURATION_FILE: &str = "generation_config.yaml";

/// The folder with runs.
pub(crate) const RUNS_FOLDER: &str = "runs";

/// The file of times in eager mode, as the published one is called.
const EAGER_TIMES: &str = "baseline_time_torch.json";

/// The file of times after `torch.compile` in a mode, as the published ones are called.
fn compiled_times(mode: &str) -> String {
    format!("baseline_time_torch_compile_inductor_{mode}.json")
}

/// Which program is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Level of its task.
    pub(crate) level: u32,
    /// Number of its task.
    pub(crate) problem: u32,
    /// Its number among the programs of its task, from 0.
    pub(crate) sample: u32,
}

impl Place {
    /// How its file is called.
    pub(crate) fn file_name(self) -> String {
        let Self { level, problem, sample } = self;
        format!("level_{level}_problem_{problem}_sample_{sample}_kernel.py")
    }

    /// What a file of that name holds; none for other names.
    pub(crate) fn of(file_name: &str) -> Option<Self> {
        let (level, rest) = file_name.strip_prefix("level_")?.split_once("_problem_")?;
        let (problem, rest) = rest.split_once("_sample_")?;
        let sample = rest.strip_suffix("_kernel.py")?;
        let place = Self { level: level.parse().ok()?, problem: problem.parse().ok()?, sample: sample.parse().ok()? };
        // `+1` and `01` are numbers, too, and other names.
        (place.file_name() == file_name).then_some(place)
    }
}

/// Level, number and name of `level1/19_ReLU.py`.
pub(crate) fn task_of(file: &str) -> Option<(u32, u32, &str)> {
    let (level, name) = file.split_once('/')?;
    Some((level_of(level)?, problem_of(name)?, name))
}

/// The number of `level1`.
pub(crate) fn level_of(folder: &str) -> Option<u32> {
    folder.strip_prefix("level")?.parse().ok()
}

/// The number of `19_ReLU.py`.
pub(crate) fn problem_of(file: &str) -> Option<u32> {
    file.split_once('_')?.0.parse().ok()
}

/// A number for each program of a task: the one that it came with, for the first that came with it, and else the least that is
/// free.
pub(crate) fn numbers(came_with: &[Option<u32>]) -> Vec<u32> {
    let mut taken: BTreeSet<u32> = came_with.iter().copied().flatten().collect();
    let (mut kept, mut free) = (BTreeSet::new(), 0);
    let number = |came_with: &Option<u32>| match came_with {
        Some(number) if kept.insert(*number) => *number,
        _ => {
            while !taken.insert(free) {
                free = free.saturating_add(1);
            }
            free
        }
    };
    came_with.iter().map(number).collect()
}

/// One program of a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// Level of its task.
    pub(crate) level: u32,
    /// Number of its task.
    pub(crate) problem: u32,
    /// The file of its task, without folders.
    pub(crate) file: String,
    /// Its number among the programs of its task, from 0.
    pub(crate) number: u32,
    /// The file with `ModelNew`; none where there is no program.
    pub(crate) source: Option<String>,
    /// Whether it was built.
    pub(crate) compiled: bool,
    /// Whether it is right, and kept to the rules.
    pub(crate) correct: bool,
    /// Times of its calls in nanoseconds.
    pub(crate) times_ns: Vec<u64>,
    /// Times of the reference beside it, in nanoseconds.
    pub(crate) baseline_ns: Vec<u64>,
    /// The same after `torch.compile`, by its mode.
    pub(crate) compiled_ns: BTreeMap<&'static str, Vec<u64>>,
    /// Its published speedup over the reference, where it was timed.
    pub(crate) speedup: Option<f64>,
    /// The same over the fastest baseline, where that is known.
    pub(crate) over_fastest: Option<f64>,
    /// The GPU or the processor.
    pub(crate) hardware: String,
    /// Which device of that: `cuda:0` or `cpu`.
    pub(crate) device: String,
    /// What else is said of it.
    pub(crate) metadata: Map<String, Value>,
}

/// A file of the layout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaidOut {
    /// Where, below the folder.
    pub(crate) path: PathBuf,
    /// What.
    pub(crate) text: String,
}

/// How much faster programs are, as it is published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Fast {
    /// Level.
    pub(crate) level: u32,
    /// Tasks.
    pub(crate) tasks: usize,
    /// Share of the tasks with a right program that is more than so many times as fast, by threshold.
    #[serde(rename = "fast")]
    pub(crate) share: BTreeMap<String, f64>,
    /// Geometric mean of the speedups of right programs.
    pub(crate) geometric_mean: Option<f64>,
    /// The same over the fastest baselines; none where no program has one that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) over_fastest: Option<OverFastest>,
}

/// Speedups of programs over the fastest baseline of their task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OverFastest {
    /// Tasks that count: those whose fastest baseline is known, and those without a right program.
    pub(crate) tasks: u64,
    /// Share of these tasks by threshold, like [`Fast::share`].
    #[serde(rename = "fast")]
    pub(crate) share: BTreeMap<String, f64>,
    /// Geometric mean of the speedups of right programs.
    pub(crate) geometric_mean: f64,
}

impl OverFastest {
    fn of(tasks: &[(Option<f64>, Option<f64>)]) -> Option<Self> {
        let speedups = Speedups::of_estimates(tasks.iter().copied());
        let geometric_mean = speedups.geometric_mean()?;
        let share = THRESHOLDS.iter().filter_map(|p| Some((format!("{p}"), speedups.fast_p(*p)?))).collect();
        Some(Self { tasks: speedups.tasks, share, geometric_mean })
    }
}

impl Fast {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let mean = self.geometric_mean.map_or_else(|| present::NONE.to_owned(), present::factor);
        let Self { level, tasks, .. } = self;
        format!("level {level}: {} of {tasks}; geometric mean of right programs {mean}", shares(&self.share))
    }

    /// The same over the fastest baselines.
    pub(crate) fn line_over_fastest(&self) -> Option<String> {
        let OverFastest { tasks, share, geometric_mean } = self.over_fastest.as_ref()?;
        let (level, mean) = (self.level, present::factor(*geometric_mean));
        let shares = shares(share);
        Some(format!(
            "level {level}, over the fastest baseline: {shares} of {tasks}; geometric mean of right programs {mean}"
        ))
    }
}

fn shares(by_threshold: &BTreeMap<String, f64>) -> String {
    let share = |(threshold, share): (&String, &f64)| format!("fast_{threshold} {:.0} %", share * 100.0);
    by_threshold.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// Every file for these programs of a run of that name.
pub(crate) fn files(run: &str, samples: &[Sample]) -> Vec<LaidOut> {
    let mut files = Vec::new();
    let mut by_level: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_level.entry(sample.level).or_default().push(sample);
    }
    for (level, samples) in &by_level {
        // Their results are keyed by the number alone: a folder for each level.
        let folder = PathBuf::from(RUNS_FOLDER).join(format!("{run}_level{level}"));
        for sample in samples {
            let Sample { problem, number, source: Some(source), .. } = sample else { continue };
            let name = Place { level: *level, problem: *problem, sample: *number }.file_name();
            files.push(LaidOut { path: folder.join(name), text: source.clone() });
        }
        files.push(LaidOut { path: folder.join(RESULTS_FILE), text: indented(&results(samples)) });
        let configuration =
            format!("run_name: {run}_level{level}\nlevel: {level}\ndataset_src: local\nbackend: nightshift\n");
        files.push(LaidOut { path: folder.join(CONFIGURATION_FILE), text: configuration });
    }
    let mut times = vec![(EAGER_TIMES.to_owned(), timings(samples, |sample| sample.baseline_ns.clone()))];
    let modes: BTreeSet<&str> = samples.iter().flat_map(|sample| sample.compiled_ns.keys().copied()).collect();
    for mode in modes {
        let compiled = |sample: &Sample| sample.compiled_ns.get(mode).cloned().unwrap_or_default();
        times.push((compiled_times(mode), timings(samples, compiled)));
    }
    for (name, timings) in times {
        for (hardware, timing) in timings {
            let path = PathBuf::from("results").join("timing").join(hardware).join(&name);
            files.push(LaidOut { path, text: indented(&timing) });
        }
    }
    files
}

fn indented(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut writer =
        serde_json::Serializer::with_formatter(&mut bytes, serde_json::ser::PrettyFormatter::with_indent(b"    "));
    // Writing to memory does not fail.
    let _ = value.serialize(&mut writer);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `eval_results.json`: lists of samples by the number of the task, in the order of the numbers.
fn results(samples: &[&Sample]) -> Value {
    let mut by_problem: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_problem.entry(sample.problem).or_default().push(sample);
    }
    for samples in by_problem.values_mut() {
        samples.sort_by_key(|sample| sample.number);
    }
    let entry = |sample: &&Sample| {
        let stats = statistics(&sample.times_ns, sample);
        let runtime = stats.as_ref().and_then(|stats| stats.get("mean")).cloned().unwrap_or(json!(-1.0));
        json!({
            "sample_id": sample.number, "compiled": sample.compiled, "correctness": sample.correct,
            "metadata": sample.metadata, "runtime": runtime, "runtime_stats": stats.unwrap_or(json!({})),
        })
    };
    let lists = by_problem.iter().map(|(problem, samples)| (problem.to_string(), samples.iter().map(entry).collect()));
    Value::Object(lists.collect())
}

/// Times of references by hardware, level and file. There is room for one program's: the first one's where it is right, because
/// it is the one that scripts compare, else those of most calls.
fn timings(samples: &[Sample], times_ns: impl Fn(&Sample) -> Vec<u64>) -> BTreeMap<String, Value> {
    let mut by_hardware: BTreeMap<String, BTreeMap<String, Map<String, Value>>> = BTreeMap::new();
    let mut in_order: Vec<(&Sample, Vec<u64>)> = samples.iter().map(|sample| (sample, times_ns(sample))).collect();
    in_order.sort_by_key(|(sample, times)| (sample.number != 0 || !sample.correct, Reverse(times.len())));
    for (sample, times) in in_order {
        if let Some(stats) = statistics(&times, sample) {
            let folder: String =
                sample.hardware.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let levels = by_hardware.entry(folder).or_default();
            levels.entry(format!("level{}", sample.level)).or_default().entry(sample.file.clone()).or_insert(stats);
        }
    }
    by_hardware.into_iter().map(|(hardware, levels)| (hardware, json!(levels))).collect()
}

/// Mean, deviation and extremes in milliseconds.
fn statistics(times_ns: &[u64], sample: &Sample) -> Option<Value> {
    #[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 nanoseconds")]
    let times: Vec<f64> = times_ns.iter().map(|time| *time as f64 / 1e6).collect();
    let count = f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX));
    let (low, high) = (times.iter().copied().reduce(f64::min)?, times.iter().copied().reduce(f64::max)?);
    let mean = times.iter().sum::<f64>() / count;
    let std = (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count).sqrt();
    Some(json!({
        "mean": rounded(mean), "std": rounded(std), "min": rounded(low), "max": rounded(high),
        "num_trials": times.len(), "hardware": sample.hardware, "device": sample.device,
    }))
}

/// Six digits: what a clock is good for.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The published figures of these programs.
pub(crate) fn fast(samples: &[Sample]) -> Vec<Fast> {
    fast_of(samples.iter().map(|sample| {
        let place = Place { level: sample.level, problem: sample.problem, sample: sample.number };
        (place, sample.speedup.filter(|_| sample.correct), sample.over_fastest)
    }))
}

/// The published figures, by level: for each task the program with the number 0 counts, and a task without one as failed.
/// Each program has its speedup over the reference, none where it is not right, and the one over the fastest baseline.
pub(crate) fn fast_of(programs: impl IntoIterator<Item = (Place, Option<f64>, Option<f64>)>) -> Vec<Fast> {
    type OfTasks = BTreeMap<u32, (Option<f64>, Option<f64>)>;
    let mut by_level: BTreeMap<u32, OfTasks> = BTreeMap::new();
    for (Place { level, problem, sample }, speedup, over_fastest) in programs {
        let of_task = by_level.entry(level).or_default().entry(problem).or_default();
        if sample == 0 {
            *of_task = (speedup, speedup.and(over_fastest));
        }
    }
    let figures = |(level, tasks): (u32, OfTasks)| {
        let tasks: Vec<(Option<f64>, Option<f64>)> = tasks.into_values().collect();
        let speedups: Vec<Option<f64>> = tasks.iter().map(|(speedup, _)| *speedup).collect();
        Fast { over_fastest: OverFastest::of(&tasks), ..published(level, &speedups) }
    };
    by_level.into_iter().map(figures).collect()
}

/// The published figures of a level: a speedup for each task whose program 0 is right and was timed, none for the others.
pub(crate) fn published(level: u32, speedups: &[Option<f64>]) -> Fast {
    let right: Vec<f64> = speedups.iter().copied().flatten().collect();
    let share = |threshold: f64| {
        let count = right.iter().filter(|speedup| **speedup > threshold).count();
        ratio(count, speedups.len())
    };
    let logarithms = right.iter().map(|speedup| speedup.ln()).sum::<f64>();
    Fast {
        level,
        tasks: speedups.len(),
        share: THRESHOLDS.iter().map(|threshold| (format!("{threshold}"), share(*threshold))).collect(),
        geometric_mean: (!right.is_empty()).then(|| (logarithms * ratio(1, right.len())).exp()),
        over_fastest: None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tasks are small")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::path::Path;

    use super::*;

    fn sample(problem: u32, number: u32, correct: bool, time_ns: u64) -> Sample {
        Sample {
            level: 1,
            problem,
            file: format!("{problem}_a.py"),
            number,
            source: Some("class ModelNew: ...\n".to_owned()),
            compiled: true,
            correct,
            times_ns: vec![time_ns; 4],
            baseline_ns: vec![2_000_000; 4],
            compiled_ns: BTreeMap::from([("default", vec![1_500_000; 4]), ("max-autotune", vec![1_250_000; 4])]),
            speedup: Some(2_000_000.0 / f64::from(u32::try_from(time_ns).unwrap())),
            over_fastest: Some(1.25),
            hardware: "NVIDIA H200".to_owned(),
            device: "cuda:0".to_owned(),
            metadata: Map::new(),
        }
    }

    fn text_of(files: &[LaidOut], path: &str) -> Value {
        let file = files.iter().find(|file| file.path == Path::new(path)).unwrap();
        serde_json::from_str(&file.text).unwrap()
    }

    #[test]
    fn results_lie_where_the_scripts_look_for_them() {
        let failed = Sample { source: None, compiled: false, times_ns: Vec::new(), ..sample(10, 0, false, 1) };
        let files = files("night", &[failed, sample(9, 1, true, 500_000), sample(9, 0, true, 1_000_000)]);
        let results = text_of(&files, "runs/night_level1/eval_results.json");
        assert_eq!(results["9"][1]["runtime"], json!(0.5));
        assert_eq!(results["9"][0]["runtime_stats"]["num_trials"], json!(4));
        assert_eq!((&results["10"][0]["runtime"], &results["10"][0]["compiled"]), (&json!(-1.0), &json!(false)));
        let timing = text_of(&files, "results/timing/NVIDIA_H200/baseline_time_torch.json");
        assert_eq!(timing["level1"]["9_a.py"]["mean"], json!(2.0));
        for (mode, mean) in [("default", 1.5), ("max-autotune", 1.25)] {
            let name = format!("results/timing/NVIDIA_H200/baseline_time_torch_compile_inductor_{mode}.json");
            assert_eq!(text_of(&files, &name)["level1"]["9_a.py"]["mean"], json!(mean));
        }
        let names: Vec<_> = files.iter().filter_map(|file| file.path.file_name()?.to_str()).collect();
        assert!(names.contains(&"level_1_problem_9_sample_1_kernel.py"), "{names:?}");
        assert!(!names.contains(&"level_1_problem_10_sample_0_kernel.py"), "{names:?}");
    }

    #[test]
    fn the_place_of_a_task_is_read_from_its_file() {
        assert_eq!(task_of("level1/19_ReLU.py"), Some((1, 19, "19_ReLU.py")));
        assert_eq!((task_of("19_ReLU.py"), task_of("level1/relu.py"), task_of("levels/1_a.py")), (None, None, None));
    }

    #[test]
    fn the_place_of_a_program_is_read_from_its_name_and_from_no_other() {
        let place = Place { level: 2, problem: 40, sample: 7 };
        assert_eq!(Place::of(&place.file_name()), Some(place));
        for name in ["level_2_problem_40_sample_+7_kernel.py", "level_2_problem_040_sample_7_kernel.py", "kernel.py"] {
            assert_eq!(Place::of(name), None, "{name}");
        }
    }

    #[test]
    fn programs_keep_the_numbers_that_they_came_with_and_others_get_free_ones() {
        assert_eq!(numbers(&[Some(0), Some(1), Some(27), Some(28)]), [0, 1, 27, 28]);
        assert_eq!(numbers(&[None, None, None]), [0, 1, 2]);
        assert_eq!(numbers(&[None, Some(1), None, Some(1), Some(0), None]), [2, 1, 3, 4, 0, 5]);
    }

    #[test]
    fn the_published_figures_count_right_programs_over_all_tasks() {
        // Twice as fast, half as fast, wrong, and a second program that does not count.
        let samples = [
            sample(1, 0, true, 1_000_000),
            sample(2, 0, true, 4_000_000),
            sample(3, 0, false, 1),
            sample(2, 1, true, 1),
            // Its program 0 was left out.
            sample(4, 1, true, 1),
        ];
        let fast = fast(&samples).remove(0);
        assert_eq!((fast.level, fast.tasks), (1, 4));
        let share = |threshold: &str| (fast.share[threshold] * 4.0).round();
        assert_eq!((share("0"), share("0.5"), share("1"), share("1.5"), share("2")), (2.0, 1.0, 1.0, 1.0, 0.0));
        assert!((fast.geometric_mean.unwrap() - 1.0).abs() < 1e-9);
        let over_fastest = fast.over_fastest.as_ref().unwrap();
        assert_eq!((over_fastest.tasks, over_fastest.share["1"], over_fastest.share["1.5"]), (4, 0.5, 0.0));
        assert!((over_fastest.geometric_mean - 1.25).abs() < 1e-9);
        let line = fast.line_over_fastest().unwrap();
        assert!(line.contains("over the fastest baseline") && line.contains("fast_1 50 %"), "{line}");
        let unknown = samples.map(|sample| Sample { over_fastest: None, ..sample });
        assert_eq!(super::fast(&unknown)[0].over_fastest, None, "no baseline is known");
        // One slow call changes the mean of the times, and not the published speedup.
        let mut samples = [sample(1, 0, true, 1_000_000)];
        samples[0].times_ns[0] = 100_000_000;
        assert!((super::fast(&samples)[0].geometric_mean.unwrap() - 2.0).abs() < 1e-9);
    }
}
