//! The store on SQLite: one file, one process that writes, one connection that writes.
//!
//! Writes go to the group-committing task of `writer.rs` and are acknowledged after their commit, with
//! `synchronous=FULL`. Reads use a small pool of connections that cannot write; with the write-ahead log they never
//! wait for the writer and always see what was acknowledged before. Below: opening, then the port with one line per
//! method, then one file per noun or verb.

mod advance;
mod artifact;
mod campaign;
mod control;
mod event;
mod failure;
mod idempotency;
mod invariants;
mod lease;
mod lock;
mod model_call;
mod open;
#[cfg(test)]
mod plans;
mod ready;
mod run;
mod step;
mod timer;
mod try_end;
mod worker;
mod writer;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use async_trait::async_trait;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    Advance, Advanced, CampaignRecord, ClaimRequest, CreatedCampaign, ExpiredLease, HeartbeatOutcome, ModelCallRecord,
    NewCampaign, PageRequest, Reported, RunRecord, StepRecord, Store, StoreError, TryEnd, WorkerRecord,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;
use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;

use self::failure::Failure;
use self::try_end::Teller;
use self::writer::Writer;

pub use self::advance::MAX_STEPS_PER_ADVANCE;
pub use self::campaign::MAX_RUNS_PER_CAMPAIGN;
pub use self::lease::{MAX_CLAIMED, MAX_HEARTBEAT_LEASES, MAX_ROUTES};
pub use self::lock::LOCK_FILE;
pub use self::open::{DATABASE_FILE, OpenOptions};

/// Rows of one page of a list; a larger wish is answered with this many.
pub const MAX_PAGE: u32 = 1_000;

/// The store on SQLite.
#[derive(Debug)]
pub struct SqliteStore {
    database: PathBuf,
    readers: SqlitePool,
    writer: Writer,
}

impl SqliteStore {
    /// Opens the database of a data folder, or makes it.
    ///
    /// - `Locked`: another process uses the folder; the message names it.
    /// - `ReadOnly`, `Full`: the folder or the disk.
    /// - `Corrupt`: the file is damaged or not ours. It is left as it is.
    /// - `TooNew`: a newer release wrote it. It is left as it is.
    /// - `NotFound`: there is none, and [`OpenOptions::create`] is off.
    pub async fn open(data_dir: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let opened = open::open(data_dir, &options).await?;
        let writer = Writer::start(opened.writer, opened.lock, opened.database.clone());
        Ok(Self { database: opened.database, readers: opened.readers, writer })
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// Finishes what is waiting, empties the write-ahead log, closes the file and gives the folder free. Later calls
    /// fail; closing again does not. Not closing loses nothing, it only leaves the log for the next start.
    pub async fn close(&self) -> Result<(), StoreError> {
        // A reader in the middle of a statement would keep the log from being emptied.
        self.readers.close().await;
        self.writer.close().await
    }

    /// Looks for contradictions in the stored data: one sentence each, none when all is well. It reads everything.
    pub async fn find_violations(&self) -> Result<Vec<String>, StoreError> {
        let mut reader = self.reader().await?;
        invariants::violations(&mut reader).await.map_err(|failure| self.tell(failure))
    }

    async fn reader(&self) -> Result<PoolConnection<Sqlite>, StoreError> {
        self.readers.acquire().await.map_err(|error| self.tell(error.into()))
    }

    fn tell(&self, failure: Failure) -> StoreError {
        failure.tell(&self.database)
    }
}

/// An id that was stored, which can only be wrong in a damaged file.
fn public_id<Id: FromStr>(text: &str, what: &'static str) -> Result<Id, Failure>
where
    Id::Err: std::fmt::Display,
{
    text.parse().map_err(|error: Id::Err| Failure::unreadable(what, &error))
}

#[async_trait]
impl Store for SqliteStore {
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        self.writer.write(|connection| Box::pin(campaign::create(connection, new))).await
    }

    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError> {
        let mut reader = self.reader().await?;
        campaign::list(&mut reader, &page).await.map_err(|failure| self.tell(failure))
    }

    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError> {
        let mut reader = self.reader().await?;
        campaign::load(&mut reader, id).await.map_err(|failure| self.tell(failure))
    }

    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let mut reader = self.reader().await?;
        run::list(&mut reader, campaign, status, &page).await.map_err(|failure| self.tell(failure))
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        let mut reader = self.reader().await?;
        run::load(&mut reader, id).await.map_err(|failure| self.tell(failure))
    }

    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError> {
        let mut reader = self.reader().await?;
        run::to_drive(&mut reader, limit).await.map_err(|failure| self.tell(failure))
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let mut reader = self.reader().await?;
        event::after(&mut reader, run, after, limit).await.map_err(|failure| self.tell(failure))
    }

    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        self.writer.write(|connection| Box::pin(advance::advance(connection, advance))).await
    }

    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        let run = run.clone();
        self.writer
            .write(move |connection| Box::pin(async move { control::control(connection, &run, transition, at).await }))
            .await
    }

    async fn retry_run(&self, run: &RunId, key: Option<&str>, at: TimestampMs) -> Result<Vec<String>, StoreError> {
        let (run, key) = (run.clone(), key.map(str::to_owned));
        self.writer
            .write(move |connection| {
                Box::pin(async move { control::retry(connection, &run, key.as_deref(), at).await })
            })
            .await
    }

    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError> {
        let text = text.to_ascii_lowercase();
        let mut reader = self.reader().await?;
        let found = async {
            let campaigns = campaign::find_ids(&mut reader, &text, limit).await?;
            let runs = run::find_ids(&mut reader, &text, limit).await?;
            Ok((campaigns, runs))
        };
        found.await.map_err(|failure| self.tell(failure))
    }

    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        let mut reader = self.reader().await?;
        step::list(&mut reader, run).await.map_err(|failure| self.tell(failure))
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        let mut reader = self.reader().await?;
        step::list_heads(&mut reader, run).await.map_err(|failure| self.tell(failure))
    }

    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        let mut reader = self.reader().await?;
        step::load(&mut reader, id).await.map_err(|failure| self.tell(failure))
    }

    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError> {
        let mut reader = self.reader().await?;
        let worth = lease::worth_claiming(&mut reader, &claim).await.map_err(|failure| self.tell(failure))?;
        drop(reader);
        if !worth {
            return Ok(Vec::new());
        }
        self.writer.write(|connection| Box::pin(lease::claim(connection, claim))).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        self.writer
            .write(move |connection| {
                Box::pin(async move { lease::heartbeat(connection, &worker, &leases, at, expires_at).await })
            })
            .await
    }

    async fn report(&self, step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Result<Reported, StoreError> {
        let step = step.clone();
        self.writer
            .write(move |connection| {
                Box::pin(async move { try_end::end(connection, &step, epoch, end, at, Teller::Worker).await })
            })
            .await
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        let mut reader = self.reader().await?;
        lease::expired(&mut reader, at, limit).await.map_err(|failure| self.tell(failure))
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        let step = step.clone();
        self.writer
            .write(move |connection| {
                Box::pin(async move { try_end::end(connection, &step, epoch, end, at, Teller::Sweeper).await })
            })
            .await
    }

    async fn free_embedded_leases(&self, at: TimestampMs) -> Result<u64, StoreError> {
        self.writer.write(move |connection| Box::pin(try_end::free_embedded(connection, at))).await
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        let mut reader = self.reader().await?;
        let next = timer::next(&mut reader).await.map_err(|failure| self.tell(failure))?;
        drop(reader);
        if next.is_none_or(|next| next > at) {
            return Ok((0, next));
        }
        self.writer.write(move |connection| Box::pin(timer::fire(connection, at, limit))).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        self.writer.write(|connection| Box::pin(worker::register(connection, worker))).await
    }

    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        let mut reader = self.reader().await?;
        worker::list(&mut reader, limit).await.map_err(|failure| self.tell(failure))
    }

    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError> {
        artifact::check(hash, bytes)?;
        let mut reader = self.reader().await?;
        let exists = artifact::exists(&mut reader, hash).await.map_err(|failure| self.tell(failure))?;
        drop(reader);
        if exists {
            return Ok(());
        }
        let (hash, bytes) = (hash.clone(), bytes.to_vec());
        self.writer
            .write(move |connection| Box::pin(async move { artifact::put(connection, &hash, &bytes).await }))
            .await
    }

    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        let mut reader = self.reader().await?;
        artifact::get(&mut reader, hash).await.map_err(|failure| self.tell(failure))
    }

    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        let mut reader = self.reader().await?;
        model_call::find(&mut reader, run, step_key, turn, request_hash).await.map_err(|failure| self.tell(failure))
    }

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for (hash, bytes) in &artifacts {
            artifact::check(hash, bytes)?;
        }
        self.writer.write(|connection| Box::pin(model_call::record(connection, call, artifacts))).await
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }
}
