//! The screening against a corpus of attacks and a corpus of honest programs: every attack is caught by the finding that
//! its first line names, no honest program is refused.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nightshift_optimizer::screen::{screen, strip_comments_and_strings};
use nightshift_optimizer::task_file::load_folder;
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn programs(kind: &str) -> Result<Vec<(String, String)>, std::io::Error> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
    let mut programs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        programs.push((name, fs::read_to_string(path)?));
    }
    programs.sort();
    Ok(programs)
}

fn violations(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.severity == Severity::Violation).collect()
}

#[test]
fn every_attack_is_caught_and_no_honest_program_is_refused() -> TestResult {
    let attacks = programs("attack")?;
    let benign = programs("benign")?;
    let mut missed = Vec::new();
    for (name, source) in &attacks {
        let Some(expected) = source.lines().next().and_then(|line| line.strip_prefix("// expect: ")) else {
            return Err(format!("{name} does not say what has to catch it").into());
        };
        let found = screen(source, Target::Cpu);
        if !violations(&found).iter().any(|finding| finding.code == expected) {
            missed.push(format!("{name}: expected {expected}, found {found:?}"));
        }
    }
    let mut refused = Vec::new();
    for (name, source) in &benign {
        let found = screen(source, Target::Cpu);
        if !violations(&found).is_empty() {
            refused.push(format!("{name}: {found:?}"));
        }
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "screening: caught {} of {} attacks, refused {} of {} honest programs",
        attacks.len() - missed.len(),
        attacks.len(),
        refused.len(),
        benign.len()
    )?;
    assert!(attacks.len() >= 50 && benign.len() >= 15, "the corpora are not where they should be");
    assert!(missed.is_empty(), "missed:\n{}", missed.join("\n"));
    assert!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
    Ok(())
}

/// The `cpp` blocks of a reply.
fn blocks(reply: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in reply.lines() {
        match (&mut open, line.trim_end()) {
            (None, "```cpp") => open = Some(Vec::new()),
            (Some(lines), "```") => {
                blocks.push(lines.join("\n"));
                open = None;
            }
            (Some(lines), _) => lines.push(line),
            (None, _) => {}
        }
    }
    blocks
}

#[test]
fn no_bundled_program_is_refused() -> TestResult {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut programs = Vec::new();
    for entry in fs::read_dir(examples)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let task = load_folder(&folder)?.bundle;
        let target = task.spec.target;
        programs.push((folder.display().to_string(), target, task.reference_source));
        for reply in fs::read_dir(folder.join("replies"))? {
            let path = reply?.path();
            let found = blocks(&fs::read_to_string(&path)?);
            programs.extend(found.into_iter().map(|source| (path.display().to_string(), target, source)));
        }
    }
    for target in Target::ALL {
        let count = programs.iter().filter(|(_, of, _)| *of == target).count();
        assert!(count > 20, "{count} programs for {}", target.as_str());
    }
    for (name, target, source) in programs {
        let found = screen(&source, target);
        assert!(violations(&found).is_empty(), "{name}: {found:?}");
    }
    Ok(())
}

#[test]
fn every_violation_names_a_line_of_the_source() -> TestResult {
    for (name, source) in programs("attack")? {
        let lines = u32::try_from(source.lines().count())?;
        for finding in violations(&screen(&source, Target::Cpu)) {
            let line = finding.line.unwrap_or(0);
            assert!((1..=lines).contains(&line), "{name}: {finding:?}");
        }
    }
    Ok(())
}

#[test]
fn the_finding_points_at_the_offending_line() {
    let source = "#include \"nightshift.h\"\n\n/* long\n comment */\nvoid f() {\n  fork();\n}\n";
    let found = screen(source, Target::Cpu);
    let fork = found.iter().find(|finding| finding.code == "processes");
    assert_eq!(fork.and_then(|finding| finding.line), Some(6));
}

#[test]
fn stripping_leaves_the_verdict_of_the_screening_as_it_was() -> TestResult {
    // The judge sees the stripped source: what is code in it must be what is code in the original.
    for (name, source) in programs("benign")? {
        let found = screen(&strip_comments_and_strings(&source), Target::Cpu);
        assert!(violations(&found).is_empty(), "{name}: {found:?}");
    }
    Ok(())
}

#[test]
fn stripping_removes_every_comment_and_every_text() -> TestResult {
    for kind in ["attack", "benign"] {
        for (name, source) in programs(kind)? {
            let stripped = strip_comments_and_strings(&source);
            assert!(!stripped.contains("//") && !stripped.contains("/*"), "{name}");
            assert_eq!(stripped.lines().count(), source.lines().count(), "{name}");
        }
    }
    Ok(())
}

#[test]
fn a_cuda_header_is_usual_on_cuda_only() {
    let source = "#include \"nightshift.h\"\n#include <cuda_fp16.h>\n#include <cub/cub.cuh>\n";
    assert!(screen(source, Target::Cuda).is_empty());
    assert_eq!(screen(source, Target::Cpu).len(), 2);
}

#[test]
fn any_bytes_are_screened_without_a_panic() {
    let pieces = [
        "",
        "\\",
        "\\\n",
        "\"",
        "R\"(",
        "R\"x",
        "'",
        "/*",
        "//",
        "#",
        "#define",
        "#define A(",
        "#define A(x) x##x\nA(A(",
        "%:",
        "#include",
        "#include <",
        "#if 0",
        "#if 0\n#if 1\n",
        "::",
        "std::",
        "asm(",
        "é",
        "\u{0}",
        "\u{feff}",
        "[[gnu::",
        "__attribute__((",
        "namespace x =",
        "using namespace",
        "f(f(f(f(",
        "}}}}",
        "#pragma",
        "#pragma omp",
    ];
    for first in pieces {
        for second in pieces {
            let source = format!("{first}{second}\n{first} {second}");
            let _ = screen(&source, Target::Cpu);
            let _ = strip_comments_and_strings(&source);
        }
    }
}
