//! The model whose answers come from an agent outside of Nightshift.

use async_trait::async_trait;
pub use nightshift_protocol::campaign::DEFAULT_AGENT;
use nightshift_protocol::campaign::EXTERNAL;

use super::{Meter, Model, ModelError, ModelReply, ModelRequest};

/// Stands for the outside agent. It is never called: the agents store its call as a request and end the try.
pub(super) struct ExternalModel {
    pub(super) name: String,
}

#[async_trait]
impl Model for ExternalModel {
    fn label(&self) -> String {
        format!("{EXTERNAL}/{}", self.name)
    }

    fn is_scripted(&self) -> bool {
        false
    }

    fn is_external(&self) -> bool {
        true
    }

    async fn call(&self, _request: &ModelRequest, _meter: &dyn Meter) -> Result<ModelReply, ModelError> {
        let message = "an outside agent answers by requests, which only a campaign's steps open".to_owned();
        Err(ModelError::Misconfigured { endpoint: EXTERNAL.to_owned(), message })
    }
}
