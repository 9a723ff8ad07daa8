//! Lists as SQL literals, for statements that are sent together with others and cannot have parameters.
//!
//! No text can leave its literal. `standard_conforming_strings` is on for every connection of the hot path, so the
//! quote is the only special character, and it is doubled.

/// Returns `'{"a","b"}'::text[]`.
pub(crate) fn texts<'t>(list: impl IntoIterator<Item = &'t str>) -> String {
    let mut literal = String::from("'{");
    for (place, text) in list.into_iter().enumerate() {
        literal.push_str(if place == 0 { "\"" } else { ",\"" });
        for c in text.chars() {
            match c {
                '\'' => literal.push_str("''"),
                '"' | '\\' => literal.extend(['\\', c]),
                // Postgres texts cannot contain it, and it would end the statement.
                '\0' => literal.push(char::REPLACEMENT_CHARACTER),
                _ => literal.push(c),
            }
        }
        literal.push('"');
    }
    literal.push_str("}'::text[]");
    literal
}

/// Returns `'{1,2}'::bigint[]`.
pub(crate) fn numbers(list: &[i64]) -> String {
    let list: Vec<String> = list.iter().map(i64::to_string).collect();
    format!("'{{{}}}'::bigint[]", list.join(","))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_testbed::postgres::Cluster;
    use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

    use super::*;

    #[tokio::test]
    async fn lists_come_back_as_they_were() {
        let hostile = [
            "",
            "a",
            "NULL",
            "null",
            "'",
            "''",
            "\\",
            "\\'",
            "\"",
            "\\\"",
            "a,b",
            "{}",
            "{\"",
            "}'; DROP TABLE run; --",
            "$1",
            "$$",
            " a ",
            "\n\t\r",
            "é漢🦀",
            "\u{1}\u{7f}",
            "E'\\''",
            "/* ",
            "--",
        ];
        let pairs: Vec<String> = hostile.iter().flat_map(|a| hostile.iter().map(move |b| format!("{a}{b}"))).collect();
        let database = Cluster::shared().create_database().unwrap();
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        let given = [i64::MIN, -1, 0, i64::MAX];
        // Row by row, because the reader of lists takes the text `NULL` for a null.
        let mut back = Vec::new();
        for literal in [texts(pairs.iter().map(String::as_str)), numbers(&given), texts([]), texts(["a\0b"])] {
            let sql = format!("SELECT v::text FROM unnest({literal}) WITH ORDINALITY AS u (v, n) ORDER BY n");
            let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
            back.push(rows.iter().map(|row| row.try_get::<String, _>(0).unwrap()).collect::<Vec<String>>());
        }
        assert_eq!(back[0], pairs);
        assert_eq!(back[1], given.map(|number| number.to_string()));
        assert!(back[2].is_empty());
        assert_eq!(back[3], ["a\u{fffd}b"]);
    }
}
