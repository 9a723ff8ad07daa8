//! What people tell a run, and what a campaign can afford: hints, gates, budgets.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, StepOrder, Workflow as _};
use nightshift_optimizer::agent::{budget_exhausted, budget_wait};
use nightshift_optimizer::strategy::{MAX_ADVICE_CHARS, MAX_HINTS, StrategyWorkflow, cost_ms, timeout_ms, view};
use nightshift_protocol::api::{RunDigest, RunView};
use nightshift_protocol::attempt::{Route, StopReason};
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::{DeviceUse, Executor};
use nightshift_protocol::signal::{Gate, MAX_HINT_CHARS, Signal};
use nightshift_protocol::step::{StepFailure, StepInput, StepKind};
use nightshift_protocol::task::TaskGoal;
use serde_json::Value;

use super::facts;
use super::script::{Script, advised, right};
use super::simulator::Failure;
use super::stored::StoredWorkflow;

type TestResult = Result<(), Failure>;

/// A run that is led by hand.
struct Led {
    state: Value,
    script: Script,
}

impl Led {
    fn begun(script: Script, goal: TaskGoal, gates: &[Gate]) -> Result<Self, Failure> {
        let mut input = facts::run_input(goal);
        input.gates = gates.iter().copied().collect();
        Self::of(script, &input)
    }

    fn of(script: Script, input: &RunInput) -> Result<Self, Failure> {
        let created = Event::RunCreated { input: serde_json::to_value(input)? };
        Ok(Self { state: StoredWorkflow.apply(None, &created)?, script })
    }

    fn tell(&mut self, event: &Event) -> TestResult {
        let text = serde_json::to_string(&self.state)?;
        self.state = StoredWorkflow.apply(Some(serde_json::from_str(&text)?), event)?;
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> TestResult {
        self.tell(&Event::SignalReceived { signal, by: Some("night watch".to_owned()) })
    }

    fn hint(&mut self, text: &str) -> TestResult {
        self.signal(Signal::Hint { text: text.to_owned() })
    }

    fn reject(&mut self, gate: Gate, reason: &str) -> TestResult {
        self.signal(Signal::Rejected { gate, reason: reason.to_owned() })
    }

    fn command(&self) -> Result<Command, Failure> {
        let commands = StoredWorkflow.decide(&self.state)?;
        Ok(commands.into_iter().next().ok_or("no command")?)
    }

    fn order(&self) -> Result<StepOrder, Failure> {
        match self.command()? {
            Command::Schedule(order) => Ok(order),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn input(&self) -> Result<StepInput, Failure> {
        Ok(serde_json::from_value(self.order()?.input)?)
    }

    /// Carries out the next step.
    fn step(&mut self) -> TestResult {
        let order = self.order()?;
        let input: StepInput = serde_json::from_value(order.input)?;
        let output = serde_json::to_value(self.script.answer(&order.key, &input)?)?;
        self.tell(&Event::StepCompleted { key: order.key, output })
    }

    /// Carries out steps until the one with this end of its key is next.
    fn until(&mut self, end: &str) -> TestResult {
        while !self.order()?.key.ends_with(end) {
            self.step()?;
        }
        Ok(())
    }

    /// Carries out steps until the run waits or ends; the gate that it waits at.
    fn rest(&mut self) -> Result<Option<String>, Failure> {
        loop {
            match self.command()? {
                Command::Schedule(_) => self.step()?,
                Command::Await { signal } => return Ok(Some(signal)),
                Command::Complete { .. } => return Ok(None),
            }
        }
    }

    fn view(&self) -> Result<RunView, Failure> {
        Ok(view(&self.state)?)
    }

    fn digest(&self) -> Result<RunDigest, Failure> {
        Ok(serde_json::from_value(StoredWorkflow.digest(&self.state)?)?)
    }
}

fn hints(input: &StepInput) -> Option<&[String]> {
    match input {
        StepInput::Plan { hints, .. } | StepInput::Replan { hints, .. } | StepInput::Diagnose { hints, .. } => {
            Some(hints)
        }
        StepInput::WriteCode { request, .. } => Some(&request.hints),
        _ => None,
    }
}

#[test]
fn planner_coder_and_verifier_read_hints_newest_first() -> TestResult {
    let mut led = Led::begun(Script::of([right(1.5), right(1.6)]), TaskGoal::default(), &[])?;
    led.hint("  use wider tiles\u{7}\n")?;
    led.step()?;
    assert_eq!(hints(&led.input()?), Some(&["use wider tiles".to_owned()][..]));
    led.hint("keep the sum in registers")?;
    let both = ["keep the sum in registers".to_owned(), "use wider tiles".to_owned()];
    for end in ["plan", "write_code", "diagnose"] {
        led.until(end)?;
        assert_eq!(hints(&led.input()?), Some(&both[..]), "{end}");
    }
    led.until("judge")?;
    assert_eq!(hints(&led.input()?), None, "a judge is given no advice");
    Ok(())
}

#[test]
fn hints_are_bounded_in_number_and_length() -> TestResult {
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    led.step()?;
    led.hint(" \t\n")?;
    assert_eq!(hints(&led.input()?), Some(&[][..]), "nothing was said");
    for number in 0..MAX_HINTS * 3 {
        led.hint(&format!("hint {number}"))?;
    }
    let input = led.input()?;
    let kept = hints(&input).ok_or("no hints")?;
    assert_eq!((kept.len(), kept[0].as_str()), (MAX_HINTS, "hint 59"));
    for _ in 0..5 {
        led.hint(&"é".repeat(MAX_HINT_CHARS + 10))?;
    }
    let input = led.input()?;
    let kept = hints(&input).ok_or("no hints")?;
    let chars: usize = kept.iter().map(|hint| hint.chars().count()).sum();
    assert_eq!((kept.len(), chars), (MAX_ADVICE_CHARS / MAX_HINT_CHARS, MAX_ADVICE_CHARS));
    Ok(())
}

#[test]
fn a_run_without_hints_looks_as_it_did_before_there_were_any() -> TestResult {
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    led.step()?;
    for value in [&led.state, &led.order()?.input] {
        assert!(!value.to_string().contains("hints"), "{value}");
    }
    Ok(())
}

#[test]
fn a_plan_waits_for_approval_and_so_does_the_next_one() -> TestResult {
    let limits = TaskGoal { replan_after_failed: Some(1), max_attempts: Some(2), ..TaskGoal::default() };
    let script = Script::of([super::script::Try::CompileError, right(1.5)]);
    let mut led = Led::begun(script, limits, &[Gate::Plan])?;
    assert_eq!(led.rest()?, Some("plan".to_owned()));
    assert_eq!(led.digest()?.activity, "wait for approval of plan 1");
    assert!(led.view()?.attempts.is_empty(), "no program is asked for before");
    led.hint("go on")?;
    led.signal(Signal::Approved { gate: Gate::NewBest })?;
    assert_eq!(led.rest()?, Some("plan".to_owned()), "another gate's approval opens nothing");
    led.signal(Signal::Approved { gate: Gate::Plan })?;
    led.signal(Signal::Approved { gate: Gate::Plan })?;
    assert_eq!(led.order()?.key, "subtask1/attempt1/write_code");
    assert_eq!(
        led.rest()?,
        Some("plan".to_owned()),
        "the second approval was not for a plan that was not published yet"
    );
    assert_eq!(led.digest()?.activity, "wait for approval of plan 2");
    led.signal(Signal::Approved { gate: Gate::Plan })?;
    assert_eq!(led.rest()?, None);
    Ok(())
}

#[test]
fn a_rejected_plan_is_made_anew_with_the_reason_as_a_hint() -> TestResult {
    let limits = TaskGoal { max_replans: Some(1), ..TaskGoal::default() };
    let mut led = Led::begun(Script::of([right(1.5)]), limits, &[Gate::Plan])?;
    assert_eq!(led.rest()?, Some("plan".to_owned()));
    led.reject(Gate::Plan, "too many subtasks")?;
    assert_eq!(led.order()?.key, "replan2");
    let StepInput::Replan { reason, hints, .. } = led.input()? else { return Err("no replan".into()) };
    assert_eq!(
        (reason.as_str(), hints),
        ("a person rejected the plan: too many subtasks", vec!["too many subtasks".to_owned()])
    );
    assert_eq!(led.rest()?, Some("plan".to_owned()));
    led.reject(Gate::Plan, "still too many")?;
    assert_eq!(led.rest()?, None, "no new plan is left, and the run does not wait for an approval");
    let reason = "still too many".to_owned();
    assert_eq!(led.view()?.stop_reason, Some(StopReason::GateRejected { gate: Gate::Plan, reason }));
    Ok(())
}

#[test]
fn a_rejection_that_nothing_waits_for_is_a_hint() -> TestResult {
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    led.step()?;
    led.reject(Gate::Plan, "think of the cache")?;
    assert_eq!(led.order()?.key, "plan");
    assert_eq!(hints(&led.input()?), Some(&["think of the cache".to_owned()][..]));
    Ok(())
}

#[test]
fn a_new_best_waits_for_approval_and_the_run_goes_on_from_it() -> TestResult {
    let script = Script::of([right(1.5), right(1.2), advised(2.0, Some(Route::Stop))]);
    let mut led = Led::begun(script, TaskGoal::default(), &[Gate::NewBest])?;
    assert_eq!(led.rest()?, Some("new_best".to_owned()));
    assert_eq!(led.digest()?.activity, "wait for approval of attempt 1");
    assert!(led.view()?.attempts[0].rubric.is_some(), "everything is known about it");
    led.signal(Signal::Approved { gate: Gate::NewBest })?;
    assert!(led.view()?.attempts[0].route.is_some());
    assert_eq!(led.rest()?, None, "the second is no best, and nothing goes on from the third");
    assert_eq!((led.view()?.attempts.len(), led.view()?.best_attempt), (3, Some(3)));
    Ok(())
}

#[test]
fn a_rejected_new_best_is_planned_around() -> TestResult {
    let limits = TaskGoal { max_replans: Some(1), ..TaskGoal::default() };
    let mut led = Led::begun(Script::of([right(1.5), right(2.0)]), limits, &[Gate::NewBest])?;
    assert_eq!(led.rest()?, Some("new_best".to_owned()));
    led.reject(Gate::NewBest, "not for all shapes")?;
    assert_eq!(led.order()?.key, "replan2");
    let route = led.view()?.attempts[0].route.clone().ok_or("no route")?;
    assert_eq!(
        (route.route, route.reason.as_str()),
        (Route::Replan, "a person rejected the new best: not for all shapes")
    );
    assert_eq!(led.rest()?, Some("new_best".to_owned()));
    led.reject(Gate::NewBest, "")?;
    assert_eq!(led.rest()?, None);
    let reason = String::new();
    assert_eq!(led.view()?.stop_reason, Some(StopReason::GateRejected { gate: Gate::NewBest, reason }));
    assert_eq!(led.view()?.best_attempt, Some(2), "what was measured stays");
    Ok(())
}

fn line(resource: Resource) -> BudgetLine {
    BudgetLine { resource, cap: Some(10), used: 9, reserved: 0 }
}

#[test]
fn a_used_up_budget_ends_the_run_with_its_best_result() -> TestResult {
    for end in ["write_code", "build", "measure"] {
        let mut led = Led::begun(Script::of([right(1.5), right(1.6)]), TaskGoal::default(), &[])?;
        led.until("judge")?;
        led.step()?;
        led.until(end)?;
        let other = Event::BudgetExhausted { key: "plan".to_owned(), resource: Resource::Tokens };
        led.tell(&other)?;
        assert!(matches!(led.command()?, Command::Schedule(_)), "it is of another step");
        let key = led.order()?.key;
        led.tell(&Event::BudgetExhausted { key, resource: Resource::DeviceMs })?;
        assert_eq!(led.rest()?, None);
        let view = led.view()?;
        assert_eq!(view.stop_reason, Some(StopReason::BudgetExhausted { resource: Resource::DeviceMs }));
        assert_eq!(view.best_attempt, Some(1));
        assert_eq!(led.digest()?.stop_reason, view.stop_reason);
    }
    Ok(())
}

#[test]
fn a_step_that_ends_while_the_run_does_so_is_no_error_and_its_calls_count() -> TestResult {
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    led.until("write_code")?;
    let order = led.order()?;
    let output = led.script.answer(&order.key, &serde_json::from_value(order.input.clone())?)?;
    led.tell(&Event::BudgetExhausted { key: order.key.clone(), resource: Resource::Attempts })?;
    led.tell(&Event::StepCompleted { key: order.key, output: serde_json::to_value(&output)? })?;
    assert_eq!(led.rest()?, None);
    assert_eq!(led.view()?.failed_calls, output.calls());
    Ok(())
}

#[test]
fn a_call_that_the_campaign_cannot_afford_ends_the_run_and_does_not_fail_it() -> TestResult {
    let exhausted = budget_exhausted(&line(Resource::CostMicrousd));
    assert!(StrategyWorkflow.outlives(&exhausted));
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    led.until("judge")?;
    let key = led.order()?.key;
    led.tell(&Event::StepFailed { key, failure: exhausted })?;
    assert_eq!(led.rest()?, None);
    assert_eq!(led.view()?.stop_reason, Some(StopReason::BudgetExhausted { resource: Resource::CostMicrousd }));
    Ok(())
}

#[test]
fn other_failures_fail_the_run_and_a_worker_cannot_claim_that_money_is_gone() -> TestResult {
    for failure in [budget_wait(&line(Resource::Tokens)), StepFailure::fatal("model.auth", "no key")] {
        assert!(!StrategyWorkflow.outlives(&failure));
    }
    let mut led = Led::begun(Script::of([right(1.5)]), TaskGoal::default(), &[])?;
    let before = led.state.clone();
    let failure = budget_exhausted(&line(Resource::Tokens));
    led.tell(&Event::StepFailed { key: "prepare_task".to_owned(), failure })?;
    assert_eq!(led.state, before);
    Ok(())
}

#[test]
fn steps_set_aside_what_they_may_use_up_and_carry_the_campaigns_labels() -> TestResult {
    let mut input = facts::run_input(TaskGoal { max_attempts: Some(1), ..TaskGoal::default() });
    input.labels = BTreeSet::from(["pool=night".parse()?]);
    input.device_memory_bytes = Some(48 << 30);
    let mut led = Led::of(Script::of([right(1.5)]), &input)?;
    let mut kinds = BTreeSet::new();
    while let Command::Schedule(order) = led.command()? {
        let kind = StepKind::parse(&order.kind).ok_or("no kind")?;
        kinds.insert(kind);
        let device = order.needs.device != DeviceUse::None;
        let of = |resource| order.reserve.iter().find(|amount: &&Amount| amount.resource == resource).map(|a| a.amount);
        assert_eq!(of(Resource::DeviceMs), device.then_some(timeout_ms(kind)), "{kind:?}");
        assert_eq!(of(Resource::Attempts), (kind == StepKind::WriteCode).then_some(1), "{kind:?}");
        assert_eq!(order.reserve.len(), usize::from(device) + usize::from(kind == StepKind::WriteCode));
        assert_eq!(order.needs.labels.is_empty(), order.needs.executor == Executor::Agent, "{kind:?}");
        assert_eq!(order.needs.device_memory_bytes, device.then_some(48 << 30), "{kind:?}");
        assert!(order.cost_ms == cost_ms(kind) && order.cost_ms < order.timeout_ms, "{kind:?}");
        led.step()?;
    }
    let left = StepKind::ALL.into_iter().filter(|kind| !kinds.contains(kind)).collect::<Vec<_>>();
    let reason = "there was one plan, there is no GPU, and no program declares tunables";
    assert_eq!(left, [StepKind::Replan, StepKind::Sanitize, StepKind::Tune], "{reason}");
    Ok(())
}
