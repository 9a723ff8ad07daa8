//! The server of the sessions. A local one that is started again has another token, and perhaps another address.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nightshift_client::{Client, ClientError};

use crate::connect::Session;
use crate::context::Context;
use crate::failure::Result;

/// Calls in a row that may fail because the server does not answer.
const MAX_FAILED_CALLS: u32 = 60;
/// Time between two of them.
const PAUSE: Duration = Duration::from_secs(1);
/// What a local server that was started again says to the token of the one before.
const WRONG_TOKEN: &str = "auth.wrong_token";

/// The server as it was found last.
pub(crate) struct CurrentServer<'a> {
    context: &'a Context,
    client: Mutex<Client>,
}

impl<'a> CurrentServer<'a> {
    pub(crate) fn new(context: &'a Context, client: &Client) -> Self {
        Self { context, client: Mutex::new(client.clone()) }
    }

    /// Makes a call once. After an error that may pass, the next call goes to the local server that runs by then.
    pub(crate) async fn call_once<T>(
        &self,
        call: impl AsyncFn(&Client) -> std::result::Result<T, ClientError>,
    ) -> std::result::Result<T, ClientError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answered = call(&client).await;
        if answered.as_ref().is_err_and(|error| self.may_pass(error))
            && self.is_local()
            && let Some(found) = Session::running_client(self.context).await
        {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        answered
    }

    /// Makes a call. Repeats it while the server does not answer, for about a minute.
    pub(super) async fn call<T>(
        &self,
        call: impl AsyncFn(&Client) -> std::result::Result<T, ClientError>,
    ) -> Result<T> {
        let mut failed = 0;
        loop {
            match self.call_once(&call).await {
                Err(error) if self.may_pass(&error) && failed < MAX_FAILED_CALLS => failed += 1,
                answered => return Ok(answered?),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns whether a later call may succeed.
    pub(crate) fn may_pass(&self, error: &ClientError) -> bool {
        error.is_transient() || (self.is_local() && error.code() == WRONG_TOKEN)
    }

    fn is_local(&self) -> bool {
        self.context.config().server.url.is_none()
    }
}
