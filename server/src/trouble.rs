//! The last trouble of the store, for `GET /health`.

use std::sync::{Mutex, PoisonError};

use nightshift_engine::store::StoreError;

/// What the background loops found out about the store.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Option<StoreError>>);

impl Trouble {
    /// Notes the outcome of a call that changes the store: an error that somebody has to mend stays until a later call
    /// succeeds.
    pub(crate) fn note<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None,
            Err(error) if is_grave(error) => {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
            }
            Err(_) => {}
        }
    }

    /// Notes the error of a call that does not always write, so that its success proves nothing.
    pub(crate) fn note_error<T>(&self, result: &Result<T, StoreError>) {
        if result.is_err() {
            self.note(result);
        }
    }

    /// Notes that the database answered: it can be reached, whatever else may be wrong with it.
    pub(crate) fn note_answer(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|error| matches!(error, StoreError::Unreachable(_)));
    }

    /// The trouble, if there is any.
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
        let trouble = Trouble::default();
        trouble.note::<()>(&Err(StoreError::Full("no space".to_owned())));
        trouble.note::<()>(&Err(StoreError::Other("hiccup".to_owned())));
        assert_eq!(trouble.current().map(|error| error.code()), Some("store.full"));
        trouble.note_error(&Ok(()));
        trouble.note_answer();
        assert!(trouble.current().is_some());
        trouble.note(&Ok(()));
        assert!(trouble.current().is_none());
    }

    #[test]
    fn a_database_that_answers_again_is_no_trouble_even_when_nothing_is_written() {
        let trouble = Trouble::default();
        trouble.note::<()>(&Err(StoreError::Unreachable("down".to_owned())));
        assert_eq!(trouble.current().map(|error| error.code()), Some("store.unreachable"));
        trouble.note_answer();
        assert!(trouble.current().is_none());
    }
}
