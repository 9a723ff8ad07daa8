//! Campaigns.

use nightshift_engine::store::{CampaignRecord, CreatedCampaign, NewCampaign, PageRequest, StoreError};
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{MAX_PAGE, idempotency, public_id, run};
use crate::json;
use crate::number::from_stored;

/// Runs of one campaign.
pub const MAX_RUNS_PER_CAMPAIGN: usize = 10_000;

pub(super) async fn create(connection: &mut SqliteConnection, new: NewCampaign) -> Result<CreatedCampaign, Failure> {
    if new.runs.len() > MAX_RUNS_PER_CAMPAIGN {
        let message = format!("a campaign has at most {MAX_RUNS_PER_CAMPAIGN} runs, this one {}", new.runs.len());
        return Err(StoreError::Other(message).into());
    }
    let idempotency = new.idempotency.as_ref().map(|(key, digest)| (json::clean(key), json::clean(digest)));
    let existing = match &idempotency {
        Some((key, digest)) => idempotency::find(connection, key, digest).await?,
        None => None,
    };
    // The id alone recognises a call whose first answer was lost.
    let existing = match existing {
        Some(existing) => Some(existing),
        None => find(connection, &new.id).await?,
    };
    if let Some(campaign_id) = existing {
        return existed(connection, campaign_id).await;
    }

    let campaign_id: i64 = sqlx::query_scalar(
        "INSERT INTO campaign (public_id, name, spec, created_at_ms) VALUES (?1, ?2, ?3, ?4) RETURNING id",
    )
    .bind(new.id.as_str())
    .bind(json::clean(&new.name).as_ref())
    .bind(json::write(&new.spec)?)
    .bind(new.at.0)
    .fetch_one(&mut *connection)
    .await?;
    if let Some((key, digest)) = &idempotency {
        idempotency::insert(connection, key, digest, campaign_id).await?;
    }
    let mut runs = Vec::with_capacity(new.runs.len());
    for new_run in new.runs {
        runs.push(new_run.id.clone());
        run::create(connection, campaign_id, new_run, new.at).await?;
    }
    Ok(CreatedCampaign { id: new.id, runs, existed: false })
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    page: &PageRequest,
) -> Result<Vec<CampaignRecord>, Failure> {
    let before = match &page.before {
        None => i64::MAX,
        Some(id) => key_of(connection, id).await?,
    };
    let rows: Vec<Row> = sqlx::query_as(campaign_query!("WHERE c.id < ?1 ORDER BY c.id DESC LIMIT ?2"))
        .bind(before)
        .bind(page.limit.min(MAX_PAGE))
        .fetch_all(connection)
        .await?;
    rows.into_iter().map(Row::into_record).collect()
}

pub(super) async fn load(connection: &mut SqliteConnection, id: &CampaignId) -> Result<CampaignRecord, Failure> {
    let row: Option<Row> =
        sqlx::query_as(campaign_query!("WHERE c.public_id = ?1")).bind(id.as_str()).fetch_optional(connection).await?;
    row.ok_or_else(|| Failure::not_found("campaign", id.as_str()))?.into_record()
}

/// The internal key of a campaign that must exist.
pub(super) async fn key_of(connection: &mut SqliteConnection, id: &str) -> Result<i64, Failure> {
    sqlx::query_scalar("SELECT id FROM campaign WHERE public_id = ?1")
        .bind(id)
        .fetch_optional(connection)
        .await?
        .ok_or_else(|| Failure::not_found("campaign", id))
}

/// Ids that begin with the text, whose digits begin with it, or that end with it; newest first. It reads every id: there
/// are few campaigns beside everything else.
pub(super) async fn find_ids(
    connection: &mut SqliteConnection,
    text: &str,
    limit: u32,
) -> Result<Vec<CampaignId>, Failure> {
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT public_id FROM campaign \
         WHERE substr(public_id, 1, length(?1)) = ?1 OR substr(public_id, 5, length(?1)) = ?1 \
            OR substr(public_id, -length(?1)) = ?1 \
         ORDER BY id DESC LIMIT ?2",
    )
    .bind(text)
    .bind(limit.min(MAX_PAGE))
    .fetch_all(connection)
    .await?;
    ids.iter().map(|id| public_id(id, "a campaign's id")).collect()
}

async fn find(connection: &mut SqliteConnection, id: &CampaignId) -> Result<Option<i64>, Failure> {
    Ok(sqlx::query_scalar("SELECT id FROM campaign WHERE public_id = ?1")
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?)
}

async fn existed(connection: &mut SqliteConnection, campaign_id: i64) -> Result<CreatedCampaign, Failure> {
    let id: String = sqlx::query_scalar("SELECT public_id FROM campaign WHERE id = ?1")
        .bind(campaign_id)
        .fetch_one(&mut *connection)
        .await?;
    let runs: Vec<String> = sqlx::query_scalar("SELECT public_id FROM run WHERE campaign_id = ?1 ORDER BY id")
        .bind(campaign_id)
        .fetch_all(connection)
        .await?;
    let runs = runs.iter().map(|run| public_id::<RunId>(run, "a run's id")).collect::<Result<_, _>>()?;
    Ok(CreatedCampaign { id: public_id(&id, "a campaign's id")?, runs, existed: true })
}

/// A campaign with its runs by status; the tail says which.
macro_rules! campaign_query {
    ($tail:literal) => {
        concat!(
            "SELECT c.public_id, c.name, c.spec, c.created_at_ms, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'running') AS running, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'paused') AS paused, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'cancelling') AS cancelling, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'completed') AS completed, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'failed') AS failed, ",
            "(SELECT COUNT(*) FROM run WHERE campaign_id = c.id AND status = 'cancelled') AS cancelled ",
            "FROM campaign c ",
            $tail
        )
    };
}
use campaign_query;

#[derive(sqlx::FromRow)]
struct Row {
    public_id: String,
    name: String,
    spec: String,
    created_at_ms: i64,
    running: i64,
    paused: i64,
    cancelling: i64,
    completed: i64,
    failed: i64,
    cancelled: i64,
}

impl Row {
    fn into_record(self) -> Result<CampaignRecord, Failure> {
        let spec = json::read(&self.spec)
            .map_err(|error| Failure::unreadable(format!("the request of campaign {}", self.public_id), &error))?;
        let mut runs = RunCounts::default();
        for (status, count) in [
            (RunStatus::Running, self.running),
            (RunStatus::Paused, self.paused),
            (RunStatus::Cancelling, self.cancelling),
            (RunStatus::Completed, self.completed),
            (RunStatus::Failed, self.failed),
            (RunStatus::Cancelled, self.cancelled),
        ] {
            runs.add(status, from_stored(count));
        }
        Ok(CampaignRecord {
            id: public_id(&self.public_id, "a campaign's id")?,
            name: self.name,
            spec,
            created_at: TimestampMs(self.created_at_ms),
            runs,
        })
    }
}
