//! The loop that maintains the index.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::event::Event;
use nightshift_engine::store::StoreError;
use nightshift_protocol::api::AttemptQuery;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::Target;
use nightshift_store::{AttemptIndex, IndexedRun};
use tokio::time::Instant;

use super::project::{self, FORM};
use super::texts;
use crate::app::App;
use crate::backoff::Backoff;

/// Time between two scans of all runs.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Minimum time between two scans, because each reads every run.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two rounds, which collects changes of the same run.
const ROUND_PAUSE: Duration = Duration::from_millis(20);
/// Runs per scan result.
const RUNS_AT_ONCE: u32 = 200;
/// Maximum time for a server without loops to catch up before it answers with an incomplete index.
const LONGEST_CATCH_UP: Duration = Duration::from_secs(20);
/// Placeholder for a value that is missing or unreadable.
const UNKNOWN: &str = "unknown";
/// Maximum number of writes for the texts of one run.
const MAX_WRITES_PER_RUN: usize = 100;

/// Name of this loop in error logs.
const DOING: &str = "updating the index of attempts";

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let Some(index) = app.attempts.clone() else {
        app.shutdown.cancelled().await;
        return;
    };
    let mut backoff = Backoff::default();
    let mut look_at = Instant::now();
    let mut looked_at: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            // Before the inbox, which may never be empty.
            () = tokio::time::sleep_until(look_at) => app.indexing.look(),
            () = app.indexing.news.notified() => {}
        }
        let mut told = app.indexing.take();
        if let Some(next) = looked_at.map(|at| at + LOOK_PAUSE).filter(|next| told.look && Instant::now() < *next) {
            look_at = look_at.min(next);
            told.look = false;
        }
        let round = async {
            for run in told.runs.iter().filter(|run| !app.fences.is_foreign(run)) {
                app.index_run(&*index, run).await?;
            }
            if !told.look {
                return Ok(());
            }
            app.index_all(&*index, None).await?;
            if looked_at.is_none() {
                // Load the columns before the first list needs them.
                index.list_attempts(&AttemptQuery { limit: Some(1), ..AttemptQuery::default() }).await?;
            }
            Ok::<(), StoreError>(())
        };
        let done = tokio::select! {
            biased;
            // Each run is a transaction of its own, so a round can be aborted between any two.
            () = app.shutdown.cancelled() => return,
            done = round => done,
        };
        match done {
            Ok(()) => {
                app.error_log.worked(DOING);
                backoff.succeeded();
                if told.look {
                    looked_at = Some(Instant::now());
                    look_at = Instant::now() + LOOK_EVERY;
                }
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            Err(error) => {
                app.error_log.failed(DOING, &error);
                // The next scan finds the runs that were not written.
                look_at = Instant::now() + backoff.failed();
            }
        }
    }
}

impl App {
    /// Brings the index up to date once if no loop does, so that a command that only reads sees everything.
    pub(crate) async fn catch_up(&self, index: &dyn AttemptIndex) -> Result<(), StoreError> {
        if self.config.drives {
            return Ok(());
        }
        let until = Instant::now() + LONGEST_CATCH_UP;
        self.indexing.caught_up.get_or_try_init(|| self.index_all(index, Some(until))).await?;
        Ok(())
    }

    /// Writes every run that is missing or outdated in the index.
    async fn index_all(&self, index: &dyn AttemptIndex, until: Option<Instant>) -> Result<(), StoreError> {
        let mut before = Vec::new();
        loop {
            let behind = index.runs_behind(FORM, RUNS_AT_ONCE).await?;
            for run in &behind {
                if until.is_some_and(|until| Instant::now() >= until) {
                    tracing::warn!("the index of attempts is not up to date yet: lists may be incomplete");
                    return Ok(());
                }
                self.indexing.forget_written(run);
                self.index_run(index, run).await?;
            }
            // The next scan finds runs that are outdated again.
            if behind.len() < usize::try_from(RUNS_AT_ONCE).unwrap_or(usize::MAX) || behind == before {
                return Ok(());
            }
            before = behind;
        }
    }

    /// Writes one run, with its texts in as many pieces as needed.
    async fn index_run(&self, index: &dyn AttemptIndex, id: &RunId) -> Result<(), StoreError> {
        for _ in 0..MAX_WRITES_PER_RUN {
            let record = match self.store.load_run(id).await {
                Err(StoreError::NotFound { .. }) => return Ok(()),
                other => other?,
            };
            if record.folded_seq == 0 {
                return Ok(());
            }
            let input = self.input_of(id).await?;
            let mut indexed = IndexedRun {
                run: id.clone(),
                seq: record.folded_seq,
                form: FORM,
                task: input.as_ref().map_or(UNKNOWN, |input| &input.task_name).to_owned(),
                target: input.as_ref().map_or(Target::Cpu, |input| input.target),
                strategy: input.as_ref().map_or(UNKNOWN, |input| &input.strategy).to_owned(),
                attempts: Vec::new(),
                documents: Vec::new(),
            };
            let view = record.state.as_ref().map(|state| (self.view)(state));
            let (Some(input), Some(Ok(view))) = (input, view) else {
                // Written without attempts, so that later scans do not find it again.
                tracing::warn!(run.id = %id, "a run was stored in a form that this release cannot read: it is not listed");
                return index.put_index(vec![indexed]).await;
            };
            let steps = self.store.list_step_heads(id).await?;
            let is_over = record.status.is_final();
            let rows = project::indexed_attempts(&view, &input, &project::spans(&steps), record.created_at, is_over);
            let known = index.documents_of(id).await?.into_iter().collect();
            let gathered = texts::gather(&*self.store, &view, &rows, &known).await?;
            indexed.documents = gathered.documents;
            indexed.attempts = self.indexing.changed_rows(id, &rows);
            index.put_index(vec![indexed]).await?;
            if is_over {
                self.indexing.forget_written(id);
            } else {
                self.indexing.keep_written(id, rows);
            }
            if !gathered.more {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the input of the run, or none if its log does not contain it in a readable form.
    async fn input_of(&self, id: &RunId) -> Result<Option<Arc<RunInput>>, StoreError> {
        if let Some(input) = self.inputs.get(id) {
            return Ok(Some(input));
        }
        let first = self.store.events_after(id, 0, 1).await?.into_iter().next();
        let Some(Event::RunCreated { input }) = first.map(|first| first.event) else { return Ok(None) };
        let Ok(input) = serde_json::from_value::<RunInput>(input) else { return Ok(None) };
        let input = Arc::new(input);
        self.inputs.keep(id.clone(), input.clone());
        Ok(Some(input))
    }
}
