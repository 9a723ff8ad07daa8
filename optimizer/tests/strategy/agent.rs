//! Agent sessions: turns with tools until a program is submitted.

use nightshift_optimizer::strategy::{MAX_TURNS, effective_goal};
use nightshift_protocol::attempt::{
    AgentTool, Attempt, AttemptOutcome, DecidedBy, SessionLeft, SessionRequest, TurnReply,
};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::{Target, TaskGoal};
use nightshift_protocol::verdict::{Finding, ProcessEnd};
use proptest::prelude::*;

use super::facts;
use super::simulator::{self, Failure, Finished};

type TestResult = Result<(), Failure>;

/// What the program of a turn is like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    Broken,
    Wrong,
    Right(f64),
}

/// A turn as the agent takes it.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Use(AgentTool, Program),
    /// The same program as in an earlier turn.
    Again(AgentTool, u32),
    Diagnose(u32),
    Read(u32),
    Finish,
    Unusable,
}

use Program::{Broken, Right, Wrong};
use Turn::{Again, Diagnose, Finish, Read, Unusable, Use};

fn goal(max_attempts: u32, max_turns: u32) -> TaskGoal {
    let told = TaskGoal {
        target_speedup: Some(9.0),
        max_attempts: Some(max_attempts),
        max_turns: Some(max_turns),
        ..TaskGoal::default()
    };
    effective_goal("agent", &TaskGoal::default(), &told)
}

fn program_of(turns: &[Turn], number: u32) -> Result<(u32, Program), Failure> {
    let index = usize::try_from(number)?.checked_sub(1).ok_or("no turn")?;
    match turns.get(index).ok_or("no such turn")? {
        Use(_, program) => Ok((number, *program)),
        Again(_, earlier) => program_of(turns, *earlier),
        other => Err(format!("{other:?} has no program").into()),
    }
}

fn answer(turns: &[Turn], key: &str, input: &StepInput) -> Result<StepOutput, Failure> {
    let number = key.split('/').find_map(|segment| segment.strip_prefix("turn")?.parse::<u32>().ok());
    let told = || program_of(turns, submitted_turn(turns, number.ok_or("no turn in the key")?));
    Ok(match input {
        StepInput::PrepareTask { .. } => StepOutput::TaskPrepared { prepared: Box::new(facts::prepared()) },
        StepInput::Plan { .. } | StepInput::Replan { .. } => facts::planned(&[None, Some(2.0)]),
        StepInput::WriteCode { request, .. } => {
            let session = request.session.as_ref().ok_or("the Coder has no tools")?;
            assert_eq!(Some(session.turn), number, "the key names the turn");
            let index = usize::try_from(session.turn)?.checked_sub(1).ok_or("no turn")?;
            let turn = turns.get(index).ok_or_else(|| format!("{key}: the session has no turn {}", session.turn))?;
            let of = |tool: AgentTool, of_turn: u32| TurnReply { source: Some(source(of_turn)), ..TurnReply::of(tool) };
            match *turn {
                Use(tool, _) => facts::turn(of(tool, session.turn)),
                Again(tool, earlier) => facts::turn(of(tool, program_of(turns, earlier)?.0)),
                Diagnose(attempt) => {
                    facts::turn(TurnReply { attempt: Some(attempt), ..TurnReply::of(AgentTool::Diagnose) })
                }
                Read(attempt) => facts::turn(TurnReply { attempt: Some(attempt), ..TurnReply::of(AgentTool::Read) }),
                Finish => facts::turn(TurnReply { note: "done".to_owned(), ..TurnReply::of(AgentTool::Finish) }),
                Unusable => facts::unusable_turn(),
            }
        }
        StepInput::Build { .. } => {
            let (of, program) = told()?;
            let library = format!("library {of}");
            let library = (program != Broken).then_some(library.as_str());
            StepOutput::Built { report: Box::new(facts::build(library)) }
        }
        StepInput::Check { .. } => facts::checked(ProcessEnd::Finished, if told()?.1 == Wrong { 12 } else { 0 }),
        StepInput::Sanitize { thorough, .. } => facts::sanitized(*thorough, false),
        StepInput::Measure { .. } => match told()?.1 {
            Right(speedup) => facts::measured(speedup),
            other => return Err(format!("{key}: {other:?} was measured").into()),
        },
        StepInput::Profile { .. } => facts::profiled(),
        StepInput::Diagnose { attempt, .. } if attempt.outcome.is_correct() => {
            facts::diagnosed(attempt.number, Some(nightshift_protocol::attempt::Route::Optimize))
        }
        StepInput::Diagnose { attempt, .. } => facts::corrected(attempt.number),
        StepInput::Judge { .. } => facts::judged(),
        StepInput::Tune { .. } => return Err(format!("{key}: these programs declare no tunables").into()),
    })
}

/// The rules submit in a turn of their own: the fastest right program that was measured.
fn submitted_turn(turns: &[Turn], number: u32) -> u32 {
    let last = u32::try_from(turns.len()).unwrap_or(u32::MAX);
    let finish = (1..).zip(turns).find(|(_, turn)| matches!(turn, Finish)).map_or(last, |(number, _)| number);
    if number <= finish {
        return number;
    }
    let speed = |turn: &Turn| match turn {
        Use(_, Right(speedup)) => *speedup,
        _ => 0.0,
    };
    let fastest = (1..).zip(turns).max_by(|(_, one), (_, other)| speed(one).total_cmp(&speed(other)));
    fastest.map_or(number, |(number, _)| number)
}

fn source(turn: u32) -> nightshift_protocol::artifact::ArtifactHash {
    facts::hash(&format!("program of turn {turn}"))
}

fn play(turns: &[Turn], goal: TaskGoal) -> Result<Finished, Failure> {
    play_on(Target::Cpu, turns, goal)
}

fn play_on(target: Target, turns: &[Turn], goal: TaskGoal) -> Result<Finished, Failure> {
    let input = RunInput { strategy: "agent".to_owned(), target, ..facts::run_input(goal) };
    simulator::run(&input, |key, input| answer(turns, key, input))
}

fn session<'r>(run: &'r Finished, key: &str) -> Result<&'r SessionRequest, Failure> {
    match run.input(key) {
        Some(StepInput::WriteCode { request, .. }) => Ok(request.session.as_deref().ok_or("no session")?),
        other => Err(format!("{key}: {other:?}").into()),
    }
}

fn versions(attempt: &Attempt) -> Vec<(Option<u32>, &'static str)> {
    attempt.earlier_versions.iter().map(|version| (version.turn, version.result())).collect()
}

#[test]
fn each_tool_takes_the_rungs_that_it_needs_and_a_submission_the_whole_ladder() -> TestResult {
    let turns = [
        Use(AgentTool::Build, Broken),
        Use(AgentTool::Check, Wrong),
        Use(AgentTool::Measure, Right(1.5)),
        Again(AgentTool::Submit, 3),
        Finish,
    ];
    let run = play(&turns, goal(3, 10))?;
    let expected = [
        "prepare_task",
        "plan",
        "subtask1/attempt1/turn1/write_code",
        "subtask1/attempt1/turn1/build",
        "subtask1/attempt1/turn2/write_code",
        "subtask1/attempt1/turn2/build",
        "subtask1/attempt1/turn2/check",
        "subtask1/attempt1/turn3/write_code",
        "subtask1/attempt1/turn3/build",
        "subtask1/attempt1/turn3/check",
        "subtask1/attempt1/turn3/measure",
        "subtask1/attempt1/turn4/write_code",
        "subtask1/attempt1/turn4/build",
        "subtask1/attempt1/turn4/check",
        "subtask1/attempt1/turn4/measure",
        "subtask1/attempt1/turn4/confirm",
        "subtask1/attempt1/turn4/profile",
        "subtask1/attempt1/turn4/judge",
        "subtask1/attempt2/turn5/write_code",
    ];
    assert_eq!(run.keys(), expected);
    assert_eq!(run.stopped(), "agent_finished");
    let [first, last] = run.view.attempts.as_slice() else { return Err("two attempts".into()) };
    assert_eq!((first.outcome, &first.source), (AttemptOutcome::CorrectFaster, &Some(source(3))));
    assert_eq!(versions(first), [(Some(1), "compile_failed"), (Some(2), "incorrect"), (Some(3), "correct_faster")]);
    assert!(first.earlier_versions[2].measurement.as_ref().is_some_and(|m| m.candidate_samples_ns.is_empty()));
    assert_eq!(first.turns.iter().map(|turn| turn.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(run.view.best_attempt, Some(1));
    assert_eq!((last.outcome, last.source.as_ref()), (AttemptOutcome::NoCode, None), "nothing was submitted");
    assert!(
        last.route
            .as_ref()
            .is_some_and(|route| { route.decided_by == DecidedBy::Model && route.reason.contains("done") })
    );
    Ok(())
}

#[test]
fn a_turn_is_asked_with_what_the_turn_before_gave() -> TestResult {
    let turns = [
        Use(AgentTool::Check, Wrong),
        Use(AgentTool::Submit, Right(1.5)),
        Diagnose(1),
        Read(1),
        Unusable,
        Use(AgentTool::Profile, Right(1.2)),
        Finish,
    ];
    let run = play(&turns, goal(3, 10))?;
    let at =
        |turn: u32| session(&run, &format!("subtask1/attempt{}/turn{turn}/write_code", if turn < 3 { 1 } else { 2 }));
    let first = at(1)?;
    assert_eq!((first.turns.len(), &first.last, first.turns_left, first.submissions_left), (0, &None, 10, 3));
    let outcome = |session: &SessionRequest| session.last.as_ref().map(|last| (last.number, last.outcome));
    assert_eq!(outcome(at(2)?), Some((1, AttemptOutcome::Incorrect)));
    assert!(at(2)?.last.as_ref().is_some_and(|last| last.check.is_some() && last.source == Some(source(1))));
    let after_submission = at(3)?;
    assert_eq!(outcome(after_submission), Some((1, AttemptOutcome::CorrectFaster)));
    assert_eq!((after_submission.turns_left, after_submission.submissions_left), (8, 2));
    assert!(after_submission.best.is_some() && after_submission.opens_attempt && !at(2)?.opens_attempt);
    assert!(at(4)?.last.as_ref().is_some_and(|last| last.number == 1 && last.diagnosis.is_some()));
    assert_eq!(outcome(at(5)?), Some((1, AttemptOutcome::CorrectFaster)), "it was read");
    assert_eq!(outcome(at(6)?), None, "the reply could not be used");
    assert!(at(6)?.turns.last().is_some_and(|turn| turn.tool.is_none() && turn.problem.is_some()));
    assert!(at(7)?.last.as_ref().is_some_and(|last| last.profile.is_some() && last.confirmation.is_none()));
    assert_eq!(at(7)?.programs.len(), 3);
    assert!(run.keys().contains(&"subtask1/attempt2/turn3/diagnose"));
    assert_eq!(run.view.session, Some(SessionLeft { turns: 3, submissions: 1 }));
    Ok(())
}

#[test]
fn what_was_measured_and_not_submitted_is_submitted_at_the_end_where_it_beats_the_best() -> TestResult {
    let turns =
        [Use(AgentTool::Submit, Right(1.5)), Use(AgentTool::Measure, Right(2.5)), Use(AgentTool::Measure, Right(2.0))];
    for finishes in [false, true] {
        let mut turns = turns.to_vec();
        turns.extend(finishes.then_some(Finish));
        let run = play(&turns, goal(5, if finishes { 10 } else { 3 }))?;
        assert_eq!(run.stopped(), if finishes { "agent_finished" } else { "turn_budget" });
        let [_, last] = run.view.attempts.as_slice() else { return Err("two attempts".into()) };
        assert_eq!((last.source.as_ref(), run.view.best_attempt), (Some(&source(2)), Some(2)));
        assert!(last.confirmation.is_some() && last.outcome == AttemptOutcome::CorrectFaster);
        let submitted = last.turns.last().ok_or("no turn")?;
        assert_eq!((submitted.tool, submitted.reply.as_ref()), (Some(AgentTool::Submit), None));
    }
    let slower = [Use(AgentTool::Submit, Right(2.5)), Use(AgentTool::Measure, Right(2.0)), Finish];
    let run = play(&slower, goal(5, 10))?;
    assert_eq!((run.view.best_attempt, run.view.attempts[1].outcome), (Some(1), AttemptOutcome::NoCode));
    Ok(())
}

#[test]
fn a_session_ends_with_its_target_its_submissions_and_its_turns() -> TestResult {
    let submit = |speedup| Use(AgentTool::Submit, Right(speedup));
    assert_eq!(play(&[submit(9.5)], goal(5, 10))?.stopped(), "target_reached");
    assert_eq!(play(&[submit(1.5), submit(2.5)], goal(2, 10))?.stopped(), "attempt_budget");
    let flood = play(&[Unusable; 4], goal(5, 4))?;
    assert_eq!((flood.stopped(), flood.view.attempts.len()), ("turn_budget", 1));
    let reads = [submit(1.5), Read(1), Read(1)];
    let run = play(&reads, goal(5, 3))?;
    assert_eq!((run.stopped(), run.view.best_attempt), ("turn_budget", Some(1)));
    Ok(())
}

#[test]
fn near_the_roofline_the_session_ends() -> TestResult {
    let input = RunInput { strategy: "agent".to_owned(), ..facts::run_input(goal(5, 10)) };
    let run = simulator::run(&input, |key, input| {
        let mut output = answer(&[Use(AgentTool::Submit, Right(1.5))], key, input)?;
        if let StepOutput::Profiled { profile } = &mut output {
            profile.roofline_share = Some(0.93);
        }
        Ok(output)
    })?;
    assert_eq!(run.stopped(), "near_roofline");
    let route = run.view.attempts[0].route.as_ref().ok_or("no route")?;
    assert!(route.reason.contains("93 % of the roofline"), "{}", route.reason);
    Ok(())
}

#[test]
fn a_program_that_deceives_ends_its_attempt_whatever_the_tool_is() -> TestResult {
    let input = RunInput { strategy: "agent".to_owned(), ..facts::run_input(goal(2, 10)) };
    let turns = [Use(AgentTool::Build, Right(1.5)), Use(AgentTool::Submit, Right(1.5))];
    let run = simulator::run(&input, |key, input| {
        let mut output = answer(&turns, key, input)?;
        if let (StepOutput::TurnTaken { turn, .. }, true) = (&mut output, key.contains("turn1/")) {
            turn.findings = vec![Finding { code: "prebuilt_code".to_owned(), ..facts::violation() }];
        }
        Ok(output)
    })?;
    let [first, second] = run.view.attempts.as_slice() else { return Err("two attempts".into()) };
    assert_eq!(first.outcome, AttemptOutcome::NotCompliant);
    assert!(first.reward.as_ref().is_some_and(|reward| reward.major_hacking));
    assert!(second.outcome.is_correct());
    Ok(())
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let program = prop_oneof![Just(Broken), Just(Wrong), (0.5..4.0_f64).prop_map(Right)];
    let tool = prop::sample::select(&[
        AgentTool::Build,
        AgentTool::Check,
        AgentTool::Measure,
        AgentTool::Profile,
        AgentTool::Submit,
    ]);
    prop_oneof![
        8 => (tool, program).prop_map(|(tool, program)| Use(tool, program)),
        1 => Just(Unusable),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn every_session_ends_within_its_turns_and_loses_no_faster_program(
        turns in prop::collection::vec(any_turn(), 12),
        (max_attempts, max_turns) in (1_u32..6, 1_u32..13),
        on_cuda in any::<bool>(),
    ) {
        let target = if on_cuda { Target::Cuda } else { Target::Cpu };
        // Turns beyond the limit are never taken.
        let taken = turns.iter().copied().take(usize::try_from(max_turns).unwrap_or(0)).collect::<Vec<_>>();
        let run = play_on(target, &taken, goal(max_attempts, max_turns)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let all: Vec<_> = run.view.attempts.iter().flat_map(|attempt| &attempt.turns).collect();
        prop_assert!((1_u32..).zip(&all).all(|(number, turn)| turn.number == number));
        prop_assert!(u32::try_from(all.len()).unwrap_or(MAX_TURNS) <= max_turns + 1, "one turn is the rules'");
        prop_assert!(u32::try_from(run.view.attempts.len()).unwrap_or(u32::MAX) <= max_attempts);
        let best = run.view.best_attempt.and_then(|number| run.view.attempts.iter().find(|a| a.number == number));
        let best = best.and_then(Attempt::speedup).map_or(0.0, |speedup| speedup.estimate);
        if run.stopped() == "turn_budget" {
            let tried = run.view.attempts.iter().flat_map(|attempt| &attempt.earlier_versions);
            let fastest = tried.filter_map(|version| Some(version.measurement.as_ref()?.speedup.low)).fold(0.0, f64::max);
            prop_assert!(fastest <= best || fastest <= 0.0, "{fastest} was lost, the best is {best}");
        }
        for attempt in &run.view.attempts {
            prop_assert!(attempt.outcome != AttemptOutcome::Pending && attempt.route.is_some() && attempt.reward.is_some());
        }
    }
}
