//! `nightshift list --format` and `--out`: a whole list as a table.

use std::io::IsTerminal as _;
use std::path::Path;

use nightshift_client::{Client, Download};
use nightshift_protocol::api::{TableFormat, TableName};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::attempts;
use crate::args::{List, Noun};
use crate::command::export::not_written;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::resolve;

/// Returns whether a table is wanted, and in which format; that of the file's ending unless it is said.
pub(super) fn wanted(args: &List) -> Result<Option<TableFormat>> {
    let Some(out) = &args.out else { return Ok(args.format) };
    if let Some(format) = args.format {
        return Ok(Some(format));
    }
    let ending = out.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    TableFormat::parse(&ending).map(Some).ok_or_else(|| {
        Failure::new("usage.invalid", format!("the name `{}` does not say in which format", out.display()))
            .hint("let it end with .csv, .json or .parquet, or give --format")
    })
}

pub(super) async fn write(context: &Context, client: &Client, args: List, format: TableFormat) -> Result<()> {
    let output = context.output;
    let out = args.out.clone();
    match &out {
        None if output.is_json() => {
            return Err(Failure::new("usage.invalid", "--json shows a page, and --format writes a whole list")
                .hint("leave --json out, or name a file with --out"));
        }
        None if format == TableFormat::Parquet && std::io::stdout().is_terminal() => {
            return Err(Failure::new("usage.invalid", "Parquet is nothing to be read on a terminal")
                .hint("name a file with --out"));
        }
        Some(out) if out.exists() && !args.force => {
            return Err(Failure::new("usage.file_exists", format!("`{}` exists already", out.display()))
                .hint("choose another file, or give --force to replace it"));
        }
        _ => {}
    }
    let (name, query) = asked(client, args).await?;
    let mut download = client.table(name, format, &query).await?;
    let Some(out) = out else {
        while let Some(bytes) = download.next().await? {
            output.bytes(&bytes)?;
        }
        return Ok(());
    };
    let size_bytes = save(&mut download, &out).await?;
    if output.is_json() {
        return output.json(&json!({ "file": out, "format": format.as_str(), "bytes": size_bytes }));
    }
    output.text(&format!("{}: {size_bytes} bytes", out.display()))
}

/// The table and its query.
async fn asked(client: &Client, args: List) -> Result<(TableName, Vec<(&'static str, String)>)> {
    Ok(match args.noun {
        Noun::Campaigns => (TableName::Campaigns, Vec::new()),
        Noun::Runs => {
            let campaign = match &args.campaign {
                Some(text) => Some(resolve::campaign(client, text).await?.to_string()),
                None => None,
            };
            let status = args.status.map(|status| status.as_str().to_owned());
            let pairs = [("campaign", campaign), ("status", status)];
            (TableName::Runs, pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
        }
        Noun::Attempts => {
            let mut query = attempts::query(client, args).await?;
            // A table is whole.
            (query.limit, query.before) = (None, None);
            (TableName::Attempts, query.to_pairs())
        }
        Noun::Workers => (TableName::Workers, Vec::new()),
        Noun::Servers => {
            return Err(Failure::new("usage.invalid", "there is no table of servers")
                .hint("`nightshift list servers --json` gives all of them"));
        }
    })
}

/// Writes beside the file and renames, so that there is a whole table or none. Returns its size.
async fn save(download: &mut Download, out: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| not_written(out, &error);
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let mut file = tokio::fs::File::from_std(draft.reopen().map_err(failed)?);
    let mut size_bytes = 0_u64;
    while let Some(bytes) = download.next().await? {
        file.write_all(&bytes).await.map_err(failed)?;
        size_bytes = size_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    file.sync_all().await.map_err(failed)?;
    draft.persist(out).map_err(|error| failed(error.error))?;
    Ok(size_bytes)
}
