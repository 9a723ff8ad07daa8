//! Rules for native programs, in C++ and CUDA.

use std::collections::{BTreeSet, HashMap};

use nightshift_protocol::task::{CudaLibrary, Target};
use nightshift_protocol::verdict::Finding;

use super::cpp;
use super::lexer;
use super::prebuilt;
use super::report::violation;
use super::strip::{IncludeNames, without_texts};

/// Folders of libraries that consist of headers: no linker sees that they are used.
const HEADER_LIBRARIES: [(&str, CudaLibrary); 4] = [
    ("cub/", CudaLibrary::Cccl),
    ("thrust/", CudaLibrary::Cccl),
    ("cutlass/", CudaLibrary::Cutlass),
    ("cute/", CudaLibrary::Cutlass),
];

/// Returns the findings of a program for `target`. `libraries` are those that the task allows.
pub(super) fn findings(source: &str, target: Target, libraries: &BTreeSet<CudaLibrary>) -> Vec<Finding> {
    let canonical = lexer::canonical(source);
    let scan = cpp::scan(&canonical);
    let mut found = scan.findings;
    found.extend(prebuilt::data(scan.loader.as_ref(), scan.encoded));
    if target == Target::Cuda {
        let macros: HashMap<&str, &str> = directives(&canonical)
            .filter(|(_, kind, _)| *kind == "define")
            .filter_map(|(_, _, rest)| rest.split_once(char::is_whitespace))
            .collect();
        let code = without_texts(&canonical, IncludeNames::All);
        for (line, _, name) in directives(&code).filter(|(_, kind, _)| *kind == "include") {
            // A macro may stand for the name.
            let path = quoted(name).or_else(|| macros.get(name).copied().and_then(quoted));
            found.extend(path.and_then(|path| forbidden_library(path, libraries, line)));
        }
    }
    found
}

/// Returns the directives of a source: line, name and the rest.
fn directives(source: &str) -> impl Iterator<Item = (u32, &str, &str)> {
    (1_u32..)
        .zip(source.lines())
        .filter_map(|(line, text)| lexer::directive_of(text).map(|(kind, rest)| (line, kind, rest)))
}

/// Returns the path between quotes or angle brackets.
fn quoted(name: &str) -> Option<&str> {
    name.trim().strip_prefix(['<', '"']).map(|rest| rest.trim_end_matches(['>', '"']))
}

/// Judges a header. Libraries with symbols are left to the linker, which names the symbol.
fn forbidden_library(path: &str, allowed: &BTreeSet<CudaLibrary>, line: u32) -> Option<Finding> {
    let (_, library) = HEADER_LIBRARIES.iter().find(|(folder, _)| path.trim().starts_with(folder))?;
    if allowed.contains(library) {
        return None;
    }
    let names: Vec<&str> = allowed.iter().map(|library| library.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!(
        "`{path}` belongs to the library `{}`, which the task does not allow (allowed: {names}): write this part with the \
         CUDA runtime alone",
        library.as_str()
    );
    Some(violation("forbidden_library", message, line))
}
