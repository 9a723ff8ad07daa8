//! Merges returned results: once, as a whole or not at all.

use std::collections::{BTreeMap, HashMap};

use nightshift_engine::store::{ChangedRun, FinishedHandover, HandoverRecord, Notice, ReturnedHandover};
use nightshift_protocol::api::HandoverState;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use serde_json::Value;

use super::{load, merge, resume, unfinished_runs};
use crate::catalog::run::status_of;
use crate::catalog::{archive, campaign, public_id};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::transaction::Transaction;
use crate::value::values;

/// A run as stored here.
struct Here {
    id: RunId,
    status: RunStatus,
    last_seq: i64,
}

pub(crate) async fn finish(
    transaction: &mut Transaction<'_>,
    returned: &ReturnedHandover,
) -> Result<FinishedHandover, Failure> {
    let campaign = load(transaction.connection, &returned.id).await?.campaign;
    let campaign_id = campaign::key_of(transaction.connection, campaign.as_str()).await?;
    // Locks the runs, so that a concurrent call with the same file waits.
    drop(unfinished_runs(transaction, campaign_id).await?);
    let handover = load(transaction.connection, &returned.id).await?;
    if handover.takes(&returned.digest)? {
        let runs = runs_here(transaction.connection, campaign_id).await?;
        let runs = runs.into_values().map(|run| (run.id, run.status)).collect();
        return Ok(FinishedHandover { handover, repeated: true, runs });
    }
    refuse_missing_artifacts(transaction.connection, &returned.artifacts).await?;
    let rows: Vec<Value> = returned.rows.iter().cloned().map(archive::without_transient_data).collect();
    if rows.iter().any(|row| row["table"] == "campaign" && row["public_id"] != campaign.as_str()) {
        return Err(diverged(&handover, "it holds another campaign"));
    }
    let here = runs_here(transaction.connection, campaign_id).await?;
    examine(&handover, &rows, &here)?;
    let is_new = |row: &Value| match (row["run"].as_str().and_then(|run| here.get(run)), row["seq"].as_i64()) {
        (Some(run), Some(seq)) => seq > run.last_seq,
        _ => false,
    };
    let known: Vec<&Value> = rows.iter().filter(|row| row["table"] == "event" && !is_new(row)).collect();
    if !merge::are_stored(transaction.connection, &known).await? {
        return Err(diverged(&handover, "an event of it differs from the one that is stored here"));
    }
    merge::merge(transaction, (campaign_id, returned.at), &rows, &is_new).await?;
    let held = unfinished_runs(transaction, campaign_id).await?;
    resume(transaction, held, &handover.runs, &returned.by, returned.at).await?;
    let sql = "UPDATE handover SET state = 'finished', digest = $2, ended_at_ms = $3 WHERE public_id = $1";
    transaction.connection.execute(sql, values![returned.id.as_str(), returned.digest.as_str(), returned.at.0]).await?;
    let runs = runs_here(transaction.connection, campaign_id).await?;
    for run in runs.values() {
        transaction.notice(Notice::RunChanged(ChangedRun::undecided(run.id.clone(), None)));
    }
    tracing::info!(campaign.id = %campaign, handover.id = %returned.id, "the results of a hand-over were taken in");
    Ok(FinishedHandover {
        handover: HandoverRecord {
            state: HandoverState::Finished,
            digest: Some(returned.digest.clone()),
            ended_at: Some(returned.at),
            ..handover
        },
        repeated: false,
        runs: runs.into_values().map(|run| (run.id, run.status)).collect(),
    })
}

/// Refuses results if an artifact that the file omits is not stored here.
async fn refuse_missing_artifacts(connection: &mut Connection, artifacts: &[ArtifactHash]) -> Result<(), Failure> {
    match archive::missing_artifact(connection, artifacts).await? {
        None => Ok(()),
        Some(missing) => Err(Failure::refused(
            "handover.artifacts_missing",
            format!(
                "artifact {missing} of the results is neither in the file nor stored here: run `nightshift handover run` \
                 again with a file that was written without --since. Nothing was changed"
            ),
        )),
    }
}

fn diverged(handover: &HandoverRecord, why: &str) -> Failure {
    let message = format!(
        "the results do not continue {} as it was handed over: {why}. Nothing was changed; take the campaign back with \
         `nightshift handover cancel {}`",
        handover.campaign,
        handover.campaign.short()
    );
    Failure::refused("handover.diverged", message)
}

/// Returns the runs of the campaign by public id.
async fn runs_here(connection: &mut Connection, campaign_id: i64) -> Result<BTreeMap<String, Here>, Failure> {
    let sql = "SELECT public_id, status, last_seq FROM run WHERE campaign_id = $1 ORDER BY id";
    let rows = connection.fetch_all(sql, values![campaign_id]).await?;
    rows.iter()
        .map(|row| {
            let id = public_id(row.str(0)?, "a run's id")?;
            Ok((row.text(0)?, Here { id, status: status_of(row.str(1)?)?, last_seq: row.i64(2)? }))
        })
        .collect()
}

/// Refuses rows of other runs, and logs that do not continue the stored ones.
fn examine(handover: &HandoverRecord, rows: &[Value], here: &BTreeMap<String, Here>) -> Result<(), Failure> {
    let mut ends: HashMap<&str, i64> = HashMap::new();
    let mut new: HashMap<&str, Vec<i64>> = HashMap::new();
    for row in rows {
        let run = if row["table"] == "run" { &row["public_id"] } else { &row["run"] };
        let Some(run) = run.as_str() else { continue };
        let Some(known) = here.get(run) else {
            return Err(diverged(handover, &format!("{run} does not belong to it")));
        };
        match row["table"].as_str() {
            Some("run") => drop(ends.insert(run, row["last_seq"].as_i64().unwrap_or_default())),
            Some("event") => {
                let seq = row["seq"].as_i64().unwrap_or_default();
                if seq > known.last_seq {
                    new.entry(run).or_default().push(seq);
                }
            }
            _ => {}
        }
    }
    for (run, known) in here {
        let end = ends.get(run.as_str()).copied().unwrap_or(known.last_seq);
        let mut events = new.remove(run.as_str()).unwrap_or_default();
        events.sort_unstable();
        if !events.into_iter().eq(known.last_seq + 1..=end) || end < known.last_seq {
            return Err(diverged(handover, &format!("the log of {run} has another length")));
        }
    }
    Ok(())
}
