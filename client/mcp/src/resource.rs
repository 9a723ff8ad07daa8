//! Resources: whole texts under an address.

use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use crate::bound::is_of_run;
use crate::ellipsis::cut;
use crate::error::ToolError;
use crate::guide::GUIDE_URI;
use crate::limits::MAX_RESOURCE_BYTES;
use crate::program::Section;
use crate::text::name;
use crate::tool::Call;
use crate::tools::{self, RunSection, TaskSection};

/// Scheme of the addresses.
const SCHEME: &str = "nightshift://";

/// Returns the static resources.
pub(crate) fn listed() -> Vec<Resource> {
    vec![
        Resource::new(GUIDE_URI, "guide")
            .with_title("How to work with Nightshift")
            .with_description("The order of work, and how to read an answer")
            .with_mime_type("text/markdown"),
    ]
}

/// Returns the address templates of all other resources that the service offers; of a service with one run, those of the run.
pub(crate) fn templates(is_bound: bool) -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, title: &str| {
        ResourceTemplate::new(format!("{SCHEME}{uri}"), name).with_title(title).with_mime_type("text/plain")
    };
    let mut templates = vec![
        template("tasks/{task}/{section}", "task", "A section of a task: contract, reference, specification"),
        template(
            "runs/{run}/{section}",
            "run",
            "A section of a run: contract, reference, baselines, profile, plan, attempts",
        ),
        template(
            "attempts/{run}/{number}/{section}",
            "attempt",
            "A section of an attempt: source, compiler, check, measurement, profile, kernels, diagnosis, difference",
        ),
        template(
            "verifications/{verification}/{section}",
            "verification",
            "A section of a verification of this process",
        ),
    ];
    if is_bound {
        let kind = |template: &ResourceTemplate| {
            template.uri_template.strip_prefix(SCHEME).and_then(|path| path.split('/').next()).map(str::to_owned)
        };
        templates.retain(|template| kind(template).is_some_and(|kind| is_of_run(&kind)));
    }
    templates
}

/// Reads a resource.
pub(crate) async fn read(call: &Call<'_>, uri: &str) -> Result<ResourceContents, ToolError> {
    if uri == GUIDE_URI {
        return Ok(ResourceContents::text(call.shared.instructions(), uri).with_mime_type("text/markdown"));
    }
    let unknown = || {
        ToolError::new("resource.not_found", format!("there is no resource `{}`", name(uri)))
            .hint("resources/templates/list shows how addresses are made")
    };
    let mut parts: Vec<&str> = uri.strip_prefix(SCHEME).ok_or_else(unknown)?.split('/').collect();
    let own;
    if let (Some(bound), [kind, run, ..]) = (&call.shared.bound, parts.as_mut_slice()) {
        own = bound.admit_resource(kind, run)?;
        *run = &own;
    }
    let text = match parts.as_slice() {
        ["tasks", task, section] => {
            let section = TaskSection::ALL.into_iter().find(|known| known.as_str() == *section).ok_or_else(unknown)?;
            tools::task_text(call, task, section).await?
        }
        ["runs", run, section] => {
            let section = RunSection::parse(section).ok_or_else(unknown)?;
            tools::run_text(call, run, section).await?
        }
        ["attempts", run, number, section] => {
            let section = Section::parse(section).ok_or_else(unknown)?;
            let number = number.parse().map_err(|_| unknown())?;
            tools::attempt_text(call, run, number, section).await?
        }
        ["verifications", verification, section] => {
            let section = Section::parse(section).ok_or_else(unknown)?;
            tools::verification_text(call, verification, section)?
        }
        _ => return Err(unknown()),
    };
    Ok(ResourceContents::text(cut(&text, MAX_RESOURCE_BYTES), uri))
}
