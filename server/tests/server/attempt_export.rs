//! Tests of exported programs: a file with `ModelNew`, and a project.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use flate2::read::GzDecoder;
use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::api::RunView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_store::SqlStore;
use serde_json::Value;
use tempfile::TempDir;

use crate::attempts;
use crate::setup::{TestServer, Wish, open_store, refusal, refused, until};

/// The program of the best attempt.
const SOURCE: &str = "#include \"nightshift.h\"\n// a program\n";

/// Returns the recorded run. The first attempt has no program, and the program of the second is not stored.
fn view(state: &Value) -> Result<RunView, WorkflowError> {
    let mut view = attempts::view(state)?;
    view.attempts[0].source = None;
    view.attempts[1].source = Some(ArtifactHash::of(b"pruned"));
    view.attempts[2].source = Some(ArtifactHash::of(SOURCE.as_bytes()));
    Ok(view)
}

async fn start() -> (TestServer, RunId, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<SqlStore> = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish { view, ..Wish::default() }).await;
    server.put_artifact(SOURCE.as_bytes()).await;
    let (_, run) = server.campaign().await;
    until("a decision", async || {
        let detail = server.run(&run).await;
        (!detail.view.attempts.is_empty()).then_some(())
    })
    .await;
    (server, run, folder)
}

#[tokio::test]
async fn a_program_is_given_as_a_model_new_and_as_a_project() {
    let (server, run, _folder) = start().await;
    let answer = server.get(&format!("/attempts/at/{run}/3/model-new")).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/x-python; charset=utf-8");
    let text = answer.text().await.unwrap();
    assert!(text.contains("class ModelNew(nn.Module)") && text.contains("// a program"), "{text}");

    let answer = server.get(&format!("/attempts/at/{run}/3/project")).send().await.unwrap();
    assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"softmax-attempt3.tar.gz\"");
    let packed = answer.bytes().await.unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(packed.as_ref()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), text);
    }
    let names: Vec<&str> = files.keys().map(|name| name.strip_prefix("softmax-attempt3/").unwrap()).collect();
    let expected =
        ["CMakeLists.txt", "README.md", "candidate.cpp", "contract.h", "main.cpp", "nightshift.h", "reference.cpp"];
    assert_eq!(names, expected);
    assert_eq!(files["softmax-attempt3/candidate.cpp"], SOURCE);
    let again = server.get(&format!("/attempts/at/{run}/3/project")).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(again, packed, "the same bytes every time");
    server.stop().await;
}

#[tokio::test]
async fn a_failed_export_gives_its_reason() {
    let (server, run, _folder) = start().await;
    let unknown = format!("run_{}", "0".repeat(32));
    for (place, status, code) in [
        (format!("{run}/1"), 409, "attempt.no_source"),
        (format!("{run}/2"), 404, "artifact.not_found"),
        (format!("{run}/9"), 404, "attempt.not_found"),
        (format!("{run}/x"), 404, "attempt.not_found"),
        ("1/3".to_owned(), 404, "attempt.not_found"),
        (format!("{unknown}/3"), 404, "run.not_found"),
    ] {
        for form in ["model-new", "project"] {
            let answer = server.get(&format!("/attempts/at/{place}/{form}")).send().await.unwrap();
            assert_eq!(refused(answer).await, refusal(status, code), "{place}/{form}");
        }
    }
    server.stop().await;
}
