//! Long polls: hold a call until there is an answer.

use std::time::Duration;

use nightshift_protocol::api::MAX_WAIT_MS;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::call_limits::CallLimits;
use crate::error::ApiFailure;
use crate::shared::Shared;

/// Polling interval of a held call, in case a wake-up was lost.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Calls `look` until it returns a value, the waiting time is over, or the server stops. Returns the last result in any
/// case.
pub(crate) async fn hold<T, F, L>(
    shared: &Shared,
    limits: &CallLimits,
    bell: &Notify,
    wait_ms: u64,
    mut look: L,
) -> Result<T, ApiFailure>
where
    F: Future<Output = Result<(bool, T), ApiFailure>>,
    L: FnMut() -> F,
{
    let until = Instant::now() + Duration::from_millis(wait_ms.min(MAX_WAIT_MS));
    let Ok(_permit) = limits.held_polls.try_acquire() else { return Ok(look().await?.1) };
    loop {
        // Register before looking, so that no wake-up is lost in between.
        let rung = bell.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();
        let (found, value) = look().await?;
        let now = Instant::now();
        if found || now >= until || shared.shutdown.is_cancelled() {
            return Ok(value);
        }
        tokio::select! {
            () = shared.shutdown.cancelled() => return Ok(value),
            () = rung => {}
            () = tokio::time::sleep_until(until.min(now + LOOK_EVERY)) => {}
        }
    }
}
