//! Edits of a program: blocks that say what to search and what to put in its place, applied strictly.
//!
//! ```text
//! <<<<<<< SEARCH
//! the lines as they stand in the program
//! =======
//! the lines that replace them
//! >>>>>>> REPLACE
//! ```

use nightshift_protocol::attempt::{EDIT_DIVIDER as DIVIDER, EDIT_REPLACE as REPLACE, EDIT_SEARCH as SEARCH};

/// Most blocks of one reply.
pub const MAX_EDITS: usize = 64;

/// Most characters of a searched text that are repeated in a message.
const MAX_SHOWN_CHARS: usize = 120;

/// Why edits cannot be applied. The text is made for the repair turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditProblem {
    /// A block that does not keep the form.
    #[error("edit {edit} does not keep the form: {what}")]
    Malformed {
        /// Number of the block, from 1.
        edit: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Too many.
    #[error("the reply has {count} edits; at most {MAX_EDITS} are applied: write the whole program instead")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Nothing to search for.
    #[error("edit {edit} searches for nothing")]
    EmptySearch {
        /// Number of the block, from 1.
        edit: usize,
    },
    /// The searched text is not there.
    #[error("edit {edit} does not match: the program has no place that reads exactly `{searched}`{hint}")]
    NoMatch {
        /// Number of the block, from 1.
        edit: usize,
        /// The beginning of what was searched for.
        searched: String,
        /// Where something similar stands.
        hint: String,
    },
    /// The searched text is there more than once.
    #[error("edit {edit} matches {count} places (lines {lines}); search for more lines, so that one is left")]
    Ambiguous {
        /// Number of the block, from 1.
        edit: usize,
        /// How many.
        count: usize,
        /// Their first lines.
        lines: String,
    },
    /// The reply changes only comments and blanks.
    #[error("the reply changes nothing but comments and blanks: change the code")]
    NoChange,
    /// There is no program to be edited.
    #[error("there is no program to edit yet: write the whole program")]
    NothingToEdit,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Whole lines to be found, each with its end.
    pub search: String,
    /// Whole lines in their place.
    pub replace: String,
}

/// Whether a text holds the beginning of an edit.
#[must_use]
pub fn holds_edits(text: &str) -> bool {
    text.lines().any(|line| line.trim_end() == SEARCH)
}

/// The edits of a text, in order. What stands between them is passed over.
pub fn parse_edits(text: &str) -> Result<Vec<Edit>, EditProblem> {
    let mut edits = Vec::new();
    let mut open: Option<(Edit, bool)> = None;
    for line in text.lines() {
        let malformed = |what| Err(EditProblem::Malformed { edit: edits.len() + 1, what });
        match (open.take(), line.trim_end()) {
            (None, SEARCH) => open = Some((Edit { search: String::new(), replace: String::new() }, false)),
            (None, REPLACE) => return malformed("it ends before it began"),
            (None, _) => {}
            (Some(_), SEARCH) => return malformed("another one begins before it ends"),
            (Some((edit, false)), DIVIDER) => open = Some((edit, true)),
            (Some((_, false)), REPLACE) => return malformed("the line ======= is missing"),
            (Some((edit, true)), REPLACE) => edits.push(edit),
            (Some((mut edit, in_replacement)), _) => {
                let into = if in_replacement { &mut edit.replace } else { &mut edit.search };
                into.push_str(line);
                into.push('\n');
                open = Some((edit, in_replacement));
            }
        }
    }
    if open.is_some() {
        let what = "its line >>>>>>> REPLACE is missing: the reply ended before it did";
        return Err(EditProblem::Malformed { edit: edits.len() + 1, what });
    }
    if edits.len() > MAX_EDITS {
        return Err(EditProblem::TooMany { count: edits.len() });
    }
    Ok(edits)
}

/// The program with every edit made, one after the other. Each has to match exactly one place, line by line: nothing is
/// guessed, and either all edits are made or none.
pub fn apply_edits(program: &str, edits: &[Edit]) -> Result<String, EditProblem> {
    // The last line counts as one whether it ends or not.
    let mut edited =
        if program.is_empty() || program.ends_with('\n') { program.to_owned() } else { format!("{program}\n") };
    for (number, edit) in (1..).zip(edits) {
        if edit.search.trim().is_empty() {
            return Err(EditProblem::EmptySearch { edit: number });
        }
        let places: Vec<usize> = whole_lines(&edited, &edit.search);
        match places.as_slice() {
            [at] => edited.replace_range(*at..*at + edit.search.len(), &edit.replace),
            [] => {
                return Err(EditProblem::NoMatch {
                    edit: number,
                    searched: shown(&edit.search),
                    hint: similar(&edited, &edit.search),
                });
            }
            several => {
                let lines: Vec<String> = several.iter().map(|at| line_of(&edited, *at).to_string()).collect();
                return Err(EditProblem::Ambiguous { edit: number, count: several.len(), lines: lines.join(", ") });
            }
        }
    }
    if edited.trim_end() == program.trim_end() { Err(EditProblem::NoChange) } else { Ok(edited) }
}

/// Where the searched lines stand, each at the beginning of a line.
fn whole_lines(program: &str, search: &str) -> Vec<usize> {
    let starts = std::iter::once(0).chain(program.match_indices('\n').map(|(at, _)| at + 1));
    starts.filter(|at| program.get(*at..).is_some_and(|rest| rest.starts_with(search))).collect()
}

fn line_of(program: &str, at: usize) -> usize {
    program.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// Where the first searched line stands when only its indentation is wrong.
fn similar(program: &str, search: &str) -> String {
    let Some(first) = search.lines().map(str::trim).find(|line| !line.is_empty()) else { return String::new() };
    match program.lines().position(|line| line.trim() == first) {
        Some(index) => format!("; line {} reads alike but for blanks or what follows it", index + 1),
        None => String::new(),
    }
}

fn shown(search: &str) -> String {
    let first = search.trim_end_matches('\n');
    let flat: String = first.chars().map(|c| if c == '\n' { '⏎' } else { c }).take(MAX_SHOWN_CHARS).collect();
    if first.chars().count() > MAX_SHOWN_CHARS { format!("{flat}…") } else { flat }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROGRAM: &str = "int a;\nint b;\n  int a;\nint c;\nint b;\n";

    fn edit(search: &str, replace: &str) -> String {
        format!("{SEARCH}\n{search}\n{DIVIDER}\n{replace}\n{REPLACE}\n")
    }

    fn applied(text: &str) -> Result<String, EditProblem> {
        apply_edits(PROGRAM, &parse_edits(text)?)
    }

    #[test]
    fn edits_are_made_one_after_the_other() {
        let text = format!("First.\n{}Then:\n{}", edit("int c;", "int d;\nint e;"), edit("int e;", "int f;"));
        assert_eq!(applied(&text).as_deref(), Ok("int a;\nint b;\n  int a;\nint d;\nint f;\nint b;\n"));
        // Lines may go, and the end of the last one does not matter.
        let gone = format!("{SEARCH}\nint c;\n{DIVIDER}\n{REPLACE}");
        assert_eq!(applied(&gone).as_deref(), Ok("int a;\nint b;\n  int a;\nint b;\n"));
        let unended = parse_edits(&edit("int z;", "int y;")).and_then(|edits| apply_edits("int z;", &edits));
        assert_eq!(unended.as_deref(), Ok("int y;\n"));
    }

    #[test]
    fn only_whole_lines_match_with_their_blanks() {
        // `int a;` also stands behind blanks in line 3, which is another line.
        assert_eq!(applied(&edit("int a;", "int x;")).as_deref(), Ok("int x;\nint b;\n  int a;\nint c;\nint b;\n"));
        assert!(matches!(applied(&edit("nt a;", "nt x;")), Err(EditProblem::NoMatch { .. })));
    }

    #[test]
    fn each_edit_that_does_not_fit_is_named_with_what_is_wrong() {
        for (text, message) in [
            (edit("int q;", "int r;"), "edit 1 does not match: the program has no place that reads exactly `int q;`"),
            (edit("    int c;", "int r;"), "line 4 reads alike"),
            (edit("int c;", "int d;") + &edit("int c;", "int e;"), "edit 2 does not match"),
            (edit("int b;", "int r;"), "edit 1 matches 2 places (lines 2, 5)"),
            (edit("", "int r;"), "edit 1 searches for nothing"),
            (edit("int c;", "int c;"), "the reply changes nothing"),
            (format!("{SEARCH}\nint c;\n{DIVIDER}\nint d;\n"), "edit 1 does not keep the form"),
            (format!("{SEARCH}\nint c;\n{REPLACE}\n"), "the line ======= is missing"),
            (format!("{}{REPLACE}\n", edit("int c;", "int d;")), "edit 2 does not keep the form: it ends before"),
            (format!("{SEARCH}\n{SEARCH}\n"), "another one begins"),
            (edit("int c;", "int d;").repeat(MAX_EDITS + 1), "at most 64 are applied"),
        ] {
            let problem = applied(&text).map_err(|problem| problem.to_string());
            assert!(problem.as_ref().is_err_and(|problem| problem.contains(message)), "{message}: {problem:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(?s)(<<<<<<< SEARCH\n|=======\n|>>>>>>> REPLACE\n|int b;\n|é|\n| ){0,30}") {
            let _ = applied(&text);
        }

        #[test]
        fn what_a_unique_edit_does_not_name_stays(lines in prop::collection::hash_set("[a-z]{1,8}", 2..12), index in 0_usize..12) {
            let lines: Vec<String> = lines.into_iter().collect();
            let index = index % lines.len();
            let program = lines.join("\n") + "\n";
            let edits = parse_edits(&edit(&lines[index], "REPLACED")).unwrap_or_default();
            let mut expected = lines.clone();
            expected[index] = "REPLACED".to_owned();
            prop_assert_eq!(apply_edits(&program, &edits), Ok(expected.join("\n") + "\n"));
        }
    }
}
