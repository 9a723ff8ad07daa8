//! The tools, in the order in which clients list them.

mod add_note;
mod answer_request;
mod cancel_verification;
mod control_run;
mod create_campaign;
mod create_task;
mod describe_run;
mod describe_task;
mod get_attempt;
mod get_best_program;
mod get_turn;
mod get_verification;
mod list_campaigns;
mod list_notes;
mod list_runs;
mod list_tasks;
mod next_request;
mod read_request;
mod release_request;
mod search_history;
mod signal_run;
mod take_turn;
mod verify_program;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::TaskBundle;

use crate::error::ToolError;
use crate::lookup;
use crate::program::Section;
use crate::tool::{Call, Entry};
use crate::verification::Verifications;

/// Returns every tool.
pub(crate) fn all() -> Vec<Entry> {
    vec![
        Entry::of::<list_tasks::ListTasks>(),
        Entry::of::<describe_task::DescribeTask>(),
        Entry::of::<verify_program::VerifyProgram>(),
        Entry::of::<get_verification::GetVerification>(),
        Entry::of::<cancel_verification::CancelVerification>(),
        Entry::of::<list_campaigns::ListCampaigns>(),
        Entry::of::<list_runs::ListRuns>(),
        Entry::of::<describe_run::DescribeRun>(),
        Entry::of::<get_best_program::GetBestProgram>(),
        Entry::of::<get_attempt::GetAttempt>(),
        Entry::of::<search_history::SearchHistory>(),
        Entry::of::<list_notes::ListNotes>(),
        Entry::of::<create_task::CreateTask>(),
        Entry::of::<create_campaign::CreateCampaignTool>(),
        Entry::of::<control_run::ControlRun>(),
        Entry::of::<signal_run::SignalRun>(),
        Entry::of::<add_note::AddNote>(),
        Entry::of::<take_turn::TakeTurn>(),
        Entry::of::<get_turn::GetTurn>(),
        Entry::of::<next_request::NextRequestTool>(),
        Entry::of::<read_request::ReadRequest>(),
        Entry::of::<answer_request::AnswerRequestTool>(),
        Entry::of::<release_request::ReleaseRequestTool>(),
    ]
}

pub(crate) use describe_run::RunSection;
pub(crate) use describe_task::TaskSection;

/// Returns the verifications of this process.
fn verifications<'a>(call: &'a Call<'_>) -> Result<&'a Verifications, ToolError> {
    call.shared.verifications.as_ref().ok_or_else(|| {
        ToolError::new("request.no_such_tool", "programs are not judged in this process")
            .hint("use `nightshift mcp` on the machine that is to judge them")
    })
}

/// Runs blocking work in the background.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ToolError::new("internal.task", format!("the task failed: {error}"))))
}

/// Returns a section of a task as text. Only describe_task reads folders.
pub(crate) async fn task_text(call: &Call<'_>, task: &str, section: TaskSection) -> Result<String, ToolError> {
    describe_task::section(call, &load_task(call, task).await?, section)
}

/// Loads a task: by the id from create_task, or else by the name that the tasks of this process have.
async fn load_task(call: &Call<'_>, task: &str) -> Result<TaskBundle, ToolError> {
    if let Ok(id) = task.parse::<ArtifactHash>() {
        let connection = call.connect().await?;
        return serde_json::from_str(&lookup::text(&connection.client, &id).await?)
            .map_err(|error| ToolError::new("task.not_found", format!("`{id}` is no task: {error}")));
    }
    let (tasks, task) = (call.shared.tasks.clone(), task.to_owned());
    in_background(move || tasks.load(&task)).await
}

/// Returns a section of a verification as text.
pub(crate) fn verification_text(call: &Call<'_>, id: &str, section: Section) -> Result<String, ToolError> {
    get_verification::section_text(&*verifications(call)?.get(id)?, section)
}

/// Returns a section of a run as text.
pub(crate) async fn run_text(call: &Call<'_>, run: &str, section: RunSection) -> Result<String, ToolError> {
    let connection = call.connect().await?;
    let run = lookup::run(&connection.client, run).await?;
    let detail = connection.client.run(&run).await?;
    describe_run::section_text(call, &connection.client, &detail, section).await
}

/// Returns a section of an attempt as text.
pub(crate) async fn attempt_text(
    call: &Call<'_>,
    run: &str,
    number: u32,
    section: Section,
) -> Result<String, ToolError> {
    let connection = call.connect().await?;
    let run = lookup::run(&connection.client, run).await?;
    let detail = connection.client.run(&run).await?;
    let attempt = lookup::attempt(&detail, number)?;
    get_attempt::section_text(&connection.client, &detail, attempt, section).await
}
