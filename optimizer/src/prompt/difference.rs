//! Differences between two programs.

use similar::TextDiff;

use super::format::clipped;

/// Lines around a change that are shown with it.
const CONTEXT_LINES: usize = 3;
/// Most bytes of a difference.
const MAX_BYTES: usize = 12_000;

/// Returns what differs between two programs as a unified difference, clipped where it is long.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let lines = TextDiff::from_lines(before, after);
    clipped(&lines.unified_diff().context_radius(CONTEXT_LINES).to_string(), MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_with_what_stands_around_it() {
        let numbers: Vec<String> = (1..=20).map(|number| format!("line {number}\n")).collect();
        let before = numbers.concat();
        let shown = difference(&before, &before.replace("line 9\n", "line nine\n"));
        assert!(shown.contains("-line 9\n+line nine\n") && shown.contains(" line 6\n"), "{shown}");
        assert!(!shown.contains("line 5\n") && !shown.contains("line 13\n"), "{shown}");
        assert_eq!(difference(&before, &before), "");
        assert!(difference("", &"x\n".repeat(MAX_BYTES)).len() < MAX_BYTES + 100);
    }
}
