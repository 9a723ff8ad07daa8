//! Moves artifacts of earlier releases from the database into the object store, once after the start.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_protocol::artifact::ArtifactHash;

use crate::shared::Shared;

/// Pause between two steps, in which others write.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after an error.
const RETRY: Duration = Duration::from_mins(1);

/// Name of this loop in error logs.
const DOING: &str = "moving artifacts into the object store";

/// Runs until everything is moved or the server ends. Each step can be aborted and repeated.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut after, mut moved) = (None, 0);
    loop {
        let step = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            step = step(&shared, &mut after, &mut moved) => step,
        };
        shared.store_health.note_error(&step);
        let pause = match step {
            Ok(true) => {
                shared.error_log.worked(DOING);
                PAUSE
            }
            Ok(false) => {
                shared.error_log.worked(DOING);
                if moved > 0 {
                    tracing::info!(artifacts = moved, "artifacts were moved from the database into the object store");
                }
                // The server ends when one of its loops ends.
                shared.shutdown.cancelled().await;
                return;
            }
            Err(error) => {
                shared.error_log.failed(DOING, &error);
                RETRY
            }
        };
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Moves some artifacts. Returns whether there may be more.
async fn step(shared: &Shared, after: &mut Option<ArtifactHash>, moved: &mut u64) -> Result<bool, StoreError> {
    let some = shared.store.artifacts.move_artifacts(after.clone(), shared.clock.now()).await?;
    *moved += some.artifacts;
    let more = some.last.is_some();
    *after = some.last;
    Ok(more)
}
