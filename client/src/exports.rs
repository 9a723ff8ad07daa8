//! Lists as complete tables, and exports of programs.

use std::time::Duration;

use nightshift_protocol::api::{TableFormat, TableName};
use nightshift_protocol::id::RunId;
use reqwest::Method;

use crate::download::Download;
use crate::error::ClientError;
use crate::transport::Client;

/// Timeout of the transfer of a table.
const TABLE_TIMEOUT: Duration = Duration::from_mins(30);

impl Client {
    /// Streams a list as a file. The pairs are the query of its call, without limit and cursor.
    pub async fn table(
        &self,
        name: TableName,
        format: TableFormat,
        query: &[(&'static str, String)],
    ) -> Result<Download, ClientError> {
        let mut pairs = vec![("format", Some(format.as_str().to_owned()))];
        pairs.extend(query.iter().map(|(name, value)| (*name, Some(value.clone()))));
        let url = self.url(&["tables", name.as_str()], &pairs);
        Ok(Download::new(self.open(self.request(Method::GET, url).timeout(TABLE_TIMEOUT)).await?))
    }

    /// Returns the program of an attempt as a Python file with `ModelNew`.
    pub async fn attempt_model_new(&self, run: &RunId, number: u32) -> Result<Vec<u8>, ClientError> {
        self.exported(run, number, "model-new").await
    }

    /// Returns the program of an attempt as a `CMake` project in a `.tar.gz`.
    pub async fn attempt_project(&self, run: &RunId, number: u32) -> Result<Vec<u8>, ClientError> {
        self.exported(run, number, "project").await
    }

    async fn exported(&self, run: &RunId, number: u32, form: &str) -> Result<Vec<u8>, ClientError> {
        let url = self.url(&["attempts", "at", run.as_str(), &number.to_string(), form], &[]);
        let (_, bytes) = self.send(self.request(Method::GET, url)).await?;
        Ok(bytes)
    }
}
