//! Writes runs into the index: reads what changed of each, derives its rows and texts, and writes many runs at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use nightshift_engine::event::Event;
use nightshift_engine::store::{Store, StoreError};
use nightshift_optimizer::strategy::ChangedAttempts;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use nightshift_protocol::prepared::PreparedTask;
use nightshift_protocol::task::Target;
use nightshift_store::{AttemptIndex, Document, IndexedRun, RunChanges};
use tokio::time::Instant;

use super::known_runs::{KnownRun, KnownRuns};
use super::project::{self, FORM, RunFacts};
use super::texts;
use crate::config::{ChangesFn, ViewFn};

/// Runs that are read at the same time.
const READS_AT_ONCE: usize = 4;
/// Runs per scan result.
const RUNS_AT_ONCE: u32 = 200;
/// Runs of a scan that are read and written together.
const RUNS_PER_UPDATE: usize = 20;
/// Maximum number of runs in one transaction.
const MAX_RUNS_PER_WRITE: usize = 100;
/// Maximum size of the texts in one transaction, in bytes, apart from those of the last run.
const MAX_BYTES_PER_WRITE: usize = 4 * 1024 * 1024;
/// Maximum number of writes for the texts of one run.
const MAX_WRITES_PER_RUN: usize = 100;
/// Placeholder for a value that is missing or unreadable.
const UNKNOWN: &str = "unknown";

/// Brings runs up to date in the index.
///
/// It remembers active runs. Of those it reads only the parts of the state that changed, and the steps and texts of the
/// changed attempts. A run is read as a whole when it is new or over, when another server owned it in between, and
/// when anything besides attempts changed.
pub struct Indexer {
    store: Store,
    pub(crate) index: Arc<dyn AttemptIndex>,
    view: ViewFn,
    changes: ChangesFn,
    known: Mutex<KnownRuns>,
    /// Position of the oldest unfinished run at the last two scans, older scan first. Every run before it that was visible was finished and
    /// indexed.
    scanned: Mutex<[i64; 2]>,
}

/// The data to write of a run.
struct Update {
    indexed: IndexedRun,
    /// The run to remember after the write; none for a run that is over or unreadable.
    known: Option<KnownRun>,
    /// True if texts are left for the next write.
    more: bool,
}

impl Indexer {
    /// Creates an indexer that remembers nothing. `store` and `index` are the same database.
    #[must_use]
    pub fn new(store: Store, index: Arc<dyn AttemptIndex>, view: ViewFn, changes: ChangesFn) -> Self {
        Self { store, index, view, changes, known: Mutex::default(), scanned: Mutex::default() }
    }

    /// Brings runs up to date, many of them in one transaction. Runs that do not exist are skipped.
    ///
    /// A run that cannot be read does not hold up the others; the first error is returned at the end.
    pub async fn update(&self, runs: &[RunId]) -> Result<(), StoreError> {
        // Boxed, because the compiler cannot tell that the closure's futures are `Send`.
        let reads: Vec<BoxFuture<'_, _>> = runs.iter().map(|run| self.read(run).boxed()).collect();
        let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut result = Ok(());
        while let Some(read) = reads.next().await {
            match read {
                Ok(None) => {}
                Ok(Some(update)) => {
                    bytes += bytes_of(&update.indexed.documents);
                    batch.push(update);
                }
                Err(error) => result = result.and(Err(error)),
            }
            if batch.len() >= MAX_RUNS_PER_WRITE || bytes >= MAX_BYTES_PER_WRITE {
                bytes = 0;
                self.write(std::mem::take(&mut batch)).await?;
            }
        }
        self.write(batch).await?;
        result
    }

    /// Writes every run that is missing or outdated in the index, until this time. Returns the first error of a run, which
    /// does not hold up the others.
    pub async fn update_all(&self, until: Option<Instant>) -> Result<Option<StoreError>, StoreError> {
        self.update_from(0, until).await
    }

    /// Writes every run that is outdated in the index and was unfinished at the last two scans, or began after the first
    /// of them. The older scan counts, because a run that was not yet committed at the last scan may have an earlier position.
    /// Returns the first error of a run.
    pub(crate) async fn update_unfinished(&self) -> Result<Option<StoreError>, StoreError> {
        let [before_last, last] = *self.scanned();
        self.update_from(before_last.min(last), None).await
    }

    async fn update_from(&self, from: i64, until: Option<Instant>) -> Result<Option<StoreError>, StoreError> {
        let oldest_unfinished = self.index.oldest_unfinished_run().await?;
        let mut before = Vec::new();
        let mut unwritten = None;
        loop {
            let behind = self.index.runs_behind(FORM, from, RUNS_AT_ONCE).await?;
            for runs in behind.chunks(RUNS_PER_UPDATE) {
                if until.is_some_and(|until| Instant::now() >= until) {
                    tracing::warn!("the index of attempts is not up to date yet: lists may be incomplete");
                    return Ok(unwritten);
                }
                for run in runs {
                    self.forget(run);
                }
                unwritten = unwritten.or(self.update(runs).await.err());
            }
            // The next scan finds runs that are outdated again.
            if behind.len() < usize::try_from(RUNS_AT_ONCE).unwrap_or(usize::MAX) || behind == before {
                // After an error, the next scan begins at the same run again.
                let mut scanned = self.scanned();
                *scanned = if unwritten.is_some() { [from, from] } else { [scanned[1], oldest_unfinished] };
                return Ok(unwritten);
            }
            before = behind;
        }
    }

    /// Forgets a run, so that the next update writes all of it.
    fn forget(&self, run: &RunId) {
        self.known().take(run);
    }

    fn known(&self) -> MutexGuard<'_, KnownRuns> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scanned(&self) -> MutexGuard<'_, [i64; 2]> {
        self.scanned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, batch: Vec<Update>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut indexed = Vec::with_capacity(batch.len());
        let (mut written, mut unfinished) = (Vec::new(), Vec::new());
        for update in batch {
            let run = update.indexed.run.clone();
            indexed.push(update.indexed);
            match update.known {
                known if update.more => unfinished.push((run, known)),
                Some(known) => written.push((run, known)),
                None => {}
            }
        }
        self.index.put_index(indexed).await?;
        for (run, known) in written {
            self.known().keep(run, known);
        }
        for (run, known) in unfinished {
            self.write_rest(&run, known).await?;
        }
        Ok(())
    }

    /// Writes a run whose texts do not fit into one transaction.
    async fn write_rest(&self, run: &RunId, mut known: Option<KnownRun>) -> Result<(), StoreError> {
        for _ in 0..MAX_WRITES_PER_RUN {
            let Some(update) = self.read_whole(run, known).await? else { return Ok(()) };
            self.index.put_index(vec![update.indexed]).await?;
            known = update.known;
            if !update.more {
                if let Some(known) = known {
                    self.known().keep(run.clone(), known);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    async fn read(&self, run: &RunId) -> Result<Option<Update>, StoreError> {
        // If anything fails below, the run is forgotten.
        let known = self.known().take(run);
        match known {
            Some(known) if known.is_in_parts => self.read_changes(run, known).await,
            known => self.read_whole(run, known).await,
        }
    }

    /// Reads what changed of a run since it was written, or the whole run where that is not enough.
    async fn read_changes(&self, id: &RunId, mut known: KnownRun) -> Result<Option<Update>, StoreError> {
        let RunChanges { run, state } = match self.index.changes_of(id, known.revision).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            changes => changes?,
        };
        if run.status.is_final() || run.owner_epoch != known.owner_epoch {
            return self.read_whole(id, Some(known)).await;
        }
        if run.folded_seq == known.seq {
            known.revision = run.revision;
            self.known().keep(id.clone(), known);
            return Ok(None);
        }
        let attempts = known.rows.keys().next_back().copied().unwrap_or(0);
        let changed = state.map(|state| (self.changes)(state, attempts));
        let Some(Ok(Some(changed))) = changed else { return self.read_whole(id, Some(known)).await };
        let ChangedAttempts { attempts, best_attempt, failed_calls } = changed;
        if failed_calls != known.failed_calls {
            return self.read_whole(id, Some(known)).await;
        }
        let mut steps = Vec::new();
        let mut documents = HashSet::new();
        for attempt in &attempts {
            steps.extend(self.index.steps_in(id, &attempt.folder()).await?);
            documents.extend(self.index.documents_of(id, Some(attempt.number)).await?);
        }
        let facts = RunFacts {
            model: &known.input.model.label(),
            prepared: known.prepared.as_ref(),
            best_attempt,
            created_at: run.created_at,
            is_over: false,
        };
        let rows = project::rows(&attempts, &facts, &project::spans(&steps));
        let texts = attempts.iter().flat_map(texts::of_attempt).collect();
        let gathered = texts::gather(&*self.store.artifacts, texts, &rows, &documents).await?;
        let mut indexed = head(id, run.folded_seq, Some(&known.input));
        indexed.documents = gathered.documents;
        indexed.attempts = known.update(rows, best_attempt);
        (known.revision, known.seq) = (run.revision, run.folded_seq);
        Ok(Some(Update { indexed, known: Some(known), more: gathered.more }))
    }

    /// Reads a whole run. Rows that are known and did not change are not written again.
    async fn read_whole(&self, id: &RunId, known: Option<KnownRun>) -> Result<Option<Update>, StoreError> {
        let record = match self.store.runs.load_run(id).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            record => record?,
        };
        if record.folded_seq == 0 {
            return Ok(None);
        }
        let (known_input, known_rows) = known.map_or_else(Default::default, |known| (Some(known.input), known.rows));
        let input = match known_input {
            Some(input) => Some(input),
            None => self.input_of(id).await?,
        };
        let mut indexed = head(id, record.folded_seq, input.as_deref());
        let view = record.state.as_ref().map(|state| (self.view)(state));
        let (Some(input), Some(Ok(view))) = (input, view) else {
            // Written without attempts, so that later scans do not find it again.
            tracing::warn!(run.id = %id, "a run was stored in a form that this release cannot read: it is not listed");
            return Ok(Some(Update { indexed, known: None, more: false }));
        };
        let spans = project::spans(&self.store.runs.list_step_heads(id).await?);
        let is_over = record.status.is_final();
        let rows = project::indexed_attempts(&view, &input, &spans, record.created_at, is_over);
        let documents = self.index.documents_of(id, None).await?.into_iter().collect();
        let gathered = texts::gather(&*self.store.artifacts, texts::of_run(&view), &rows, &documents).await?;
        indexed.documents = gathered.documents;
        let prepared = view.prepared.map(|prepared| PreparedTask { profile: None, ..prepared });
        let mut known = KnownRun {
            revision: record.revision,
            owner_epoch: record.owner_epoch,
            seq: record.folded_seq,
            is_in_parts: record.state_parts > 0,
            input,
            prepared,
            failed_calls: view.failed_calls,
            rows: known_rows,
        };
        indexed.attempts = known.update(rows, view.best_attempt);
        Ok(Some(Update { indexed, known: (!is_over).then_some(known), more: gathered.more }))
    }

    /// Returns the input of a run, or none if its log does not contain it in a readable form.
    async fn input_of(&self, run: &RunId) -> Result<Option<Arc<RunInput>>, StoreError> {
        let first = self.store.runs.events_after(run, 0, 1).await?.into_iter().next();
        let Some(Event::RunCreated { input }) = first.map(|first| first.event) else { return Ok(None) };
        Ok(serde_json::from_value(input).ok().map(Arc::new))
    }
}

/// Returns an entry of the index without attempts and texts.
fn head(run: &RunId, seq: u64, input: Option<&RunInput>) -> IndexedRun {
    IndexedRun {
        run: run.clone(),
        seq,
        form: FORM,
        task: input.map_or(UNKNOWN, |input| &input.task_name).to_owned(),
        target: input.map_or(Target::Cpu, |input| input.target),
        strategy: input.map_or(UNKNOWN, |input| &input.strategy).to_owned(),
        attempts: Vec::new(),
        documents: Vec::new(),
    }
}

fn bytes_of(documents: &[Document]) -> usize {
    documents.iter().map(|document| document.body.len()).sum()
}
