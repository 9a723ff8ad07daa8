//! `nightshift prune`: delete campaigns that ended long ago, and artifacts that nothing names.

use nightshift_protocol::api::{Prune as Request, PruneDone};
use nightshift_protocol::error::ExitCode;

use crate::args::Prune;
use crate::confirm::confirm;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::present::{self, limits::duration};

/// Calls that one command makes; each deletes for some seconds.
const MAX_CALLS: u32 = 100_000;

pub(super) async fn run(context: &Context, args: Prune) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let mut request = Request { older_than_ms: args.older_than, dry_run: true };
        let meant = client.prune(&request).await?;
        if args.dry_run {
            report(context, &meant)?;
            context.output.note("nothing was deleted (--dry-run); artifacts that nothing names would go too");
            return Ok(ExitCode::Ok);
        }
        let age = duration(args.older_than);
        if meant.campaigns.is_empty() && !args.yes {
            report(context, &meant)?;
            context.output.note(&format!(
                "no campaign ended {age} ago or earlier: nothing was deleted (--yes deletes artifacts that nothing names)"
            ));
            return Ok(ExitCode::Ok);
        }
        let more = if meant.more { "at least " } else { "" };
        let campaigns = present::count(meant.campaigns.len(), "campaign");
        let what =
            format!("delete {more}{campaigns} that ended {age} ago or earlier, and artifacts that nothing names");
        confirm(context, &what, args.yes).await?;
        request.dry_run = false;
        let mut all = PruneDone { campaigns: Vec::new(), rows: 0, artifacts: 0, more: false };
        for _ in 0..MAX_CALLS {
            let part = client.prune(&request).await?;
            all.campaigns.extend(part.campaigns);
            all.rows = all.rows.saturating_add(part.rows);
            all.artifacts = all.artifacts.saturating_add(part.artifacts);
            all.more = part.more;
            if !part.more {
                break;
            }
        }
        report(context, &all)?;
        Ok(ExitCode::Ok)
    })
    .await
}

fn report(context: &Context, done: &PruneDone) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(done);
    }
    for campaign in &done.campaigns {
        output.text(campaign.as_str())?;
    }
    let campaigns = present::count(done.campaigns.len(), "campaign");
    let (rows, artifacts) = (present::count(done.rows, "row"), present::count(done.artifacts, "artifact"));
    output.text(&format!("{campaigns}, {rows}, {artifacts}"))?;
    if done.more {
        output.note("there is more");
    }
    Ok(())
}
