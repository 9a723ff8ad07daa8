//! Progress of a call, for clients that asked for it.

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
    /// Reports to the client of this request, if it asked for that.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self { peer: context.peer.clone(), token: context.meta.get_progress_token(), began: Instant::now() }
    }

    /// Says what is being waited for. The values are the seconds of the call: they only rise.
    pub(crate) async fn say(&self, message: &str) {
        let Some(token) = self.token.clone() else { return };
        let report = ProgressNotificationParam::new(token, self.began.elapsed().as_secs_f64()).with_message(message);
        // A client that went away needs no report.
        let _ = self.peer.notify_progress(report).await;
    }
}
