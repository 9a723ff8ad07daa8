//! A stored prompt as the messages that it was sent as.

use serde::Serialize;

/// How a stored prompt begins.
const SYSTEM: &str = "# System\n\n";
/// What stands between the system's part and the user's.
const USER: &str = "\n# User\n\n";
/// What stands before an earlier reply.
const ASSISTANT: &str = "\n# Assistant\n\n";

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

fn message(role: &'static str, content: &str) -> Message {
    Message { role, content: content.to_owned() }
}

/// The messages of the last of some calls, each a stored prompt with its reply. An even turn asks again after an unusable
/// reply: its prompt is that of the turn before, the reply, and what was wrong. None when the texts do not fit together:
/// headings may stand in a program, too, so nothing is guessed.
#[must_use]
pub fn messages(calls: &[(&str, &str)], turn: u32) -> Option<Vec<Message>> {
    let (prompt, _) = calls.last()?;
    if turn % 2 == 1 {
        return first_turn(prompt);
    }
    let (before, reply) = calls.len().checked_sub(2).and_then(|place| calls.get(place))?;
    let repair = prompt.strip_prefix(before)?.strip_prefix(ASSISTANT)?;
    let shown = if reply.trim().is_empty() { "(no text)" } else { reply };
    let question = repair.strip_prefix(shown)?.strip_prefix(USER)?;
    let mut messages = first_turn(before)?;
    messages.extend([message("assistant", shown), message("user", question)]);
    Some(messages)
}

/// The system's part ends at the first heading: templates of that part have none of this kind.
fn first_turn(prompt: &str) -> Option<Vec<Message>> {
    let (system, user) = prompt.strip_prefix(SYSTEM)?.split_once(USER)?;
    Some(vec![message("system", system), message("user", user)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "# System\n\nBe brief.\n\n# User\n\nWrite.\n# User\n\nstays in the text";

    #[test]
    fn a_first_turn_is_a_system_message_and_a_question() {
        let found = messages(&[(FIRST, "reply")], 1);
        assert_eq!(
            found,
            Some(vec![message("system", "Be brief.\n"), message("user", "Write.\n# User\n\nstays in the text")])
        );
        assert_eq!(messages(&[("no headings", "reply")], 1), None);
    }

    #[test]
    fn a_repair_turn_repeats_what_was_said_before() {
        let second = format!("{FIRST}\n# Assistant\n\nno code\n# User\n\nOne block, please.");
        let found = messages(&[(FIRST, "no code"), (&second, "```cpp\n```")], 2).unwrap_or_default();
        let roles: Vec<&str> = found.iter().map(|message| message.role).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!(found[3].content, "One block, please.");
        assert_eq!(messages(&[(FIRST, "another reply"), (&second, "x")], 2), None, "nothing is guessed");
    }

    #[test]
    fn a_third_turn_begins_anew() {
        let second = format!("{FIRST}\n# Assistant\n\nno code\n# User\n\nOne block, please.");
        let found = messages(&[(FIRST, "no code"), (&second, "still none"), (FIRST, "code")], 3);
        assert_eq!(found.map(|found| found.len()), Some(2));
    }
}
