//! Limits the length of every answer, which is structured and has a copy as text.

use rmcp::model::CallToolResult;
use serde_json::Value;

use crate::error::ToolError;
use crate::limits::{AROUND_WINDOW_BYTES, MAX_WINDOW_BYTES};

/// Returns the answer, or an error in place of an answer that is too long. Tools limit their answers themselves; this
/// is a second check.
pub(crate) fn bounded(tool: &str, value: Value) -> Result<CallToolResult, ToolError> {
    let result = CallToolResult::structured(value);
    let length = result.structured_content.as_ref().map_or(0, |value| value.to_string().len());
    let most = MAX_WINDOW_BYTES + AROUND_WINDOW_BYTES;
    if length > most {
        return Err(ToolError::new(
            "internal.answer_too_long",
            format!("the answer of {tool} has {length} bytes, and at most {most} are given"),
        )
        .hint("ask for fewer rows or a smaller `limit`"));
    }
    Ok(result)
}
