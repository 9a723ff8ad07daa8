//! The description of one call: permissions, parameters, answers and errors.

use std::collections::BTreeMap;

use axum::http::header::IF_NONE_MATCH;
use nightshift_protocol::api::{IDEMPOTENCY_HEADER, MAX_PAGE_ROWS, SortOrder};
use nightshift_protocol::error::PROBLEM_CONTENT_TYPE;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, ParameterStyle,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    ArrayBuilder, ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Type,
};

/// The callers with permission for a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Permission {
    /// Every caller.
    Public,
    /// Readers; every caller where reading needs no token.
    Reads,
    /// Readers with a name, because the call stores data under it.
    Named,
    /// Readers and workers.
    ReadsOrWorks,
    /// Operators.
    Operates,
    /// Operators and workers.
    OperatesOrWorks,
    /// Workers.
    Works,
    /// Administrators.
    Administers,
}

impl Permission {
    fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Public => &["public"],
            Self::Reads | Self::Named => &["viewer", "operator", "admin"],
            Self::ReadsOrWorks => &["viewer", "operator", "worker", "admin"],
            Self::Operates => &["operator", "admin"],
            Self::OperatesOrWorks => &["operator", "worker", "admin"],
            Self::Works => &["worker", "admin"],
            Self::Administers => &["admin"],
        }
    }

    fn may_be_anonymous(self) -> bool {
        matches!(self, Self::Public | Self::Reads | Self::ReadsOrWorks)
    }

    /// Returns the ways to authenticate. Passwords are taken only for reading.
    fn securities(self, method: &HttpMethod) -> Vec<SecurityRequirement> {
        let mut ways = Vec::new();
        if self.may_be_anonymous() {
            ways.push(SecurityRequirement::default());
        }
        if !matches!(self, Self::Public) {
            let reads = matches!(method, HttpMethod::Get | HttpMethod::Head);
            let names = ["token", "session"].into_iter().chain(reads.then_some("password"));
            ways.extend(names.map(|name| SecurityRequirement::new(name, std::iter::empty::<String>())));
        }
        ways
    }
}

/// A query parameter or header.
#[derive(Debug, Clone)]
pub(super) struct Named {
    name: &'static str,
    of: Kind,
    about: &'static str,
    is_header: bool,
    is_required: bool,
}

/// Type of a parameter.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Text,
    /// A whole number of 0 or more.
    Number,
    /// The number of rows of a page.
    PageLimit,
    Decimal,
    Flag,
    /// One of these words.
    OneOf(Vec<&'static str>),
    /// Some of these words, with commas between them.
    SomeOf(Vec<&'static str>),
}

/// A body: its media type and schema.
pub(super) type Content = (&'static str, RefOr<Schema>);

/// A call.
pub(super) struct Call {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    area: &'static str,
    permission: Permission,
    summary: &'static str,
    named: Vec<Named>,
    takes: Option<Content>,
    gives: Vec<(u16, &'static str, Vec<Content>)>,
    event_data: Option<RefOr<Schema>>,
    fails: BTreeMap<u16, Vec<&'static str>>,
}

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const EVENT_STREAM: &str = "text/event-stream";

/// Errors that any call may answer: status, name of the answer in the document, and codes.
pub(super) const COMMON_FAILURES: [(u16, &str, &[&str]); 3] = [
    (500, "ServerError", &["store.corrupt", "store.read_only", "store.too_new", "store.unusable"]),
    (503, "Unavailable", &["server.timed_out", "store.failed", "store.locked", "store.unreachable"]),
    (507, "StorageFull", &["store.full"]),
];

impl Call {
    pub(super) fn new(
        method: HttpMethod,
        path: &'static str,
        area: &'static str,
        permission: Permission,
        summary: &'static str,
    ) -> Self {
        let (named, takes, gives, fails) = (Vec::new(), None, Vec::new(), BTreeMap::new());
        Self { method, path, area, permission, summary, named, takes, gives, event_data: None, fails }
    }

    /// Adds a query parameter.
    pub(super) fn query(mut self, name: &'static str, of: Kind, about: &'static str) -> Self {
        self.named.push(Named { name, of, about, is_header: false, is_required: false });
        self
    }

    /// Adds a header.
    pub(super) fn header(mut self, name: &'static str, is_required: bool, about: &'static str) -> Self {
        self.named.push(Named { name, of: Kind::Text, about, is_header: true, is_required });
        self
    }

    /// Adds the idempotency key of a creating call.
    pub(super) fn creates(self) -> Self {
        let about = "Repeating the same request with the same key creates nothing more and returns the same answer.";
        self.header(IDEMPOTENCY_HEADER, false, about)
            .fails(400, &["request.invalid_idempotency_key"])
            .fails(409, &["request.idempotency_conflict"])
    }

    /// Adds the version of an answer, and 304 for callers that have it.
    pub(super) fn versioned(self) -> Self {
        self.header(IF_NONE_MATCH.as_str(), false, "The `ETag` of an earlier answer.")
            .gives_nothing(304, "Nothing changed since that answer.")
    }

    /// Adds limit and cursor of a list.
    pub(super) fn pages(self) -> Self {
        self.query(
            "limit",
            Kind::PageLimit,
            "Rows per page: 1 to 500. Without it 100; lists that are read as a whole answer all rows without a query.",
        )
        .query("before", Kind::Text, "`next` of the previous page.")
    }

    /// Sets a JSON body.
    pub(super) fn takes(mut self, schema: RefOr<Schema>) -> Self {
        self.takes = Some((JSON, schema));
        self
    }

    /// Sets a binary body.
    pub(super) fn takes_bytes(mut self) -> Self {
        self.takes = Some((BYTES, super::schemas::text()));
        self
    }

    /// Adds a JSON answer.
    pub(super) fn gives(mut self, status: u16, schema: RefOr<Schema>) -> Self {
        self.gives.push((status, "The answer.", vec![(JSON, schema)]));
        self
    }

    /// Adds an answer of another media type.
    pub(super) fn gives_other(mut self, status: u16, content_type: &'static str, about: &'static str) -> Self {
        self.gives.push((status, about, vec![(content_type, super::schemas::text())]));
        self
    }

    /// Adds an answer in one of several media types, as the query asks for.
    pub(super) fn gives_one_of(mut self, status: u16, contents: Vec<Content>, about: &'static str) -> Self {
        self.gives.push((status, about, contents));
        self
    }

    /// Adds a stream of events with data of this schema. A stream is a text that never ends: `x-event-data` names the
    /// schema of the data of each event, because `OpenAPI` 3.1 has no word for it.
    pub(super) fn streams(mut self, event_data: RefOr<Schema>, about: &'static str) -> Self {
        self.gives.push((200, about, vec![(EVENT_STREAM, super::schemas::text())]));
        self.event_data = Some(event_data);
        self
    }

    /// Adds an answer without a body.
    pub(super) fn gives_nothing(mut self, status: u16, about: &'static str) -> Self {
        self.gives.push((status, about, Vec::new()));
        self
    }

    /// Adds codes of its own errors.
    pub(super) fn fails(mut self, status: u16, codes: &[&'static str]) -> Self {
        self.fails.entry(status).or_default().extend(codes);
        self
    }

    /// Adds the errors of all calls of its form: with a path variable, a query, a body, or a permission.
    fn with_errors_of_its_form(mut self) -> Self {
        if self.path.contains('{') {
            self = self.fails(400, &["request.invalid_path"]);
        }
        if self.named.iter().any(|named| !named.is_header) {
            self = self.fails(400, &["request.invalid_query"]);
        }
        match self.takes {
            Some((JSON, _)) => {
                self = self
                    .fails(400, &["request.malformed_json", "request.invalid", "request.incomplete"])
                    .fails(413, &["request.too_large"])
                    .fails(415, &["request.content_type"]);
            }
            Some(_) => self = self.fails(400, &["request.incomplete"]),
            None => {}
        }
        self = self.fails(403, &["request.host_not_allowed"]);
        if !self.permission.may_be_anonymous() {
            self = self.fails(401, &["auth.required", "auth.session_ended"]);
        }
        if !matches!(self.permission, Permission::Public) {
            self = self
                .fails(401, &["auth.wrong_token", "token.expired", "token.revoked"])
                .fails(403, &["access.role_needed", "access.link_limited"])
                .fails(429, &["request.too_many"]);
            if !matches!(self.method, HttpMethod::Get | HttpMethod::Head) {
                self = self.fails(403, &["auth.cross_origin", "auth.plain_form"]);
            }
        }
        for (status, _, codes) in COMMON_FAILURES {
            // Other calls refer to the common answer.
            if self.fails.contains_key(&status) {
                self = self.fails(status, codes);
            }
        }
        self
    }

    /// Returns the operation for the document.
    pub(super) fn operation(self, error: &RefOr<Schema>) -> Operation {
        let call = self.with_errors_of_its_form();
        let roles = ExtensionsBuilder::new().add("x-roles", call.permission.roles()).build();
        let securities = call.permission.securities(&call.method);
        let mut operation = OperationBuilder::new()
            .tag(call.area)
            .summary(Some(call.summary))
            .operation_id(Some(operation_id(&call.method, call.path)))
            .extensions(Some(roles))
            .securities(Some(securities));
        for segment in call.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            operation = operation.parameter(path_parameter(segment));
        }
        for named in call.named {
            operation = operation.parameter(parameter(named));
        }
        if let Some((content_type, schema)) = call.takes {
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let body = RequestBodyBuilder::new().content(content_type, content).required(Some(Required::True));
            operation = operation.request_body(Some(body.build()));
        }
        let event_data = call.event_data.and_then(|schema| serde_json::to_value(schema).ok());
        let event_data = event_data.map(|schema| ExtensionsBuilder::new().add("x-event-data", schema).build());
        for (status, about, contents) in call.gives {
            let mut response = ResponseBuilder::new().description(about);
            for (content_type, schema) in contents {
                let extensions = event_data.clone().filter(|_| content_type == EVENT_STREAM);
                let content = ContentBuilder::new().schema(Some(schema)).extensions(extensions);
                response = response.content(content_type, content.build());
            }
            operation = operation.response(status.to_string(), response.build());
        }
        for (status, name, _) in COMMON_FAILURES {
            if !call.fails.contains_key(&status) {
                operation = operation.response(status.to_string(), Ref::from_response_name(name));
            }
        }
        for (status, codes) in call.fails {
            operation = operation.response(status.to_string(), failure(codes, error));
        }
        operation.build()
    }
}

/// Returns the answer with an error of one of these codes.
pub(super) fn failure(mut codes: Vec<&'static str>, error: &RefOr<Schema>) -> Response {
    codes.sort_unstable();
    codes.dedup();
    let about = format!("`{}`", codes.join("`, `"));
    let codes = ExtensionsBuilder::new().add("x-codes", codes).build();
    ResponseBuilder::new()
        .description(about)
        .content(PROBLEM_CONTENT_TYPE, ContentBuilder::new().schema(Some(error.clone())).build())
        .extensions(Some(codes))
        .build()
}

/// Returns the operation id: `GET /runs/{id}/steps` is `get_runs_id_steps`.
fn operation_id(method: &HttpMethod, path: &str) -> String {
    let method = match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Put => "put",
        HttpMethod::Delete => "delete",
        HttpMethod::Patch => "patch",
        HttpMethod::Head => "head",
        HttpMethod::Options => "options",
        HttpMethod::Trace => "trace",
    };
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn path_parameter(name: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(super::schemas::text()))
        .build()
}

fn parameter(named: Named) -> Parameter {
    let mut parameter = ParameterBuilder::new()
        .name(named.name)
        .parameter_in(if named.is_header { ParameterIn::Header } else { ParameterIn::Query })
        .required(if named.is_required { Required::True } else { Required::False })
        .description(Some(named.about));
    if matches!(named.of, Kind::SomeOf(_)) {
        // One parameter with commas, not one parameter per word.
        parameter = parameter.style(Some(ParameterStyle::Form)).explode(Some(false));
    }
    parameter.schema(Some(schema_of(named.of))).build()
}

fn schema_of(kind: Kind) -> RefOr<Schema> {
    let object = |kind: Type| ObjectBuilder::new().schema_type(kind);
    let words = |words: Vec<&'static str>| object(Type::String).enum_values(Some(words));
    match kind {
        Kind::Text => object(Type::String).into(),
        Kind::Number => object(Type::Integer).minimum(Some(0)).into(),
        Kind::PageLimit => object(Type::Integer).minimum(Some(1)).maximum(Some(MAX_PAGE_ROWS)).into(),
        Kind::Decimal => object(Type::Number).into(),
        Kind::Flag => object(Type::Boolean).into(),
        Kind::OneOf(known) => words(known).into(),
        Kind::SomeOf(known) => ArrayBuilder::new().items(words(known)).into(),
    }
}

/// Creates a reading call.
pub(super) fn get(path: &'static str, area: &'static str, permission: Permission, summary: &'static str) -> Call {
    Call::new(HttpMethod::Get, path, area, permission, summary)
}

/// Creates a creating or changing call.
pub(super) fn post(path: &'static str, area: &'static str, permission: Permission, summary: &'static str) -> Call {
    Call::new(HttpMethod::Post, path, area, permission, summary)
}

/// Returns the orders of a sorted list.
pub(super) fn orders() -> Kind {
    Kind::OneOf(SortOrder::ALL.map(SortOrder::as_str).to_vec())
}
