//! The error of a command, with a stable code, a hint and an exit code.

use nightshift_client::ClientError;
use nightshift_engine::store::StoreError;
use nightshift_protocol::error::{ApiError, ExitCode};
use serde_json::Value;

/// What every command gives.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct Failure {
    /// Code and message.
    pub(crate) error: ApiError,
    /// What to do, when the message does not say it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure with a code of `docs/reference/errors.md`.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self::from(ApiError::new(code, message))
    }

    /// Says what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds facts for programs.
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.error.details = details;
        self
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::for_error_code(&self.error.code)
    }

    /// Returns whether the reader of our output went away: the command ends quietly.
    pub(crate) fn is_closed_output(&self) -> bool {
        self.error.code == CLOSED_OUTPUT
    }

    /// An output that could not be written.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::new(CLOSED_OUTPUT, "the reader of the output went away")
        } else {
            Self::new("output.failed", format!("the output cannot be written: {error}"))
        }
    }
}

/// Never printed: see [`Failure::is_closed_output`].
const CLOSED_OUTPUT: &str = "output.closed";

/// A signal came before the answer.
pub(crate) const INTERRUPTED: &str = "command.interrupted";

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let hint = default_hint(&error.code).map(str::to_owned);
        Self { error, hint }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        error.to_api_error().into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        ApiError::new(error.code(), error.to_string()).into()
    }
}

/// What to do about a code, wherever it came from.
fn default_hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "server.unreachable" => "is the server running, and is the address right? `nightshift serve` starts one",
        "auth.required" => "give the server's token with --token or NIGHTSHIFT_SERVER__TOKEN",
        "auth.wrong_token" => "check --token, NIGHTSHIFT_SERVER__TOKEN and the configuration file",
        "store.locked" => "end the other process, wait for it, or use another --data-dir",
        "store.read_only" => {
            "make the folder writable or use another --data-dir; on Postgres, give the role the rights to create and \
             change tables"
        }
        "store.full" => "free some space: nothing that was acknowledged is lost, and `nightshift resume` goes on",
        "store.too_new" => "use the release of nightshift that wrote it, or another --data-dir",
        "store.unreachable" => {
            "is Postgres running, and is database.url (DATABASE_URL) right? `nightshift doctor` looks"
        }
        "access.role_needed" => "ask an administrator for a token of that role: `nightshift token create`",
        "token.expired" | "token.revoked" => "ask an administrator for a new one: `nightshift token create`",
        "token.not_found" => "`nightshift token list` shows the tokens",
        "worker.not_found" => "`nightshift list workers` shows the workers",
        "campaign.not_found" => "`nightshift list` shows the campaigns",
        "request.not_found" => "`nightshift requests list --all` shows the requests",
        "attempt.not_found" => "`nightshift show RUN` shows the attempts of a run",
        "request.illegal_transition" => {
            "`nightshift show RUN` shows the state of a run; a cancelled run cannot go on: begin a new one with \
             `nightshift run`"
        }
        "run.not_found" => "`nightshift list runs` shows the runs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_from_the_code() {
        assert_eq!(Failure::new("store.locked", "x").exit_code(), ExitCode::Store);
        assert_eq!(Failure::new("config.unknown_key", "x").exit_code(), ExitCode::Usage);
        assert_eq!(Failure::new("run.ambiguous", "x").exit_code(), ExitCode::NotFound);
        assert_eq!(Failure::new("attempt.torch_form", "x").exit_code(), ExitCode::InvalidInput);
        assert_eq!(Failure::new("attempt.not_found", "x").exit_code(), ExitCode::NotFound);
        assert_eq!(Failure::new("token.not_found", "x").exit_code(), ExitCode::NotFound);
        assert_eq!(Failure::new("token.revoked", "x").exit_code(), ExitCode::Environment);
        assert_eq!(Failure::new("token.invalid_name", "x").exit_code(), ExitCode::InvalidInput);
        assert_eq!(Failure::new("access.role_needed", "x").exit_code(), ExitCode::Environment);
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_to_be_shown() {
        let gone = Failure::output(&std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(gone.is_closed_output());
        assert!(!Failure::output(&std::io::Error::from(std::io::ErrorKind::StorageFull)).is_closed_output());
    }
}
