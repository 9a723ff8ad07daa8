//! After the storm: nothing breaks any more, and every run has to come to its end.

use std::time::{Duration, Instant};

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::run::RunStatus;

use super::fleet::Fleet;
use super::load::Load;
use super::violation::Violation;

/// How long nothing at all may happen until the rest counts as stuck.
const MAX_STANDSTILL: Duration = Duration::from_mins(1);
/// How long it may take altogether.
const MAX_ALTOGETHER: Duration = Duration::from_mins(15);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);
/// Stuck runs that are told.
const MAX_TOLD: usize = 5;

/// Waits for the end of every run; how long it took.
pub(super) async fn settle(fleet: &Fleet, load: &Load, violations: &mut Vec<Violation>) -> Duration {
    let began = Instant::now();
    let mut moved = (Instant::now(), String::new());
    let mut last_error = None;
    // A run that changes between two questions of one look is in none of their answers: only two looks are believed.
    let mut was_empty = false;
    loop {
        let open = match fleet.client() {
            Ok(client) => look(&client, load).await,
            Err(error) => {
                violations.push(Violation::new("every run ends", error.to_string()));
                return began.elapsed();
            }
        };
        match open {
            Ok(open) if open.is_empty() && was_empty => return began.elapsed(),
            Ok(open) => {
                was_empty = open.is_empty();
                let seen = format!("{open:?}");
                if seen != moved.1 {
                    moved = (Instant::now(), seen);
                }
                if moved.0.elapsed() > MAX_STANDSTILL || began.elapsed() > MAX_ALTOGETHER {
                    for run in open.iter().take(MAX_TOLD) {
                        violations.push(Violation::new("every run ends", stuck(fleet, run).await));
                    }
                    violations.push(Violation::new("every run ends", format!("{} runs are stuck", open.len())));
                    return began.elapsed();
                }
            }
            Err(error) => {
                was_empty = false;
                if moved.0.elapsed() > MAX_STANDSTILL {
                    let told = format!("no server answers: {error}; before: {last_error:?}");
                    violations.push(Violation::new("every run ends", told));
                    return began.elapsed();
                }
                last_error = Some(error.to_string());
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Resumes runs that wait for a user, and returns the runs that are not over.
async fn look(client: &Client, load: &Load) -> Result<Vec<RunSummary>, ClientError> {
    let running = client.runs(None, Some(RunStatus::Running), Some(500), None).await?.items;
    load.unblock(client, &running, None).await?;
    let mut open = Vec::new();
    for status in [RunStatus::Running, RunStatus::Paused, RunStatus::Cancelling, RunStatus::Failed] {
        open.extend(client.runs(None, Some(status), Some(500), None).await?.items);
    }
    Ok(open)
}

async fn stuck(fleet: &Fleet, run: &RunSummary) -> String {
    let asked = async { fleet.client().ok()?.run_steps(&run.id).await.ok() };
    let steps = asked.await.unwrap_or_default();
    let open: Vec<String> = steps
        .iter()
        .filter(|step| step.finished_at.is_none())
        .map(|step| format!("{} {:?} epoch {} waits for {:?}", step.key, step.status, step.epoch, step.waiting_for))
        .collect();
    format!("{} {} ({}): {}", run.id, run.status.as_str(), run.digest.task, open.join("; "))
}
