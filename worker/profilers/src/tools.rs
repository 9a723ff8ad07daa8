//! Finding the tools: where a user put them, where their installers put them, and which version answers.

use nightshift_sandbox::access::temporary_folder;
use std::path::{Path, PathBuf};

use nightshift_protocol::needs;
use nightshift_protocol::verdict::ProcessEnd;

use crate::cupti_library;
use crate::tool::{MissingTool, Tool};
use nightshift_sandbox::process::{JailedCommand, Limits};
use nightshift_toolchain::toolchain::{Run, SYSTEM_FOLDERS, is_program, readable_folders};

/// Maximum number of entries of a folder that are looked at.
const MAX_ENTRIES: usize = 256;

/// A tool prints its version at once; the first start after a boot reads a few hundred megabytes.
const VERSION_LIMITS: Limits = Limits {
    wall_ms: 20_000,
    cpu_s: 20,
    memory_bytes: 16 << 30,
    file_bytes: 16 << 20,
    processes: 64,
    output_bytes: 64 << 10,
};

/// Maximum length of quoted output of a tool without a version, in characters.
const MAX_QUOTED_CHARS: usize = 600;

/// Programs that did not answer of which the reasons are told.
const MAX_REASONS: usize = 3;

/// Folders of an installation that lie between its root and its programs.
const INNER_FOLDERS: [&str; 4] = ["bin", "host", "target", "compute-sanitizer"];

/// The tools of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profilers {
    /// Nsight Systems.
    pub nsys: Result<Tool, MissingTool>,
    /// The library by which a program can trace itself, where there is no Nsight Systems.
    pub cupti: Result<Tool, MissingTool>,
    /// Nsight Compute.
    pub ncu: Result<Tool, MissingTool>,
    /// The sanitizers.
    pub compute_sanitizer: Result<Tool, MissingTool>,
    /// Time limits of the tools.
    pub limits: TimeLimits,
}

/// How long a tool may take, in milliseconds of wall time. Then it is ended with everything that it started, and the
/// profile does without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// Tracing: the tool needs a second or two, a slow program the rest.
    pub nsys_ms: u64,
    /// Making an export of a trace, where that was not done while tracing.
    pub export_ms: u64,
    /// Counting: every kernel is repeated some ten times.
    pub ncu_ms: u64,
    /// One check: a program becomes up to a hundred times slower.
    pub sanitizer_ms: u64,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self { nsys_ms: 20_000, export_ms: 10_000, ncu_ms: 30_000, sanitizer_ms: 30_000 }
    }
}

/// A kind of tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolKind {
    Nsys,
    Ncu,
    ComputeSanitizer,
}

impl ToolKind {
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Nsys => "nsys",
            Self::Ncu => "ncu",
            Self::ComputeSanitizer => "compute-sanitizer",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Nsys => {
                "install Nsight Systems (package nsight-systems-cli of NVIDIA's repository, or the CUDA toolkit) and put `nsys` \
                 on the PATH of the worker"
            }
            Self::Ncu => {
                "install Nsight Compute (package nsight-compute of NVIDIA's repository, or the CUDA toolkit) and put `ncu` on the \
                 PATH of the worker"
            }
            Self::ComputeSanitizer => {
                "install compute-sanitizer (package cuda-sanitizer-api of NVIDIA's repository, the CUDA toolkit, or the pip \
                 package nvidia-cuda-sanitizer-api) and put `compute-sanitizer` on the PATH of the worker"
            }
        }
    }
}

impl Profilers {
    /// Looks for the tools in the folders of a search path and where their installers put them, and asks each for its
    /// version. `library_path` holds folders of libraries that the system does not know. Starts processes; `scratch` is an
    /// existing folder, and `run` gives a command the surroundings that it has when it profiles:
    /// [`run_jailed_as_tool`](nightshift_sandbox::process::run_jailed_as_tool).
    #[must_use]
    pub fn find(search_path: &[PathBuf], library_path: &[PathBuf], scratch: &Path, run: &Run<'_>) -> Self {
        Self::find_below(Path::new("/"), search_path, library_path, scratch, run)
    }

    /// Returns the tools for a worker without profiling. The sanitizers stay, because they check correctness.
    #[must_use]
    pub fn switched_off(self) -> Self {
        let missing = || MissingTool {
            reason: "this worker is configured not to profile".to_owned(),
            remedy: "set `worker.profilers` to `true`, or leave it out".to_owned(),
            did_not_answer: false,
        };
        Self { nsys: Err(missing()), cupti: Err(missing()), ncu: Err(missing()), ..self }
    }

    /// Returns whether a search later would find the same: every installed tool has answered.
    #[must_use]
    pub fn all_answered(&self) -> bool {
        let Self { nsys, cupti, ncu, compute_sanitizer, limits: _ } = self;
        [nsys, cupti, ncu, compute_sanitizer]
            .into_iter()
            .all(|tool| tool.as_ref().err().is_none_or(|missing| !missing.did_not_answer))
    }

    /// [`Self::find`], with another root of the system.
    fn find_below(
        root: &Path,
        search_path: &[PathBuf],
        library_path: &[PathBuf],
        scratch: &Path,
        run: &Run<'_>,
    ) -> Self {
        let search = Search { root, programs: search_path, libraries: library_path, scratch, run };
        Self {
            nsys: search.find(ToolKind::Nsys),
            cupti: cupti_library::find(root, library_path),
            ncu: search.find(ToolKind::Ncu),
            compute_sanitizer: search.find(ToolKind::ComputeSanitizer),
            limits: TimeLimits::default(),
        }
    }
}

/// Returns the tools that are installed below `root`, where [`Profilers::find`] looks for them. Starts no process.
pub fn installed(root: &Path, search_path: &[PathBuf]) -> impl Iterator<Item = needs::Tool> {
    let kinds = [
        (ToolKind::Nsys, needs::Tool::Nsys),
        (ToolKind::Ncu, needs::Tool::Ncu),
        (ToolKind::ComputeSanitizer, needs::Tool::ComputeSanitizer),
    ];
    let is_there = |kind| !candidates(root, kind, search_path).is_empty();
    kinds.into_iter().filter(move |(kind, _)| is_there(*kind)).map(|(_, tool)| tool)
}

/// Parameters of the search.
struct Search<'a> {
    root: &'a Path,
    programs: &'a [PathBuf],
    libraries: &'a [PathBuf],
    scratch: &'a Path,
    run: &'a Run<'a>,
}

impl Search<'_> {
    /// The first program that answers; else what is wrong with those that do not.
    fn find(&self, wanted: ToolKind) -> Result<Tool, MissingTool> {
        let mut failed: Vec<MissingTool> = Vec::new();
        for program in candidates(self.root, wanted, self.programs) {
            match self.ask(wanted, &program) {
                Ok(tool) => return Ok(tool),
                Err(missing) => failed.push(missing),
            }
        }
        let reasons: Vec<&str> = failed.iter().take(MAX_REASONS).map(|missing| missing.reason.as_str()).collect();
        let reason = reasons.join("; ");
        let did_not_answer = failed.iter().any(|missing| missing.did_not_answer);
        let Some(first) = failed.into_iter().next() else {
            return Err(MissingTool {
                reason: format!(
                    "`{}` is not installed where it was looked for: on the PATH and in the folders of NVIDIA's installers",
                    wanted.program()
                ),
                remedy: wanted.remedy().to_owned(),
                did_not_answer: false,
            });
        };
        Err(MissingTool { reason, did_not_answer, ..first })
    }

    fn ask(&self, wanted: ToolKind, program: &Path) -> Result<Tool, MissingTool> {
        let missing = |reason: String| MissingTool {
            reason: format!("`{}` does not answer: {reason}", program.display()),
            remedy: wanted.remedy().to_owned(),
            did_not_answer: true,
        };
        let folder = temporary_folder(self.scratch, "tool-");
        let folder = folder.map_err(|error| missing(format!("a folder for it cannot be made: {error}")))?;
        let mut tool = Tool {
            path: program.to_path_buf(),
            version: String::new(),
            folders: installation_folders(program),
            library_path: Vec::new(),
        };
        // Only the part that makes the report needs it: its absence would be noticed after the program ran.
        let needs_library = wanted == ToolKind::Nsys && is_carried_by_compute(program);
        let libraries = if needs_library { self.library_folders(&tool, LIBDW) } else { Some(Vec::new()) };
        tool.library_path = libraries.clone().unwrap_or_default();
        let own = program.parent().unwrap_or(program).to_path_buf();
        let library_path: Vec<String> =
            [own].iter().chain(&tool.library_path).map(|folder| folder.to_string_lossy().into_owned()).collect();
        let command = JailedCommand {
            program: program.to_path_buf(),
            args: vec!["--version".into()],
            read_only: tool.folders.iter().chain(&tool.library_path).cloned().collect(),
            scratch: folder.path().to_path_buf(),
            env: vec![
                ("HOME".to_owned(), folder.path().to_string_lossy().into_owned()),
                ("LD_LIBRARY_PATH".to_owned(), library_path.join(":")),
            ],
            limits: VERSION_LIMITS,
        };
        let result = (self.run)(&command).map_err(|error| missing(error.to_string()))?;
        let printed = [result.stdout.as_slice(), result.stderr.as_slice()].concat();
        let printed = String::from_utf8_lossy(&printed);
        let Some(version) = version(&printed).filter(|_| result.end == ProcessEnd::Finished) else {
            if let Some(library) = missing_library(&printed) {
                return Err(lacks_library(program, library));
            }
            let said = quoted(&printed);
            let reason = format!("`--version` gave no version ({}): {said}", result.end.describe());
            // One that came to its end has answered.
            let did_not_answer = !matches!(result.end, ProcessEnd::Finished | ProcessEnd::Exited { .. });
            return Err(MissingTool { did_not_answer, ..missing(reason) });
        };
        if libraries.is_none() {
            return Err(lacks_library(program, LIBDW));
        }
        Ok(Tool { version, ..tool })
    }

    /// The folders to add so that the loader finds the library: nothing when the system or the tool has it.
    fn library_folders(&self, tool: &Tool, library: &str) -> Option<Vec<PathBuf>> {
        let system = LIBRARY_FOLDERS.iter().map(|folder| self.root.join(folder));
        let own = tool.path.parent().map(Path::to_path_buf);
        if system.chain(own).any(|folder| folder.join(library).exists()) {
            return Some(Vec::new());
        }
        let folder = self.libraries.iter().find(|folder| folder.join(library).exists())?;
        Some(vec![folder.clone()])
    }
}

/// The programs of that name, in the order in which they are tried.
fn candidates(root: &Path, wanted: ToolKind, search_path: &[PathBuf]) -> Vec<PathBuf> {
    let name = wanted.program();
    let system = SYSTEM_FOLDERS.iter().map(|folder| root.join(folder.trim_start_matches('/')));
    let mut found: Vec<PathBuf> = search_path.iter().cloned().chain(system).map(|folder| folder.join(name)).collect();
    let toolkits = children(&root.join("usr/local"), "cuda");
    match wanted {
        ToolKind::Nsys => {
            for version in children(&root.join("opt/nvidia/nsight-systems"), "") {
                found.push(version.join("bin/nsys"));
                found.extend(children(&version, "target-linux").into_iter().map(|folder| folder.join(name)));
            }
            found.extend(toolkits.iter().map(|toolkit| toolkit.join("bin/nsys")));
            // Nsight Compute carries a whole nsys, which is on no search path.
            for compute in compute_installations(root, &toolkits) {
                found.extend(
                    children(&compute.join("host"), "target-linux").into_iter().map(|folder| folder.join(name)),
                );
            }
        }
        ToolKind::Ncu => {
            found.extend(compute_installations(root, &toolkits).into_iter().map(|folder| folder.join(name)));
            found.extend(toolkits.iter().map(|toolkit| toolkit.join("bin/ncu")));
        }
        ToolKind::ComputeSanitizer => {
            for toolkit in &toolkits {
                found.push(toolkit.join("bin/compute-sanitizer"));
                found.push(toolkit.join("compute-sanitizer/compute-sanitizer"));
            }
        }
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in found.into_iter().filter(|path| path.is_absolute() && is_program(path)) {
        if !seen.contains(&path) {
            seen.push(path);
        }
    }
    seen
}

fn compute_installations(root: &Path, toolkits: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = children(&root.join("opt/nvidia/nsight-compute"), "");
    for toolkit in toolkits {
        found.extend(children(toolkit, "nsight-compute"));
    }
    found
}

/// The folders in a folder whose names begin so, the newest version first.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(version_numbers(&path.to_string_lossy())));
    found
}

/// The numbers in a name: `cuda-12.9` comes before `cuda-13.0`.
fn version_numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// What the nsys of Nsight Compute needs beside its own files to make a report.
const LIBDW: &str = "libdw.so.1";

/// Default search path of the loader.
const LIBRARY_FOLDERS: [&str; 7] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "lib/x86_64-linux-gnu",
    "lib64",
];

fn is_carried_by_compute(program: &Path) -> bool {
    let resolved = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    resolved.to_string_lossy().contains("nsight-compute")
}

fn lacks_library(program: &Path, library: &str) -> MissingTool {
    let remedy = if library.starts_with("libdw") {
        "install the library's package: apt-get install libdw1 libelf1 (Debian, Ubuntu), dnf install elfutils-libs (Fedora, \
         Red Hat); or install Nsight Systems itself"
            .to_owned()
    } else {
        format!("install the package that holds {library}")
    };
    MissingTool {
        reason: format!("`{}` needs the library {library}, which is not installed", program.display()),
        remedy,
        did_not_answer: false,
    }
}

/// The library that the loader missed, by its message.
pub(super) fn missing_library(printed: &str) -> Option<&str> {
    let (before, _) = printed.split_once(": cannot open shared object file")?;
    let name = before.rsplit([' ', '\n', '/']).next()?.trim();
    (name.contains(".so") && name.len() < 100).then_some(name)
}

/// Returns the output of a tool in one line. C++ errors have several lines, of which the first says least.
fn quoted(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        "it printed nothing".to_owned()
    } else {
        lines.join("; ").chars().take(MAX_QUOTED_CHARS).collect()
    }
}

/// The first thing that looks like a version: two numbers and more with dots between them.
fn version(printed: &str) -> Option<String> {
    let words = printed.split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '-'));
    words
        .filter(|word| word.len() <= 40)
        .map(|word| word.trim_start_matches('v'))
        .find(|word| {
            let parts: Vec<&str> = word.split('.').collect();
            parts.len() >= 3
                && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()))
                && parts.first().is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(str::to_owned)
}

/// Folders that the tool reads: its installation, also when it is a script that calls the one in NVIDIA's folder.
fn installation_folders(program: &Path) -> Vec<PathBuf> {
    let mut folders = readable_folders(program);
    let resolved = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    let mut root = resolved.parent();
    while let Some(folder) = root {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_inner = INNER_FOLDERS.contains(&name.as_str()) || name.contains("linux-");
        if !is_inner {
            break;
        }
        root = folder.parent();
    }
    let of_vendor = ["/opt/nvidia/nsight-compute", "/opt/nvidia/nsight-systems"].into_iter().map(PathBuf::from);
    for folder in root.map(Path::to_path_buf).into_iter().chain(of_vendor) {
        let is_system = ["/usr", "/bin", "/lib", "/lib64"].iter().any(|system| folder.starts_with(system));
        let is_deep = folder.components().count() > 2;
        if !is_system && is_deep && folder.is_dir() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
