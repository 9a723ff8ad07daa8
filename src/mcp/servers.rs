//! Finding the server for a call, as the other commands do.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nightshift_mcp::ToolError;
use nightshift_mcp::ports::{Caller, Connection, Servers};
use tokio::sync::{Mutex, oneshot};

use crate::compose::mcp_tasks::tool_error;
use crate::connect::{Purpose, Session};
use crate::context::Context;

/// How long the calls of a session wait for a server that is started again.
const RESTART_WAIT: Duration = Duration::from_secs(30);

/// The server that is configured, the local one that runs, or one for the one call, over the database of this machine.
#[derive(Clone)]
pub(crate) struct LocalServers {
    context: Context,
    purpose: Purpose,
    /// One call at a time looks for a server: one of its own has the database to itself.
    turn: Arc<Mutex<()>>,
}

impl LocalServers {
    /// The servers of all tools.
    pub(crate) fn new(context: Context) -> Self {
        Self { context, purpose: Purpose::Ask, turn: Arc::default() }
    }

    /// The servers of a session. Only a server that carries out runs goes on with it, so that none is started for a call: it
    /// would be in the way of the one that is started again.
    pub(crate) fn of_session(context: Context) -> Self {
        Self { context, purpose: Purpose::Join { wait: RESTART_WAIT }, turn: Arc::default() }
    }

    /// Waits until servers that were started for single calls have ended.
    pub(crate) async fn closed(&self) {
        drop(self.turn.lock().await);
    }
}

#[async_trait]
impl Servers for LocalServers {
    async fn connect(&self, _caller: &Caller) -> Result<Connection, ToolError> {
        let (tell, told) = oneshot::channel();
        // In a task of its own: a server that was started for a call has to be ended, also when the call is given up.
        tokio::spawn(serve_call(self.clone(), tell));
        told.await.unwrap_or_else(|_| Err(ToolError::new("internal.task", "looking for a server broke down")))
    }

    fn may_change_token(&self) -> bool {
        self.context.config().server.url.is_none()
    }
}

/// Finds a server for one call, and ends it after the call if it was started for it.
async fn serve_call(servers: LocalServers, tell: oneshot::Sender<Result<Connection, ToolError>>) {
    // A call that starts no server of its own waits for no other call.
    let turn = match servers.purpose {
        Purpose::Ask => Some(servers.turn.clone().lock_owned().await),
        _ => None,
    };
    let session = match Session::open(&servers.context, servers.purpose.clone()).await {
        Ok(session) => session,
        Err(failure) => {
            // A call that was given up needs no answer.
            let _ = tell.send(Err(tool_error(failure)));
            return;
        }
    };
    let (release, released) = oneshot::channel();
    let connection = Connection { client: session.client.clone(), drives: session.drives(), release: Some(release) };
    if session.own.is_none() {
        drop(turn);
        let _ = tell.send(Ok(connection));
        return;
    }
    let _ = tell.send(Ok(connection));
    // Dropped with the connection: the call is over.
    let _ = released.await;
    if let Err(failure) = session.close().await {
        tracing::warn!(error = %failure, "the server of one call did not end as it should");
    }
    drop(turn);
}
