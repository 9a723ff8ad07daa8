//! What a program printed last, in one line: where it ended by an exception, that is why.

/// Longest line that is quoted, in characters.
pub const MAX_LAST_WORDS_CHARS: usize = 200;

/// The line of a program's last output that says most: the last exception of Python, else the last line. It is cut, and
/// holds nothing that steers a terminal. None where nothing was printed.
#[must_use]
pub fn last_words(printed: &str) -> Option<String> {
    let mut lines = printed.lines().map(str::trim).filter(|line| !line.is_empty());
    // Behind the exception there may be advice.
    let raised = lines.clone().rfind(|line| is_exception(line));
    raised.or_else(|| lines.next_back()).map(quoted)
}

/// `ValueError: boom`, `torch.AcceleratorError: CUDA error`, `AssertionError`.
fn is_exception(line: &str) -> bool {
    line.split(':').next().is_some_and(|name| name.ends_with("Error") && !name.contains(' '))
}

fn quoted(line: &str) -> String {
    let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    match line.char_indices().nth(MAX_LAST_WORDS_CHARS) {
        None => line.chars().map(harmless).collect(),
        Some(_) => line.chars().take(MAX_LAST_WORDS_CHARS - 1).map(harmless).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_last_words_the_exception_is_quoted() {
        let raised = "torch._inductor.exc.InductorError: CalledProcessError: Command failed";
        let printed = format!("Traceback (most recent call last):\n{raised}\n\nSet TORCHDYNAMO_VERBOSE=1\n");
        assert_eq!(last_words(&printed).as_deref(), Some(raised));
        assert_eq!(last_words("x is 1\n  AssertionError\n").as_deref(), Some("AssertionError"));
    }

    #[test]
    fn without_an_exception_the_last_line_is() {
        assert_eq!(last_words("begun\nSegmentation fault\n\n").as_deref(), Some("Segmentation fault"));
        assert_eq!(last_words("\n \n"), None);
    }

    #[test]
    fn last_words_are_short_and_steer_no_terminal() {
        assert_eq!(last_words("ValueError: a\u{1b}[2Jb\u{9b}").as_deref(), Some("ValueError: a\u{fffd}[2Jb\u{fffd}"));
        let long = last_words(&"é".repeat(MAX_LAST_WORDS_CHARS + 1)).unwrap_or_default();
        assert_eq!((long.chars().count(), long.chars().last()), (MAX_LAST_WORDS_CHARS, Some('…')));
        let whole = "é".repeat(MAX_LAST_WORDS_CHARS);
        assert_eq!(last_words(&whole), Some(whole));
    }
}
