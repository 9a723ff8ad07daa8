//! The configuration of Codex.

use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{CALL_TIMEOUT_S, ENTRY, InstallError, Launch, TOKEN_VARIABLE, not_understood};

/// The table that holds one table for each server.
const KEY: &str = "mcp_servers";

pub(super) fn with_entry(before: &str, launch: &Launch) -> Result<String, InstallError> {
    let mut document: DocumentMut = before.parse().map_err(not_understood)?;
    let servers = document.entry(KEY).or_insert_with(|| {
        let mut table = Table::new();
        // Only its tables have a heading.
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut().ok_or_else(|| not_understood(format!("`{KEY}` is no table")))?;
    let mut entry = Table::new();
    entry.insert("command", value(&launch.command));
    entry.insert("args", value(launch.args.iter().collect::<Array>()));
    if launch.needs_token {
        entry.insert("env_vars", value(std::iter::once(TOKEN_VARIABLE).collect::<Array>()));
    }
    entry.insert("tool_timeout_sec", value(i64::from(CALL_TIMEOUT_S)));
    // A table in braces holds no table with a heading.
    let entry = if servers.is_dotted() || document_is_inline(servers) {
        Item::Value(entry.into_inline_table().into())
    } else {
        Item::Table(entry)
    };
    servers.insert(ENTRY, entry);
    Ok(document.to_string())
}

/// Whether the table stands in braces.
fn document_is_inline(servers: &dyn toml_edit::TableLike) -> bool {
    servers.iter().any(|(_, item)| item.is_inline_table())
}
