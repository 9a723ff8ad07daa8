//! Programs in Python: a file with a class `ModelNew`, and the CUDA that it builds.
//!
//! Names are followed through imports and assignments to what they stand for: `c = torch.cuda; c.synchronize = f` is an
//! assignment to `torch.cuda.synchronize`. Words in comments and texts never count, but for texts that are C++ or CUDA:
//! those are screened as such.

mod calls;
mod embedded;
mod model;
mod names;
mod paths;
mod state;

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::{Parser, Tree};

use super::facts::{line_of, walk};
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
    unreadable(&program, &mut found);
    model::findings(&program, &mut found);
    calls::findings(&program, &mut found);
    state::findings(&program, &mut found);
    embedded::findings(&program, &mut found);
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

/// A file that is no Python does not run; one that the grammar cannot read cannot be examined.
fn unreadable(program: &Program<'_>, found: &mut Vec<Finding>) {
    let mut first = None;
    walk(program.tree.root_node(), |place| {
        if place.node.is_error() || place.node.is_missing() {
            first.get_or_insert(line_of(place.node));
        }
    });
    if let Some(line) = first {
        let message = "this cannot be read as Python, so that the program cannot be examined: write it plainly";
        found.push(finding("unparsed", Severity::Violation, message.to_owned(), line));
    }
}
