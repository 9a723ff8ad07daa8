//! Reads what others found out about programs, in the layout of `KernelBench`: a folder of a run with programs and
//! `eval_results.json`.
//!
//! What is wrong with one sample does not concern the others: it is left out and named. What is wrong with a file as a
//! whole refuses the run.

pub(crate) mod figures;
mod read;
pub(crate) mod text;
pub(crate) mod times;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use read::{find, read};
use serde::Serialize;
use serde_json::Value;

use super::layout::Place;

/// What a sample says of its time that has none.
const NO_TIME: f64 = -1.0;

/// Shortest and longest time of a call that is believed to be one, in milliseconds.
const BELIEVED_MS: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

/// Something that was not used, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    /// What.
    pub(crate) what: String,
    /// Why, as a code of `docs/reference/errors.md`.
    pub(crate) code: Cow<'static, str>,
    /// Why, in words.
    pub(crate) message: String,
}

impl LeftOut {
    pub(crate) fn new(what: impl Into<String>, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { what: what.into(), code: code.into(), message: message.into() }
    }
}

/// What another evaluation says of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    /// Whether it was built.
    pub(crate) compiled: bool,
    /// Whether its results are right.
    pub(crate) correct: bool,
    /// Mean time of a call in milliseconds.
    pub(crate) runtime_ms: Option<f64>,
    /// All that was said, as it was said.
    pub(crate) said: Value,
}

/// What is wrong with the time of a sample.
pub(crate) type BadTime = String;

impl Claim {
    /// Reads one sample of `eval_results.json`; what is wrong with its time takes nothing from the rest.
    pub(crate) fn read(said: &Value) -> std::result::Result<(Self, Option<BadTime>), String> {
        let Value::Object(entry) = said else { return Err("it is no JSON object".to_owned()) };
        let flag = |name: &str| match entry.get(name) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!("`{name}` is {}, and has to be true or false", short(other))),
            None => Err(format!("`{name}` is missing")),
        };
        let (compiled, correct) = (flag("compiled")?, flag("correctness")?);
        let (runtime_ms, bad) = match entry.get("runtime") {
            None | Some(Value::Null) => (None, None),
            Some(value) if value.as_f64().is_some_and(|time| (time - NO_TIME).abs() < f64::EPSILON) => (None, None),
            Some(value) => match milliseconds(value) {
                Some(time) => (Some(time), None),
                None => (None, Some(format!("`runtime` is {}, which is no time in milliseconds", short(value)))),
            },
        };
        Ok((Self { compiled, correct, runtime_ms, said: said.clone() }, bad))
    }
}

/// A time that can be one.
fn milliseconds(value: &Value) -> Option<f64> {
    value.as_f64().filter(|time| BELIEVED_MS.contains(time))
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 { text } else { format!("{}...", text.chars().take(40).collect::<String>()) }
}

/// One program of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    /// What was said of it; none where there is a program alone.
    pub(crate) claim: Option<Claim>,
    /// Its file; none where there is a result alone.
    pub(crate) file: Option<PathBuf>,
}

/// A run from another source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OtherRun {
    /// Name of its folder.
    pub(crate) name: String,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Level of its tasks.
    pub(crate) level: u32,
    /// Programs and results.
    pub(crate) samples: BTreeMap<Place, Sample>,
    /// What was not used.
    pub(crate) left_out: Vec<LeftOut>,
}

impl OtherRun {
    /// The program of this number for a task.
    pub(crate) fn sample(&self, problem: u32, sample: u32) -> Option<&Sample> {
        self.samples.get(&Place { level: self.level, problem, sample })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sample_is_read_and_a_bad_time_takes_nothing_but_itself() {
        let read = |runtime: Value| {
            let said = json!({"sample_id": 0, "compiled": true, "correctness": true, "runtime": runtime});
            let (claim, bad) = Claim::read(&said).unwrap();
            assert!(claim.correct && claim.said == said);
            (claim.runtime_ms, bad.is_some())
        };
        assert_eq!(read(json!(0.25)), (Some(0.25), false));
        assert_eq!(
            (read(json!(-1)), read(json!(-1.0)), read(Value::Null)),
            ((None, false), (None, false), (None, false))
        );
        for bad in [json!(0), json!(-0.5), json!("NaN"), json!(1e300), json!([1])] {
            assert_eq!(read(bad.clone()), (None, true), "{bad}");
        }
    }

    #[test]
    fn a_sample_without_its_verdicts_is_none() {
        for said in [json!(3), json!({"compiled": true}), json!({"compiled": 1, "correctness": true})] {
            assert!(Claim::read(&said).is_err(), "{said}");
        }
    }
}
