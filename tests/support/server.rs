//! A server of the built binary, ended with the test however the test ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running `serve`.
pub(crate) struct Served {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Served {
    /// Starts `serve` on a free port, with this command and these further arguments.
    pub(crate) fn start(command: Command, args: &[&str]) -> Self {
        Self::start_at(command, "127.0.0.1:0", args)
    }

    /// Starts `serve` at an address.
    pub(crate) fn start_at(mut command: Command, address: &str, args: &[&str]) -> Self {
        let mut child = command
            .args(["serve", "--bind", address, "--json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let listening: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, address: listening["address"].as_str().expect("an address").to_owned() }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
