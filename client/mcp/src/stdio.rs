//! Serves one client over standard input and output.

use rmcp::ServiceExt;
use tokio_util::sync::CancellationToken;

use crate::service::Service;

/// Why serving ended other than by the end of the input.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The client did not initialize the protocol.
    #[error("the client did not begin a session of MCP: {0}")]
    Start(String),
    /// The serving task panicked.
    #[error("the service failed: {0}")]
    Broken(String),
}

/// Serves until the end of standard input, or until it is stopped.
pub async fn serve_stdio(service: Service, stop: CancellationToken) -> Result<(), StdioError> {
    let starting = service.serve_with_ct(rmcp::transport::stdio(), stop.clone());
    let running = tokio::select! {
        running = starting => running,
        () = stop.cancelled() => return Ok(()),
    };
    let running = match running {
        Ok(running) => running,
        // A client that disconnects without a message is no error.
        Err(
            rmcp::service::ServerInitializeError::ConnectionClosed(_) | rmcp::service::ServerInitializeError::Cancelled,
        ) => {
            return Ok(());
        }
        Err(error) => return Err(StdioError::Start(error.to_string())),
    };
    running.waiting().await.map(|_| ()).map_err(|error| StdioError::Broken(error.to_string()))
}
