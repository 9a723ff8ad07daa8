//! The MCP service: which tools a caller is offered, and how calls are answered.

use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use nightshift_protocol::access::Role;
use nightshift_protocol::id::RunId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool as ListedTool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::answer;
use crate::bound::{BoundRun, is_needed};
use crate::error::ToolError;
use crate::limits::ROLE_TIMEOUT;
use crate::ports::{Caller, Judge, Servers, Tasks};
use crate::progress::Progress;
use crate::resource;
use crate::shared::Shared;
use crate::tool::{Access, Call, Entry};
use crate::tools;
use crate::verification::Verifications;

/// Errors of calls while a server is started again.
const NO_SERVER: [&str; 2] = ["server.unreachable", "server.does_not_drive"];
/// What a local server that was started again says to the token of the one before.
const WRONG_TOKEN: &str = "auth.wrong_token";

/// The parts of a service.
pub struct Offer {
    /// Finds the server.
    pub servers: Box<dyn Servers>,
    /// Reads tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Verifies programs in this process; `None` on a server, where workers do that.
    pub judge: Option<Arc<dyn Judge>>,
    /// Offer only tools that read, regardless of the token.
    pub read_only: bool,
    /// The only run that the service knows, with the tools of its agent session; every run without one.
    pub run: Option<RunId>,
    /// Version of the release, for clients.
    pub version: String,
}

/// The server did not say which role the caller has.
struct RoleUnknown;

/// State of a service: what its calls share, and the tools that it offers.
struct State {
    shared: Shared,
    read_only: bool,
    version: String,
    entries: Vec<Entry>,
}

/// The MCP server, for any number of clients.
#[derive(Clone)]
pub struct Service {
    state: Arc<State>,
}

impl Service {
    /// Creates a service.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        let Offer { servers, tasks, judge, read_only, run, version } = offer;
        let verifications = judge.map(Verifications::new);
        let shared = Shared { servers, tasks, verifications, bound: run.map(BoundRun::new) };
        let mut entries = tools::all();
        if shared.bound.is_some() {
            entries.retain(|entry| is_needed(&entry.listed.name));
        }
        Self { state: Arc::new(State { shared, read_only, version, entries }) }
    }

    /// Ends open verifications, and waits for their end up to a timeout.
    pub async fn close(&self) {
        if let Some(verifications) = &self.state.shared.verifications {
            verifications.close().await;
        }
    }
}

impl State {
    /// Returns whether a caller of this role is offered the tool. If the role is unknown, this offers every tool that `read_only` and
    /// the local evaluator allow: the server may be starting, and checks the role at each call.
    fn offers(&self, entry: &Entry, role: &Result<Option<Role>, RoleUnknown>) -> bool {
        match (entry.access, role) {
            (Access::Judges, _) => self.shared.verifications.is_some(),
            (Access::Needs(needed), _) if self.read_only && needed != Role::Viewer => false,
            (Access::Needs(needed), Ok(Some(role))) => role.includes(needed),
            (Access::Needs(needed), Ok(None)) => needed == Role::Viewer || self.shared.bound.is_some(),
            (Access::Open, _) | (Access::Needs(_), Err(RoleUnknown)) => true,
        }
    }

    /// Asks the server for the caller's role. Returns `Ok(None)` if the caller has none.
    async fn role(&self, caller: &Caller) -> Result<Option<Role>, RoleUnknown> {
        let asked = async {
            let connection = self.shared.servers.connect(caller).await.map_err(|_| RoleUnknown)?;
            Ok(connection.client.session().await.map_err(|_| RoleUnknown)?.role)
        };
        tokio::time::timeout(ROLE_TIMEOUT, asked).await.unwrap_or(Err(RoleUnknown))
    }

    async fn answer(&self, name: &str, call: &Call<'_>, mut arguments: rmcp::model::JsonObject) -> CallToolResult {
        let answered = async {
            let entry = self.entry(name, call).await?;
            if let Some(bound) = &self.shared.bound {
                bound.admit(&mut arguments)?;
            }
            let value = (entry.run)(call, arguments).await?;
            answer::bounded(name, value)
        };
        answered.await.unwrap_or_else(|mut error: ToolError| {
            // No person reads along in a session.
            let may_pass = match error.code.as_str() {
                WRONG_TOKEN => self.shared.servers.may_change_token(),
                code => NO_SERVER.contains(&code),
            };
            if self.shared.bound.is_some() && may_pass {
                error = error.hint("call get_turn again: it waits for a server that is started again");
            }
            CallToolResult::error(vec![ContentBlock::text(error.text())])
        })
    }

    /// Returns the tool of that name, if the caller may call it.
    async fn entry(&self, name: &str, call: &Call<'_>) -> Result<&Entry, ToolError> {
        let unknown = || {
            ToolError::new("request.no_such_tool", format!("there is no tool `{}` here", crate::text::name(name)))
                .hint("tools/list shows those that this caller may use")
        };
        let entry = self.entries.iter().find(|entry| entry.listed.name == name).ok_or_else(unknown)?;
        match entry.access {
            Access::Needs(Role::Viewer) | Access::Open => Ok(entry),
            Access::Judges => self.shared.verifications.is_some().then_some(entry).ok_or_else(unknown),
            Access::Needs(_) if self.read_only => Err(ToolError::new(
                "access.read_only",
                format!("{name} changes something, and this MCP server was started to read only"),
            )
            .hint("ask the user to start it without --read-only")),
            Access::Needs(needed) => {
                let role = self.role(&call.caller).await;
                // Without a server, the call itself says why.
                if self.offers(entry, &role) {
                    return Ok(entry);
                }
                let has = role.ok().flatten().map_or("none", Role::as_str);
                Err(ToolError::new(
                    "access.role_needed",
                    format!("{name} needs a token with the role {}, and this caller has {has}", needed.as_str()),
                )
                .hint("ask the user for a token of that role (`nightshift token create`)"))
            }
        }
    }
}

/// Returns the caller: over HTTP by the headers of the request.
fn caller(context: &RequestContext<RoleServer>) -> Caller {
    let parts = context.extensions.get::<Parts>();
    let header = |name| parts.and_then(|parts| parts.headers.get(name).cloned());
    // Without cookies, because a browser would send them for a page of another site, too.
    Caller { authorization: header(AUTHORIZATION), host: header(HOST) }
}

impl ServerHandler for Service {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let implementation = Implementation::new("nightshift", self.state.version.clone()).with_title("Nightshift");
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(self.state.shared.instructions())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let role = self.state.role(&caller(&context)).await;
        let offered = self.state.entries.iter().filter(|entry| self.state.offers(entry, &role));
        // In one page, because some clients do not request a second one.
        Ok(ListToolsResult::with_all_items(offered.map(|entry| entry.listed.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<ListedTool> {
        self.state.entries.iter().find(|entry| entry.listed.name == name).map(|entry| entry.listed.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = Call { shared: &self.state.shared, caller: caller(&context), progress: Progress::of(&context) };
        let arguments = request.arguments.unwrap_or_default();
        Ok(self.state.answer(&request.name, &call, arguments).await.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resource::listed()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resource::templates(self.state.shared.bound.is_some())))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let message = format!("this server has no method `{}`", request.method);
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let call = Call { shared: &self.state.shared, caller: caller(&context), progress: Progress::of(&context) };
        match resource::read(&call, &request.uri).await {
            Ok(contents) => Ok(rmcp::model::ReadResourceResult::new(vec![contents]).into()),
            Err(error) => Err(ErrorData::resource_not_found(error.text(), None)),
        }
    }
}
