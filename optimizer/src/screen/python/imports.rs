//! What a program imports. Many are written below a list of imports that came with another file: a module whose import
//! does nothing by itself, and whose name is nowhere used, gives the program nothing.

use std::collections::BTreeSet;

use nightshift_protocol::verdict::{Finding, Severity};

use super::super::facts::{text, walk};
use super::super::finding;
use super::Program;
use super::calls::said;
use super::names;
use super::paths::Import;

/// Modules of Python whose import does nothing but to give them a name. Each is refused where it is used.
const IDLE_MODULES: [&str; 16] = [
    "os",
    "sys",
    "platform",
    "io",
    "pathlib",
    "tempfile",
    "glob",
    "shutil",
    "pickle",
    "gc",
    "inspect",
    "traceback",
    "weakref",
    "time",
    "timeit",
    "datetime",
];

/// Names by which others are reached that are not written in the file.
const REACHING: [&str; 9] = [
    "__dict__",
    "__getattribute__",
    "__builtins__",
    "__loader__",
    "__spec__",
    "attrgetter",
    "methodcaller",
    "get_type_hints",
    "ForwardRef",
];

/// What is said of the imports, with what was found in the rest of the file: where that is refused as well, or reaches for
/// names that are not written in it, no import counts as unused.
pub(super) fn findings(program: &Program<'_>, found: &mut Vec<Finding>) {
    let words = Words::of(program);
    let (mut idle, mut others) = (Vec::new(), Vec::new());
    for import in &program.paths.imports {
        let Some(meaning) = names::of_import(&import.path) else { continue };
        let told = said(meaning, &import.path, import.line);
        if meaning.severity == Severity::Violation && is_idle(import) && !words.hold(import) {
            idle.push((import, told));
        } else {
            others.push(told);
        }
    }
    found.extend(others);
    let is_refused = words.reach_further || found.iter().any(|finding| finding.severity == Severity::Violation);
    found.extend(idle.into_iter().map(|(import, told)| if is_refused { told } else { unused(import) }));
}

fn is_idle(import: &Import) -> bool {
    import.path.split('.').next().is_some_and(|root| IDLE_MODULES.contains(&root))
}

fn unused(import: &Import) -> Finding {
    let message = format!("`{}` is imported and not used: leave it out", import.path);
    finding("unused_import", Severity::Note, message, import.line)
}

/// The words of a file outside of its imports: names, attributes, and texts that are one word.
struct Words<'a> {
    words: BTreeSet<&'a str>,
    /// Whether names are reached that are not among them.
    reach_further: bool,
}

impl<'a> Words<'a> {
    fn of(program: &Program<'a>) -> Self {
        let mut words = BTreeSet::new();
        let mut reach_further = false;
        walk(program.tree.root_node(), |place| {
            if place.node.child_count() > 0 || place.is_within(&["import_statement", "import_from_statement"]) {
                return;
            }
            let word = text(place.node, program.source);
            // To Python other letters than those of ASCII may be the same name.
            let is_foreign = place.node.kind() == "identifier" && !word.is_ascii();
            reach_further |= is_foreign || REACHING.contains(&word);
            words.insert(word);
        });
        Self { words, reach_further }
    }

    /// Whether the name that an import gives is among them. Within a function or a class, or for all names of a module,
    /// nobody looks.
    fn hold(&self, import: &Import) -> bool {
        import.name.as_deref().is_none_or(|name| self.words.contains(name))
    }
}
