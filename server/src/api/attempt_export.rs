//! `GET /attempts/at/{run}/{number}/model-new` and `/project`: exports of a program.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use nightshift_optimizer::export::{self, ExportError, Program, ProjectFile};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::TaskBundle;
use tar::{Builder, Header};

use crate::error::ApiFailure;
use crate::extract::TextPair;
use crate::shared::Shared;

/// Mode of the files of a project.
const FILE_MODE: u32 = 0o644;
/// Media type of Python sources.
pub(super) const PYTHON: &str = "text/x-python; charset=utf-8";
/// Media type of an archive.
pub(super) const ARCHIVE: &str = "application/gzip";

/// Returns one Python file that contains the program and calls it.
pub(crate) async fn model_new(
    State(shared): State<Arc<Shared>>,
    TextPair(run, number): TextPair,
) -> Result<Response, ApiFailure> {
    let found = Found::load(&shared, &run, &number).await?;
    let text = export::model_new(&found.program()).map_err(|error| refused(&error))?;
    Ok(file(PYTHON, "model_new.py", text.into_bytes()))
}

/// Returns a stand-alone `CMake` project as an archive.
pub(crate) async fn project(
    State(shared): State<Arc<Shared>>,
    TextPair(run, number): TextPair,
) -> Result<Response, ApiFailure> {
    let found = Found::load(&shared, &run, &number).await?;
    let files = export::project(&found.program()).map_err(|error| refused(&error))?;
    let folder = format!("{}-attempt{}", found.task.spec.name, found.attempt.number);
    let bytes = packed(&folder, &files).map_err(|error| {
        ApiFailure::internal("internal.unwritable", format!("the project cannot be packed: {error}"))
    })?;
    Ok(file(ARCHIVE, &format!("{folder}.tar.gz"), bytes))
}

/// An attempt with the data of its export.
struct Found {
    run: RunId,
    attempt: Attempt,
    task: TaskBundle,
    source: String,
}

impl Found {
    /// Loads an attempt by run id and number. Share links are checked against the ids in an address, so the key of a
    /// point is not accepted here.
    async fn load(shared: &Shared, run: &str, number: &str) -> Result<Self, ApiFailure> {
        let missing = || {
            let message = format!(
                "`{run}/{number}` names no attempt: expected the id of a run and the number of one of its attempts"
            );
            ApiFailure::not_found("attempt.not_found", message)
        };
        let number: u32 = number.parse().map_err(|_| missing())?;
        let id: RunId = run.parse().map_err(|_| missing())?;
        let record = shared.store.runs.load_run(&id).await?;
        let no_attempt = || ApiFailure::not_found("attempt.not_found", format!("{id} has no attempt {number}"));
        let state = record.state.as_ref().filter(|state| !state.is_null()).ok_or_else(no_attempt)?;
        let view = (shared.view)(state)?;
        let attempt = view.attempts.into_iter().find(|attempt| attempt.number == number).ok_or_else(no_attempt)?;
        let hash = attempt.source.as_ref().ok_or_else(|| {
            let message = format!("attempt {number} of {id} has no program: its reply held no usable code");
            ApiFailure::new(StatusCode::CONFLICT, "attempt.no_source", message)
        })?;
        let source = String::from_utf8_lossy(&shared.store.artifacts.get_artifact(hash).await?).into_owned();
        let task =
            serde_json::from_slice(&shared.store.artifacts.get_artifact(&view.task).await?).map_err(|error| {
                ApiFailure::internal("task.unreadable", format!("the task of {id} cannot be read: {error}"))
            })?;
        Ok(Self { run: id, attempt, task, source })
    }

    fn program(&self) -> Program<'_> {
        Program { run: &self.run, attempt: &self.attempt, task: &self.task, source: &self.source }
    }
}

fn refused(error: &ExportError) -> ApiFailure {
    match error {
        ExportError::TorchForm => ApiFailure::new(StatusCode::CONFLICT, error.code(), error.to_string()),
        ExportError::Shape(_) => ApiFailure::internal(error.code(), error.to_string()),
    }
}

/// Packs the files below a folder, deterministically.
fn packed(folder: &str, files: &[ProjectFile]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(file.text.len()).unwrap_or(u64::MAX));
        header.set_mode(FILE_MODE);
        header.set_mtime(0);
        builder.append_data(&mut header, format!("{folder}/{}", file.name), file.text.as_bytes())?;
    }
    builder.into_inner()?.finish()
}

fn file(content_type: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    response
}
