//! The search for profilers and sanitizers, at their first use: asking them for their versions takes seconds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nightshift_profilers::Profilers;
use nightshift_protocol::step::StepFailure;
use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, ProcessError, run_jailed_as_tool};
use nightshift_toolchain::nvcc::Nvcc;

/// Time after which a search is repeated if a tool did not answer: on a busy machine a tool may start more slowly than the search waits.
const SEARCH_AGAIN_AFTER: Duration = Duration::from_mins(5);

/// Finds profilers and sanitizers: on the search path, beside the compiler, and where installers put them. Blocks, and
/// starts processes; `scratch` is an existing folder.
#[must_use]
pub fn find_profilers(
    jail: &JailHost,
    nvcc: Option<&Nvcc>,
    search_path: &[PathBuf],
    scratch: &Path,
    cancel: &CancelFlag,
) -> Profilers {
    let run = |command: &JailedCommand| run_jailed_as_tool(jail, command, cancel);
    let mut tools: Vec<PathBuf> = search_path.to_vec();
    tools.extend(nvcc.map(|nvcc| nvcc.program_folder().to_path_buf()));
    Profilers::find(&tools, nvcc.map(Nvcc::library_folders).unwrap_or_default(), scratch, &run)
}

/// The result of the last search.
#[derive(Debug, Default)]
pub(super) struct FoundTools(Mutex<Option<(Arc<Profilers>, Instant)>>);

impl FoundTools {
    /// Returns what the last search found, or searches now: when there was none, and later again for tools that did not answer.
    /// One search runs at a time, and the others use its result.
    ///
    /// # Errors
    /// When the work is cancelled during the search.
    pub(super) fn get(
        &self,
        search: impl FnOnce() -> Profilers,
        cancel: &CancelFlag,
    ) -> Result<Arc<Profilers>, StepFailure> {
        let mut last = cancel.lock(&self.0).ok_or(ProcessError::Cancelled)?;
        if let Some((found, at)) = &*last
            && (found.all_answered() || at.elapsed() < SEARCH_AGAIN_AFTER)
        {
            return Ok(Arc::clone(found));
        }
        let found = Arc::new(search());
        if cancel.is_cancelled() {
            return Err(ProcessError::Cancelled.into());
        }
        *last = Some((Arc::clone(&found), Instant::now()));
        Ok(found)
    }

    /// Makes the last search one of so long ago.
    #[cfg(test)]
    fn age(&self, by: Duration) {
        if let Some((_, at)) = &mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            *at = at.checked_sub(by).unwrap_or(*at);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_profilers::{MissingTool, TimeLimits};

    use super::*;

    fn tools(is_slow: bool) -> Profilers {
        let missing = |did_not_answer| MissingTool { reason: String::new(), remedy: String::new(), did_not_answer };
        Profilers {
            nsys: Err(missing(is_slow)),
            cupti: Err(missing(false)),
            ncu: Err(missing(false)),
            compute_sanitizer: Err(missing(false)),
            limits: TimeLimits::default(),
        }
    }

    #[test]
    fn a_tool_that_did_not_answer_is_asked_again_after_a_while_and_one_that_is_not_there_is_not() {
        let (found, going_on) = (FoundTools::default(), CancelFlag::default());
        found.get(|| tools(true), &going_on).unwrap();
        found.get(|| panic!("it was asked a moment ago"), &going_on).unwrap();
        found.age(SEARCH_AGAIN_AFTER);
        found.get(|| tools(false), &going_on).unwrap();
        found.age(SEARCH_AGAIN_AFTER * 2);
        assert_eq!(*found.get(|| panic!("all tools answered"), &going_on).unwrap(), tools(false));
    }

    #[test]
    fn a_search_that_was_cut_short_is_not_kept() {
        let (found, cancelled) = (FoundTools::default(), CancelFlag::default());
        cancelled.cancel();
        assert_eq!(found.get(|| tools(false), &cancelled).unwrap_err().code, "step.cancelled");
        assert_eq!(*found.get(|| tools(true), &CancelFlag::default()).unwrap(), tools(true));
    }
}
