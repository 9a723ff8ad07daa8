//! `nightshift mcp install`: enters this program into the configuration of a coding agent.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nightshift_mcp::install::{Client, InstallError, Launch, Places, file, with_entry};
use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::McpInstall;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Largest configuration file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The name of this program on the search path.
const PROGRAM: &str = "nightshift";

pub(super) fn run(context: &Context, args: &McpInstall) -> Result<ExitCode> {
    let client = Client::from(args.client);
    let folder = std::env::current_dir()
        .map_err(|error| Failure::new("config.unreadable", format!("the current folder is not known: {error}")))?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => file(client, &places(context, folder)).map_err(|error| refused(client, Path::new(""), &error))?,
    };
    let launch = launch(context, args)?;
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

/// How the client starts this program: with the server, data folder and configuration file of this command.
fn launch(context: &Context, args: &McpInstall) -> Result<Launch> {
    let (config, environment) = (context.config(), &context.environment);
    let executable = std::env::current_exe().map_err(|error| {
        Failure::new("worker.executable", format!("the path of this program is not known: {error}"))
    })?;
    let on_path = environment.search_path().iter().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    let on_path = on_path.and_then(|path| path.canonicalize().ok());
    let is_this = on_path.is_some() && on_path == executable.canonicalize().ok();
    let command = if is_this { PROGRAM.to_owned() } else { executable.display().to_string() };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string();
    let mut with = Vec::new();
    if environment.default_data_dir().as_ref() != Some(&config.data_dir) {
        with.extend(["--data-dir".to_owned(), absolute(&config.data_dir)]);
    }
    let named = context.loaded.file.as_ref().filter(|path| environment.default_config_file().as_ref() != Some(path));
    if let Some(path) = named.filter(|_| context.loaded.file_read) {
        with.extend(["--config".to_owned(), absolute(path)]);
    }
    if let Some(url) = &config.server.url {
        with.extend(["--server".to_owned(), url.clone()]);
    }
    with.push("mcp".to_owned());
    with.extend(args.read_only.then(|| "--read-only".to_owned()));
    with.extend(args.allow_unsandboxed.then(|| "--allow-unsandboxed".to_owned()));
    Ok(Launch { command, args: with, needs_token: config.server.url.is_some() })
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
