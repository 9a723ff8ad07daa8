//! Progress reports of a call, for clients that request them.

use std::time::Instant;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// Reports the progress of one call.
pub(crate) struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    began: Instant,
}

impl Progress {
    /// Creates the reporter of this request, if the client asked for progress.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self { peer: context.peer.clone(), token: context.meta.get_progress_token(), began: Instant::now() }
    }

    /// Reports what the call waits for. The values are the seconds of the call, so they only increase.
    pub(crate) async fn say(&self, message: &str) {
        let Some(token) = self.token.clone() else { return };
        let report = ProgressNotificationParam::new(token, self.began.elapsed().as_secs_f64()).with_message(message);
        // A disconnected client needs no report.
        let _ = self.peer.notify_progress(report).await;
    }
}
