//! One session: the process of its agent is started, watched, and started again until the session is over.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nightshift_mcp::install::TOKEN_VARIABLE;
use nightshift_optimizer::model::{WorkingCommand, Workplace};
use nightshift_protocol::api::{RequestView, RunDetail};
use nightshift_protocol::id::{RequestId, RunId};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::run::RunStatus;
use secrecy::SecretString;

use super::workspace::Workspace;
use super::{CurrentServer, Site};
use crate::compose::{describe, key_lookup};
use crate::environment::{MCP_CONFIG_VARIABLE, RUN_VARIABLE};
use crate::failure::{Failure, Result};
use crate::mcp::launch_for_run;

/// Starts in a row that may end without a turn, of an agent that took no turn yet: its command may be wrong.
const MAX_IDLE_STARTS: usize = 3;
/// The same of an agent that took turns before. The pauses between them are longer than the five hours of a usage limit.
const MAX_IDLE_STARTS_OF_KNOWN: usize = 12;
/// Times before a process is started again, by the starts before it without a turn. The last one is repeated.
const RESTART_PAUSES: [Duration; 7] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
];
/// Time between two looks at a session.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a place is kept for a session of which no turn waits, because it is paused or another role is asked.
const KEPT_FOR: Duration = Duration::from_mins(5);
/// How long a process may go on after its session is over.
pub(super) const END_GRACE: Duration = Duration::from_secs(20);
/// Requests of a run that are searched for its open turn.
const REQUESTS: u32 = 10;

/// How the work on a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worked {
    /// The session is over.
    Over,
    /// Another process of this machine works on it.
    Elsewhere,
    /// None of its turns waits for long: another session may have its place.
    Waits,
}

/// A session at one moment.
struct Look {
    detail: RunDetail,
    /// The request of the turn that waits for the agent.
    waiting: Option<RequestView>,
}

impl Look {
    async fn at(server: &CurrentServer<'_>, run: &RunId) -> Result<Self> {
        let detail = server.call(async |client| client.run(run).await).await?;
        let mut look = Self { detail, waiting: None };
        if !look.is_over() && look.detail.summary.status != RunStatus::Paused {
            let open = server.call(async |client| client.requests(None, Some(run), false, Some(REQUESTS), None).await);
            let open = open.await?;
            look.waiting = open.items.into_iter().find(is_turn);
        }
        Ok(look)
    }

    fn is_over(&self) -> bool {
        self.detail.summary.status.is_final()
    }

    /// Returns what changes with each turn that is taken.
    fn progress(&self) -> (usize, Option<RequestId>) {
        let turns = self.detail.view.attempts.iter().flat_map(|attempt| &attempt.turns);
        (turns.filter(|turn| turn.reply.is_some()).count(), self.waiting.as_ref().map(|request| request.id.clone()))
    }
}

/// Returns whether a request asks for a turn of an agent session.
pub(super) fn is_turn(request: &RequestView) -> bool {
    let mut parts = request.step_key.rsplit('/');
    let is_code = parts.next() == Some("write_code");
    let turn = parts.next().and_then(|part| part.strip_prefix("turn"));
    request.role == AgentRole::Coder && is_code && turn.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Why a process was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// Its session is over.
    Over,
    /// It let a turn wait for too long.
    Silent,
    /// The session is paused, and for long.
    Paused,
}

/// What a session needs next.
enum Need {
    /// A turn waits for the agent.
    Turn(Box<Look>),
    /// The session is over.
    Over,
    /// No turn waits for long.
    Patience,
}

/// Works on the session of a run until it is over.
pub(super) async fn work_on(site: &Site<'_>, run: &RunId) -> Result<Worked> {
    let Some(workspace) = Workspace::lock(&site.root(), run)? else { return Ok(Worked::Elsewhere) };
    let output = site.context.output;
    let launch = launch_for_run(site.context, run)?;
    let config = site.agent.working(site.context, &launch, &workspace.mcp_file());
    let name = site.agent.name();
    let broken = |error: &dyn std::error::Error| {
        Failure::new("agent.not_started", format!("the coding agent `{name}` cannot be started: {}", describe(error)))
    };
    let command = WorkingCommand::open(name, config, &key_lookup(site.context)).map_err(|error| broken(&error))?;
    let variables = variables(site, &workspace, run);
    let secrets: Vec<_> = variables.iter().filter(|(name, _)| *name == TOKEN_VARIABLE).cloned().collect();
    let (mut idle, mut starts) = (0_usize, 0_u32);
    loop {
        let begin = match next_turn(site, run).await? {
            Need::Turn(begin) => begin,
            Need::Over => break,
            Need::Patience => return Ok(Worked::Waits),
        };
        let Some(turn) = &begin.waiting else { continue };
        workspace.fill(&site.server, &begin.detail, turn, &launch).await?;
        let (folder, prompt, log) = (workspace.folder(), workspace.instructions(), workspace.log());
        let place = Workplace { folder: &folder, prompt: &prompt, log: &log, variables: &variables };
        let mut process = command.start(place).map_err(|error| broken(&error))?;
        output.note(&format!("{}  {name} works in {}", run.short(), folder.display()));
        starts += 1;
        let (said, never_ran) = tokio::select! {
            end = command.end(&mut process, &secrets) => {
                let said = if end.said.is_empty() { "(nothing)" } else { &end.said };
                (format!("{}. It said: {said}", end.how), end.never_ran)
            }
            stopped = watch(site, run) => match stopped? {
                Stopped::Over => break,
                Stopped::Paused => continue,
                Stopped::Silent => (format!("it took no turn for {} seconds", site.turn_timeout.as_secs()), false),
            },
        };
        drop(process);
        let after = Look::at(&site.server, run).await?;
        if after.is_over() {
            break;
        }
        let took_turns = after.progress() != begin.progress();
        idle = if took_turns { 0 } else { idle + 1 };
        // The request of a turn also changes when another agent answers it, or when it expires.
        if after.progress().0 > begin.progress().0 {
            site.is_known.store(true, Ordering::Relaxed);
        }
        if never_ran && starts == 1 && idle == 1 {
            let message = format!("the command of the coding agent cannot be run: {said}");
            return Err(Failure::new("agent.not_started", message));
        }
        let Some(pause) = pause_before_restart(idle, site.is_known.load(Ordering::Relaxed)) else {
            let message = format!("the coding agent `{name}` took no turn of {run} in {idle} starts: {said}");
            return Err(Failure::new("agent.no_turn", message).hint(format!(
                "its log is {}; the session stays open: `nightshift agent AGENT --of {run}` goes on with it",
                log.display()
            )));
        };
        output.note(&format!("{}  {name} is started again in {} s: {said}", run.short(), pause.as_secs()));
        let since = Instant::now();
        // A session that is cancelled meanwhile ends at once.
        while since.elapsed() < pause && !Look::at(&site.server, run).await?.is_over() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    output.note(&format!("{}  the session is over", run.short()));
    // What the session came to does not depend on its folder.
    if site.workspaces.is_none()
        && let Err(error) = workspace.remove()
    {
        output.note(&format!("{}  its folder stays: {error}", run.short()));
    }
    Ok(Worked::Over)
}

/// Returns the time before an agent is started again after so many starts without a turn, or nothing where it is given up.
fn pause_before_restart(idle: usize, took_turns_before: bool) -> Option<Duration> {
    let most = if took_turns_before { MAX_IDLE_STARTS_OF_KNOWN } else { MAX_IDLE_STARTS };
    (idle < most).then(|| RESTART_PAUSES[idle.min(RESTART_PAUSES.len() - 1)])
}

/// Returns what a process sees in addition to the variables of every command.
fn variables(site: &Site<'_>, workspace: &Workspace, run: &RunId) -> Vec<(&'static str, SecretString)> {
    let mut variables = vec![
        (MCP_CONFIG_VARIABLE, SecretString::from(workspace.mcp_file().to_string_lossy().into_owned())),
        (RUN_VARIABLE, SecretString::from(run.to_string())),
    ];
    let server = &site.context.config().server;
    if let Some(token) = server.token.as_ref().filter(|_| server.url.is_some()) {
        variables.push((TOKEN_VARIABLE, token.clone()));
    }
    variables
}

/// Waits until a turn waits for the agent, the session is over, or nothing happens for long.
async fn next_turn(site: &Site<'_>, run: &RunId) -> Result<Need> {
    let since = Instant::now();
    loop {
        let look = Look::at(&site.server, run).await?;
        if look.is_over() {
            return Ok(Need::Over);
        }
        if look.waiting.is_some() {
            return Ok(Need::Turn(Box::new(look)));
        }
        if since.elapsed() >= KEPT_FOR {
            return Ok(Need::Patience);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until a process has to be stopped.
async fn watch(site: &Site<'_>, run: &RunId) -> Result<Stopped> {
    let (mut seen, mut since) = (None, Instant::now());
    let mut goes_on_since = Instant::now();
    loop {
        let look = Look::at(&site.server, run).await?;
        if look.is_over() {
            tokio::time::sleep(END_GRACE).await;
            return Ok(Stopped::Over);
        }
        if look.detail.summary.status != RunStatus::Paused {
            goes_on_since = Instant::now();
        } else if goes_on_since.elapsed() >= KEPT_FOR {
            return Ok(Stopped::Paused);
        }
        let now = Some(look.progress());
        if now != seen || look.waiting.is_none() {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= site.turn_timeout {
            return Ok(Stopped::Silent);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_that_worked_before_outlasts_a_usage_limit_and_a_wrong_command_ends_soon() {
        let waited = |took_turns| (1..).map_while(|idle| pause_before_restart(idle, took_turns)).sum::<Duration>();
        assert!(waited(true) > Duration::from_hours(5), "{:?}", waited(true));
        assert!(waited(false) < Duration::from_mins(1), "{:?}", waited(false));
        assert_eq!(pause_before_restart(0, true), pause_before_restart(0, false), "an agent that ends between turns");
    }

    #[test]
    fn turns_of_sessions_are_told_from_other_requests() {
        let request = |key: &str, role: &str| -> RequestView {
            let view = json!({
                "id": format!("req_{:032x}", 1), "campaign": format!("cmp_{:032x}", 1), "run": format!("run_{:032x}", 1),
                "step_key": key, "turn": 1, "role": role, "model": "external/any", "state": "open", "created_at": 1,
                "deadline": 9,
            });
            serde_json::from_value(view).unwrap()
        };
        assert!(is_turn(&request("subtask1/attempt1/turn12/write_code", "coder")));
        assert!(!is_turn(&request("subtask1/attempt1/write_code", "coder")));
        assert!(!is_turn(&request("subtask1/attempt1/turn2/judge", "judge")));
    }
}
