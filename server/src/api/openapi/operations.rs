//! Health, sessions, tokens, servers, retention, and this document.

use nightshift_protocol::access::{CreateToken, TokenCreated, TokenView};
use nightshift_protocol::api::{Health, OpenSession, Prune, PruneDone, ServerView, SessionView, SignIn};
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, Kind, Permission, get, post};
use super::schemas::Schemas;

const HEALTH: &str = "health";
const SESSION: &str = "session";
const OPERATIONS: &str = "operations";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/health", HEALTH, Permission::Public, "Whether the server and its database work")
            .gives(200, schemas.of::<Health>())
            .fails(
                503,
                &[
                    "store.failed",
                    "store.full",
                    "store.locked",
                    "store.read_only",
                    "store.corrupt",
                    "store.too_new",
                    "store.unreachable",
                ],
            ),
        get("/ready", HEALTH, Permission::Public, "Whether the server is ready for requests")
            .gives_nothing(204, "It does.")
            .fails(503, &["server.stopping", "server.no_life", "server.expired"]),
        get("/openapi.json", HEALTH, Permission::Public, "This document").gives(200, super::schemas::object()),
        get("/session", SESSION, Permission::Public, "The identity and permissions of the caller")
            .gives(200, schemas.of::<SessionView>())
            .fails(401, &["auth.wrong_token"])
            .fails(429, &["request.too_many"]),
        post("/session", SESSION, Permission::Public, "Signs a browser in: sets a session cookie for a token")
            .takes(schemas.of::<SignIn>())
            .gives(200, schemas.of::<SessionView>())
            .fails(400, &["token.invalid_lifetime"])
            .fails(401, &["auth.wrong_token", "token.expired", "token.revoked"])
            .fails(403, &["access.role_needed", "auth.cross_origin"])
            .fails(409, &["auth.too_many_sessions"])
            .fails(413, &["request.too_large"])
            .fails(429, &["auth.too_many_tries"]),
        Call::new(HttpMethod::Delete, "/session", SESSION, Permission::Public, "Signs a browser out")
            .gives_nothing(204, "The session has ended.")
            .fails(403, &["auth.cross_origin"])
            .fails(429, &["request.too_many"]),
        get("/servers", OPERATIONS, Permission::Reads, "Servers on this database")
            .pages()
            .gives(200, schemas.page_of::<ServerView>()),
        get("/tokens", OPERATIONS, Permission::Administers, "Tokens, without their secrets")
            .pages()
            .gives(200, schemas.page_of::<TokenView>()),
        post("/tokens", OPERATIONS, Permission::Administers, "Creates a token; only this answer contains its secret")
            .creates()
            .takes(schemas.of::<CreateToken>())
            .gives(201, schemas.of::<TokenCreated>())
            .fails(400, &["token.invalid_name", "token.invalid_lifetime"]),
        post("/tokens/{id}/revoke", OPERATIONS, Permission::Administers, "Ends a token")
            .gives(200, schemas.of::<TokenView>())
            .fails(404, &["token.not_found"]),
        get("/sessions", OPERATIONS, Permission::Administers, "Browsers that are signed in, the latest first")
            .pages()
            .gives(200, schemas.page_of::<OpenSession>()),
        post("/sessions/{id}/end", OPERATIONS, Permission::Administers, "Signs a browser out")
            .gives_nothing(204, "The session has ended.")
            .fails(404, &["session.not_found"]),
        get("/prune", OPERATIONS, Permission::Administers, "What a prune would delete")
            .query("older_than_ms", Kind::Number, "Minimum time since the end of a campaign's last run.")
            .gives(200, schemas.of::<PruneDone>())
            .fails(400, &["request.invalid_query"]),
        post("/prune", OPERATIONS, Permission::Administers, "Deletes old campaigns and artifacts")
            .takes(schemas.of::<Prune>())
            .gives(200, schemas.of::<PruneDone>())
            .fails(400, &["request.invalid"]),
    ]
}
