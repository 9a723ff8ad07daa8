//! A campaign of everything that a model, a program, a tool or a person could write to harm who looks at it.
//!
//! It goes into the store like every other campaign. Lists and searches do not know it yet: the server that opens the
//! store finds it and writes them, so that what happens to such texts on the way is part of what is looked at.

mod texts;

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_engine::store::CampaignArchive;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::time::TimestampMs;
use serde_json::{Value, json};
use uuid::Uuid;

use self::texts::{NAME, TEXTS};
use super::campaign::{choice, event_row, input, run_row};
use super::dice::Dice;
use super::material::{EPOCH_MS, Maker, Model, World};
use super::run::{self, unreadable};
use crate::failure::Result;

/// Runs of the campaign.
const RUNS: u64 = 2;
/// Kernels of the profile that has too many.
const KERNELS: u32 = 10_000;
/// Kernels whose counters were read.
const COUNTED_KERNELS: u32 = 400;
/// Streams on which they ran.
const STREAMS: u32 = 100;
/// What a compiler that never stops complains about.
const MESSAGES: u32 = 5_000;
/// More than anything ever is, and the most that both databases hold.
const ENORMOUS: u64 = i64::MAX as u64;

/// Displayed fields whose text comes from a model, a program, a tool or the machine.
const WRITTEN_BY_OTHERS: [&str; 44] = [
    "baseline",
    "build_key",
    "correctness_risks",
    "cpp_toolchain",
    "critical_issue",
    "cuda_driver_version",
    "detail",
    "driver_version",
    "during",
    "dtype",
    "error",
    "evidence",
    "expected_bottleneck",
    "features",
    "file",
    "flags",
    "fusion_boundary",
    "grid",
    "host",
    "layout",
    "message",
    "methods",
    "metrics",
    "missing",
    "modification",
    "name",
    "os",
    "path",
    "printed",
    "processor",
    "program",
    "prompt_version",
    "reason",
    "reasons",
    "remedy",
    "risk",
    "roofline_bound",
    "rule_reasons",
    "scope",
    "signal_name",
    "summary",
    "tier",
    "title",
    "version",
];

/// The campaign with its artifacts' bytes.
pub(super) struct Hostile {
    pub(super) archive: CampaignArchive,
    pub(super) at: TimestampMs,
    pub(super) artifacts: Vec<Vec<u8>>,
    pub(super) runs: u64,
    pub(super) attempts: u64,
}

/// Makes it.
pub(super) fn make(world: &World, seed: u64) -> Result<Hostile> {
    let model = Model::of("live", NAME);
    let at = TimestampMs(EPOCH_MS);
    let mut dice = Dice::new(seed, 0xbad);
    let campaign = CampaignId::from_uuid(Uuid::from_u128(dice.wide()));
    let stored = Stored::new();
    let hashes: BTreeSet<ArtifactHash> = stored.all().map(|bytes| ArtifactHash::of(bytes)).collect();
    let mut rows = Vec::new();
    let mut tasks = Vec::new();
    let (mut attempts, mut artifacts) = (0, hashes.clone());
    for number in 0..RUNS {
        let place = usize::try_from(number).unwrap_or(0) % world.tasks.len();
        let task = &world.tasks[place];
        let mut maker = Maker::new(world, task, &model, Dice::new(seed, number));
        let id = RunId::from_uuid(Uuid::from_u128(dice.wide()));
        let mut input = input(task, &model, "stitch", false)?;
        input.task_name = format!("{NAME} {number}");
        tasks.push(json!({ "name": input.task_name, "bundle": task.bundle }));
        let mut ended = run::ended(&mut maker, &input, at);
        let mut spoiler = Spoiler { stored: &stored, next: 0, profiles: number + 1 == RUNS };
        for part in ["prepared", "plans", "attempts"] {
            spoiler.spoil(&mut ended.state[part]);
        }
        spoiler.enlarge(&mut ended.state["attempts"]);
        let made = run::finish(&maker, id, input, ended)?;
        run_row(&mut rows, &campaign, &made, 2)?;
        let input = serde_json::to_value(&made.input).map_err(|error| unreadable(&error))?;
        rows.push(event_row(&made.id, 1, made.created_at, &Event::RunCreated { input })?);
        rows.push(event_row(&made.id, 2, made.finished_at, &Event::RunCompleted { result: made.digest.clone() })?);
        artifacts.extend(made.artifacts.iter().cloned());
        for hash in hashes.iter().chain(&made.artifacts).collect::<BTreeSet<_>>() {
            rows.push(json!({ "table": "artifact_use", "run": made.id, "hash": hash }));
        }
        attempts += u64::try_from(made.view.attempts.len()).unwrap_or(0);
    }
    let spec = json!({
        "schema": 1, "name": NAME, "model": choice(&model), "strategy": "stitch", "goal": { "max_attempts": 20 },
        "tasks": tasks,
    });
    rows.insert(
        0,
        json!({
            "table": "campaign", "public_id": campaign, "name": NAME, "spec": spec.to_string(), "created_at_ms": at.0,
            "schedule": null, "priority": 0, "weight": 1,
        }),
    );
    let archive = CampaignArchive { rows, artifacts: artifacts.into_iter().collect() };
    Ok(Hostile { archive, at, artifacts: stored.all().cloned().collect(), runs: RUNS, attempts })
}

/// Texts that are stored as artifacts.
struct Stored {
    sources: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    log: Vec<u8>,
    trace: Vec<u8>,
}

impl Stored {
    fn new() -> Self {
        Self {
            sources: texts::sources(),
            replies: texts::replies(),
            log: TEXTS.join("\n").into_bytes(),
            trace: texts::trace(KERNELS, STREAMS),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.sources.iter().chain(&self.replies).chain([&self.log, &self.trace])
    }
}

/// Puts hostile things where plausible ones were.
struct Spoiler<'a> {
    stored: &'a Stored,
    next: usize,
    /// Whether a profile of too many kernels is among what it puts there: every page of such a run has to read it.
    profiles: bool,
}

impl Spoiler<'_> {
    /// The next text: each comes up at each kind of place sooner or later.
    fn text(&mut self) -> &'static str {
        self.next += 1;
        TEXTS[self.next % TEXTS.len()]
    }

    /// Replaces every text that others write, at any depth.
    fn spoil(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    let is_theirs = WRITTEN_BY_OTHERS.contains(&name.as_str());
                    match field {
                        Value::String(text) if is_theirs => self.text().clone_into(text),
                        Value::Array(texts) if is_theirs && texts.iter().all(Value::is_string) => {
                            *texts = (0..6).map(|_| Value::from(self.text())).collect();
                        }
                        other => self.spoil(other),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.spoil(value)),
            _ => {}
        }
    }

    /// Replaces sources, replies and profiles by huge ones, one kind for each attempt.
    fn enlarge(&mut self, attempts: &mut Value) {
        let Some(attempts) = attempts.as_array_mut() else { return };
        let mut profiled = 0_usize;
        let mut failed = 0_usize;
        for (index, attempt) in attempts.iter_mut().enumerate() {
            if !attempt["source"].is_null() {
                attempt["source"] = hash(cycled(&self.stored.sources, index));
            }
            for call in attempt["calls"].as_array_mut().into_iter().flatten() {
                call["prompt"] = hash(cycled(&self.stored.replies, index + 1));
                call["reply"] = hash(cycled(&self.stored.replies, index));
                if index == 3 {
                    for field in ["input_tokens", "output_tokens", "latency_ms", "price_microusd"] {
                        call[field] = ENORMOUS.into();
                    }
                }
            }
            if attempt["build"].is_object() {
                attempt["build"]["log"] = hash(&self.stored.log);
                if attempt["build"]["library"].is_null() {
                    failed += 1;
                    if failed == 1 {
                        attempt["build"]["messages"] = self.messages();
                    }
                }
            }
            if attempt["profile"].is_object() {
                profiled += 1;
                match profiled {
                    1 => extreme(attempt),
                    2 if self.profiles => self.profile(&mut attempt["profile"]),
                    _ => {}
                }
            }
        }
    }

    fn messages(&mut self) -> Value {
        let one = |number: u32| {
            json!({ "file": self.text(), "line": number, "column": ENORMOUS % 4_000_000_000, "severity": "error",
                    "message": self.text() })
        };
        (0..MESSAGES).map(one).collect()
    }

    fn profile(&mut self, profile: &mut Value) {
        let times = |scale: u32| json!({ "count": scale, "total_ns": u64::from(scale) * 1_000, "min_ns": 1, "max_ns": ENORMOUS });
        let share = 1.0 / f64::from(KERNELS);
        let kernels: Value = (0..KERNELS)
            .map(|number| {
                json!({
                    "name": format!("kernel<{number}, {}>(float const*)", self.text()), "times": times(KERNELS - number),
                    "share": share, "grid": [ENORMOUS, 1, 1], "block": [1_024, 1, 1], "registers_per_thread": 255,
                    "shared_bytes": ENORMOUS,
                })
            })
            .collect();
        let counted: Value = (0..COUNTED_KERNELS)
            .map(|number| {
                json!({
                    "name": format!("kernel<{number}, {}>(float const*)", self.text()), "launches": 1, "time_share": share,
                    "duration_ns": 1e300, "grid": self.text(), "block": self.text(),
                    "bound": { "bound": "memory", "evidence": [self.text()] }, "compute_share": 7.5, "memory_share": -1.0,
                    "stalls": [{ "reason": self.text(), "warps": 1e9, "share": 1.0 }],
                })
            })
            .collect();
        profile["timeline"] = json!({
            "calls": 1, "span_ns": ENORMOUS, "busy_ns": ENORMOUS, "overlap_ns": 0, "host_share": 0.0, "kernels": kernels,
            "kernels_left_out": ENORMOUS, "copies": [], "api": [{ "name": self.text(), "times": times(1) }],
            "gaps": { "between": times(1), "before_first": times(1) },
            "launches": { "host": times(1), "until_start": times(1), "graphs": 0 },
            "streams": (0..STREAMS)
                .map(|stream| json!({ "stream": stream, "kernels": 1, "copies": 1, "busy_ns": 1 }))
                .collect::<Vec<_>>(),
        });
        profile["kernels"] = counted;
        profile["trace"] = hash(&self.stored.trace);
        profile["tiers"] = json!([{
            "purpose": "timeline", "tool": "nsys", "version": self.text(), "used": false, "code": self.text(),
            "reason": self.text(), "remedy": self.text(), "wall_ms": ENORMOUS,
        }]);
    }
}

/// Numbers that no machine gives.
fn extreme(attempt: &mut Value) {
    let measurement = &mut attempt["measurement"];
    measurement["speedup"] = json!({ "estimate": 1e12, "low": 0.0, "high": 1e300 });
    measurement["candidate_median_ns"] = json!(1e-300);
    measurement["baseline_cv"] = json!(1e300);
    measurement["candidate_samples_ns"] = json!([0, 0, ENORMOUS]);
    measurement["achieved_bytes_per_s"] = json!(1e300);
    attempt["reward"]["reward"] = json!(-1e300);
    attempt["profile"]["arithmetic_intensity"] = json!(1e300);
    attempt["profile"]["peak_flops_per_s"] = json!(0.0);
}

fn hash(bytes: &[u8]) -> Value {
    json!(ArtifactHash::of(bytes))
}

fn cycled(texts: &[Vec<u8>], index: usize) -> &[u8] {
    texts.get(index % texts.len().max(1)).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::texts::LONG_LINE_BYTES;
    use super::*;

    #[test]
    fn what_others_write_is_spoiled_and_what_decides_is_not() {
        let stored = Stored { sources: Vec::new(), replies: Vec::new(), log: Vec::new(), trace: Vec::new() };
        let mut spoiler = Spoiler { stored: &stored, next: 0, profiles: false };
        let mut value = json!({ "outcome": "crashed", "findings": [{ "message": "a", "code": "b" }], "scope": ["x"], "version": 1 });
        spoiler.spoil(&mut value);
        assert_eq!(
            (&value["outcome"], &value["findings"][0]["code"], &value["version"]),
            (&json!("crashed"), &json!("b"), &json!(1))
        );
        assert_ne!(value["findings"][0]["message"], "a");
        assert_eq!(value["scope"].as_array().map(Vec::len), Some(6));
    }

    #[test]
    fn one_line_is_ten_megabytes_long_and_one_source_is_no_text() {
        let sources = texts::sources();
        let longest = |source: &Vec<u8>| source.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        assert!(sources.iter().map(longest).max().unwrap_or(0) >= LONG_LINE_BYTES);
        assert!(sources.iter().any(|source| std::str::from_utf8(source).is_err()));
        assert!(TEXTS.iter().any(|text| text.contains('\u{202e}')) && TEXTS.iter().any(|text| text.contains('\0')));
    }
}
