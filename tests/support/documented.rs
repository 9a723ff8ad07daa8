//! The commands of `nightshift` in the documentation.

use std::path::{Path, PathBuf};

/// A command line of a page that starts `nightshift`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Documented {
    /// The page, relative to the root of the repository.
    pub(crate) page: String,
    /// The arguments after `nightshift`.
    pub(crate) args: Vec<String>,
}

impl Documented {
    /// Returns the command as a reader would type it, without comments and redirections.
    pub(crate) fn line(&self) -> String {
        format!("nightshift {}", self.args.join(" "))
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages with commands in their order: the README, then those of `docs/` by kind and name. What was measured
/// (`docs/evidence`) is a record of its day.
pub(crate) fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "docs/README.md".to_owned()];
    for kind in ["tutorials", "how-to", "reference", "explanation"] {
        let folder = PathBuf::from("docs").join(kind);
        let entries = std::fs::read_dir(root().join(&folder)).expect("the folder of a kind of pages");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("a page").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        pages.extend(names.iter().map(|name| folder.join(name).to_string_lossy().into_owned()));
    }
    pages
}

/// Returns every command line of the pages that starts `nightshift`, in their order.
pub(crate) fn commands() -> Vec<Documented> {
    pages().iter().flat_map(|page| commands_of(page)).collect()
}

/// Returns those of one page.
fn commands_of(page: &str) -> Vec<Documented> {
    fenced(&text(page), "sh")
        .iter()
        .flat_map(|block| joined(block))
        .filter_map(|line| Some(Documented { page: page.to_owned(), args: arguments(&words(&line))? }))
        .collect()
}

/// Returns the text of a page.
pub(crate) fn text(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect(page)
}

/// Returns the fenced blocks of a language.
pub(crate) fn fenced(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(named), None) => open = Some((named.trim(), String::new())),
            (Some(_), Some((named, block))) => blocks.extend((named == language).then_some(block)),
            (None, None) => {}
            (None, Some((named, block))) => open = Some((named, block + line + "\n")),
        }
    }
    blocks
}

/// Returns the lines of a block of shell commands. A line that ends in a backslash is joined with the next one.
pub(crate) fn joined(block: &str) -> Vec<String> {
    block.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// Splits a line as a shell does, without expansions. A comment ends it.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(end), _) if character == end => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Returns the arguments of `nightshift` if the line starts it, by itself or through another program.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).take_while(|word| *word != ">").collect();
    let begin = match words.as_slice() {
        ["cargo", "run", "--release", "--", ..] => 4,
        ["uvx" | "systemd-run", ..] => words.iter().position(|word| *word == "nightshift")? + 1,
        [program, ..] if *program == "nightshift" || program.ends_with("/nightshift") => 1,
        _ => return None,
    };
    Some(words[begin..].iter().map(|word| (*word).to_owned()).collect())
}
