//! Texts of a conversation: what is kept of it, and what is shown again.

use crate::model::ModelRequest;

/// Most bytes of an earlier reply that are shown to the model again.
const MAX_EARLIER_BYTES: usize = 64 * 1024;

/// The prompt as it is kept for people.
pub(super) fn transcript(request: &ModelRequest) -> String {
    let mut parts = vec![format!("# System\n\n{}\n# User\n\n{}", request.system, request.user)];
    for (assistant, user) in &request.earlier {
        parts.push(format!("# Assistant\n\n{assistant}\n# User\n\n{user}"));
    }
    parts.join("\n")
}

/// The request with a text at the end of its last message.
pub(super) fn with_note(request: &ModelRequest, note: &str) -> ModelRequest {
    let mut request = request.clone();
    if !note.is_empty() {
        let last = request.earlier.last_mut().map_or(&mut request.user, |(_, user)| user);
        last.push_str("\n\n");
        last.push_str(note);
    }
    request
}

/// An earlier reply as the model sees it again. Some endpoints accept no empty message.
pub(in crate::agent) fn shown_again(reply: &str) -> String {
    if reply.trim().is_empty() { "(no text)".to_owned() } else { clip(reply, MAX_EARLIER_BYTES).to_owned() }
}

pub(super) fn clip(text: &str, limit_bytes: usize) -> &str {
    let end = (0..=limit_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_clipped_between_characters() {
        assert_eq!(clip("éé", 3), "é");
        assert_eq!(clip("abc", 9), "abc");
    }
}
