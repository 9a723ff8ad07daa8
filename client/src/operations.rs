//! What those who run a server need: tokens, servers, retention.

use nightshift_protocol::access::{CreateToken, TokenCreated, TokenView};
use nightshift_protocol::api::{Page, Prune, PruneDone, ServerView};
use nightshift_protocol::id::TokenId;
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Tokens, revoked and expired ones too; never their secrets.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let page: Page<TokenView> = self.get(self.url(&["tokens"], &[])).await?;
        Ok(page.items)
    }

    /// Makes a token. Its secret is in this answer and nowhere else. The same key makes no second one.
    pub async fn create_token(
        &self,
        request: &CreateToken,
        idempotency_key: &str,
    ) -> Result<TokenCreated, ClientError> {
        self.create(self.url(&["tokens"], &[]), request, idempotency_key).await
    }

    /// Ends a token at once. Repeating it is safe.
    pub async fn revoke_token(&self, id: &TokenId) -> Result<TokenView, ClientError> {
        let url = self.url(&["tokens", id.as_str(), "revoke"], &[]);
        self.json(self.request(Method::POST, url)).await
    }

    /// Servers that share this database.
    pub async fn servers(&self) -> Result<Vec<ServerView>, ClientError> {
        let page: Page<ServerView> = self.get(self.url(&["servers"], &[])).await?;
        Ok(page.items)
    }

    /// Deletes what is old and over, a bounded part at a time. When the answer says that there is more, call again.
    pub async fn prune(&self, prune: &Prune) -> Result<PruneDone, ClientError> {
        self.post(self.url(&["prune"], &[]), prune).await
    }

    /// What [`Self::prune`] would delete.
    pub async fn prunable(&self, older_than_ms: u64) -> Result<PruneDone, ClientError> {
        self.get(self.url(&["prune"], &[("older_than_ms", Some(older_than_ms.to_string()))])).await
    }
}
