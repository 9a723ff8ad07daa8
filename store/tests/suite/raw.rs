//! A direct connection to a store's database, for damage that the store itself cannot cause, and for comparisons.

use std::collections::BTreeMap;

use nightshift_store::sqlite::DATABASE_FILE;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, SqliteConnection};

use crate::place::Place;

pub(crate) enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// A row, column by column, as text.
pub(crate) type TextRow = BTreeMap<String, Option<String>>;

impl Raw {
    /// Opens a connection that does not check references.
    pub(crate) async fn connect(place: &Place) -> Self {
        match place {
            Place::Folder(folder) => {
                let options = SqliteConnectOptions::new().filename(folder.path().join(DATABASE_FILE));
                Self::Sqlite(options.foreign_keys(false).connect().await.unwrap())
            }
            Place::Database(database, _) => {
                let mut connection = PgConnection::connect(&database.url).await.unwrap();
                sqlx::query("SET session_replication_role = replica").execute(&mut connection).await.unwrap();
                Self::Postgres(connection)
            }
        }
    }

    pub(crate) async fn execute(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => drop(sqlx::raw_sql(sql).execute(connection).await.unwrap()),
            Self::Postgres(connection) => drop(sqlx::raw_sql(sql).execute(connection).await.unwrap()),
        }
    }

    /// Returns the names of all tables except the migrator's.
    pub(crate) async fn tables(&mut self) -> Vec<String> {
        let sql = match self {
            Self::Sqlite(_) => {
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                 AND substr(name, 1, 9) <> 'note_text' AND substr(name, 1, 11) <> 'search_text' ORDER BY name"
            }
            Self::Postgres(_) => {
                "SELECT table_name::text FROM information_schema.tables \
                 WHERE table_schema = current_schema() ORDER BY table_name"
            }
        };
        let names = self.column(sql).await;
        names.into_iter().filter(|name| name != "_sqlx_migrations").collect()
    }

    /// Returns names and types of the stored columns, without generated ones.
    pub(crate) async fn columns(&mut self, table: &str) -> Vec<(String, String)> {
        let sql = match self {
            Self::Sqlite(_) => format!("SELECT name || ':' || type FROM pragma_table_info('{table}')"),
            Self::Postgres(_) => format!(
                "SELECT column_name || ':' || data_type FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = '{table}' AND is_generated = 'NEVER'"
            ),
        };
        let columns = self.column(&sql).await;
        columns
            .iter()
            .map(|column| column.split_once(':').unwrap())
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect()
    }

    /// Returns every row of a table, as text.
    pub(crate) async fn rows(&mut self, table: &str) -> Vec<TextRow> {
        let mut names = Vec::new();
        let mut texts = Vec::new();
        for (name, kind) in self.columns(table).await {
            texts.push(match kind.as_str() {
                // The hex of null would be an empty text.
                "BLOB" => format!("CASE WHEN {name} IS NOT NULL THEN lower(hex({name})) END"),
                "bytea" => format!("encode({name}, 'hex')"),
                _ => format!("CAST({name} AS TEXT)"),
            });
            names.push(name);
        }
        let rows = self.texts(&format!("SELECT {} FROM {table}", texts.join(", ")), names.len()).await;
        rows.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect()
    }

    /// Returns the first column of a query, as text.
    pub(crate) async fn column(&mut self, sql: &str) -> Vec<String> {
        self.texts(sql, 1).await.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
    }

    async fn texts(&mut self, sql: &str, columns: usize) -> Vec<Vec<Option<String>>> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => {
                let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| (0..columns).map(|column| row.get(column)).collect()).collect()
            }
            Self::Postgres(connection) => {
                let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
                rows.iter().map(|row| (0..columns).map(|column| row.get(column)).collect()).collect()
            }
        }
    }
}

/// Returns every row of every table with public ids instead of internal ones, in an order that does not depend on
/// these.
pub(crate) async fn dump(place: &Place) -> BTreeMap<String, Vec<TextRow>> {
    let mut raw = Raw::connect(place).await;
    let mut tables = BTreeMap::new();
    for table in raw.tables().await {
        let rows = raw.rows(&table).await;
        tables.insert(table, rows);
    }
    let mut names: BTreeMap<(&str, String), String> = BTreeMap::new();
    for (table, name) in NAMED_BY {
        for row in tables.get(*table).into_iter().flatten() {
            names.insert((*table, row["id"].clone().unwrap()), row[*name].clone().unwrap());
        }
    }
    let mut dumped = BTreeMap::new();
    for (table, rows) in &tables {
        let mut rows: Vec<TextRow> = rows.iter().map(|row| named(row, &names)).collect();
        rows.sort();
        dumped.insert(table.clone(), rows);
    }
    dumped
}

/// Tables with an internal key, and the column with their public id.
const NAMED_BY: &[(&str, &str)] = &[
    ("artifact", "hash"),
    ("campaign", "public_id"),
    ("route", "needs"),
    ("run", "public_id"),
    ("server", "public_id"),
    ("step", "public_id"),
    ("worker", "public_id"),
];

fn named(row: &TextRow, names: &BTreeMap<(&str, String), String>) -> TextRow {
    let columns = row.iter().filter(|(column, _)| *column != "id");
    let outside = columns.map(|(column, value)| {
        let table = match column.as_str() {
            "owner_id" => "server",
            "public_id" => "",
            column => column.strip_suffix("_id").unwrap_or_default(),
        };
        let name = value.as_ref().and_then(|value| names.get(&(table, value.clone())).cloned());
        // A deleted server has no public id any more. Only its existence is compared.
        let is_gone = table == "server" && value.is_some() && name.is_none();
        let value = if is_gone { Some("a server that is gone".to_owned()) } else { name.or_else(|| value.clone()) };
        (column.clone(), value)
    });
    outside.collect()
}
