//! A PostgreSQL server to throw away, for work by hand: prints its address and its folder, and removes it when its
//! input ends.

use std::io::{Read, Write};
use std::process::ExitCode;

use nightshift_testbed::postgres::{Cluster, PostgresError, Settings};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), PostgresError> {
    let cluster = Cluster::start(&Settings::default())?;
    let url = cluster.url("postgres")?;
    let folder = cluster.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
    let mut out = std::io::stdout();
    // A closed output or input means that the server is no longer needed.
    if writeln!(out, "{url}\n{folder}").and_then(|()| out.flush()).is_ok() {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
    Ok(())
}
