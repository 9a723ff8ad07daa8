//! Reasoning that some models write into their reply.

use std::borrow::Cow;

/// The tags that enclose reasoning.
const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// The reply without its reasoning blocks. A block that is never closed reaches to the end; a closing tag without an
/// opening one (the prompt template of some models opens it) ends a block that began with the reply.
#[must_use]
pub fn strip_reasoning(reply: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(reply);
    for (open, close) in TAGS {
        if text.contains(open) || text.contains(close) {
            text = Cow::Owned(without(&text, open, close));
        }
    }
    text
}

fn without(text: &str, open: &str, close: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        match (rest.find(open), rest.find(close)) {
            (Some(begin), end) if end.is_none_or(|end| begin < end) => {
                kept.push_str(&rest[..begin]);
                let inside = &rest[begin + open.len()..];
                let Some(end) = inside.find(close) else { return kept };
                rest = &inside[end + close.len()..];
            }
            (_, Some(end)) => {
                // All that came before was reasoning.
                kept.clear();
                rest = &rest[end + close.len()..];
            }
            (_, None) => {
                kept.push_str(rest);
                return kept;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_removed_wherever_it_stands() {
        for (reply, expected) in [
            ("no tags", "no tags"),
            ("<think>hm</think>answer", "answer"),
            ("a<think>1</think>b<think>2</think>c", "abc"),
            ("answer<think>never closed ```cpp", "answer"),
            ("the template opened it</think>answer", "answer"),
            ("<think>a<think>b</think>c</think>answer", "answer"),
            ("<thinking>hm</thinking>answer", "answer"),
            ("<think></think>", ""),
        ] {
            assert_eq!(strip_reasoning(reply), expected, "{reply}");
        }
    }
}
