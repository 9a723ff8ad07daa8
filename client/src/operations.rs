//! Calls for operators: tokens, servers, retention.

use nightshift_protocol::access::{CreateToken, TokenCreated, TokenView};
use nightshift_protocol::api::{Page, Prune, PruneDone, ServerView};
use nightshift_protocol::id::TokenId;
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Lists tokens, including revoked and expired ones, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let page: Page<TokenView> = self.get(self.url(&["tokens"], &[])).await?;
        Ok(page.items)
    }

    /// Creates a token. Only this answer contains its secret. Repeating the call with the same key creates no second
    /// one.
    pub async fn create_token(
        &self,
        request: &CreateToken,
        idempotency_key: &str,
    ) -> Result<TokenCreated, ClientError> {
        self.create(self.url(&["tokens"], &[]), request, idempotency_key).await
    }

    /// Revokes a token at once. Repeating it is safe.
    pub async fn revoke_token(&self, id: &TokenId) -> Result<TokenView, ClientError> {
        let url = self.url(&["tokens", id.as_str(), "revoke"], &[]);
        self.json(self.request(Method::POST, url)).await
    }

    /// Lists servers on this database.
    pub async fn servers(&self) -> Result<Vec<ServerView>, ClientError> {
        let page: Page<ServerView> = self.get(self.url(&["servers"], &[])).await?;
        Ok(page.items)
    }

    /// Deletes a bounded amount of old data. If the answer says that more is left, call again.
    pub async fn prune(&self, prune: &Prune) -> Result<PruneDone, ClientError> {
        self.post(self.url(&["prune"], &[]), prune).await
    }

    /// Returns what [`Self::prune`] would delete.
    pub async fn prunable(&self, older_than_ms: u64) -> Result<PruneDone, ClientError> {
        self.get(self.url(&["prune"], &[("older_than_ms", Some(older_than_ms.to_string()))])).await
    }
}
