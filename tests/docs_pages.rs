//! The documentation holds together: links and named pages exist, each page says what kind it is and whom it is for and
//! begins with a command, and the index has all of them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/documented.rs"]
#[expect(dead_code, reason = "another test runs the commands")]
mod documented;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use documented::{pages, root, text};

/// Folders that hold no text of the project. Hidden ones are skipped, too.
const SKIPPED: [&str; 3] = ["target", "node_modules", "dist"];
/// Endings of files whose comments and messages may name a page.
const SOURCES: [&str; 8] = ["rs", "py", "sh", "toml", "mjs", "yml", "yaml", "html"];

/// Adds the files below a folder whose name fits.
fn collect(folder: &Path, fits: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(&path, fits, found);
        } else if fits(&path) {
            found.push(path);
        }
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Returns the lines of a page that are not in a fenced block.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fence && !fenced
        })
        .collect()
}

/// Returns the anchors of a page, as GitHub makes them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the targets of the links and pictures of a page.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose(text) {
        for (begin, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
            found.extend(line.split(begin).skip(1).filter_map(|rest| rest.split_once(end)).map(|(target, _)| target));
        }
    }
    found
}

/// Removes `.` and `..` from a path, which need not exist.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Returns what is wrong with a link, if it is a relative one.
fn fault(page: &Path, own: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") || target.starts_with('/') || target.contains(' ') {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = normalized(&page.parent().unwrap().join(path));
    if !path.is_empty() && !file.exists() {
        return Some(format!("{}: {target} does not exist", page.display()));
    }
    let other = if path.is_empty() { own.to_owned() } else { std::fs::read_to_string(&file).unwrap_or_default() };
    let known = anchor.is_none_or(|anchor| anchors(&other).contains(anchor));
    (!known).then(|| format!("{}: {target} names no heading", page.display()))
}

#[test]
fn relative_links_and_their_anchors_resolve() {
    let mut files = Vec::new();
    collect(root(), &|path| has_extension(path, "md"), &mut files);
    let mut links = 0;
    let mut faults = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let targets = targets(&text);
        links += targets.len();
        faults.extend(targets.into_iter().filter_map(|target| fault(file, &text, target)));
    }
    assert!(links > 200, "links were found: {links}");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("docs/README.md");
    let own = "# A page\n\n## `worker.python` and more\n";
    for good in [
        "../README.md",
        "evidence",
        "#workerpython-and-more",
        "https://example.com/x.md#y",
        "reference/cli.md#demo-run-resume",
    ] {
        assert_eq!(fault(&page, own, good), None, "{good}");
    }
    for broken in ["cli.md", "reference/nosuch.md", "#nosuch", "reference/cli.md#nosuch"] {
        assert!(fault(&page, own, broken).is_some(), "{broken}");
    }
}

/// Returns the pages below `docs/` that a text names by their path.
fn named_pages(text: &str) -> BTreeSet<&str> {
    text.match_indices("docs/")
        .filter(|(at, _)| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || "/.-_".contains(before)))
        .filter_map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/.-_".contains(c))).unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches('.');
            has_extension(Path::new(name), "md").then_some(name)
        })
        .collect()
}

#[test]
fn pages_that_sources_and_messages_name_exist() {
    let mut files = Vec::new();
    let is_source = |path: &Path| {
        SOURCES.iter().any(|extension| has_extension(path, extension)) || path.parent().unwrap().ends_with("scripts")
    };
    collect(root(), &is_source, &mut files);
    let mut named = 0;
    let mut missing = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for page in named_pages(&text) {
            named += 1;
            if !root().join(page).is_file() {
                missing.push(format!("{}: {page}", file.display()));
            }
        }
    }
    assert!(named > 20, "sources name pages: {named}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn each_page_says_whom_it_is_for_and_begins_with_a_command() {
    let kinds =
        [("tutorials", "Tutorial"), ("how-to", "How-to"), ("reference", "Reference"), ("explanation", "Explanation")];
    let mut faults = Vec::new();
    for page in pages() {
        let Some((_, kind)) = kinds.iter().find(|(folder, _)| page.starts_with(&format!("docs/{folder}/"))) else {
            continue;
        };
        let text = text(&page);
        let head = text.split("\n## ").next().unwrap();
        let first = head.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
        if !text.starts_with("# ") || !first.starts_with(&format!("{kind}, for ")) {
            faults.push(format!("{page} begins with \"{first}\" and not with \"{kind}, for\""));
        }
        if !head.contains("```sh\n") {
            faults.push(format!("{page} has no command before its first section"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_index_lists_every_page() {
    let index = text("docs/README.md");
    let listed: BTreeSet<&str> = targets(&index).into_iter().collect();
    let missing: Vec<String> = pages()
        .into_iter()
        .filter(|page| page.starts_with("docs/") && page != "docs/README.md")
        .filter(|page| !listed.contains(page.trim_start_matches("docs/")))
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}
