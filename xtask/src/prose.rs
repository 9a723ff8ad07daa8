//! The prose check: words that the project's texts and names avoid, with what to write instead.
//!
//! It reads every `.rs`, `.md`, `.py` and `.toml` file, prompts included. Words in names such as `snake_case_name` count,
//! so that test names are checked, too.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::root;

/// A word or phrase to avoid.
struct Rule {
    /// In lower case.
    word: &'static str,
    instead: &'static str,
}

/// Every rule. Indefinite persons hide who acts; the phrases below them need a second reading.
const RULES: [Rule; 16] = [
    Rule { word: "somebody", instead: "name the actor: the user, another process, the worker" },
    Rule {
        word: "nobody",
        instead: "name the actor in a positive sentence, or use the passive: `no client`, `is not read`",
    },
    Rule { word: "whoever", instead: "name the actor: `the caller that`, `the user who`" },
    Rule { word: "whomever", instead: "name the actor" },
    Rule { word: "whosoever", instead: "name the actor" },
    Rule { word: "everybody", instead: "name the group: `every user`, `all processes`, `other clients`" },
    Rule { word: "anybody", instead: "name the group: `every user`, `public`" },
    Rule { word: "who wants", instead: "name the actor and the request: `the step that requests it`" },
    Rule { word: "what is told", instead: "name the thing: the message, the report, the event" },
    Rule { word: "is told what", instead: "name the thing: the message, the report, the instruction" },
    Rule { word: "pythons", instead: "`Python processes`, or `Python installations`" },
    Rule { word: "a python that", instead: "`a Python process that`, or `a Python interpreter that`" },
    Rule { word: "a python with", instead: "`a Python process with`, or `a Python installation with`" },
    Rule { word: "in vain", instead: "say what failed: `without success`, `timed out`" },
    Rule { word: "no news", instead: "say what is the same: `nothing changed`, `is not reported again`" },
    Rule { word: "foresight", instead: "`precomputed decisions`, or `the decision cache`" },
];

/// A place where a word is quoted or is data.
struct Allowed {
    /// A file, or a folder with `/` at its end, relative to the root of the workspace.
    path: &'static str,
    /// In lower case; empty for every word.
    word: &'static str,
}

const ALLOWED: [Allowed; 8] = [
    // These are the rules.
    Allowed { path: "xtask/src/prose.rs", word: "" },
    // It lists the former names of terms.
    Allowed { path: "docs/reference/glossary.md", word: "" },
    // A model wrote these programs, and they are kept as evidence.
    Allowed { path: "docs/evidence/pilot/", word: "" },
    // Replies of scripted models are data.
    Allowed { path: "examples/", word: "everybody" },
    // The name of an account in `/etc/passwd`.
    Allowed { path: "benches/peers/README.md", word: "nobody" },
    Allowed { path: "benches/peers/harness/cluster.py", word: "nobody" },
    Allowed { path: "tests/testbed/src/postgres/account.rs", word: "nobody" },
    Allowed { path: "tests/testbed/src/postgres/error.rs", word: "nobody" },
];

/// Folders that hold no sources of the project. Hidden ones are skipped, too.
const SKIPPED_FOLDERS: [&str; 3] = ["target", "node_modules", "dist"];
const EXTENSIONS: [&str; 4] = ["rs", "md", "py", "toml"];

/// Checks the workspace and prints each finding. Returns whether there is none.
pub(crate) fn check() -> Result<bool> {
    let mut files = Vec::new();
    collect(&root(), &mut files)?;
    files.sort_unstable();
    let mut holds = true;
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = file.strip_prefix(root()).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        for finding in findings(&path, &text) {
            eprintln!("prose: {finding}");
            holds = false;
        }
    }
    Ok(holds)
}

/// Adds the files to check below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_ref()) {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the findings in one file as `path:line: word: what to write instead`.
fn findings(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for rule in RULES.iter().filter(|rule| !is_allowed(path, rule.word) && contains_word(&line, rule.word)) {
            found.push(format!("{path}:{}: \"{}\": {}", index + 1, rule.word, rule.instead));
        }
    }
    found
}

fn is_allowed(path: &str, word: &str) -> bool {
    ALLOWED.iter().any(|allowed| {
        let covers = path == allowed.path || (allowed.path.ends_with('/') && path.starts_with(allowed.path));
        covers && (allowed.word.is_empty() || allowed.word == word)
    })
}

/// Returns whether `line` contains `word` without a letter or digit on either side.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_sentences_and_in_names_with_its_line() {
        let text = "//! Fine.\n/// Nobody reads it.\nfn whoever_asks() {}\n";
        let found = findings("src/main.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|line| line.starts_with("src/main.rs:2: \"nobody\": name the actor")), "{found:?}");
        assert!(found.iter().any(|line| line.starts_with("src/main.rs:3: \"whoever\": name the actor")), "{found:?}");
    }

    #[test]
    fn a_part_of_a_longer_word_does_not_count() {
        assert!(!contains_word("busybody, somebodyness", "somebody"));
        assert!(contains_word("(somebody)", "somebody") && contains_word("a python that runs", "a python that"));
        assert!(!contains_word("data python that runs", "a python that"));
    }

    #[test]
    fn allowed_places_hold_for_their_word_only() {
        let account = "tests/testbed/src/postgres/account.rs";
        assert!(findings(account, "the account `nobody`").is_empty());
        assert_eq!(findings(account, "somebody").len(), 1);
        assert!(findings("docs/evidence/pilot/l1-40-layernorm.py", "# nobody reads it").is_empty());
    }

    #[test]
    fn rules_are_in_lower_case() {
        assert!(RULES.iter().all(|rule| rule.word == rule.word.to_lowercase() && !rule.instead.is_empty()));
    }
}
