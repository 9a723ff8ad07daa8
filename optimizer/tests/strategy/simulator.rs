//! Drives the workflow as the driver does, and holds at every step what must always hold.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::Command;
use nightshift_optimizer::strategy::view;
use nightshift_protocol::api::{RunDigest, RunView};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepKind, StepOutput};
use nightshift_protocol::verdict::Answer;
use serde_json::Value;

use super::stored::StoredWorkflow;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// More steps than any run of these tests may take.
const MAX_STEPS: usize = 3_000;

/// A run that came to its end.
pub(crate) struct Finished {
    /// Every event, in order.
    pub(crate) events: Vec<Event>,
    /// Steps with their inputs, in order.
    pub(crate) steps: Vec<(String, StepInput)>,
    /// The last state.
    pub(crate) state: Value,
    /// What is known.
    pub(crate) view: RunView,
    /// What lists show.
    pub(crate) digest: RunDigest,
}

impl Finished {
    pub(crate) fn keys(&self) -> Vec<&str> {
        self.steps.iter().map(|(key, _)| key.as_str()).collect()
    }

    /// The last segments of the keys of an attempt's steps.
    pub(crate) fn rungs(&self, attempt: u32) -> Vec<&str> {
        let segment = format!("attempt{attempt}");
        self.keys()
            .into_iter()
            .filter(|key| key.split('/').nth(1) == Some(segment.as_str()))
            .filter_map(|key| key.rsplit('/').next())
            .collect()
    }

    pub(crate) fn input(&self, key: &str) -> Option<&StepInput> {
        self.steps.iter().find(|(candidate, _)| candidate == key).map(|(_, input)| input)
    }

    /// The stop reason's name.
    pub(crate) fn stopped(&self) -> &'static str {
        self.view.stop_reason.as_ref().map_or("not at all", |reason| reason.as_str())
    }

    /// Route of every attempt, with who decided it.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.view
            .attempts
            .iter()
            .map(|attempt| {
                attempt.route.as_ref().map_or_else(String::new, |route| {
                    format!("{} by {:?}", route.route.as_str(), route.decided_by).to_lowercase()
                })
            })
            .collect()
    }

    /// Number of the plan, stage and parent of every attempt.
    pub(crate) fn lineage(&self) -> Vec<String> {
        self.view
            .attempts
            .iter()
            .map(|a| {
                let parent = a.parent.map_or_else(String::new, |parent| format!(" from {parent}"));
                format!("{}.{} {}{parent}", a.plan_version, a.subtask, a.stage.as_str())
            })
            .collect()
    }
}

/// Runs to the end, answering every step by the function. Of several open steps the oldest one is next.
pub(crate) fn run(
    input: &RunInput,
    answer: impl FnMut(&str, &StepInput) -> Result<StepOutput, Failure>,
) -> Result<Finished, Failure> {
    run_picking(input, answer, |_| 0)
}

/// The same; of so many open steps, `pick` says which one is next.
pub(crate) fn run_picking(
    input: &RunInput,
    mut answer: impl FnMut(&str, &StepInput) -> Result<StepOutput, Failure>,
    mut pick: impl FnMut(usize) -> usize,
) -> Result<Finished, Failure> {
    let workflow = StoredWorkflow;
    let created = Event::RunCreated { input: serde_json::to_value(input)? };
    let mut state = workflow.apply(None, &created)?;
    let mut events = vec![created];
    let mut steps: Vec<(String, StepInput)> = Vec::new();
    let mut keys = BTreeSet::new();
    let mut open: Vec<(String, StepInput)> = Vec::new();
    loop {
        let commands = workflow.decide(&state)?;
        assert_eq!(commands, workflow.decide(&state)?, "the same state gave two decisions");
        let reread: Value = serde_json::from_str(&serde_json::to_string(&state)?)?;
        assert_eq!(reread, state, "the state changed on its way through text");
        assert_eq!(commands, workflow.decide(&reread)?);
        assert_verified(&view(&state)?);
        let digest: RunDigest = serde_json::from_value(workflow.digest(&state)?)?;
        if let [Command::Complete { result }] = commands.as_slice() {
            assert!(open.is_empty(), "the run ended while {} was open", open[0].0);
            let completed = Event::RunCompleted { result: result.clone() };
            let after = workflow.apply(Some(state.clone()), &completed)?;
            assert_eq!(after, state, "the end changed the state");
            assert_eq!(workflow.decide(&after)?, commands, "something followed the end");
            events.push(completed);
            return Ok(Finished { events, steps, view: view(&state)?, state, digest });
        }
        assert_eq!(digest.stop_reason, None);
        let mut wanted = BTreeSet::new();
        for command in commands {
            let Command::Schedule(order) = command else { return Err(format!("{command:?} among steps").into()) };
            assert!(wanted.insert(order.key.clone()), "the key {} is wanted twice", order.key);
            if open.iter().any(|(key, _)| *key == order.key) {
                continue;
            }
            assert!(keys.insert(order.key.clone()), "the key {} was scheduled twice", order.key);
            assert!(steps.len() < MAX_STEPS, "the run does not end");
            let step: StepInput = serde_json::from_value(order.input.clone())?;
            assert_eq!(StepKind::parse(&order.kind), Some(step.kind()));
            assert_eq!(order.needs, step.kind().needs(input.target));
            assert!(order.timeout_ms > 0 && order.retry.max_tries > 1);
            let scheduled = Event::StepScheduled { key: order.key.clone() };
            assert_eq!(workflow.apply(Some(state.clone()), &scheduled)?, state, "scheduling changed the state");
            events.push(scheduled);
            steps.push((order.key.clone(), step.clone()));
            open.push((order.key, step));
        }
        assert!(open.iter().all(|(key, _)| wanted.contains(key)), "an open step is not wanted any more");
        let index = pick(open.len()) % open.len();
        let (key, step) = open.remove(index);
        let output = serde_json::to_value(answer(&key, &step)?)?;
        let event = Event::StepCompleted { key, output };
        let next = workflow.apply(Some(state), &event)?;
        assert_eq!(next, workflow.apply(Some(reread), &event)?);
        state = next;
        events.push(event);
    }
}

/// Whatever is shown as the best has passed every rung, at every moment.
fn assert_verified(view: &RunView) {
    let Some(number) = view.best_attempt else { return };
    let best = view.attempts.iter().find(|attempt| attempt.number == number);
    let is_verified = best.is_some_and(|best| {
        best.outcome.is_correct()
            && best.confirmation.is_some()
            && best.verdict.numerically_correct == Answer::Pass
            && best.verdict.contract_compliant == Answer::Pass
    });
    assert!(is_verified, "attempt {number} is the best and not verified: {best:?}");
}
