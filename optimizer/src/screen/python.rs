//! Programs in Python: a file with a class `ModelNew`, and the CUDA that it builds.
//!
//! Names are followed through imports and assignments to what they stand for: `c = torch.cuda; c.synchronize = f` is an
//! assignment to `torch.cuda.synchronize`. Words in comments and texts never count, but for texts that are C++ or CUDA:
//! those are screened as such.

mod calls;
mod embedded;
mod imports;
mod model;
mod names;
mod paths;
mod state;

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::{Parser, Tree};

use super::facts::{Place, line_of, walk};
use super::{MAX_SCREENED_BYTES, finding, ordered};
use paths::Paths;

/// A parsed program, with what its names stand for.
struct Program<'a> {
    source: &'a str,
    tree: &'a Tree,
    paths: Paths,
}

/// What the source of a program in Python shows, gravest first.
#[must_use]
pub fn screen_torch(source: &str) -> Vec<Finding> {
    let refused = |code: &str, message: String| {
        vec![Finding { code: code.to_owned(), severity: Severity::Violation, message, line: None }]
    };
    if source.len() > MAX_SCREENED_BYTES {
        let message = format!("the source is larger than {MAX_SCREENED_BYTES} bytes and cannot be examined");
        return refused("source_too_large", message);
    }
    let Some(tree) = parse(source) else {
        return refused("unparsed", "the source could not be parsed and was not examined".to_owned());
    };
    let program = Program { source, tree: &tree, paths: Paths::collect(&tree, source) };
    let mut found = Vec::new();
    let unreadable = unreadable(&program);
    if unreadable.is_none() {
        model::required(&program, &mut found);
    }
    found.extend(unreadable);
    model::findings(&program, &mut found);
    calls::findings(&program, &mut found);
    state::findings(&program, &mut found);
    embedded::findings(&program, &mut found);
    // What an import is for is seen in the rest of the file.
    imports::findings(&program, &mut found);
    ordered(found)
}

/// The source for a judge: without comments, and without the contents of texts, except that C++ and CUDA stay without
/// theirs. Lines keep their numbers.
#[must_use]
pub fn strip_python(source: &str) -> String {
    match parse(source) {
        Some(tree) => embedded::stripped(&tree, source),
        // What cannot be read is shown to nobody.
        None => String::new(),
    }
}

fn parse(source: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(source, None)
}

/// Most characters of a line that cannot be read.
const MAX_QUOTED_CHARS: usize = 80;

/// A file that is no Python does not run; one that the grammar cannot read cannot be examined. Most often it is a slip: what
/// stands there is quoted.
fn unreadable(program: &Program<'_>) -> Option<Finding> {
    let (mut line, mut around) = (None, None);
    walk(program.tree.root_node(), |place| {
        let node = place.node;
        if node.is_error() && is_whole_file(place) {
            around = Some(line_of(node));
        } else if node.is_error() && line.is_none() {
            // In a file that could not be read as a whole, what was given up on ends where it makes no sense any more.
            let last = u32::try_from(node.end_position().row).unwrap_or(u32::MAX).saturating_add(1);
            line = Some(if around.is_some() { last } else { line_of(node) });
        } else if node.is_missing() {
            line = line.or(Some(line_of(node)));
        }
    });
    let line = line.or(around)?;
    let row = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
    let written = program.source.lines().nth(row).unwrap_or_default().trim();
    let quoted: String = written.chars().take(MAX_QUOTED_CHARS).collect();
    let message = format!("a syntax error: `{quoted}` cannot be read as Python, and what cannot be read is not run");
    Some(finding("unparsed", Severity::Violation, message, line))
}

/// Whether all statements of the file stand in what could not be read.
fn is_whole_file(place: &Place<'_, '_>) -> bool {
    let mut cursor = place.node.walk();
    let has_statements = place.node.named_children(&mut cursor).any(|child| child.kind().ends_with("_statement"));
    has_statements && place.parent().is_none_or(|parent| parent.kind() == "module")
}
