//! axum: the API, live events, access control and the background loops.
