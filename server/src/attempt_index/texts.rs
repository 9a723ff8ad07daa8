//! The searched texts of a run: sources, replies, diagnoses, errors and findings.

use std::collections::HashSet;
use std::fmt::Write as _;

use nightshift_engine::store::{ArtifactStore, StoreError};
use nightshift_protocol::api::{RunView, SearchKind};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_store::{Document, DocumentKey, IndexedAttempt, MAX_DOCUMENT_BYTES};

/// Maximum size of the texts in one write, in bytes. The next write contains the rest.
const MAX_BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// Texts to write.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) documents: Vec<Document>,
    /// Whether more texts are left.
    pub(super) more: bool,
}

/// A text: its attempt (0 for the run as a whole), kind, number, and source.
pub(super) type Text<'v> = (u32, SearchKind, u32, From<'v>);

/// Source of a text.
pub(super) enum From<'v> {
    /// An artifact.
    Artifact(&'v ArtifactHash),
    /// The text itself.
    Text(String),
}

/// Returns those of the texts that are not stored yet. `attempts` are the rows of their attempts.
pub(super) async fn gather(
    artifacts: &dyn ArtifactStore,
    texts: Vec<Text<'_>>,
    attempts: &[IndexedAttempt],
    known: &HashSet<DocumentKey>,
) -> Result<Gathered, StoreError> {
    let mut gathered = Gathered::default();
    let mut bytes = 0;
    let began = attempts.first().map_or(TimestampMs(0), |attempt| attempt.created_at);
    for (attempt, kind, part, from) in texts {
        let digest = match &from {
            From::Artifact(hash) => hash.as_str().to_owned(),
            From::Text(text) => ArtifactHash::of(text.as_bytes()).as_str().to_owned(),
        };
        let key = DocumentKey { attempt, kind, part, digest };
        if known.contains(&key) {
            continue;
        }
        if bytes >= MAX_BYTES_AT_ONCE {
            gathered.more = true;
            break;
        }
        let body = match from {
            From::Text(text) => text,
            From::Artifact(hash) => match read(artifacts, hash).await? {
                Some(text) => text,
                None => continue,
            },
        };
        bytes += body.len().min(MAX_DOCUMENT_BYTES);
        let row = attempts.iter().find(|row| row.number == attempt);
        gathered.documents.push(Document { key, body, at: row.map_or(began, |row| row.created_at) });
    }
    Ok(gathered)
}

/// Returns the beginning of an artifact, or none if it is missing. The search works without it.
async fn read(artifacts: &dyn ArtifactStore, hash: &ArtifactHash) -> Result<Option<String>, StoreError> {
    let length = u64::try_from(MAX_DOCUMENT_BYTES).unwrap_or(u64::MAX);
    match artifacts.read_artifact(hash, 0, length).await {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns every text of a run.
pub(super) fn of_run(view: &RunView) -> Vec<Text<'_>> {
    let of_run = view.plans.iter().flat_map(|plan| &plan.calls).chain(&view.failed_calls);
    let replies = (0..).zip(of_run).map(|(part, call)| (0, SearchKind::Reply, part, From::Artifact(&call.reply)));
    replies.chain(view.attempts.iter().flat_map(of_attempt)).collect()
}

/// Returns every text of an attempt.
pub(super) fn of_attempt(attempt: &Attempt) -> Vec<Text<'_>> {
    let mut texts = Vec::new();
    let number = attempt.number;
    let earlier = attempt.earlier_versions.iter().map(|version| &version.source);
    for (part, source) in (0..).zip(attempt.source.iter().chain(earlier)) {
        texts.push((number, SearchKind::Source, part, From::Artifact(source)));
    }
    for (part, call) in (0..).zip(&attempt.calls) {
        texts.push((number, SearchKind::Reply, part, From::Artifact(&call.reply)));
    }
    let told = [
        (SearchKind::Diagnosis, diagnosis(attempt)),
        (SearchKind::Error, errors(attempt)),
        (SearchKind::Finding, findings(attempt)),
    ];
    for (kind, text) in told {
        if !text.is_empty() {
            texts.push((number, kind, 0, From::Text(text)));
        }
    }
    texts
}

fn diagnosis(attempt: &Attempt) -> String {
    let mut lines: Vec<&str> = Vec::new();
    if let Some(diagnosis) = &attempt.diagnosis {
        lines.extend([diagnosis.bound.as_str(), &diagnosis.critical_issue, &diagnosis.modification]);
        lines.extend(diagnosis.metrics.iter().map(String::as_str));
    }
    if let Some(correction) = &attempt.correction {
        lines.extend([correction.critical_issue.as_str(), &correction.why_it_matters, &correction.minimal_fix]);
    }
    lines.join("\n")
}

/// Collects the compiler output of every version, the program's exit status and its output. Writing into a string
/// cannot fail.
fn errors(attempt: &Attempt) -> String {
    let mut text = String::new();
    let earlier = attempt.earlier_versions.iter().filter_map(|version| version.build.as_ref());
    for build in earlier.chain(&attempt.build).filter(|build| build.library.is_none()) {
        for message in &build.messages {
            let _ = writeln!(text, "{}:{}: {}: {}", message.file, message.line, message.severity, message.message);
        }
        if build.end != ProcessEnd::Finished {
            let _ = writeln!(text, "{}", build.end.describe());
        }
    }
    if let Some(check) = attempt.check.as_ref().filter(|check| check.end != ProcessEnd::Finished) {
        let _ = writeln!(text, "{}", check.end.describe());
        text.push_str(&check.printed);
    }
    text.trim_end().to_owned()
}

fn findings(attempt: &Attempt) -> String {
    let earlier = attempt.earlier_versions.iter().flat_map(|version| &version.findings);
    let lines = earlier.chain(&attempt.findings).map(|finding| format!("{}: {}", finding.code, finding.message));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_fixed_are_found_by_their_sources_errors_and_findings() {
        let text = include_str!("../../../optimizer/tests/corpus/history/fixed_within_an_attempt.json");
        let recorded: serde_json::Value = serde_json::from_str(text).unwrap();
        let view = nightshift_optimizer::strategy::view(&recorded["state"]).unwrap();
        let first = || of_run(&view).into_iter().filter(|(number, ..)| *number == 1);
        assert!(view.attempts[0].outcome.is_correct());
        assert_eq!(first().filter(|(_, kind, ..)| *kind == SearchKind::Source).count(), 3);
        let said = |wanted: SearchKind| {
            let mut texts = first().filter_map(|(_, kind, _, from)| match from {
                From::Text(text) if kind == wanted => Some(text),
                _ => None,
            });
            texts.next().unwrap_or_default()
        };
        assert!(said(SearchKind::Error).contains("'sum' was not declared"), "{}", said(SearchKind::Error));
        assert!(said(SearchKind::Finding).contains("`fopen` reaches for files"), "{}", said(SearchKind::Finding));
    }
}
