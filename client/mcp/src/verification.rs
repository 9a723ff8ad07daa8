//! Verifications of this process, run one after the other and addressed by their handles.
//!
//! A verification is independent of the call that started it. It continues when the client cancels the call or
//! disconnects, and ends with the process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::ToolError;
use crate::limits::{CLOSE_TIMEOUT, MAX_ENDED_VERIFICATIONS, MAX_KEY_CHARS, MAX_OPEN_VERIFICATIONS, PROGRESS_INTERVAL};
use crate::ports::{Judge, Judged, VerifyRequest};
use crate::progress::Progress;

/// Prefix of the handles.
const PREFIX: &str = "ver_";

/// State of a verification.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// It waits for others: concurrent measurements on one machine would disturb each other.
    Queued,
    /// It is running.
    Running,
    /// It ended.
    Ended(Arc<Result<Judged, ToolError>>),
}

/// One verification.
#[derive(Debug)]
pub(crate) struct Verification {
    /// Its handle, which cannot be guessed.
    pub(crate) id: String,
    /// The request.
    pub(crate) request: VerifyRequest,
    key: Option<String>,
    since: Instant,
    cancel: CancellationToken,
    stage: watch::Receiver<Stage>,
}

impl Verification {
    /// Returns its state.
    pub(crate) fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    /// Returns the seconds since its start.
    pub(crate) fn age_s(&self) -> u64 {
        self.since.elapsed().as_secs()
    }

    /// Ends it early.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    fn is_open(&self) -> bool {
        !matches!(*self.stage.borrow(), Stage::Ended(_))
    }

    /// Waits for its end, up to a timeout, and reports progress.
    pub(crate) async fn wait(&self, time: Duration, progress: &Progress) -> Stage {
        let until = Instant::now() + time;
        let mut stage = self.stage.clone();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.is_open() {
                return self.stage();
            }
            let ended = stage.wait_for(|stage| matches!(stage, Stage::Ended(_)));
            if tokio::time::timeout(left.min(PROGRESS_INTERVAL), ended).await.is_err() {
                let doing = if matches!(self.stage(), Stage::Queued) { "waiting for others" } else { "judging" };
                progress.say(&format!("{doing}, {} s", self.age_s())).await;
            }
        }
    }
}

/// All verifications of this process.
pub(crate) struct Verifications {
    judge: Arc<dyn Judge>,
    all: Mutex<VecDeque<Arc<Verification>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Verifications {
    pub(crate) fn new(judge: Arc<dyn Judge>) -> Self {
        Self { judge, all: Mutex::default(), turn: Arc::default() }
    }

    /// Starts a verification, or returns the one that this key, or the same open request, started before.
    pub(crate) fn start(&self, request: VerifyRequest, key: Option<String>) -> Result<Arc<Verification>, ToolError> {
        if key.as_ref().is_some_and(|key| key.is_empty() || key.chars().count() > MAX_KEY_CHARS) {
            return Err(ToolError::new(
                "request.invalid_arguments",
                format!("`idempotency_key` has between 1 and {MAX_KEY_CHARS} characters"),
            ));
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let same_key = key.as_ref().and_then(|key| all.iter().find(|known| known.key.as_ref() == Some(key)));
        if let Some(known) = same_key {
            if known.request == request {
                return Ok(known.clone());
            }
            return Err(ToolError::new(
                "request.key_reused",
                format!("this `idempotency_key` began {} with another program or other options", known.id),
            )
            .hint("use a new key for a new program"));
        }
        if let Some(known) = all.iter().find(|known| key.is_none() && known.is_open() && known.request == request) {
            return Ok(known.clone());
        }
        if all.iter().filter(|known| known.is_open()).count() >= MAX_OPEN_VERIFICATIONS {
            return Err(ToolError::new(
                "verification.too_many",
                format!(
                    "{MAX_OPEN_VERIFICATIONS} verifications are open already, and they are judged one after the other"
                ),
            )
            .hint("wait for them with get_verification, or end some with cancel_verification"));
        }
        let verification = self.spawn(request, key);
        all.push_back(verification.clone());
        // The oldest ended ones are removed.
        while all.iter().filter(|known| !known.is_open()).count() > MAX_ENDED_VERIFICATIONS {
            let Some(oldest) = all.iter().position(|known| !known.is_open()) else { break };
            all.remove(oldest);
        }
        Ok(verification)
    }

    fn spawn(&self, request: VerifyRequest, key: Option<String>) -> Arc<Verification> {
        let (tell, stage) = watch::channel(Stage::Queued);
        let cancel = CancellationToken::new();
        let (judge, turn) = (self.judge.clone(), self.turn.clone());
        let (wanted, stop) = (request.clone(), cancel.clone());
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = turn.lock_owned() => Some(turn),
                () = stop.cancelled() => None,
            };
            let result = if turn.is_some() {
                tell.send_replace(Stage::Running);
                judge.judge(wanted, stop.clone()).await
            } else {
                Err(ToolError::new("verification.cancelled", "cancelled before it was judged"))
            };
            tell.send_replace(Stage::Ended(Arc::new(result)));
        });
        let id = format!("{PREFIX}{}", Uuid::now_v7().simple());
        Arc::new(Verification { id, request, key, since: Instant::now(), cancel, stage })
    }

    /// Returns the verification of this handle.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<Verification>, ToolError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|known| known.id == id).cloned().ok_or_else(|| {
            ToolError::new(
                "verification.not_found",
                format!("there is no verification `{}` in this process", crate::text::name(id)),
            )
            .hint(format!(
                "handles end with the process, and the last {MAX_ENDED_VERIFICATIONS} ended ones are kept: call verify_program again"
            ))
        })
    }

    /// Ends all open verifications, and waits until the running one has ended its processes.
    pub(crate) async fn close(&self) {
        for verification in self.all.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            verification.cancel();
        }
        if tokio::time::timeout(CLOSE_TIMEOUT, self.turn.lock()).await.is_err() {
            tracing::warn!("a verification did not end in time");
        }
    }
}
