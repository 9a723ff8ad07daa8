//! Notes: a title, tags and a short text, one file each. Ours are embedded; a folder may add others.

use std::path::{Path, PathBuf};

use nightshift_engine::store::NoteRecord;
use rust_embed::RustEmbed;

/// Source of the notes that ship with the program.
pub const BUILT_IN: &str = "built_in";
/// Source of the notes of a folder.
pub const USER: &str = "user";

/// Words of a note of ours, at most.
pub const MAX_WORDS: usize = 120;
/// Bytes of a part that a longer document is cut into.
const MAX_PART_BYTES: usize = 1_500;
/// Bytes of a file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Notes of a folder, parts counted one by one.
const MAX_NOTES: usize = 5_000;
/// What a note may be about.
const BOUNDS: [&str; 5] = ["memory", "compute", "latency", "launch", "host"];

#[derive(RustEmbed)]
#[folder = "knowledge"]
struct Embedded;

/// A note cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The folder or a file of it cannot be read.
    #[error("the notes in {path} cannot be read: make them readable, or name another folder", path = path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its head is wrong.
    #[error("the note `{name}` cannot be used: {message}")]
    Head {
        /// The note.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// Too much of everything.
    #[error("{what}: remove what is not needed")]
    TooLarge {
        /// What is too large.
        what: String,
    },
}

impl NoteError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "config.notes_unreadable",
            Self::Head { .. } => "config.note_invalid",
            Self::TooLarge { .. } => "config.notes_too_large",
        }
    }
}

/// The notes that ship with the program, by name.
pub fn built_in() -> Result<Vec<NoteRecord>, NoteError> {
    let mut names: Vec<_> = Embedded::iter().filter(|name| name.ends_with(".md")).collect();
    names.sort();
    let mut notes = Vec::with_capacity(names.len());
    for name in names {
        let Some(file) = Embedded::get(&name) else { continue };
        notes.extend(parse(BUILT_IN, &name, &String::from_utf8_lossy(&file.data))?);
    }
    Ok(notes)
}

/// The notes of a folder: every `.md` and `.txt` file in it and below, by name. A document without a head is cut into
/// parts at its headings and paragraphs.
pub fn of_folder(folder: &Path) -> Result<Vec<NoteRecord>, NoteError> {
    let mut notes = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let unreadable = |source| NoteError::Unreadable { path: next.clone(), source };
        for entry in std::fs::read_dir(&next).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let unreadable = |source| NoteError::Unreadable { path: path.clone(), source };
            // Links are not followed: a folder of notes leads nowhere else.
            let kind = std::fs::symlink_metadata(&path).map_err(unreadable)?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "md" || end == "txt") {
                if kind.len() > MAX_FILE_BYTES {
                    let what = format!("{} has more than {MAX_FILE_BYTES} bytes", path.display());
                    return Err(NoteError::TooLarge { what });
                }
                let text = std::fs::read(&path).map_err(unreadable)?;
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
                notes.extend(parse(USER, &name, &String::from_utf8_lossy(&text))?);
                if notes.len() > MAX_NOTES {
                    let what = format!("{} holds more than {MAX_NOTES} notes", folder.display());
                    return Err(NoteError::TooLarge { what });
                }
            }
        }
    }
    notes.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(notes)
}

/// The notes of one file: one with a head, or the parts of a document without one.
pub fn parse(source: &str, name: &str, text: &str) -> Result<Vec<NoteRecord>, NoteError> {
    let text = text.replace("\r\n", "\n");
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let note = |id: String, title: String, body: String| NoteRecord {
        id,
        source: source.to_owned(),
        title,
        body,
        bounds: Vec::new(),
        operators: Vec::new(),
        architectures: Vec::new(),
    };
    let Some(rest) = text.strip_prefix("---\n") else {
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(stem).trim().to_owned();
        let numbered = (1_usize..).zip(parts(&text));
        return Ok(numbered.map(|(n, part)| note(format!("{source}/{stem}#{n}"), title.clone(), part)).collect());
    };
    let wrong = |message: String| NoteError::Head { name: name.to_owned(), message };
    let (head, body) =
        rest.split_once("\n---\n").ok_or_else(|| wrong("its head does not end with a line `---`".to_owned()))?;
    let mut made = note(format!("{source}/{stem}"), String::new(), body.trim().to_owned());
    for line in head.lines().filter(|line| !line.trim().is_empty()) {
        let (key, value) =
            line.split_once(':').ok_or_else(|| wrong(format!("`{line}` in its head is not `key: value`")))?;
        let tags = || -> Vec<String> {
            value.split(',').map(|tag| tag.trim().to_ascii_lowercase()).filter(|tag| !tag.is_empty()).collect()
        };
        match key.trim() {
            "title" => value.trim().clone_into(&mut made.title),
            "bound" => made.bounds = tags(),
            "operator" => made.operators = tags(),
            "architecture" => made.architectures = tags(),
            other => {
                let known = "use title, bound, operator and architecture";
                return Err(wrong(format!("`{other}` in its head is not known: {known}")));
            }
        }
    }
    if let Some(bound) = made.bounds.iter().find(|bound| !BOUNDS.contains(&bound.as_str())) {
        return Err(wrong(format!("the bound `{bound}` is not known: use {}", BOUNDS.join(", "))));
    }
    if made.title.is_empty() || made.body.is_empty() {
        return Err(wrong("it has no title or no text".to_owned()));
    }
    Ok(vec![made])
}

/// A document in parts of bounded size, cut before headings where that is possible, else between paragraphs, else
/// anywhere.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut open = String::new();
    for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        let begins = paragraph.starts_with('#') && open.len() > MAX_PART_BYTES / 3;
        if !open.is_empty() && (begins || open.len() + paragraph.len() > MAX_PART_BYTES) {
            parts.push(std::mem::take(&mut open));
        }
        let mut rest = paragraph;
        while rest.len() > MAX_PART_BYTES {
            let end = (1..=MAX_PART_BYTES).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
            parts.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
        if !open.is_empty() {
            open.push_str("\n\n");
        }
        open.push_str(rest);
    }
    if !open.is_empty() {
        parts.push(open);
    }
    parts
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn our_notes_are_many_short_and_tagged() {
        let notes = built_in().unwrap();
        assert!(notes.len() >= 25, "{} notes", notes.len());
        let titles: BTreeSet<&str> = notes.iter().map(|note| note.title.as_str()).collect();
        assert_eq!(titles.len(), notes.len(), "a title occurs twice");
        for note in &notes {
            let words = note.body.split_whitespace().count();
            assert!((25..MAX_WORDS).contains(&words), "{}: {words} words", note.id);
            let tagged = !(note.bounds.is_empty() && note.operators.is_empty() && note.architectures.is_empty());
            assert!(tagged, "{} has no tag", note.id);
        }
        for wanted in ["sm_90", "sm_100", "cuda", "cpu"] {
            assert!(notes.iter().any(|note| note.architectures.iter().any(|tag| tag == wanted)), "{wanted}");
        }
        for bound in BOUNDS {
            assert!(notes.iter().any(|note| note.bounds.iter().any(|tag| tag == bound)), "{bound}");
        }
    }

    #[test]
    fn a_head_says_what_a_note_is_about() {
        let text =
            "---\ntitle: Tiles\nbound: memory, latency\noperator: MatMul\narchitecture: sm_90\n---\n\nUse tiles.\n";
        let [note]: [NoteRecord; 1] = parse(USER, "deep/tiles.md", text).unwrap().try_into().unwrap();
        assert_eq!((note.id.as_str(), note.body.as_str()), ("user/deep/tiles", "Use tiles."));
        assert_eq!((note.title.as_str(), note.bounds), ("Tiles", vec!["memory".to_owned(), "latency".to_owned()]));
        assert_eq!((note.operators, note.architectures), (vec!["matmul".to_owned()], vec!["sm_90".to_owned()]));
    }

    #[test]
    fn a_head_with_a_mistake_is_refused_with_what_to_write() {
        for (text, said) in [
            ("---\ntitle: a\nbounds: memory\n---\nx", "use title, bound, operator and architecture"),
            ("---\ntitle: a\nbound: cpu\n---\nx", "use memory, compute, latency, launch, host"),
            ("---\nbound: memory\n---\nx", "no title"),
            ("---\ntitle: a\n---\n\n", "no title or no text"),
            ("---\ntitle: a\n", "does not end"),
            ("---\ntitle\n---\nx", "not `key: value`"),
        ] {
            let error = parse(USER, "n.md", text).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.code(), "config.note_invalid");
        }
    }

    #[test]
    fn a_document_without_a_head_is_cut_into_parts() {
        let long = format!("# Guide\n\n{}\n\n## Next\n\n{}", "first ".repeat(200), "second ".repeat(500));
        let notes = parse(USER, "guide.txt", &long).unwrap();
        assert!(notes.len() > 2);
        assert!(notes.iter().all(|note| note.title == "Guide" && note.body.len() <= MAX_PART_BYTES));
        assert_eq!(notes[0].id, "user/guide#1");
        let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count();
        assert_eq!(notes.iter().map(|note| letters(&note.body)).sum::<usize>(), letters(&long), "nothing is lost");
    }

    #[test]
    fn a_folder_is_read_in_depth_and_other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/b.md"), "---\ntitle: B\n---\nbee").unwrap();
        std::fs::write(folder.path().join("a.txt"), "plain").unwrap();
        std::fs::write(folder.path().join("c.pdf"), "no").unwrap();
        let ids: Vec<String> = of_folder(folder.path()).unwrap().into_iter().map(|note| note.id).collect();
        assert_eq!(ids, ["user/a#1", "user/deep/b"]);
        assert_eq!(of_folder(&folder.path().join("none")).unwrap_err().code(), "config.notes_unreadable");
    }
}
