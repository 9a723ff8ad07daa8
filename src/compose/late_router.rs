//! Pages that read through the API need its address, which is known only after the server listens: routes that are
//! filled in a moment later.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tower::ServiceExt;

type Slot = Arc<OnceLock<Router>>;

/// Fills the routes.
pub(super) struct Fill(Slot);

impl Fill {
    /// Answers with these routes from now on.
    pub(super) fn with(self, router: Router) {
        // The slot is new and `self` is the only way to fill it, so it is empty.
        let _ = self.0.set(router);
    }
}

/// Routes that answer everything beside the API, and what fills them.
pub(super) fn late_router() -> (Router, Fill) {
    let slot: Slot = Arc::default();
    let router = Router::new().route("/", any(answer)).route("/{*path}", any(answer)).with_state(slot.clone());
    (router, Fill(slot))
}

async fn answer(State(slot): State<Slot>, request: Request) -> Response {
    let Some(router) = slot.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "starting").into_response();
    };
    // What the outer routes matched would be taken for parameters of the inner ones.
    let (mut parts, body) = request.into_parts();
    parts.extensions.clear();
    let request = Request::from_parts(parts, body);
    let answered: std::result::Result<Response, Infallible> = router.clone().oneshot(request).await;
    match answered {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
