//! `nightshift share`: links by which others read one campaign or one run.

use nightshift_client::Client;
use nightshift_protocol::api::{CreateShare, Share, Target};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::ShareId;
use nightshift_protocol::time::TimestampMs;

use crate::args::{ShareCommand, ShareCreate};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::random::random_text;
use crate::resolve;

/// Links that are read at once.
const PER_CALL: u32 = 500;

pub(super) async fn run(context: &Context, command: ShareCommand) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        match &command {
            ShareCommand::Create(args) => create(context, &session.client, args).await?,
            ShareCommand::List => list(context, session).await?,
            ShareCommand::Revoke(args) => revoke(context, &session.client, &args.id).await?,
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// The link alone goes to standard output.
async fn create(context: &Context, client: &Client, args: &ShareCreate) -> Result<()> {
    let target = match resolve::any(client, &args.id).await? {
        resolve::Target::Campaign(id) => Target::Campaign(id),
        resolve::Target::Run(id) => Target::Run(id),
    };
    let request = CreateShare { target, label: args.label.clone(), valid_for_ms: args.valid_for };
    let created = client.create_share(&request, &random_text()?).await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&created);
    }
    output.text(&address(&client.address(), &created.share.target, &created.secret))?;
    output.note(&printable(&format!("{}  until {}", created.share.id, present::moment(created.share.expires_at))));
    output.note("the link is shown only once: everyone who has it can read this until then");
    Ok(())
}

/// Returns the address of a shared link. The secret follows `#`, which browsers do not send.
fn address(server: &str, target: &Target, secret: &str) -> String {
    let path = if matches!(target, Target::Campaign(_)) { "campaigns" } else { "runs" };
    format!("{}/sign-in?next=/{path}/{target}#{secret}", server.trim_end_matches('/'))
}

async fn list(context: &Context, session: &Session) -> Result<()> {
    let shares = all(&session.client).await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&shares);
    }
    let mut table = output.table(&["link", "to", "for", "by", "made", "state"]);
    for share in &shares {
        let (state, tone) = state(share, session.health.now);
        let label = if share.label.is_empty() { NONE.to_owned() } else { printable(&share.label) };
        table.add_row([
            output.cell(share.id.short(), Tone::Plain),
            output.cell(share.target.to_string(), Tone::Plain),
            output.cell(label, Tone::Plain),
            output.cell(printable(&share.author), Tone::Plain),
            output.cell(present::minute(share.created_at), Tone::Plain),
            output.cell(state, tone),
        ]);
    }
    output.text(&table.to_string())?;
    if shares.is_empty() {
        output.note("nothing was shared");
    }
    Ok(())
}

async fn all(client: &Client) -> Result<Vec<Share>> {
    let mut shares: Vec<Share> = Vec::new();
    let mut before: Option<String> = None;
    loop {
        let page = client.shares(Some(PER_CALL), before.as_deref()).await?;
        shares.extend(page.items);
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok(shares),
        }
    }
}

/// Returns whether a link can be used, by the server's clock.
fn state(share: &Share, now: TimestampMs) -> (String, Tone) {
    match share.revoked_at {
        Some(at) => (format!("ended {}", present::minute(at)), Tone::Bad),
        None if share.expires_at <= now => (format!("over since {}", present::minute(share.expires_at)), Tone::Bad),
        None => (format!("until {}", present::minute(share.expires_at)), Tone::Plain),
    }
}

async fn revoke(context: &Context, client: &Client, text: &str) -> Result<()> {
    let id = if let Ok(id) = text.parse() {
        id
    } else {
        let found = all(client).await?;
        let found = found.into_iter().filter(|share| resolve::fits(share.id.as_str(), ShareId::PREFIX, text)).collect();
        let id = |share: &Share| share.id.to_string();
        resolve::only(text, found, id, "share.not_found", "link", "nightshift share list")?.id
    };
    let share = client.revoke_share(&id).await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&share);
    }
    output.text(&printable(&format!("{}  to {} is ended", share.id, share.target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(revoked_at: Option<i64>) -> Share {
        Share {
            id: format!("shr_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error}")),
            target: format!("run_{}", "1".repeat(32)).parse().unwrap_or_else(|error| panic!("{error}")),
            label: String::new(),
            author: "operator".to_owned(),
            created_at: TimestampMs(1),
            expires_at: TimestampMs(10),
            revoked_at: revoked_at.map(TimestampMs),
        }
    }

    #[test]
    fn a_link_that_is_over_says_why() {
        assert!(state(&share(None), TimestampMs(9)).0.starts_with("until"));
        assert!(state(&share(None), TimestampMs(10)).0.starts_with("over"));
        assert!(state(&share(Some(3)), TimestampMs(9)).0.starts_with("ended"));
    }

    #[test]
    fn the_secret_is_nothing_that_a_browser_sends() {
        let target = share(None).target;
        let link = address("http://127.0.0.1:7777/", &target, "nss_x");
        assert_eq!(link, format!("http://127.0.0.1:7777/sign-in?next=/runs/{target}#nss_x"));
    }
}
