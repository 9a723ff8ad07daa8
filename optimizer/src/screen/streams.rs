//! Streams of the program's own: fine when something waits for them.

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::Node;

use super::facts::{line_of, text, walk};
use super::finding;

/// What makes a stream.
const MAKES: [&str; 5] = [
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
];
/// What makes others wait for the work of a stream.
const JOINS: [&str; 8] = [
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaStreamEndCapture",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuEventSynchronize",
];

/// A warning when streams are made and nothing ever waits for one: the call would return before its work is done.
pub(super) fn unjoined(root: Node<'_>, source: &str) -> Option<Finding> {
    let (mut made_at, mut joined) = (None, false);
    walk(root, |place| {
        if place.node.kind() == "identifier" {
            let name = text(place.node, source);
            if MAKES.contains(&name) {
                made_at.get_or_insert(line_of(place.node));
            }
            joined |= JOINS.contains(&name);
        }
    });
    let line = made_at.filter(|_| !joined)?;
    let message = "a stream is made, and nothing waits for its work: join it into `stream` with an event".to_owned();
    Some(finding("unjoined_stream", Severity::Warning, message, line))
}
