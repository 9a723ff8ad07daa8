//! Holding a call until there is something to say.

use std::time::Duration;

use nightshift_protocol::api::MAX_WAIT_MS;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::app::App;
use crate::error::ApiFailure;

/// How often a held call looks by itself: the truth behind the wake-ups.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Calls `look` until it gives something, the waiting time is over, or the server stops. The last look's result is
/// given either way.
pub(crate) async fn hold<T, F, L>(app: &App, bell: &Notify, wait_ms: u64, mut look: L) -> Result<T, ApiFailure>
where
    F: Future<Output = Result<(bool, T), ApiFailure>>,
    L: FnMut() -> F,
{
    let until = Instant::now() + Duration::from_millis(wait_ms.min(MAX_WAIT_MS));
    let Ok(_permit) = app.held_polls.try_acquire() else { return Ok(look().await?.1) };
    loop {
        // Interest is registered before looking, so that no wake-up falls between the two.
        let rung = bell.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();
        let (found, value) = look().await?;
        let now = Instant::now();
        if found || now >= until || app.shutdown.is_cancelled() {
            return Ok(value);
        }
        tokio::select! {
            () = app.shutdown.cancelled() => return Ok(value),
            () = rung => {}
            () = tokio::time::sleep_until(until.min(now + LOOK_EVERY)) => {}
        }
    }
}
