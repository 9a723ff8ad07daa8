//! Errors of tools, worded for the model that called the tool.

use nightshift_client::ClientError;
use nightshift_protocol::error::ApiError;

use crate::ellipsis::cut;
use crate::limits::MAX_ERROR_BYTES;

/// An error of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// A stable code, for example `task.not_found`.
    pub code: String,
    /// What failed, and the reason.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl ToolError {
    /// Creates an error without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the text that the model reads.
    #[must_use]
    pub fn text(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\nWhat to do: {hint}"));
        let message = cut(&self.message, MAX_ERROR_BYTES - 512);
        format!("{message}\nCode: {}{}", self.code, cut(&hint, 400))
    }
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        error.to_api_error().into()
    }
}

impl From<ApiError> for ToolError {
    fn from(error: ApiError) -> Self {
        let hint = match error.code.as_str() {
            "server.unreachable" => {
                Some("ask the user to start the server (`nightshift serve`) or to check its address")
            }
            "auth.required" | "auth.wrong_token" | "token.expired" | "token.revoked" => Some(
                "ask the user for a token (`nightshift token create NAME --role viewer`) in NIGHTSHIFT_SERVER__TOKEN",
            ),
            "access.role_needed" => Some("ask the user for a token of that role; do not try again with this one"),
            "run.not_found" => Some("list_runs shows the runs"),
            "request.lease_lost" | "request.answered" | "request.expired" | "request.cancelled" => {
                Some("ask for another one with next_request")
            }
            "campaign.not_found" => Some("list_campaigns shows the campaigns"),
            _ => None,
        };
        Self { code: error.code, message: error.message, hint: hint.map(str::to_owned) }
    }
}
