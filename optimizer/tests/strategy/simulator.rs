//! Drives the workflow as the driver does, and holds at every step what must always hold.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, Workflow};
use nightshift_optimizer::strategy::{StitchWorkflow, view};
use nightshift_protocol::api::{RunDigest, RunView};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepKind, StepOutput};
use serde_json::Value;

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

/// Runs to the end, answering every step by the function.
pub(crate) fn run(
    input: &RunInput,
    mut answer: impl FnMut(&str, &StepInput) -> Result<StepOutput, Failure>,
) -> Result<Finished, Failure> {
    let workflow = StitchWorkflow;
    let created = Event::RunCreated { input: serde_json::to_value(input)? };
    let mut state = workflow.apply(None, &created)?;
    let mut events = vec![created];
    let mut steps: Vec<(String, StepInput)> = Vec::new();
    let mut keys = BTreeSet::new();
    loop {
        let commands = workflow.decide(&state)?;
        assert_eq!(commands, workflow.decide(&state)?, "the same state gave two decisions");
        let reread: Value = serde_json::from_str(&serde_json::to_string(&state)?)?;
        assert_eq!(reread, state, "the state changed on its way through text");
        assert_eq!(commands, workflow.decide(&reread)?);
        let digest: RunDigest = serde_json::from_value(workflow.digest(&state)?)?;
        let [command] = commands.as_slice() else { return Err("not exactly one command".into()) };
        match command {
            Command::Schedule(order) => {
                assert!(keys.insert(order.key.clone()), "the key {} was scheduled twice", order.key);
                assert!(steps.len() < MAX_STEPS, "the run does not end");
                let step: StepInput = serde_json::from_value(order.input.clone())?;
                assert_eq!(StepKind::parse(&order.kind), Some(step.kind()));
                assert_eq!(order.needs, step.kind().needs(input.target));
                assert!(order.timeout_ms > 0 && order.retry.max_tries > 1);
                assert_eq!(digest.stop_reason, None);
                let output = serde_json::to_value(answer(&order.key, &step)?)?;
                for event in [
                    Event::StepScheduled { key: order.key.clone() },
                    Event::StepCompleted { key: order.key.clone(), output },
                ] {
                    let next = workflow.apply(Some(state), &event)?;
                    // Scheduling changes nothing, so the state from before it has to lead to the same one.
                    if matches!(event, Event::StepCompleted { .. }) {
                        assert_eq!(next, workflow.apply(Some(reread.clone()), &event)?);
                    }
                    state = next;
                    events.push(event);
                }
                steps.push((order.key.clone(), step));
            }
            Command::Await { signal } => return Err(format!("nobody opens the gate {signal}").into()),
            Command::Complete { result } => {
                let completed = Event::RunCompleted { result: result.clone() };
                let after = workflow.apply(Some(state.clone()), &completed)?;
                assert_eq!(after, state, "the end changed the state");
                assert_eq!(workflow.decide(&after)?, commands, "something followed the end");
                events.push(completed);
                return Ok(Finished { events, steps, view: view(&state)?, state, digest });
            }
        }
    }
}
