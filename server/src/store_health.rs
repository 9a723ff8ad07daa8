//! The current problem of the store, for `GET /health`.

use std::sync::{Mutex, PoisonError};

use nightshift_engine::store::StoreError;

/// The store's health, as the background loops observed it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Option<StoreError>>);

impl StoreHealth {
    /// Records the outcome of a call that writes. An error that needs intervention remains until a later call succeeds.
    pub(crate) fn note<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None,
            Err(error) if is_grave(error) => {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
            }
            Err(_) => {}
        }
    }

    /// Records the error of a call that does not always write, so that its success proves nothing.
    pub(crate) fn note_error<T>(&self, result: &Result<T, StoreError>) {
        if result.is_err() {
            self.note(result);
        }
    }

    /// Records that the database answered and is reachable.
    pub(crate) fn note_answer(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|error| matches!(error, StoreError::Unreachable(_)));
    }

    /// Returns the current problem, if any.
    pub(crate) fn current(&self) -> Option<StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_grave(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Locked(_)
            | StoreError::ReadOnly(_)
            | StoreError::Full(_)
            | StoreError::Corrupt(_)
            | StoreError::TooNew(_)
            | StoreError::Unreachable(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_stays_in_sight_until_a_write_succeeds() {
        let health = StoreHealth::default();
        health.note::<()>(&Err(StoreError::Full("no space".to_owned())));
        health.note::<()>(&Err(StoreError::Other("hiccup".to_owned())));
        assert_eq!(health.current().map(|error| error.code()), Some("store.full"));
        health.note_error(&Ok(()));
        health.note_answer();
        assert!(health.current().is_some());
        health.note(&Ok(()));
        assert!(health.current().is_none());
    }

    #[test]
    fn a_database_that_answers_again_is_no_trouble_even_when_nothing_is_written() {
        let health = StoreHealth::default();
        health.note::<()>(&Err(StoreError::Unreachable("down".to_owned())));
        assert_eq!(health.current().map(|error| error.code()), Some("store.unreachable"));
        health.note_answer();
        assert!(health.current().is_none());
    }
}
