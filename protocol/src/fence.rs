//! Fences of blocks in Markdown.

/// Returns a fence that nothing in the text can close.
#[must_use]
pub fn fence_of(text: &str) -> String {
    let longest_run = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest_run.max(2) + 1)
}
