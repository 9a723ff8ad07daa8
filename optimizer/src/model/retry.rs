//! Tries within one call, for trouble that passes in seconds. Longer waits belong to the durable retries of the step.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use super::ModelError;

/// Tries of one call altogether.
pub const IN_CALL_TRIES: usize = 4;

/// Longest wait within a call. An endpoint that wants more gets it as a durable timer of the step, which survives a
/// restart and holds no connection.
pub const MAX_IN_CALL_WAIT: Duration = Duration::from_secs(30);

/// Whether the trouble may pass within seconds.
fn may_pass_soon(error: &ModelError) -> bool {
    match error {
        // What keeps a try from beginning, such as parallel work that holds the budget, takes longer than a call may wait.
        ModelError::NotBegun(_) => false,
        // The step counts its tries that may be charged for.
        other => {
            let is_near =
                other.retry_after_ms().is_none_or(|wait_ms| Duration::from_millis(wait_ms) <= MAX_IN_CALL_WAIT);
            is_near && other.is_retriable() && !other.lost_its_reply()
        }
    }
}

/// Carries out `attempt` until it succeeds, fails for good, or the tries are used up.
pub(super) async fn with_retries<T, F, Fut>(endpoint: &str, first_delay: Duration, attempt: F) -> Result<T, ModelError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ModelError>>,
{
    let backoff = ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(first_delay)
        .with_max_delay(MAX_IN_CALL_WAIT)
        .with_max_times(IN_CALL_TRIES - 1);
    attempt
        .retry(backoff)
        .when(may_pass_soon)
        .adjust(|error: &ModelError, delay| {
            let wanted = Duration::from_millis(error.retry_after_ms().unwrap_or(0));
            delay.map(|delay| delay.max(wanted))
        })
        .notify(|error: &ModelError, delay| {
            tracing::warn!(
                model.endpoint = endpoint,
                error.code = error.code(),
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "a model call is tried again"
            );
        })
        .await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    fn limited(retry_after_ms: Option<u64>) -> ModelError {
        ModelError::RateLimited { endpoint: "e".to_owned(), status: 429, retry_after_ms, excerpt: String::new() }
    }

    fn server_error() -> ModelError {
        ModelError::ServerError { endpoint: "e".to_owned(), status: 500, retry_after_ms: None, excerpt: String::new() }
    }

    /// Plays the outcomes and says how many were used and how long it took.
    async fn play(outcomes: Vec<Result<u32, ModelError>>) -> (Result<u32, ModelError>, usize, Duration) {
        let total = outcomes.len();
        let left = Mutex::new(outcomes.into_iter());
        let began = Instant::now();
        let result = with_retries("e", Duration::from_millis(500), || async {
            left.lock().ok().and_then(|mut left| left.next()).unwrap_or_else(|| panic!("more tries than outcomes"))
        })
        .await;
        let used = total - left.lock().map_or(0, |left| left.len());
        (result, used, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn passing_trouble_is_tried_again() {
        let (result, used, _) = play(vec![Err(server_error()), Err(limited(None)), Ok(7)]).await;
        assert!(matches!(result, Ok(7)));
        assert_eq!(used, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_are_bounded() {
        let (result, used, _) = play((0..10).map(|_| Err(server_error())).collect()).await;
        assert!(matches!(result, Err(ModelError::ServerError { .. })));
        assert_eq!(used, IN_CALL_TRIES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_retry_after_is_waited_for() {
        let (result, _, waited) = play(vec![Err(limited(Some(20_000))), Ok(1)]).await;
        assert!(result.is_ok());
        assert!(waited >= Duration::from_secs(20), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_retry_after_is_handed_back_at_once() {
        let (result, used, waited) = play(vec![Err(limited(Some(3_600_000))), Ok(1)]).await;
        assert_eq!(result.err().and_then(|error| error.retry_after_ms()), Some(3_600_000));
        assert_eq!((used, waited), (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_server_that_names_a_time_is_not_asked_before() {
        let failing = ModelError::ServerError {
            endpoint: "e".to_owned(),
            status: 502,
            retry_after_ms: Some(3_600_000),
            excerpt: String::new(),
        };
        let (result, used, _) = play(vec![Err(failing), Ok(1)]).await;
        assert_eq!((result.err().and_then(|error| error.retry_after_ms()), used), (Some(3_600_000), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_may_have_been_paid_for_is_not_asked_for_again() {
        let message = "no end marker".to_owned();
        let cut_off = ModelError::Truncated { endpoint: "e".to_owned(), bytes: 7, message };
        let (result, used, _) = play(vec![Err(cut_off), Ok(1)]).await;
        assert!(matches!(result, Err(ModelError::Truncated { .. })));
        assert_eq!(used, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_heal_is_not_tried_again() {
        let refused = ModelError::Refused { endpoint: "e".to_owned(), excerpt: String::new() };
        let (result, used, _) = play(vec![Err(refused), Ok(1)]).await;
        assert!(matches!(result, Err(ModelError::Refused { .. })));
        assert_eq!(used, 1);
    }
}
