//! Tests that the migrations of both databases create the same tables, by comparing the two schemas in one normal form.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use nightshift_testbed::postgres::Cluster;

use crate::connection::Connection;
use crate::postgres::open::PostgresOptions;
use crate::row::Row;
use crate::sqlite::open::OpenOptions;
use crate::value::values;

/// The normal form of a table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    /// Columns: name, with type, nullability and default.
    columns: BTreeMap<String, String>,
    /// Columns of the primary key; the order matters.
    primary_key: Vec<String>,
    /// Unnamed unique constraints, by their columns.
    unique: BTreeSet<Vec<String>>,
    /// Named indexes: uniqueness, columns, and the words of their condition.
    indexes: BTreeMap<String, (bool, Vec<String>, BTreeSet<String>)>,
    /// Foreign keys: column, table, column.
    references: BTreeSet<(String, String, String)>,
    /// The words of each check constraint.
    checks: BTreeSet<BTreeSet<String>>,
}

type Tables = BTreeMap<String, Table>;

async fn rows(connection: &mut Connection, sql: &'static str) -> Vec<Row> {
    connection.fetch_all(sql, values![]).await.unwrap()
}

/// Returns names, literals and numbers of a condition, without the words that only one of the databases writes.
fn words(condition: &str) -> BTreeSet<String> {
    let noise = ["any", "array", "text", "bigint", "in", "and", "check", "where", "collate", "c"];
    let lower = condition.to_lowercase();
    let words = lower.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| !word.is_empty() && !noise.contains(word)).map(str::to_owned).collect()
}

fn column(kind: &str, not_null: bool, default: Option<String>) -> String {
    let kind = match kind.to_lowercase().as_str() {
        "integer" | "bigint" => "number",
        "text" => "text",
        "blob" | "bytea" => "bytes",
        other => panic!("a column of type {other}"),
    };
    // Postgres adds the type to a default.
    let default = default.map(|default| default.split("::").next().unwrap().trim_matches('\'').to_owned());
    format!("{kind}, not null: {not_null}, default: {default:?}")
}

/// Returns the conditions after a word, each up to its closing parenthesis.
fn conditions<'a>(sql: &'a str, word: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in sql.match_indices(word) {
        let after = &sql[at + word.len()..];
        let mut depth = 0;
        let end = after.char_indices().find_map(|(index, c)| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            (depth == 0 && c == ')').then_some(index + 1)
        });
        found.push(&after[..end.unwrap()]);
    }
    found
}

async fn of_sqlite(connection: &mut Connection) -> Tables {
    let mut tables = Tables::new();
    // A full-text search has tables of its own on SQLite, and an expression index on Postgres.
    let schema = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                  AND substr(name, 1, 9) <> 'note_text' AND substr(name, 1, 11) <> 'search_text' \
                  AND name <> '_sqlx_migrations'";
    for row in rows(connection, schema).await {
        let table = tables.entry(row.text(0).unwrap()).or_default();
        table.checks = conditions(&row.text(1).unwrap(), "CHECK ").into_iter().map(words).collect();
    }
    let columns = "SELECT t.name, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk FROM sqlite_schema t \
                   JOIN pragma_table_xinfo(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.pk";
    for row in rows(connection, columns).await {
        let Some(table) = tables.get_mut(row.str(0).unwrap()) else { continue };
        let (name, pk) = (row.text(1).unwrap(), row.i64(5).unwrap());
        let not_null = row.flag(3).unwrap() || pk > 0;
        table.columns.insert(name.clone(), column(row.str(2).unwrap(), not_null, row.opt_text(4).unwrap()));
        if pk > 0 {
            table.primary_key.push(name);
        }
    }
    let references = "SELECT t.name, f.\"from\", f.\"table\", f.\"to\" FROM sqlite_schema t \
                      JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table'";
    for row in rows(connection, references).await {
        let table = tables.get_mut(row.str(0).unwrap()).unwrap();
        table.references.insert((row.text(1).unwrap(), row.text(2).unwrap(), row.text(3).unwrap()));
    }
    let indexes = "SELECT t.name, i.name, i.\"unique\", i.origin, c.name, s.sql FROM sqlite_schema t \
                   JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c \
                   LEFT JOIN sqlite_schema s ON s.name = i.name AND s.type = 'index' \
                   WHERE t.type = 'table' AND i.origin <> 'pk' AND c.name IS NOT NULL ORDER BY t.name, i.name, c.seqno";
    let mut unique: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for row in rows(connection, indexes).await {
        let (of, name, column) = (row.text(0).unwrap(), row.text(1).unwrap(), row.text(4).unwrap());
        if row.str(3).unwrap() == "u" {
            unique.entry((of, name)).or_default().push(column);
            continue;
        }
        let Some(table) = tables.get_mut(&of) else { continue };
        let index = table.indexes.entry(name).or_default();
        index.0 = row.flag(2).unwrap();
        index.1.push(column);
        let sql = row.text(5).unwrap();
        index.2 = sql
            .split_once(" WHERE ")
            .or_else(|| sql.split_once("WHERE "))
            .map_or_else(BTreeSet::new, |(_, end)| words(end));
    }
    for ((of, _), columns) in unique {
        if let Some(table) = tables.get_mut(&of) {
            table.unique.insert(columns);
        }
    }
    tables
}

async fn of_postgres(connection: &mut Connection) -> Tables {
    let mut tables = Tables::new();
    let columns = "SELECT c.table_name::text, c.column_name::text, c.data_type::text, \
                          CASE c.is_nullable WHEN 'NO' THEN 1::bigint ELSE 0 END, c.column_default::text \
                   FROM information_schema.columns c \
                   WHERE c.table_schema = current_schema() AND c.table_name <> '_sqlx_migrations'";
    for row in rows(connection, columns).await {
        let table = tables.entry(row.text(0).unwrap()).or_default();
        let kind = column(row.str(2).unwrap(), row.flag(3).unwrap(), row.opt_text(4).unwrap());
        table.columns.insert(row.text(1).unwrap(), kind);
    }
    let constraints = "SELECT t.relname::text, k.contype::text, \
               coalesce((SELECT string_agg(a.attname, ',' ORDER BY n.place) FROM unnest(k.conkey) WITH ORDINALITY AS n (number, place) \
                         JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = n.number), '') AS columns, \
               f.relname::text AS other, \
               (SELECT string_agg(a.attname, ',') FROM unnest(k.confkey) AS n (number) \
                  JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = n.number) AS other_columns, \
               pg_get_constraintdef(k.oid) AS text \
             FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid LEFT JOIN pg_class f ON f.oid = k.confrelid \
             WHERE t.relnamespace = current_schema()::regnamespace AND t.relname <> '_sqlx_migrations'";
    for row in rows(connection, constraints).await {
        let table = tables.get_mut(row.str(0).unwrap()).unwrap();
        let columns: Vec<String> = row.str(2).unwrap().split(',').map(str::to_owned).collect();
        match row.str(1).unwrap() {
            "p" => table.primary_key = columns,
            "u" => drop(table.unique.insert(columns)),
            "c" => drop(table.checks.insert(words(row.str(5).unwrap()))),
            "f" => {
                let other = (row.text(3).unwrap(), row.text(4).unwrap());
                table.references.insert((columns.concat(), other.0, other.1));
            }
            // The columns already include NOT NULL.
            "n" => {}
            other => panic!("a constraint of kind {other}"),
        }
    }
    let indexes = "SELECT t.relname::text, i.relname::text, CASE WHEN x.indisunique THEN 1::bigint ELSE 0 END, \
               (SELECT string_agg(a.attname, ',' ORDER BY n.place) FROM unnest(x.indkey) WITH ORDINALITY AS n (number, place) \
                  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = n.number) AS columns, \
               coalesce(pg_get_expr(x.indpred, x.indrelid), '') AS condition \
             FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid \
             WHERE t.relnamespace = current_schema()::regnamespace AND t.relname <> '_sqlx_migrations' \
               AND x.indexprs IS NULL \
               AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = x.indexrelid)";
    for row in rows(connection, indexes).await {
        let table = tables.get_mut(row.str(0).unwrap()).unwrap();
        let columns = row.str(3).unwrap().split(',').map(str::to_owned).collect();
        table.indexes.insert(row.text(1).unwrap(), (row.flag(2).unwrap(), columns, words(row.str(4).unwrap())));
    }
    tables
}

#[tokio::test]
async fn both_databases_have_the_same_tables_columns_keys_indexes_and_checks() {
    let folder = tempfile::tempdir().unwrap();
    let opened = crate::sqlite::open::open(folder.path(), &OpenOptions::default()).await.unwrap();
    let here = of_sqlite(&mut Connection::SqliteWriter(Box::new(opened.writer))).await;

    let database = Cluster::shared().create_database().unwrap();
    let opened = crate::postgres::open::open(&database.url, &PostgresOptions::default(), 1).await.unwrap();
    let there = of_postgres(&mut Connection::Postgres(opened.pool.acquire().await.unwrap())).await;

    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
    assert!(here.len() > 20, "the tables of the engine: {:?}", here.keys());
    for (name, table) in &here {
        assert_eq!(table, &there[name], "{name}: SQLite left, Postgres right");
    }
    // An empty kind would compare nothing.
    assert!(here.values().any(|table| !table.checks.is_empty() && !table.references.is_empty()));
    assert!(
        here["lease"].indexes["lease_alone_on_device"].0
            && !here["lease"].indexes["lease_alone_on_device"].2.is_empty()
    );
    assert!(here["step"].unique.contains(&vec!["run_id".to_owned(), "key".to_owned()]));
}
