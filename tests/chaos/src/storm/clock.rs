//! Wall clocks of processes: each is a file with an offset, and a library that the process preloads adds the offset.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// The library's source.
const SOURCE: &str = include_str!("clock/shifted_clock.c");
/// The variable that names the file with the offset.
const VARIABLE: &str = "NIGHTSHIFT_CHAOS_CLOCK";
/// Offset of the process that shows whether the library works.
const EXAMINED_OFFSET_MS: i64 = 3_600_000;
/// Maximum duration of that process.
const MAX_EXAMINATION_MS: i64 = 600_000;

/// The compiled library.
pub(super) struct ClockLibrary(PathBuf);

/// The wall clock of the processes of one seat.
pub(crate) struct ShiftedClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl ClockLibrary {
    /// Compiles the library with the compiler that also links Rust's programs, and checks that this program obeys it.
    pub(super) fn build(folder: &Path) -> anyhow::Result<Self> {
        let (source, library) = (folder.join("shifted_clock.c"), folder.join("libshifted_clock.so"));
        std::fs::write(&source, SOURCE)?;
        #[expect(clippy::disallowed_methods, reason = "a storm is about processes; nothing that ships is here")]
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .stdin(Stdio::null())
            .output()
            .context("the C compiler `cc` cannot be started")?;
        let told = String::from_utf8_lossy(&compiled.stderr);
        anyhow::ensure!(compiled.status.success(), "{} cannot be compiled: {told}", source.display());
        let built = Self(library);
        let clock = built.clock(folder.join("examined.clock"))?;
        let before_ms = clock.read_ms()?;
        clock.set(EXAMINED_OFFSET_MS)?;
        let ahead_ms = clock.read_ms()? - before_ms;
        anyhow::ensure!(
            (EXAMINED_OFFSET_MS..EXAMINED_OFFSET_MS + MAX_EXAMINATION_MS).contains(&ahead_ms),
            "a process does not obey its clock: it was set forward by {EXAMINED_OFFSET_MS} ms, and shows {ahead_ms} ms"
        );
        Ok(built)
    }

    /// Creates a clock that shows the machine's time.
    pub(super) fn clock(&self, path: PathBuf) -> anyhow::Result<ShiftedClock> {
        std::fs::write(&path, 0_i64.to_ne_bytes())?;
        let file = File::options().read(true).write(true).open(&path)?;
        Ok(ShiftedClock { library: self.0.clone(), path, file })
    }
}

impl ShiftedClock {
    /// Sets the clock so far ahead of the machine's, in milliseconds. Running processes jump.
    pub(super) fn set(&self, offset_ms: i64) -> std::io::Result<()> {
        // In place: processes map the file.
        self.file.write_all_at(&offset_ms.to_ne_bytes(), 0)
    }

    /// Returns how far the clock is ahead of the machine's, in milliseconds.
    pub(super) fn offset_ms(&self) -> std::io::Result<i64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// Returns the time that a process with this clock sees, in milliseconds since 1970.
    fn read_ms(&self) -> anyhow::Result<i64> {
        #[expect(clippy::disallowed_methods, reason = "a storm is about processes; nothing that ships is here")]
        let output = Command::new(std::env::current_exe()?)
            .args(["node", "clock"])
            .envs(self.variables())
            .stdin(Stdio::null())
            .output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        told.trim().parse().with_context(|| format!("a process cannot tell its clock: {told} {}", output.status))
    }

    /// Returns the variables of a process that has this clock.
    pub(super) fn variables(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library.clone().into()), (VARIABLE, self.path.clone().into())]
    }
}
