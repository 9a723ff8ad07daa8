//! Runs: their rows, lists, and the driver's work list.

use nightshift_engine::event::Event;
use nightshift_engine::store::{NewRun, PageRequest, RunRecord};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use sea_query::SqliteQueryBuilder;
use sea_query_sqlx::SqlxBinder;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{MAX_PAGE, campaign, event, public_id};
use crate::json;
use crate::number::from_stored;
use crate::run_list::{self, RunListFilter};

/// The driver's work list; see [`to_drive`].
pub(super) const TO_DRIVE: &str = "SELECT public_id FROM ( \
       SELECT id, public_id FROM run INDEXED BY run_to_drive \
        WHERE status IN ('running', 'paused', 'cancelling') AND wake_seq > folded_seq \
       UNION \
       SELECT id, public_id FROM run \
        WHERE status = 'cancelling' \
          AND NOT EXISTS (SELECT 1 FROM step WHERE run_id = run.id AND status IN ('scheduled', 'leased'))) \
     ORDER BY id LIMIT ?1";

pub(super) async fn create(
    connection: &mut SqliteConnection,
    campaign_id: i64,
    new: NewRun,
    at: TimestampMs,
) -> Result<(), Failure> {
    let run_id: i64 = sqlx::query_scalar(
        "INSERT INTO run (public_id, campaign_id, status, digest, created_at_ms) VALUES (?1, ?2, 'running', ?3, ?4) \
         RETURNING id",
    )
    .bind(new.id.as_str())
    .bind(campaign_id)
    .bind(json::write(&new.digest)?)
    .bind(at.0)
    .fetch_one(&mut *connection)
    .await?;
    event::append(connection, run_id, at, &[Event::RunCreated { input: new.input }]).await?;
    Ok(())
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    campaign: Option<&CampaignId>,
    status: Option<RunStatus>,
    page: &PageRequest,
) -> Result<Vec<RunRecord>, Failure> {
    let campaign_id = match campaign {
        None => None,
        Some(id) => Some(campaign::key_of(connection, id.as_str()).await?),
    };
    let after_id = match &page.before {
        None => None,
        Some(id) => Some(key_of(connection, id).await?),
    };
    let filter = RunListFilter { campaign_id, status, after_id, limit: page.limit.min(MAX_PAGE).into() };
    let (sql, values) = run_list::statement(&filter).build_sqlx(SqliteQueryBuilder);
    // Built by sea-query: values are bound, names are literals of ours.
    let rows: Vec<Row> = sqlx::query_as_with(sqlx::AssertSqlSafe(sql), values).fetch_all(connection).await?;
    rows.into_iter().map(Row::into_record).collect()
}

pub(super) async fn load(connection: &mut SqliteConnection, id: &RunId) -> Result<RunRecord, Failure> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT r.*, c.public_id AS campaign, s.state FROM run r JOIN campaign c ON c.id = r.campaign_id \
         LEFT JOIN run_state s ON s.run_id = r.id WHERE r.public_id = ?1",
    )
    .bind(id.as_str())
    .fetch_optional(connection)
    .await?;
    row.ok_or_else(|| Failure::not_found("run", id.as_str()))?.into_record()
}

/// Runs that wait for a decision: see `wake_seq` in the schema. Cancelled runs without open steps wait for their end,
/// whatever their log says.
pub(super) async fn to_drive(connection: &mut SqliteConnection, limit: u32) -> Result<Vec<RunId>, Failure> {
    let ids: Vec<String> = sqlx::query_scalar(TO_DRIVE).bind(limit.min(MAX_PAGE)).fetch_all(connection).await?;
    ids.iter().map(|id| public_id(id, "a run's id")).collect()
}

/// The internal key of a run that must exist.
pub(super) async fn key_of(connection: &mut SqliteConnection, id: &str) -> Result<i64, Failure> {
    sqlx::query_scalar("SELECT id FROM run WHERE public_id = ?1")
        .bind(id)
        .fetch_optional(connection)
        .await?
        .ok_or_else(|| Failure::not_found("run", id))
}

/// Ids that begin with the text, whose digits begin with it, or that end with it; newest first. It reads every id, from
/// the index of ids alone.
pub(super) async fn find_ids(connection: &mut SqliteConnection, text: &str, limit: u32) -> Result<Vec<RunId>, Failure> {
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT public_id FROM run \
         WHERE substr(public_id, 1, length(?1)) = ?1 OR substr(public_id, 5, length(?1)) = ?1 \
            OR substr(public_id, -length(?1)) = ?1 \
         ORDER BY id DESC LIMIT ?2",
    )
    .bind(text)
    .bind(limit.min(MAX_PAGE))
    .fetch_all(connection)
    .await?;
    ids.iter().map(|id| public_id(id, "a run's id")).collect()
}

/// What a writing operation has to know of a run.
pub(super) struct Head {
    pub(super) id: i64,
    pub(super) status: RunStatus,
    pub(super) revision: u64,
    pub(super) folded_seq: u64,
    pub(super) last_seq: u64,
}

pub(super) async fn head(connection: &mut SqliteConnection, run: &RunId) -> Result<Head, Failure> {
    let row: Option<(i64, String, i64, i64, i64)> =
        sqlx::query_as("SELECT id, status, revision, folded_seq, last_seq FROM run WHERE public_id = ?1")
            .bind(run.as_str())
            .fetch_optional(connection)
            .await?;
    let (id, status, revision, folded_seq, last_seq) = row.ok_or_else(|| Failure::not_found("run", run.as_str()))?;
    Ok(Head {
        id,
        status: status_of(&status)?,
        revision: from_stored(revision),
        folded_seq: from_stored(folded_seq),
        last_seq: from_stored(last_seq),
    })
}

pub(super) fn status_of(text: &str) -> Result<RunStatus, Failure> {
    RunStatus::parse(text).ok_or_else(|| Failure::unreadable("the status of a run", &format!("`{text}` is none")))
}

#[derive(sqlx::FromRow)]
struct Row {
    public_id: String,
    campaign: String,
    status: String,
    revision: i64,
    state: Option<String>,
    folded_seq: i64,
    last_seq: i64,
    digest: String,
    failure: Option<String>,
    created_at_ms: i64,
    finished_at_ms: Option<i64>,
}

impl Row {
    fn into_record(self) -> Result<RunRecord, Failure> {
        let unreadable = |what: &'static str| {
            let id = self.public_id.clone();
            move |error: serde_json::Error| Failure::unreadable(format!("the {what} of run {id}"), &error)
        };
        let state = self.state.as_deref().map(json::read).transpose().map_err(unreadable("state"))?;
        let digest = json::read(&self.digest).map_err(unreadable("digest"))?;
        let failure: Option<StepFailure> =
            self.failure.as_deref().map(json::read).transpose().map_err(unreadable("failure"))?;
        Ok(RunRecord {
            campaign: public_id(&self.campaign, "a campaign's id")?,
            status: status_of(&self.status)?,
            revision: from_stored(self.revision),
            state,
            folded_seq: from_stored(self.folded_seq),
            last_seq: from_stored(self.last_seq),
            digest,
            failure,
            created_at: TimestampMs(self.created_at_ms),
            finished_at: self.finished_at_ms.map(TimestampMs),
            id: public_id(&self.public_id, "a run's id")?,
        })
    }
}
