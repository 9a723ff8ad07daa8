//! `nightshift export ATTEMPT --as cmake|model-new`: a program to be taken away.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::id::RunId;
use serde_json::json;
use tar::Archive;

use super::not_written;
use crate::args::ProgramForm;
use crate::command::show::split_attempt;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::resolve;

/// Largest project that is unpacked, in bytes: programs are texts.
const MAX_PROJECT_BYTES: u64 = 64 << 20;

pub(super) async fn run(context: &Context, id: &str, form: ProgramForm, out: &Path) -> Result<()> {
    let Some((run, number)) = split_attempt(id) else {
        return Err(Failure::new("usage.invalid", format!("`{id}` names no attempt, and --as is about one"))
            .hint("an attempt is RUN/NUMBER, for example 3f9c2a10/2"));
    };
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let run = resolve::run(client, run).await?;
        let files = match form {
            ProgramForm::ModelNew => {
                let bytes = client.attempt_model_new(&run, number).await?;
                std::fs::write(out, bytes).map_err(|error| not_written(out, &error))?;
                vec![out.display().to_string()]
            }
            ProgramForm::Cmake => unpack(&client.attempt_project(&run, number).await?, out)?,
        };
        let output = context.output;
        let view = client.run(&run).await?.view;
        let outcome = view.attempts.iter().find(|attempt| attempt.number == number).map(|attempt| attempt.outcome);
        if let Some(warning) = outcome.and_then(|outcome| warning(&run, number, outcome)) {
            output.note(&warning);
        }
        if output.is_json() {
            let form = if form == ProgramForm::Cmake { "cmake" } else { "model-new" };
            let outcome = outcome.map(AttemptOutcome::as_str);
            return output.json(&json!({
                "file": out, "format": form, "run": run, "attempt": number, "outcome": outcome, "files": files,
            }));
        }
        match form {
            ProgramForm::ModelNew => output.text(&format!(
                "{}: a file with `ModelNew`; KernelBench's own scripts check it, nothing in the file does",
                out.display()
            )),
            ProgramForm::Cmake => output.text(&format!(
                "{}: {} files; README.md says how they are built, and `build/compare` checks and times the program",
                out.display(),
                files.len()
            )),
        }
    })
    .await
}

/// What to say of a program that was not found to be right.
fn warning(run: &RunId, number: u32, outcome: AttemptOutcome) -> Option<String> {
    if outcome.is_correct() {
        return None;
    }
    let what = match outcome {
        AttemptOutcome::Pending => "is not judged yet".to_owned(),
        outcome => format!("was not found to be right ({})", outcome.as_str()),
    };
    let run = run.short();
    Some(format!(
        "warning: attempt {number} {what}: do not use it as it is; `nightshift list attempts --run {run} --correct` lists those \
         that are right"
    ))
}

/// Writes the files of a project into a folder; gives their names. Only plain files, by their last name: nothing leaves the
/// folder, whatever an archive says.
fn unpack(packed: &[u8], folder: &Path) -> Result<Vec<String>> {
    let unreadable =
        |error: std::io::Error| Failure::new("archive.unreadable", format!("the project cannot be read: {error}"));
    std::fs::create_dir_all(folder).map_err(|error| not_written(folder, &error))?;
    let mut archive = Archive::new(GzDecoder::new(packed).take(MAX_PROJECT_BYTES));
    let mut names = Vec::new();
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.file_name().map(std::ffi::OsStr::to_os_string);
        let Some(name) = name.filter(|_| entry.header().entry_type().is_file()) else { continue };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(unreadable)?;
        let path = folder.join(&name);
        std::fs::write(&path, bytes).map_err(|error| not_written(&path, &error))?;
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, EntryType, Header};

    use super::*;

    #[test]
    fn nothing_is_written_outside_of_the_folder() {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let mut add = |path: &str, kind: EntryType| {
            let mut header = Header::new_gnu();
            // Writes the path into the header directly, because the builder refuses such paths.
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_size(if kind.is_file() { 4 } else { 0 });
            header.set_cksum();
            builder.append(&header, if kind.is_file() { &b"text"[..] } else { &[] }).unwrap();
        };
        add("x/../../README.md", EntryType::Regular);
        add("x/link", EntryType::Symlink);
        let mut packed = builder.into_inner().unwrap();
        packed.flush().unwrap();
        let packed = packed.finish().unwrap();
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("a/b");
        assert_eq!(unpack(&packed, &folder).unwrap(), ["README.md"]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
        assert_eq!(unpack(b"no archive", &folder).unwrap_err().error.code, "archive.unreadable");
    }
}
