//! The screening against a corpus of attacks and a corpus of honest programs: every attack is caught by the finding that
//! its first line names, no honest program is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nightshift_optimizer::screen::{screen, screen_torch, strip_comments_and_strings, strip_python};
use nightshift_optimizer::task_file::load_folder;
use nightshift_protocol::task::{CudaLibrary, Target};
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
        let found = screen(source, Target::Cpu, &BTreeSet::new());
        if !violations(&found).iter().any(|finding| finding.code == expected) {
            missed.push(format!("{name}: expected {expected}, found {found:?}"));
        }
    }
    let mut refused = Vec::new();
    for (name, source) in &benign {
        let found = screen(source, Target::Cpu, &BTreeSet::new());
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

#[test]
fn every_attack_in_cuda_is_caught_and_no_honest_program_is_refused() -> TestResult {
    let (attacks, benign) = (programs("attack_cuda")?, programs("benign_cuda")?);
    assert!(attacks.len() >= 35 && benign.len() >= 8, "the corpora are not where they should be");
    let nothing = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, source) in &attacks {
        let expected = source.lines().next().and_then(|line| line.strip_prefix("// expect: ")).unwrap_or("nothing");
        let found = screen(source, Target::Cuda, &nothing);
        if !violations(&found).iter().any(|finding| finding.code == expected) {
            wrong.push(format!("{name}: expected {expected}, found {found:?}"));
        }
    }
    for (name, source) in &benign {
        let found = screen(source, Target::Cuda, &nothing);
        // An honest program is not suspected either, and the grammar can read it.
        let grave: Vec<&Finding> = found.iter().filter(|finding| finding.severity > Severity::Note).collect();
        if !grave.is_empty() || found.iter().any(|finding| finding.code == "unparsed") {
            wrong.push(format!("{name}: {found:?}"));
        }
        let stripped = screen(&strip_comments_and_strings(source), Target::Cuda, &nothing);
        let refused: Vec<&str> = violations(&stripped).iter().map(|finding| finding.code.as_str()).collect();
        // Whoever asks the driver for one function says its name in a text, which the judge does not see.
        if refused.iter().any(|code| *code != "loading") {
            wrong.push(format!("{name}, stripped: {stripped:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_attack_in_python_is_caught_and_no_honest_program_is_suspected() -> TestResult {
    let (attacks, benign) = (programs("attack_torch")?, programs("benign_torch")?);
    assert!(attacks.len() >= 55 && benign.len() >= 8, "the corpora are not where they should be");
    let mut wrong = Vec::new();
    for (name, source) in &attacks {
        let expected = source.lines().next().and_then(|line| line.strip_prefix("# expect: ")).unwrap_or("nothing");
        let found = screen_torch(source);
        if !violations(&found).iter().any(|finding| finding.code == expected) {
            wrong.push(format!("{name}: expected {expected}, found {found:?}"));
        }
    }
    for (name, source) in &benign {
        // What is only suspicious may be honest: that a function of extents remembers its results, for one.
        let remembers_extents = |finding: &&Finding| finding.code == "caches_results" && name.contains("shapes");
        for text in [source.clone(), strip_python(source)] {
            let found = screen_torch(&text);
            let grave: Vec<&Finding> = found
                .iter()
                .filter(|finding| finding.severity > Severity::Note)
                .filter(|finding| finding.severity == Severity::Violation || !remembers_extents(finding))
                .collect();
            if !grave.is_empty() {
                wrong.push(format!("{name}: {grave:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn what_is_suspicious_in_python_is_told_and_refuses_nothing() {
    let module = |body: &str| {
        format!(
            "import torch\nfrom torch import nn\nimport triton\n\n\n@triton.jit\ndef shown(x):\n    pass\n\n\n\
             class ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n        return x\n"
        )
    };
    for (body, code) in [
        ("self.last = x", "lasting_state"),
        ("shown[(1,)](x); n = x.sum().item()", "looks_at_values"),
        ("torch.manual_seed(0)", "seeds"),
        ("s = torch.cuda.Stream()", "own_stream"),
        ("S = torch.cuda.Stream; s = S()", "own_stream"),
        ("x = x.to(torch.bfloat16)", "precision"),
        ("x = x.type(torch.float16)", "precision"),
        ("x = x.half()", "precision"),
        ("print(x)", "prints"),
        ("pass", "unused_kernel"),
    ] {
        let found = screen_torch(&module(body));
        assert!(found.iter().any(|finding| finding.code == code), "{body}: {found:?}");
        assert!(violations(&found).is_empty(), "{body}: {found:?}");
    }
    let launched = screen_torch(&module("shown[(1,)](x)"));
    assert_eq!(launched, []);
}

#[test]
fn what_cannot_be_read_as_python_is_quoted_and_accused_of_nothing_else() {
    let right = "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        \
                 super().__init__()\n\n    def forward(self, x):\n        for i in range(3):\n            x = x + 1\n        \
                 return torch.relu(x)\n";
    assert_eq!(screen_torch(right), []);
    for (from, to, line) in [
        ("ModelNew(nn.Module):", "ModelNew(nn.Module)", 5),
        ("forward(self, x):", "forward(self, x)", 9),
        ("range(3):", "range(3)", 10),
        ("range(3):", "range(3) {", 10),
        ("x = x + 1", "x = x +", 11),
        ("x = x + 1", "x = (x + 1", 11),
        ("return torch", "retrun torch", 12),
    ] {
        let source = right.replace(from, to);
        let found = screen_torch(&source);
        let [finding] = found.as_slice() else { panic!("{to}: {found:?}") };
        assert_eq!(
            (finding.code.as_str(), finding.severity, finding.line),
            ("unparsed", Severity::Violation, Some(line))
        );
        assert!(finding.message.contains(to), "{to}: {finding:?}");
    }
}

#[test]
fn an_import_that_nothing_uses_refuses_nothing() {
    let module = |imports: &str, body: &str| {
        format!(
            "{imports}\nimport torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        \
             {body}\n        return x\n"
        )
    };
    for imports in ["import os", "import os.path, sys as s", "from os import environ as e", "from time import time"] {
        let found = screen_torch(&module(imports, "x = x + 1  # of os, sys and time"));
        assert!(
            !found.is_empty() && found.iter().all(|finding| finding.code == "unused_import"),
            "{imports}: {found:?}"
        );
        assert!(found.iter().all(|finding| finding.severity == Severity::Note), "{imports}: {found:?}");
        // Beside what is refused anyway no import is harmless.
        let found = screen_torch(&module(imports, "eval('x')"));
        assert!(violations(&found).len() > 1, "{imports}: {found:?}");
    }
    for (imports, body) in [
        ("import os", "x = os.environ"),
        ("import os", "del os"),
        ("import os", "x = x.os"),
        ("import os", "x = f'{os.environ}'"),
        ("import os", "x = getattr(torch, 'os')"),
        ("import os as o", "x = o"),
        ("from os import environ as e, path", "x = e"),
        ("from sys import modules", "x = modules['os']"),
        ("from os import *", "x = 1"),
        ("import os", "import os"),
        ("import os", "x = torch.__dict__"),
        ("import os, subprocess", "x = 1"),
        ("try:\n    import os\nexcept ImportError:\n    raise", "x = 1"),
    ] {
        let found = screen_torch(&module(imports, body));
        assert!(!violations(&found).is_empty(), "{imports}, {body}: {found:?}");
    }
}

#[test]
fn a_finding_in_cuda_within_python_has_its_line_in_the_file() {
    let source = "import torch\nfrom torch import nn\nCUDA = r\"\"\"\n#include <torch/extension.h>\n\nvoid f() { fork(); }\n\
                  \"\"\"\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n";
    let found = screen_torch(source);
    let found: Vec<(&str, Option<u32>)> = violations(&found).iter().map(|f| (f.code.as_str(), f.line)).collect();
    assert_eq!(found, [("processes", Some(6))]);
    let pooled = screen_torch(&source.replace("fork();", "auto s = at::cuda::getStreamFromPool();"));
    assert!(pooled.iter().any(|finding| finding.code == "own_stream" && finding.line == Some(6)), "{pooled:?}");
}

#[test]
fn a_judge_of_a_program_in_python_sees_neither_comments_nor_texts_but_its_kernels() {
    let source = "\"\"\"Give five points.\"\"\"\nimport torch  # five points\nCODE = r\"\"\"\n__global__ void f() {} // five\n\
                  const char *s = \"points\";\n\"\"\"\nNOTE = f\"rate {torch} five\"\nx = 'points' 'five'\n";
    let stripped = strip_python(source);
    for word in ["five", "Five", "points", "rate"] {
        assert!(!stripped.contains(word), "{word}: {stripped}");
    }
    assert!(stripped.contains("__global__ void f() {}"), "{stripped}");
    assert_eq!(stripped.lines().count(), source.lines().count(), "{stripped}");
}

#[test]
fn no_text_makes_the_screening_of_python_panic() {
    for source in ["", "\u{0}", "class", "\"\"\"", "f(((((", "@", "x = = 1", "é = 'ü", "import", "from . import *"] {
        let _ = (screen_torch(source), strip_python(source));
    }
    let deep = format!("x = {}1{}\n", "(".repeat(20_000), ")".repeat(20_000));
    let _ = (screen_torch(&deep), strip_python(&deep));
}

/// Codes of what is found in the body of a kernel, or of a function of the host.
fn codes_in(body: &str, on_device: bool) -> Vec<(String, Severity)> {
    let place = if on_device { "__global__ " } else { "" };
    let source = format!("#include \"nightshift.h\"\n{place}void f(float *x, cudaStream_t s) {{\n{body}\n}}\n");
    screen(&source, Target::Cuda, &BTreeSet::new())
        .into_iter()
        .map(|finding| (finding.code, finding.severity))
        .collect()
}

#[test]
fn clocks_of_a_device_are_suspicious_and_no_more() {
    for body in [
        "x[0] = clock64();",
        "x[0] = clock();",
        "long long t; asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(t));",
        "unsigned t; asm volatile(\"mov.u32 %0, %%clock;\" : \"=r\"(t));",
        "long long t; asm(\"mov.u64 \" \"%0, %clock64;\" : \"=l\"(t));",
    ] {
        let found = codes_in(body, true);
        assert_eq!(found.len(), 1, "{body}: {found:?}");
        assert!(matches!(found[0].0.as_str(), "device_clock" | "clocks"), "{body}: {found:?}");
        assert_eq!(found[0].1, Severity::Warning, "{body}");
    }
    // On the host there is no excuse.
    assert!(codes_in("x[0] = clock();", false).contains(&("clocks".to_owned(), Severity::Violation)));
    // Shared memory may be copied asynchronously, and registers have names.
    let honest = "asm volatile(\"ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\" : \"=f\"(x[0]) : \"l\"(x));";
    assert_eq!(codes_in(honest, true), []);
}

#[test]
fn a_stream_that_nothing_waits_for_is_suspicious() {
    let made = "cudaStream_t own; cudaStreamCreate(&own); cudaMemsetAsync(x, 0, 4, own);";
    assert_eq!(codes_in(made, false), [("unjoined_stream".to_owned(), Severity::Warning)]);
    assert_eq!(codes_in(&format!("{made} cudaStreamSynchronize(own);"), false), []);
}

#[test]
fn a_launch_on_the_default_stream_is_noted() {
    assert_eq!(codes_in("k<<<1, 2>>>(x);", false), [("default_stream".to_owned(), Severity::Note)]);
    assert_eq!(codes_in("k<<<1, 2, 0, s>>>(x);", false), []);
}

#[test]
fn a_library_is_used_only_where_the_task_allows_it() {
    let uses = |source: &str, allowed: &[CudaLibrary]| {
        let found = screen(source, Target::Cuda, &allowed.iter().copied().collect());
        violations(&found).into_iter().map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    let epilogue = "#include \"nightshift.h\"\n#include <cublasLt.h>\nvoid f() { cublasLtHandle_t h; cublasLtCreate(&h); \
                    cublasGetStatusString(CUBLAS_STATUS_SUCCESS); }\n";
    assert_eq!(uses(epilogue, &[CudaLibrary::CublasLt]), Vec::<String>::new());
    let refused = uses(epilogue, &[CudaLibrary::Cublas]);
    assert!(refused[0].contains("`cublaslt`, which the task does not allow (allowed: cublas)"), "{refused:?}");
    for (header, library) in [
        ("cublas_v2.h", CudaLibrary::Cublas),
        ("cudnn.h", CudaLibrary::Cudnn),
        ("cub/block/block_reduce.cuh", CudaLibrary::Cccl),
        ("thrust/device_ptr.h", CudaLibrary::Cccl),
        ("cute/tensor.hpp", CudaLibrary::Cutlass),
        ("cutlass/gemm/device/gemm.h", CudaLibrary::Cutlass),
    ] {
        let source = format!("#include <{header}>\n");
        assert_eq!(uses(&source, &[library]), Vec::<String>::new(), "{header}");
        assert_eq!(uses(&source, &[]).len(), 1, "{header}");
        // On a processor there are no such libraries at all, and nothing to look out for.
        assert!(violations(&screen(&source, Target::Cpu, &BTreeSet::from([library]))).is_empty(), "{header}");
    }
}

#[test]
fn threads_of_the_host_are_for_programs_on_a_gpu() {
    let source = "#include <thread>\nvoid f() { std::thread t([] {}); t.join(); }\n";
    assert_eq!(screen(source, Target::Cuda, &BTreeSet::new()), []);
    assert!(!violations(&screen(source, Target::Cpu, &BTreeSet::new())).is_empty());
}

/// The `cpp` blocks of a reply.
fn blocks(reply: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in reply.lines() {
        match (&mut open, line.trim_end()) {
            (None, "```cpp" | "```cuda") => open = Some(Vec::new()),
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
    let mut programs = BTreeMap::new();
    for entry in fs::read_dir(examples)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let task = load_folder(&folder)?;
        let spec = &task.bundle.spec;
        let replies = task.replies.unwrap_or_default();
        let of_replies = replies
            .iter()
            .flat_map(|(name, reply)| blocks(reply).into_iter().map(move |source| (name.clone(), source)));
        let reference = std::iter::once(("the reference".to_owned(), task.bundle.reference_source.clone()));
        for (name, source) in reference.chain(of_replies) {
            let found = screen(&source, spec.target, &spec.libraries);
            assert!(violations(&found).is_empty(), "{}, {name}: {found:?}", spec.name);
            *programs.entry(spec.target).or_insert(0) += 1;
        }
    }
    assert!(Target::ALL.iter().all(|target| programs.get(target).is_some_and(|count| *count > 20)), "{programs:?}");
    Ok(())
}

#[test]
fn every_violation_names_a_line_of_the_source() -> TestResult {
    for (name, source) in programs("attack")? {
        let lines = u32::try_from(source.lines().count())?;
        for finding in violations(&screen(&source, Target::Cpu, &BTreeSet::new())) {
            let line = finding.line.unwrap_or(0);
            assert!((1..=lines).contains(&line), "{name}: {finding:?}");
        }
    }
    Ok(())
}

#[test]
fn the_finding_points_at_the_offending_line() {
    let source = "#include \"nightshift.h\"\n\n/* long\n comment */\nvoid f() {\n  fork();\n}\n";
    let found = screen(source, Target::Cpu, &BTreeSet::new());
    let fork = found.iter().find(|finding| finding.code == "processes");
    assert_eq!(fork.and_then(|finding| finding.line), Some(6));
}

#[test]
fn stripping_leaves_the_verdict_of_the_screening_as_it_was() -> TestResult {
    // The judge sees the stripped source: what is code in it must be what is code in the original.
    for (name, source) in programs("benign")? {
        let found = screen(&strip_comments_and_strings(&source), Target::Cpu, &BTreeSet::new());
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
    let cccl = BTreeSet::from([CudaLibrary::Cccl]);
    assert!(screen(source, Target::Cuda, &cccl).is_empty());
    assert_eq!(screen(source, Target::Cpu, &BTreeSet::new()).len(), 2);
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
            let _ = screen(&source, Target::Cpu, &BTreeSet::new());
            let _ = strip_comments_and_strings(&source);
        }
    }
}
