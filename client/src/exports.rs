//! Lists as whole tables, and programs to be taken away.

use std::time::Duration;

use nightshift_protocol::api::{TableFormat, TableName};
use nightshift_protocol::id::RunId;
use reqwest::Method;

use crate::download::Download;
use crate::error::ClientError;
use crate::transport::Client;

/// Longest time that a table may be on its way.
const TABLE_TIMEOUT: Duration = Duration::from_mins(30);

impl Client {
    /// A list as a file, as it comes. The pairs are those of the query of its call, without limit and cursor.
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

    /// The program of an attempt as a file of Python with `ModelNew`.
    pub async fn attempt_model_new(&self, run: &RunId, number: u32) -> Result<Vec<u8>, ClientError> {
        self.exported(run, number, "model-new").await
    }

    /// The program of an attempt as a `CMake` project, a folder in a `.tar.gz`.
    pub async fn attempt_project(&self, run: &RunId, number: u32) -> Result<Vec<u8>, ClientError> {
        self.exported(run, number, "project").await
    }

    async fn exported(&self, run: &RunId, number: u32, form: &str) -> Result<Vec<u8>, ClientError> {
        let url = self.url(&["attempts", "at", run.as_str(), &number.to_string(), form], &[]);
        let (_, bytes) = self.send(self.request(Method::GET, url)).await?;
        Ok(bytes)
    }
}
