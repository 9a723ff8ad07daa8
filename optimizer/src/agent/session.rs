//! Coder: a turn of an agent session. The reply names one tool; what the turn before gave is rendered here, and kept, so that
//! the session's transcript stays the same to its end.

use std::sync::{Mutex, PoisonError};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AgentTool, AgentTurn, SessionProgram, SessionRequest, ToolCall, TurnReply};
use nightshift_protocol::budget::BudgetLine;
use nightshift_protocol::step::{CodeRequest, PreparedTask, StepFailure, StepOutput};
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use serde::Serialize;

use super::conversation::{Conversation, NoReply, Unusable, shown_again};
use super::knowledge::retrieve;
use super::plan::ReferenceView;
use super::target::RunTarget;
use super::write_code::with_tunables;
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, subtask};
use crate::knowledge::{Question, Retrieved};
use crate::model::ModelError;
use crate::prompt::{MachineView, PlanView, Prompt, TaskView, TurnResultView, clipped, contract};
use crate::reply::{JsonProblem, extract_call, extract_turn_program, key_of};
use crate::roofline::NEAR_ROOFLINE;
use crate::screen::screen_candidate;

/// Under which the notes and lessons of a session are kept: they stay the same through all of its turns.
const RETRIEVAL_KEY: &str = "session";
/// Most bytes of a turn's result, without the program that was read.
const MAX_RESULT_BYTES: usize = 8_000;
/// Most bytes of a program that was read.
const MAX_READ_BYTES: usize = 64 * 1024;
/// Most bytes of the turns of a session that are shown in full.
const MAX_TRANSCRIPT_BYTES: usize = 256 * 1024;
/// Turns that stay in full when older ones are shortened.
const FULL_TURNS: usize = 3;
/// Most bytes of the result of a shortened turn.
const MAX_SHORT_RESULT_BYTES: usize = 1_500;

#[derive(Serialize)]
struct Values {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    contract: String,
    plan: PlanView,
    /// No subtask is the current one: the session works on all of them.
    current_subtask: u32,
    max_turns: u32,
    max_submissions: u32,
    near_roofline_percent: String,
    target_of_run: Option<RunTarget>,
    knowledge: Retrieved,
    /// Always empty, because the advice comes with the note. Templates of operators may still include `shared/hints.md`.
    hints: &'static [String],
    #[serde(flatten)]
    reference: ReferenceView,
}

/// What a reply asks for, before the program is kept.
struct Asked {
    tool: AgentTool,
    call: ToolCall,
    /// The program that the tool is used on, or that is read.
    program: Option<Program>,
}

enum Program {
    Known(ArtifactHash),
    Written(String),
}

pub(super) async fn take_turn(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    task: &ArtifactHash,
    prepared: &PreparedTask,
    request: &CodeRequest,
) -> Result<StepOutput, StepFailure> {
    let Some(session) = request.session.as_deref() else {
        return Err(StepFailure::fatal("agent.wrong_step", "the step is no turn of a session"));
    };
    let bundle = load_task(ports, task).await?;
    let form = bundle.spec.form;
    let shown = shown_result(agents, ports, session, prepared).await?;
    let newest = session.turns.iter().rev().find_map(|turn| turn.source.as_ref());
    let before = match newest {
        Some(source) => Some(load_text(ports, source).await?),
        None => None,
    };
    let values = values(ports, step, &bundle, prepared, request, session).await?;
    let turns = transcript(ports, session, shown.as_deref()).await?;
    let shown = match shown {
        Some(text) => Some(ports.put_artifact(text.into_bytes()).await?),
        None => None,
    };
    // Both may change from turn to turn. They stand at the end of the last message, so that the cached beginning stays the same.
    let advice = agents.config.prompts.advice(&request.hints).map_err(StepFailure::from)?;
    let note = [advice, budget_left(&ports.budget(step.run).await?)].join("\n\n").trim().to_owned();
    let mut conversation =
        Conversation::new(agents, ports, step, Prompt::Session(form)).with_session(turns, form).with_note(note);
    let keys = Mutex::new(Vec::new());
    let parse = |reply: &str| {
        let call = extract_call(reply);
        let key = key_of(reply, &call);
        keys.lock().unwrap_or_else(PoisonError::into_inner).extend(key);
        parse(reply, call, session, newest.zip(before.as_deref()), form)
    };
    let turn = match conversation.ask(&values, parse).await {
        Ok(asked) => match kept(ports, &bundle, asked, before).await {
            Ok(turn) => turn,
            Err(failure) => return Err(conversation.failed(failure)),
        },
        Err(NoReply::Unusable { what, .. }) => {
            let problem = Some(format!("Your reply could not be used: {}.", what.message));
            TurnReply { tool: None, problem, ..TurnReply::of(AgentTool::Finish) }
        }
        // A script that holds no further reply has come to its end.
        Err(NoReply::Model(error @ ModelError::ScriptEnded { .. })) if session.turn > 1 => {
            TurnReply { note: error.describe(), ..TurnReply::of(AgentTool::Finish) }
        }
        Err(NoReply::Model(error)) => return Err(conversation.failed(error)),
        Err(NoReply::Step(failure)) => return Err(conversation.failed(failure)),
    };
    let keys = keys.into_inner().unwrap_or_else(PoisonError::into_inner);
    let turn = Box::new(TurnReply { shown, keys, ..turn });
    Ok(StepOutput::TurnTaken { turn, calls: conversation.into_calls() })
}

async fn values(
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    bundle: &TaskBundle,
    prepared: &PreparedTask,
    request: &CodeRequest,
    session: &SessionRequest,
) -> Result<Values, StepFailure> {
    let scope = subtask(&request.plan, request.subtask)?;
    let about = Question { spec: &bundle.spec, prepared, subtask: Some(scope), bound: None, said: "" };
    let knowledge = retrieve(ports, &AgentStep { step_key: RETRIEVAL_KEY, ..step }, about).await?;
    let goal = &step.run_input.goal;
    Ok(Values {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(prepared, bundle.spec.target),
        contract: contract(&bundle.spec),
        plan: PlanView::new(&request.plan),
        current_subtask: 0,
        max_turns: goal.max_turns.unwrap_or_else(|| session.turn.saturating_add(session.turns_left).saturating_sub(1)),
        max_submissions: goal.max_attempts.unwrap_or(session.submissions_left),
        near_roofline_percent: format!("{:.0}", NEAR_ROOFLINE * 100.0),
        target_of_run: RunTarget::of(goal, prepared),
        knowledge,
        hints: &[],
        reference: ReferenceView::new(&bundle.spec, prepared),
    })
}

/// Keeps the program of a reply, screened.
async fn kept(
    ports: &dyn AgentPorts,
    bundle: &TaskBundle,
    asked: Asked,
    before: Option<String>,
) -> Result<TurnReply, StepFailure> {
    let Asked { tool, call, program } = asked;
    let turn = TurnReply { note: call.note, attempt: call.attempt, turn: call.turn, ..TurnReply::of(tool) };
    let (source, text) = match program {
        None => return Ok(turn),
        Some(Program::Known(source)) => (source, before.unwrap_or_default()),
        Some(Program::Written(text)) => (ports.put_artifact(text.clone().into_bytes()).await?, text),
    };
    if !tool.takes_program() {
        return Ok(TurnReply { source: Some(source), ..turn });
    }
    // Declarations that cannot be searched were refused with the reply that wrote them.
    let tunables = with_tunables(text.clone(), bundle.spec.form).map(|(_, tunables)| tunables).unwrap_or_default();
    Ok(TurnReply { source: Some(source), findings: screen_candidate(&text, &bundle.spec), tunables, ..turn })
}

/// Returns what the campaign has left of the resources that it limits, as the Coder reads it; empty without limits.
fn budget_left(budget: &[BudgetLine]) -> String {
    let left: Vec<String> = budget.iter().filter_map(BudgetLine::left).collect();
    if left.is_empty() { String::new() } else { format!("Left of the campaign's budget: {}.", left.join(", ")) }
}

/// Takes a reply apart. `newest` is the program that edits start from.
fn parse(
    reply: &str,
    call: Result<ToolCall, JsonProblem>,
    session: &SessionRequest,
    newest: Option<(&ArtifactHash, &str)>,
    form: CandidateForm,
) -> Result<Asked, Unusable> {
    let bad_call = |message: String| Unusable { code: "reply.bad_tool_call", message };
    let mut call = call.map_err(|problem| bad_call(problem.to_string()))?;
    let tool = AgentTool::parse(&call.tool).ok_or_else(|| {
        let known: Vec<&str> = AgentTool::ALL.into_iter().map(AgentTool::as_str).collect();
        bad_call(format!("there is no tool `{}`: use one of {}", call.tool, known.join(", ")))
    })?;
    let before = newest.map(|(_, text)| text);
    let written = extract_turn_program(reply, before, form)
        .map_err(|problem| Unusable { code: problem.code(), message: problem.to_string() })?;
    if !tool.takes_program() && written.is_some() {
        return Err(bad_call(format!("`{}` takes no program: `submit` the program, or leave it out", tool.as_str())));
    }
    if tool.takes_program() {
        let program = match (written, newest) {
            (Some(text), _) => Program::Written(with_tunables(text, form)?.0),
            (None, Some((source, _))) => Program::Known(source.clone()),
            (None, None) => {
                return Err(bad_call(format!("`{}` needs a program: the session has none yet", tool.as_str())));
            }
        };
        (call.attempt, call.turn) = (None, None);
        return Ok(Asked { tool, call, program: Some(program) });
    }
    let submitted = |number: u32| session.programs.iter().find(|program| program.attempt == Some(number));
    let last = session.programs.iter().filter_map(|program| program.attempt).max();
    match tool {
        AgentTool::Diagnose => {
            let number = call.attempt.or(last).filter(|number| submitted(*number).is_some());
            let none = || bad_call("`diagnose` needs the number of an attempt that was submitted".to_owned());
            call.attempt = Some(number.ok_or_else(none)?);
            call.turn = None;
            Ok(Asked { tool, call, program: None })
        }
        AgentTool::Read => {
            let found = match (call.attempt, call.turn) {
                (Some(number), _) => submitted(number),
                (None, Some(turn)) => session.programs.iter().find(|program| program.turn == turn),
                (None, None) => None,
            };
            let Some(SessionProgram { source, .. }) = found else {
                let what = "the number of a submitted attempt or of a turn with a program of this session";
                return Err(bad_call(format!("`read` needs {what}")));
            };
            Ok(Asked { tool, call, program: Some(Program::Known(source.clone())) })
        }
        _ => {
            (call.attempt, call.turn) = (None, None);
            Ok(Asked { tool, call, program: None })
        }
    }
}

/// Returns what the last turn gave, as the Coder reads it; none in the first turn.
async fn shown_result(
    agents: &Agents,
    ports: &dyn AgentPorts,
    session: &SessionRequest,
    prepared: &PreparedTask,
) -> Result<Option<String>, StepFailure> {
    let Some(last) = session.turns.last() else { return Ok(None) };
    let source = match session.last.as_ref().and_then(|attempt| attempt.source.as_ref()) {
        Some(source) => Some(load_text(ports, source).await?),
        None => None,
    };
    let view = TurnResultView::new(session, last, prepared, source.clone());
    let [result, left] = agents.config.prompts.turn_result(&view).map_err(StepFailure::from)?;
    let mut text = clipped(result.trim_end(), MAX_RESULT_BYTES);
    if last.tool == Some(AgentTool::Read)
        && let Some(source) = source
    {
        let program = clipped(&source, MAX_READ_BYTES);
        text =
            format!("{text}\n\nThe program, which edits start from now:\n\n{}", crate::prompt::fenced_program(program));
    }
    Ok(Some(format!("{text}\n\n{left}")))
}

/// Returns the turns before this one, each with the reply and its result. The last result is the one given.
async fn transcript(
    ports: &dyn AgentPorts,
    session: &SessionRequest,
    last_result: Option<&str>,
) -> Result<Vec<(String, String)>, StepFailure> {
    let mut turns: Vec<(String, String)> = Vec::with_capacity(session.turns.len());
    for (place, turn) in session.turns.iter().enumerate() {
        let reply = match &turn.reply {
            Some(reply) => shown_again(&load_text(ports, reply).await?),
            None => "(no text)".to_owned(),
        };
        let result = match &turn.result {
            Some(result) if place + 1 < session.turns.len() => load_text(ports, result).await?,
            _ => last_result.unwrap_or_default().to_owned(),
        };
        turns.push((reply, result));
        shorten(&mut turns, &session.turns);
    }
    Ok(turns)
}

/// Shortens old turns once all of them are too long. It depends on the turns up to here alone, so that the beginning of the
/// transcript stays the same from one turn to the next, and caches of providers go on.
fn shorten(shown: &mut [(String, String)], turns: &[AgentTurn]) {
    let bytes: usize = shown.iter().map(|(reply, result)| reply.len() + result.len()).sum();
    if bytes <= MAX_TRANSCRIPT_BYTES {
        return;
    }
    let old = shown.len().saturating_sub(FULL_TURNS);
    for ((reply, result), turn) in shown.iter_mut().zip(turns).take(old) {
        *reply = short_reply(turn);
        // What was shortened before stays as it is.
        if result.len() > 2 * MAX_SHORT_RESULT_BYTES {
            *result = clipped(result, MAX_SHORT_RESULT_BYTES);
        }
    }
}

fn short_reply(turn: &AgentTurn) -> String {
    let number = turn.number;
    let call = serde_json::json!({ "tool": turn.tool, "note": turn.note, "attempt": turn.attempt, "turn": turn.turn });
    let program = if turn.tool.is_some_and(AgentTool::takes_program) {
        format!("\n[the program of turn {number}: `read` shows it again]\n")
    } else {
        String::new()
    };
    format!("```json\n{call}\n```\n{program}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionRequest {
        let turn = |number: u32| AgentTurn { tool: Some(AgentTool::Measure), ..AgentTurn::open(number) };
        SessionRequest {
            turn: 3,
            opens_attempt: false,
            turns: vec![turn(1), turn(2)],
            last: None,
            best: None,
            turns_left: 38,
            submissions_left: 5,
            programs: vec![
                SessionProgram { attempt: None, turn: 1, source: ArtifactHash::of(b"one") },
                SessionProgram { attempt: Some(1), turn: 2, source: ArtifactHash::of(b"two") },
            ],
        }
    }

    fn asked(call: &str) -> Result<Asked, Unusable> {
        let two = ArtifactHash::of(b"two");
        parsed(&format!("```json\n{call}\n```\n"), Some((&two, "two\n")))
    }

    fn parsed(reply: &str, newest: Option<(&ArtifactHash, &str)>) -> Result<Asked, Unusable> {
        parse(reply, extract_call(reply), &session(), newest, CandidateForm::Native)
    }

    fn source(asked: &Asked) -> Option<&ArtifactHash> {
        match asked.program.as_ref()? {
            Program::Known(source) => Some(source),
            Program::Written(_) => None,
        }
    }

    #[test]
    fn a_tool_without_a_program_is_used_on_the_newest_one() {
        let submit = asked(r#"{"tool": "submit", "attempt": 9}"#);
        assert!(
            submit.is_ok_and(|asked| source(&asked) == Some(&ArtifactHash::of(b"two")) && asked.call.attempt.is_none())
        );
        let first = parsed("{\"tool\": \"build\"}", None);
        assert!(first.is_err_and(|problem| problem.message.contains("needs a program")));
    }

    #[test]
    fn reading_and_diagnosing_name_what_the_session_has() {
        let of = |call: &str| asked(call).map(|asked| (asked.call.attempt, source(&asked).cloned()));
        assert!(of(r#"{"tool": "read", "turn": 1}"#).is_ok_and(|(_, found)| found == Some(ArtifactHash::of(b"one"))));
        assert!(
            of(r#"{"tool": "read", "attempt": 1}"#).is_ok_and(|(_, found)| found == Some(ArtifactHash::of(b"two")))
        );
        assert!(of(r#"{"tool": "diagnose"}"#).is_ok_and(|(attempt, _)| attempt == Some(1)));
        for wrong in
            [r#"{"tool": "read", "attempt": 7}"#, r#"{"tool": "read"}"#, r#"{"tool": "diagnose", "attempt": 7}"#]
        {
            assert!(of(wrong).is_err_and(|problem| problem.code == "reply.bad_tool_call"), "{wrong}");
        }
    }

    #[test]
    fn a_reply_with_an_unknown_tool_or_a_needless_program_is_refused() {
        let unknown = asked(r#"{"tool": "shell"}"#);
        assert!(unknown.is_err_and(|problem| problem.message.contains("there is no tool `shell`")));
        let finish = "```json\n{\"tool\": \"finish\"}\n```\n```cpp\nint ns_run();\n```\n";
        let finish = parsed(finish, None);
        assert!(finish.is_err_and(|problem| problem.message.contains("takes no program")));
    }

    #[test]
    fn old_turns_are_shortened_and_the_beginning_stays_as_it_was() {
        let turns: Vec<AgentTurn> = session().turns.into_iter().cycle().take(12).collect();
        let long = || ("x".repeat(MAX_TRANSCRIPT_BYTES / 6), "y".repeat(5_000));
        let shown = |count: usize| {
            let mut shown = Vec::new();
            for _ in 0..count {
                shown.push(long());
                shorten(&mut shown, &turns);
            }
            shown
        };
        let (eleven, twelve) = (shown(11), shown(12));
        assert_eq!(shown(5).iter().filter(|turn| **turn == long()).count(), 5);
        assert!(eleven[0].0.contains("`read` shows it again") && eleven[0].1.len() < 2_000);
        let short = eleven.iter().filter(|turn| **turn != long()).count();
        assert!(short >= FULL_TURNS && eleven[..short] == twelve[..short], "{short} are short");
        assert!(twelve.iter().rev().take(FULL_TURNS).all(|turn| *turn == long()));
    }
}
