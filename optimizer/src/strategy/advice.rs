//! What people advised a run: kept with its state, handed to the agents newest first, bounded in number and length.

use nightshift_protocol::signal::MAX_HINT_CHARS;

use super::state::RunState;

/// Most hints that a run keeps; older ones are forgotten.
pub const MAX_HINTS: usize = 20;
/// Most characters of all hints in one prompt.
pub const MAX_ADVICE_CHARS: usize = 8_000;

impl RunState {
    /// Keeps a hint. One that says nothing is left out.
    pub(super) fn take_hint(&mut self, text: &str) {
        let printable = text.trim().chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
        let hint: String = printable.take(MAX_HINT_CHARS).collect();
        if hint.is_empty() {
            return;
        }
        self.hints.push(hint);
        let forgotten = self.hints.len().saturating_sub(MAX_HINTS);
        self.hints.drain(..forgotten);
    }

    /// The hints for a prompt: the newest first, whole, as many as fit.
    pub(super) fn advice(&self) -> Vec<String> {
        let mut room = MAX_ADVICE_CHARS;
        let mut advice = Vec::new();
        for hint in self.hints.iter().rev() {
            let Some(left) = room.checked_sub(hint.chars().count()) else { break };
            room = left;
            advice.push(hint.clone());
        }
        advice
    }
}
