//! Who this client is. Signing in is for browsers: everybody else shows a token with each call.

use nightshift_protocol::api::SessionView;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Who the server takes this client for, and what it may do.
    pub async fn session(&self) -> Result<SessionView, ClientError> {
        self.get(self.url(&["session"], &[])).await
    }
}
