//! The description of one call: permissions, parameters, answers and errors.

use std::collections::BTreeMap;

use nightshift_protocol::api::IDEMPOTENCY_HEADER;
use nightshift_protocol::error::PROBLEM_CONTENT_TYPE;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, RefOr, Required, ResponseBuilder, Schema, Type};

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
}

/// A query parameter or header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    name: &'static str,
    of: Kind,
    about: &'static str,
    is_header: bool,
    is_required: bool,
}

/// Type of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Number,
    Decimal,
    Flag,
}

/// A body: its media type and schema.
type Content = (&'static str, RefOr<Schema>);

/// A call.
pub(super) struct Call {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    area: &'static str,
    permission: Permission,
    summary: &'static str,
    named: Vec<Named>,
    takes: Option<Content>,
    gives: Vec<(u16, &'static str, Option<Content>)>,
    fails: BTreeMap<u16, Vec<&'static str>>,
}

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

impl Call {
    pub(super) fn new(
        method: HttpMethod,
        path: &'static str,
        area: &'static str,
        permission: Permission,
        summary: &'static str,
    ) -> Self {
        let (named, takes, gives, fails) = (Vec::new(), None, Vec::new(), BTreeMap::new());
        Self { method, path, area, permission, summary, named, takes, gives, fails }
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

    /// Adds limit and cursor of a list.
    pub(super) fn pages(self) -> Self {
        self.query("limit", Kind::Number, "Rows per page: 1 to 500, by default 100.").query(
            "before",
            Kind::Text,
            "`next` of the previous page.",
        )
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
        self.gives.push((status, "The answer.", Some((JSON, schema))));
        self
    }

    /// Adds an answer of another media type.
    pub(super) fn gives_other(mut self, status: u16, content_type: &'static str, about: &'static str) -> Self {
        self.gives.push((status, about, Some((content_type, super::schemas::text()))));
        self
    }

    /// Adds a stream of events with data of this schema.
    pub(super) fn streams(mut self, schema: RefOr<Schema>, about: &'static str) -> Self {
        self.gives.push((200, about, Some(("text/event-stream", schema))));
        self
    }

    /// Adds an answer without a body.
    pub(super) fn gives_nothing(mut self, status: u16, about: &'static str) -> Self {
        self.gives.push((status, about, None));
        self
    }

    /// Adds codes of its own errors.
    pub(super) fn fails(mut self, status: u16, codes: &[&'static str]) -> Self {
        self.fails.entry(status).or_default().extend(codes);
        self
    }

    /// Returns the operation for the document.
    pub(super) fn operation(self, error: &RefOr<Schema>) -> Operation {
        let roles = ExtensionsBuilder::new().add("x-roles", self.permission.roles()).build();
        let mut operation = OperationBuilder::new()
            .tag(self.area)
            .summary(Some(self.summary))
            .operation_id(Some(operation_id(&self.method, self.path)))
            .extensions(Some(roles));
        for segment in self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            operation = operation.parameter(path_parameter(segment));
        }
        for named in &self.named {
            operation = operation.parameter(parameter(named));
        }
        if let Some((content_type, schema)) = self.takes {
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let body = RequestBodyBuilder::new().content(content_type, content).required(Some(Required::True));
            operation = operation.request_body(Some(body.build()));
        }
        for (status, about, content) in self.gives {
            let mut response = ResponseBuilder::new().description(about);
            if let Some((content_type, schema)) = content {
                response = response.content(content_type, ContentBuilder::new().schema(Some(schema)).build());
            }
            operation = operation.response(status.to_string(), response.build());
        }
        let mut fails = self.fails;
        if !self.permission.may_be_anonymous() {
            fails.entry(401).or_default().extend(["auth.required", "auth.session_ended"]);
        }
        if !matches!(self.permission, Permission::Public) {
            fails.entry(401).or_default().extend(["auth.wrong_token", "token.expired", "token.revoked"]);
            fails.entry(403).or_default().extend(["access.role_needed", "access.link_limited"]);
            fails.entry(429).or_default().push("request.too_many");
            if !matches!(self.method, HttpMethod::Get | HttpMethod::Head) {
                fails.entry(403).or_default().extend(["auth.cross_origin", "auth.plain_form"]);
            }
        }
        for (status, mut codes) in fails {
            codes.sort_unstable();
            codes.dedup();
            let about = format!("`{}`", codes.join("`, `"));
            let codes = ExtensionsBuilder::new().add("x-codes", codes).build();
            let response = ResponseBuilder::new()
                .description(about)
                .content(PROBLEM_CONTENT_TYPE, ContentBuilder::new().schema(Some(error.clone())).build())
                .extensions(Some(codes));
            operation = operation.response(status.to_string(), response.build());
        }
        let nothing: [&str; 0] = [];
        let mut ways: Vec<SecurityRequirement> = Vec::new();
        if self.permission.may_be_anonymous() {
            ways.push(SecurityRequirement::default());
        }
        if !matches!(self.permission, Permission::Public) {
            for way in ["token", "session"] {
                ways.push(SecurityRequirement::new(way, nothing));
            }
            if matches!(self.method, HttpMethod::Get | HttpMethod::Head) {
                ways.push(SecurityRequirement::new("password", nothing));
            }
        }
        operation.securities(Some(ways)).build()
    }
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

fn parameter(named: &Named) -> Parameter {
    let kind = match named.of {
        Kind::Text => Type::String,
        Kind::Number => Type::Integer,
        Kind::Decimal => Type::Number,
        Kind::Flag => Type::Boolean,
    };
    ParameterBuilder::new()
        .name(named.name)
        .parameter_in(if named.is_header { ParameterIn::Header } else { ParameterIn::Query })
        .required(if named.is_required { Required::True } else { Required::False })
        .description(Some(named.about))
        .schema(Some(ObjectBuilder::new().schema_type(kind).build()))
        .build()
}

/// Creates a reading call.
pub(super) fn get(path: &'static str, area: &'static str, permission: Permission, summary: &'static str) -> Call {
    Call::new(HttpMethod::Get, path, area, permission, summary)
}

/// Creates a creating or changing call.
pub(super) fn post(path: &'static str, area: &'static str, permission: Permission, summary: &'static str) -> Call {
    Call::new(HttpMethod::Post, path, area, permission, summary)
}
