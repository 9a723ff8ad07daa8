//! Every prompt on recorded steps: no template names what it is not given, and what the models are told is what the
//! snapshots in `golden/prompts` say. After a change that is meant: `NIGHTSHIFT_UPDATE_GOLDEN=1 cargo test -p
//! nightshift-optimizer --test prompts`, and read the difference before it is committed.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nightshift_optimizer::agent::{Rehearsal, rehearse};
use nightshift_optimizer::prompt::Prompts;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/prompts")
}

#[expect(clippy::disallowed_methods, reason = "the switch that rewrites the snapshots")]
fn updates() -> bool {
    std::env::var("NIGHTSHIFT_UPDATE_GOLDEN").is_ok_and(|value| value == "1")
}

async fn with(file: &str, text: &str) -> Rehearsal {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    rehearse(Prompts::with_overrides(folder.path()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn every_template_is_rendered_on_recorded_steps_and_names_nothing_unknown() {
    let rehearsal = rehearse(Prompts::embedded().unwrap()).await.unwrap();
    assert!(rehearsal.problems.is_empty(), "{}", told(&rehearsal));
    assert!(rehearsal.steps.len() >= 10, "{}", rehearsal.steps.len());
    for step in &rehearsal.steps {
        assert_eq!(step.version.len(), 64, "{}", step.name);
        for part in ["# System\n", "# User\n", "# Assistant\n"] {
            assert!(step.transcript.contains(part), "{}: {part}", step.name);
        }
    }
}

fn told(rehearsal: &Rehearsal) -> String {
    rehearsal.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_prompts_are_what_the_snapshots_say() {
    let rehearsal = rehearse(Prompts::embedded().unwrap()).await.unwrap();
    let mut expected = BTreeSet::new();
    for step in &rehearsal.steps {
        let path = golden().join(format!("{}.md", step.name));
        expected.insert(path.clone());
        if updates() {
            std::fs::create_dir_all(golden()).unwrap();
            std::fs::write(&path, &step.transcript).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == step.transcript,
            "{} is another than {}: {}",
            step.name,
            path.display(),
            first_difference(&kept, &step.transcript)
        );
    }
    let there: BTreeSet<PathBuf> = std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    if updates() {
        for path in there.difference(&expected) {
            std::fs::remove_file(path).unwrap();
        }
    } else {
        assert_eq!(there, expected, "each snapshot belongs to a recorded step");
    }
}

fn first_difference(kept: &str, now: &str) -> String {
    let pairs = kept.lines().map(Some).chain(std::iter::repeat(None)).zip(now.lines().map(Some).chain([None]));
    let found = pairs.enumerate().find(|(_, (kept, now))| kept != now);
    found.map_or_else(String::new, |(at, (kept, now))| format!("line {}: {kept:?} became {now:?}", at + 1))
}

#[tokio::test]
async fn an_unknown_variable_is_told_by_file_and_line() {
    let rehearsal = with("planner/system.md", "You plan.\n\n{{ tsak.name }}\n").await;
    let found = rehearsal.problems.iter().find(|problem| problem.template == "planner/system.md");
    let found = found.unwrap_or_else(|| panic!("{}", told(&rehearsal)));
    assert_eq!(found.line, Some(3), "{found}");
    assert!(found.message.contains("undefined"), "{found}");
}

#[tokio::test]
async fn an_unknown_variable_is_found_in_a_branch_that_is_never_taken() {
    let text = "You plan.\n{% if target == \"moon\" %}\n{{ lunar.gravity }} and {{ task.nmae }}\n{% endif %}\n";
    let rehearsal = with("planner/system.md", text).await;
    let found: Vec<String> = rehearsal
        .problems
        .iter()
        .filter(|problem| problem.template == "planner/system.md")
        .map(ToString::to_string)
        .collect();
    let expected =
        ["planner/system.md:3: unknown variable `lunar.gravity`", "planner/system.md:3: unknown variable `task.nmae`"];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_session_template_that_includes_the_advice_still_works() {
    let rehearsal =
        with("coder/session/user.md", "{% include \"shared/task.md\" %}\n\n{% include \"shared/hints.md\" %}\n").await;
    assert!(rehearsal.problems.is_empty(), "{}", told(&rehearsal));
}
