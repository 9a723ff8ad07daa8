//! `nightshift mcp install`: enters this program into the configuration of a coding agent.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nightshift_mcp::install::{Client, InstallError, Places, file, with_entry};
use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::McpInstall;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::mcp::launch;

/// Largest configuration file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub(super) fn run(context: &Context, args: &McpInstall) -> Result<ExitCode> {
    let client = Client::from(args.client);
    let folder = std::env::current_dir()
        .map_err(|error| Failure::new("config.unreadable", format!("the current folder is not known: {error}")))?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => file(client, &places(context, folder)).map_err(|error| refused(client, Path::new(""), &error))?,
    };
    let mut options = Vec::new();
    options.extend(args.read_only.then(|| "--read-only".to_owned()));
    options.extend(args.allow_unsandboxed.then(|| "--allow-unsandboxed".to_owned()));
    let launch = launch(context, options)?;
    let before = read(&path)?;
    let after = with_entry(client, &before, &launch).map_err(|error| refused(client, &path, &error))?;
    let output = context.output;
    let changed = after != before;
    if args.print {
        if output.is_json() {
            output.json(&json!({ "client": client.label(), "file": path, "text": after }))?;
        } else {
            output.note(&format!("{}:", path.display()));
            output.bytes(after.as_bytes())?;
        }
        return Ok(ExitCode::Ok);
    }
    if changed {
        write(&path, &after)?;
    }
    if output.is_json() {
        output.json(&json!({ "client": client.label(), "file": path, "changed": changed }))?;
    } else if changed {
        output.text(&format!("{} starts Nightshift now: {}", client.label(), path.display()))?;
        output.note(&format!("restart {} to load it", client.label()));
    } else {
        output.text(&format!("{} starts Nightshift already: {}", client.label(), path.display()))?;
    }
    if launch.needs_token && !args.print {
        output.note(&format!(
            "the file holds no token: set {} in the environment that {} is started from",
            nightshift_mcp::install::TOKEN_VARIABLE,
            client.label()
        ));
    }
    Ok(ExitCode::Ok)
}

fn refused(client: Client, path: &Path, error: &InstallError) -> Failure {
    match error {
        InstallError::NotUnderstood { .. } => {
            Failure::new("config.not_understood", format!("{}: {error}", path.display()))
                .hint(format!("the file stays as it is; mend it, or give {} another one with --file", client.label()))
        }
        InstallError::NoPlace { .. } => {
            Failure::new("config.no_folder", error.to_string()).hint("name the file with --file")
        }
    }
}

fn places(context: &Context, project: PathBuf) -> Places {
    let environment = &context.environment;
    let named = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = named("HOME");
    let below = |folder: &str| home.as_ref().map(|home| home.join(folder));
    Places {
        project,
        codex: named("CODEX_HOME").or_else(|| below(".codex")),
        config: named("XDG_CONFIG_HOME").or_else(|| below(".config")),
    }
}

/// The text of a file; empty where there is none.
fn read(path: &Path) -> Result<String> {
    let failed =
        |reason: String| Failure::new("config.unreadable", format!("{} cannot be read: {reason}", path.display()));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(error.to_string())),
        Ok(data) if data.len() > MAX_FILE_BYTES => return Err(failed(format!("it has {} bytes", data.len()))),
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

/// Replaces a file as a whole, so that it is never half written. A link stays one.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed =
        |error: std::io::Error| Failure::new("output.failed", format!("{} cannot be written: {error}", path.display()));
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    if let Ok(data) = std::fs::metadata(&target) {
        file.as_file().set_permissions(data.permissions()).map_err(failed)?;
    } else {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(NEW_FILE_MODE)).map_err(failed)?;
    }
    file.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Permissions of a new file: it holds no secret.
const NEW_FILE_MODE: u32 = 0o644;
