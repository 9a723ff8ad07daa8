//! The arithmetic of a toy run.

use std::fmt;
use std::str::FromStr;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::step::{StepInput, StepOutput};

/// Values are below this prime.
const MODULUS: u64 = 1_000_003;
/// Code of the output that carries a value.
const VALUE: &str = "toy.value";

/// The name of a toy run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) number: u64,
    /// Whether one of its steps fails fatally at its first try, so that a user has to retry the run.
    pub(crate) fails_first: bool,
    /// Whether it waits for an approval before its end.
    pub(crate) gated: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fails, gated) = (if self.fails_first { "f" } else { "" }, if self.gated { "g" } else { "" });
        write!(f, "toy-{}-{fails}{gated}", self.number)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not the name of a toy run");
        let (number, flags) = text.strip_prefix("toy-").and_then(|rest| rest.split_once('-')).ok_or_else(wrong)?;
        Ok(Self {
            number: number.parse().map_err(|_| wrong())?,
            fails_first: flags.contains('f'),
            gated: flags.contains('g'),
        })
    }
}

/// The steps of a run, phase after phase; those of one phase run at the same time.
pub(crate) fn keys(name: &Name) -> [Vec<&'static str>; 5] {
    let second = if name.fails_first { "fan/2-fails-first" } else { "fan/2" };
    [vec!["prepare"], vec!["fan/1", second, "fan/3"], vec!["code"], vec!["check"], vec!["measure"]]
}

/// What a step is given, when the steps before it came to this sum.
pub(crate) fn seed_of(name: &Name, key: &str, sum_before: u64) -> ArtifactHash {
    ArtifactHash::of(format!("{name} {key} {sum_before}").as_bytes())
}

/// The seed that a step was given.
pub(crate) fn seed_in(input: &StepInput) -> Option<&ArtifactHash> {
    match input {
        StepInput::PrepareTask { task } | StepInput::WriteCode { task, .. } => Some(task),
        _ => None,
    }
}

/// What a step makes of its seed.
pub(crate) fn value_of(seed: &ArtifactHash) -> u64 {
    let digits = seed.as_str().get(..12).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default() % MODULUS
}

/// The output of a worker's step.
pub(crate) fn output(value: u64) -> StepOutput {
    StepOutput::TaskRejected { code: VALUE.to_owned(), message: value.to_string(), log: None }
}

/// The value in an output.
pub(crate) fn value_in(output: &StepOutput) -> Option<u64> {
    match output {
        StepOutput::TaskRejected { message, .. } | StepOutput::NoCode { message, .. } => message.parse().ok(),
        _ => None,
    }
}

/// What a run has to come to.
pub(crate) fn expected_sum(name: &Name) -> u64 {
    sum_before(name, None)
}

/// The reply that the model gives to a run's agent.
pub(crate) fn expected_reply(name: &Name) -> Vec<u8> {
    reply(&seed_of(name, "code", sum_before(name, Some("code"))))
}

/// The reply that the model gives to an agent with this seed: large enough for the object store.
pub(crate) fn reply(seed: &ArtifactHash) -> Vec<u8> {
    format!("reply {seed} ").repeat(100).into_bytes()
}

/// The sum of all phases before the one of this step.
fn sum_before(name: &Name, step: Option<&str>) -> u64 {
    let phases = keys(name);
    let before = phases.iter().take_while(|phase| step.is_none_or(|step| !phase.contains(&step)));
    before.fold(0, |sum, phase| sum + phase.iter().map(|key| value_of(&seed_of(name, key, sum))).sum::<u64>())
}
