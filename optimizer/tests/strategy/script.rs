//! A run told as a list of tries.

use nightshift_protocol::attempt::{AgentTool, Route};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::verdict::ProcessEnd;

use super::facts;
use super::simulator::{self, Failure, Finished};

/// How an attempt goes.
#[derive(Debug, Clone)]
pub(crate) enum Try {
    NoCode,
    /// The screening sees a violation.
    Forbidden,
    CompileError,
    /// The program goes through these versions: the first answer, then that of each fix turn. The last one stays.
    Versions(Vec<Try>),
    /// The process ends like this while it is checked.
    Ends(ProcessEnd),
    Wrong,
    /// Right, then it dies while it is timed.
    DiesInMeasurement(ProcessEnd),
    /// Right, fast, then it dies in the confirming measurement.
    DiesInConfirmation {
        measured: f64,
        end: ProcessEnd,
    },
    /// Right as far as the checks see, with a race: on the `cuda` target every examination finds it, or only a thorough
    /// one.
    Racy {
        measured: f64,
        only_thorough: bool,
    },
    /// Right: the measured speedup, the confirmed one, and the Verifier's advice.
    Right {
        measured: f64,
        confirmed: f64,
        advice: Option<Route>,
    },
}

/// Right, confirmed as measured, with the advice to go on.
pub(crate) fn right(speedup: f64) -> Try {
    advised(speedup, Some(Route::Optimize))
}

/// Right, confirmed as measured, with this advice.
pub(crate) fn advised(speedup: f64, advice: Option<Route>) -> Try {
    Try::Right { measured: speedup, confirmed: speedup, advice }
}

pub(crate) fn crash() -> ProcessEnd {
    ProcessEnd::Crashed { signal: 11, signal_name: "SIGSEGV".to_owned() }
}

/// What the agents and the worker will say.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Targets of the subtasks of each plan version; the last plan is repeated.
    pub(crate) plans: Vec<Vec<Option<f64>>>,
    pub(crate) tries: Vec<Try>,
}

impl Script {
    /// One plan with one subtask without a target.
    pub(crate) fn of(tries: impl IntoIterator<Item = Try>) -> Self {
        Self { plans: vec![vec![None]], tries: tries.into_iter().collect() }
    }

    pub(crate) fn with_plans(mut self, plans: &[&[Option<f64>]]) -> Self {
        self.plans = plans.iter().map(|targets| targets.to_vec()).collect();
        self
    }

    /// Plays the script to the run's end. Fails when the run asks for more attempts than were told.
    pub(crate) fn play(&self, goal: TaskGoal) -> Result<Finished, Failure> {
        simulator::run(&facts::run_input(goal), |key, input| self.answer(key, input))
    }

    /// The same for a program on a GPU.
    pub(crate) fn play_on_cuda(&self, goal: TaskGoal) -> Result<Finished, Failure> {
        simulator::run(&facts::cuda_run_input(goal), |key, input| self.answer(key, input))
    }

    /// The same with another strategy; of the steps that are open at the same time, `pick` says which one is next.
    pub(crate) fn play_by(
        &self,
        strategy: &str,
        goal: TaskGoal,
        pick: impl FnMut(usize) -> usize,
    ) -> Result<Finished, Failure> {
        let input = RunInput { strategy: strategy.to_owned(), ..facts::run_input(goal) };
        simulator::run_picking(&input, |key, input| self.answer(key, input), pick)
    }

    /// Plays the script; the run must take exactly as many attempts as were told.
    pub(crate) fn play_all(&self, goal: TaskGoal) -> Result<Finished, Failure> {
        let finished = self.play(goal)?;
        assert_eq!(finished.view.attempts.len(), self.tries.len(), "{:?}", finished.keys());
        Ok(finished)
    }

    pub(crate) fn answer(&self, key: &str, input: &StepInput) -> Result<StepOutput, Failure> {
        let number = match key.split('/').nth(1).and_then(|segment| segment.strip_prefix("attempt")) {
            Some(digits) => digits.parse::<u32>()?,
            None => 0,
        };
        let turn = match key.split('/').nth(2).and_then(|segment| segment.strip_prefix("fix")) {
            Some(digits) => digits.parse::<usize>()?,
            None => 0,
        };
        let told = || -> Result<&Try, Failure> {
            let index = usize::try_from(number)?.checked_sub(1).ok_or("no attempt")?;
            let told = self.tries.get(index).ok_or_else(|| format!("the script has no reply for {key}"))?;
            let Try::Versions(versions) = told else { return Ok(told) };
            let is_of_a_version = matches!(input, StepInput::WriteCode { .. } | StepInput::Build { .. });
            let version = if is_of_a_version { versions.get(turn) } else { None };
            Ok(version.or(versions.last()).ok_or("no version")?)
        };
        Ok(match input {
            StepInput::PrepareTask { .. } => StepOutput::TaskPrepared { prepared: Box::new(facts::prepared()) },
            StepInput::Plan { .. } => facts::planned(&self.plans[0]),
            StepInput::Replan { previous, .. } => {
                let index = usize::try_from(previous.version)?.min(self.plans.len() - 1);
                facts::planned(&self.plans[index])
            }
            StepInput::WriteCode { request, .. } if request.session.is_some() => match told()? {
                // Every program is submitted at once.
                Try::NoCode => facts::unusable_turn(),
                Try::Forbidden => facts::turn_with(AgentTool::Submit, number, turn, vec![facts::violation()]),
                _ => facts::turn_with(AgentTool::Submit, number, turn, Vec::new()),
            },
            StepInput::WriteCode { .. } => match told()? {
                Try::NoCode => facts::no_code(),
                Try::Forbidden => facts::code_written(number, turn, vec![facts::violation()]),
                _ => facts::code_written(number, turn, Vec::new()),
            },
            StepInput::Build { .. } => {
                let library = format!("library {number}");
                let library = (!matches!(told()?, Try::CompileError)).then_some(library.as_str());
                StepOutput::Built { report: Box::new(facts::build(library)) }
            }
            StepInput::Check { .. } => match told()? {
                Try::Ends(end) => facts::checked(end.clone(), 0),
                Try::Wrong => facts::checked(ProcessEnd::Finished, 12),
                _ => facts::checked(ProcessEnd::Finished, 0),
            },
            StepInput::Tune { .. } => return Err(format!("{key}: these programs declare no tunables").into()),
            StepInput::Sanitize { thorough, .. } => {
                let seen = matches!(told()?, Try::Racy { only_thorough, .. } if *thorough || !only_thorough);
                facts::sanitized(*thorough, seen)
            }
            StepInput::Measure { confirms, .. } => match (told()?, confirms) {
                (Try::DiesInMeasurement(end), false) | (Try::DiesInConfirmation { end, .. }, true) => {
                    StepOutput::MeasureFailed { end: end.clone(), findings: Vec::new(), printed: String::new() }
                }
                (Try::DiesInConfirmation { measured, .. } | Try::Right { measured, .. }, false)
                | (Try::Racy { measured, .. }, _) => facts::measured(*measured),
                (Try::Right { confirmed, .. }, true) => facts::measured(*confirmed),
                (other, _) => return Err(format!("{other:?} was measured").into()),
            },
            StepInput::Profile { .. } => facts::profiled(),
            StepInput::Diagnose { attempt, .. } if !attempt.outcome.is_correct() => facts::corrected(number),
            StepInput::Diagnose { .. } => match told()? {
                Try::Right { advice, .. } => facts::diagnosed(number, *advice),
                // It was slower than the best, so it was not confirmed.
                Try::DiesInConfirmation { .. } | Try::Racy { .. } => facts::diagnosed(number, None),
                other => return Err(format!("{other:?} was diagnosed").into()),
            },
            StepInput::Judge { .. } => facts::judged(),
        })
    }
}
