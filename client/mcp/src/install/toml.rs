//! The configuration of Codex.

use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{CALL_TIMEOUT_S, ENTRY, InstallError, Launch, TOKEN_VARIABLE, not_understood};

/// The table that contains one table per server.
const KEY: &str = "mcp_servers";

pub(super) fn with_entry(before: &str, launch: &Launch) -> Result<String, InstallError> {
    let mut document: DocumentMut = before.parse().map_err(not_understood)?;
    let servers = document.entry(KEY).or_insert_with(|| {
        let mut table = Table::new();
        // Only its sub-tables have a header.
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut().ok_or_else(|| not_understood(format!("`{KEY}` is not a table")))?;
    let mut entry = Table::new();
    entry.insert("command", value(&launch.command));
    entry.insert("args", value(launch.args.iter().collect::<Array>()));
    if launch.needs_token {
        entry.insert("env_vars", value(std::iter::once(TOKEN_VARIABLE).collect::<Array>()));
    }
    entry.insert("tool_timeout_sec", value(i64::from(CALL_TIMEOUT_S)));
    // An inline table cannot contain a table with a header.
    let entry = if servers.is_dotted() || document_is_inline(servers) {
        Item::Value(entry.into_inline_table().into())
    } else {
        Item::Table(entry)
    };
    servers.insert(ENTRY, entry);
    Ok(document.to_string())
}

/// Returns whether it is an inline table.
fn document_is_inline(servers: &dyn toml_edit::TableLike) -> bool {
    servers.iter().any(|(_, item)| item.is_inline_table())
}
