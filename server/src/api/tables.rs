//! `GET /tables/{name}`: lists as complete files, in CSV, JSON or Parquet.
//!
//! A table is read and written page by page, at the speed of its reader, with at most one page in memory. Only reading and
//! writing a page counts against the small limit of pages, so that slow readers hold up no other table. A larger limit of
//! open tables bounds their memory.

mod attempts;
mod boards;
mod campaigns;
mod of_run;
mod runs;
mod workers;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use nightshift_protocol::api::{TableFormat, TableName};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::attempts::Pairs;
use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::Params;
use crate::table::{Column, Row, TableError, TableFile};

/// Rows read at a time.
const ROWS_AT_ONCE: u32 = 500;
/// Name of the format parameter.
const FORMAT: &str = "format";

/// `GET /tables/campaigns`.
pub(crate) async fn campaigns(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Campaigns).await
}

/// `GET /tables/runs`.
pub(crate) async fn runs(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Runs).await
}

/// `GET /tables/attempts`.
pub(crate) async fn attempts(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Attempts).await
}

/// `GET /tables/tasks`.
pub(crate) async fn tasks(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Tasks).await
}

/// `GET /tables/models`.
pub(crate) async fn models(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Models).await
}

/// `GET /tables/workers`.
pub(crate) async fn workers(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Workers).await
}

/// `GET /tables/steps`.
pub(crate) async fn steps(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Steps).await
}

/// `GET /tables/events`.
pub(crate) async fn events(state: State<App>, query: Params<Pairs>) -> Result<Response, ApiFailure> {
    answer(state, query, TableName::Events).await
}

/// Source of the rows, with its position.
enum Source {
    Campaigns(campaigns::Pages),
    Runs(runs::Pages),
    Attempts(Box<attempts::Pages>),
    Events(of_run::Events),
    /// A list without pages.
    Whole(Option<Vec<Row>>),
}

impl Source {
    /// Opens the source of a query. Reads lists without pages completely.
    async fn open(app: &App, name: TableName, query: Pairs) -> Result<(Self, &'static [Column]), ApiFailure> {
        let whole = |rows| Self::Whole(Some(rows));
        Ok(match name {
            TableName::Campaigns => (Self::Campaigns(campaigns::Pages::of(query)?), campaigns::COLUMNS),
            TableName::Runs => (Self::Runs(runs::Pages::of(&app.shared, query).await?), runs::COLUMNS),
            TableName::Attempts => (Self::Attempts(Box::new(attempts::Pages::of(query)?)), attempts::COLUMNS),
            TableName::Tasks => (whole(boards::tasks(&app.index, query).await?), boards::TASK_COLUMNS),
            TableName::Models => (whole(boards::models(&app.index, query).await?), boards::MODEL_COLUMNS),
            TableName::Workers => (whole(workers::rows(&app.dispatch, &query).await?), workers::COLUMNS),
            TableName::Steps => (whole(of_run::steps(&app.driving, &query).await?), of_run::STEP_COLUMNS),
            TableName::Events => (Self::Events(of_run::Events::of(&app.shared, &query).await?), of_run::EVENT_COLUMNS),
        })
    }

    /// Returns the next rows, or none at the end.
    async fn next(&mut self, app: &App) -> Result<Option<Vec<Row>>, ApiFailure> {
        match self {
            Self::Campaigns(pages) => pages.next(&app.campaigns).await,
            Self::Runs(pages) => pages.next(&app.shared).await,
            Self::Attempts(pages) => pages.next(&app.index).await,
            Self::Events(events) => events.next(&app.shared).await,
            Self::Whole(rows) => Ok(rows.take()),
        }
    }
}

/// Why a table was cut off off. Its reader detects the missing end.
#[derive(Debug, thiserror::Error)]
#[error("the table was cut off: {0}")]
struct Cut(String);

/// A table that is being sent.
struct Sending {
    app: App,
    source: Source,
    /// None after the end was written.
    file: Option<TableFile>,
    _open: OwnedSemaphorePermit,
}

/// Waits until a page may be read and written.
async fn permit(app: &App) -> Result<OwnedSemaphorePermit, ApiFailure> {
    let permit = app.limits.tables.clone().acquire_owned().await;
    permit.map_err(|error| ApiFailure::internal("internal.closed", error.to_string()))
}

async fn answer(State(app): State<App>, Params(query): Params<Pairs>, name: TableName) -> Result<Response, ApiFailure> {
    let (format, query) = split_format(query)?;
    let open = app.limits.open_table()?;
    let permit = permit(&app).await?;
    let (source, columns) = Source::open(&app, name, query).await?;
    let file = TableFile::new(format, columns).map_err(|error| unwritable(&error))?;
    let mut sending = Sending { app, source, file: Some(file), _open: open };
    // The first page is read before the answer begins, so that its error can still be reported.
    let first = sending.part(permit).await?;
    let rest = stream::try_unfold(sending, async |mut sending| {
        let part = sending.next_part().await.map_err(|failure| {
            tracing::warn!(error = %failure.message(), "a table was cut off");
            Cut(failure.message().to_owned())
        })?;
        Ok::<_, Cut>(part.map(|part| (part, sending)))
    });
    let mut response = Body::from_stream(stream::iter(first.map(Ok)).chain(rest)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let file_name = format!("attachment; filename=\"{}.{}\"", name.as_str(), format.as_str());
    if let Ok(value) = HeaderValue::from_str(&file_name) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

impl Sending {
    async fn next_part(&mut self) -> Result<Option<Bytes>, ApiFailure> {
        let permit = permit(&self.app).await?;
        self.part(permit).await
    }

    /// Returns the next bytes, or none after the end.
    async fn part(&mut self, _permit: OwnedSemaphorePermit) -> Result<Option<Bytes>, ApiFailure> {
        while let Some(file) = self.file.take() {
            let rows = self.source.next(&self.app).await?;
            // Writing thousands of rows and packing columns takes long.
            let writing = tokio::task::spawn_blocking(move || write(file, rows));
            let (bytes, file) = writing
                .await
                .map_err(|error| ApiFailure::internal("internal.unwritable", error.to_string()))?
                .map_err(|error| unwritable(&error))?;
            self.file = file;
            if !bytes.is_empty() {
                return Ok(Some(Bytes::from(bytes)));
            }
        }
        Ok(None)
    }
}

/// Adds the rows, or ends the file if there are none.
fn write(mut file: TableFile, rows: Option<Vec<Row>>) -> Result<(Vec<u8>, Option<TableFile>), TableError> {
    match rows {
        Some(rows) => Ok((file.add(&rows)?, Some(file))),
        None => Ok((file.finish()?, None)),
    }
}

fn unwritable(error: &TableError) -> ApiFailure {
    ApiFailure::internal("internal.unwritable", error.to_string())
}

/// Returns the format and the other parameters.
fn split_format(query: Pairs) -> Result<(TableFormat, Pairs), ApiFailure> {
    let (formats, rest): (Pairs, Pairs) = query.into_iter().partition(|(name, _)| name == FORMAT);
    let mut format = TableFormat::default();
    for (_, text) in formats {
        format = TableFormat::parse(&text).ok_or_else(|| {
            let known = TableFormat::ALL.map(TableFormat::as_str).join(", ");
            ApiFailure::bad(
                "request.invalid_query",
                format!("`{FORMAT}`: `{text}` is not known: expected one of {known}"),
            )
        })?;
    }
    Ok((format, rest))
}

/// Returns the error for an unknown parameter.
fn unknown(name: &str, known: &[&str]) -> ApiFailure {
    let known = known.join(", ");
    ApiFailure::bad(
        "request.invalid_query",
        format!("`{name}`: there is no such filter: expected one of format, {known}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_one_of_three_and_csv_unless_it_is_named() {
        let pairs = |text: &str| vec![("format".to_owned(), text.to_owned()), ("q".to_owned(), "a".to_owned())];
        assert!(matches!(split_format(pairs("parquet")), Ok((TableFormat::Parquet, rest)) if rest.len() == 1));
        assert!(matches!(split_format(Pairs::new()), Ok((TableFormat::Csv, rest)) if rest.is_empty()));
        assert!(split_format(pairs("xlsx")).is_err_and(|failure| failure.message().contains("csv, json, parquet")));
    }
}
