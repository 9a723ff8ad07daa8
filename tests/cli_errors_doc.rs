//! `docs/reference/errors.md` lists every error code of the sources, and none that is not there.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sources::{SHIPPED, root, sources};

/// First segments of codes.
const AREAS: [&str; 48] = [
    "access",
    "agent",
    "answer",
    "archive",
    "artifact",
    "attempt",
    "auth",
    "budget",
    "campaign",
    "command",
    "config",
    "id",
    "internal",
    "mcp",
    "model",
    "delivery",
    "handover",
    "webhook",
    "note",
    "pin",
    "share",
    "tag",
    "view",
    "output",
    "page",
    "profile",
    "reply",
    "resource",
    "reward",
    "rollouts",
    "request",
    "results",
    "run",
    "sandbox",
    "server",
    "signal",
    "step",
    "store",
    "task",
    "token",
    "toolchain",
    "device",
    "gpu",
    "usage",
    "verification",
    "worker",
    "scripted",
    "screen",
];
/// Texts of that form that are no codes: keys of the configuration, names of files, attributes of spans.
const NO_CODES: [&str; 44] = [
    "agent.log",
    "answer.md",
    "request.json",
    "campaign.id",
    "config.toml",
    "device.index",
    "model.price_microusd",
    "model.turn",
    "output.closed",
    "run.id",
    "run.sh",
    "run.status",
    "server.bind",
    "server.json",
    "server.name",
    "server.open_reads",
    "server.otlp_endpoint",
    "server.retention_days",
    "server.token",
    "server.url",
    "server.worker_token",
    "signal.h",
    "step.id",
    "step.key",
    "step.outcome",
    "step.route",
    "step.tries",
    "store.db",
    "task.json",
    "task.toml",
    "worker.cache_dir",
    "worker.cpp_compiler",
    "worker.cpu_slots",
    "worker.cuda_arch",
    "worker.devices",
    "worker.drain_timeout_s",
    "worker.gpu_contexts",
    "worker.id",
    "worker.labels",
    "worker.name",
    "worker.nvcc",
    "worker.profilers",
    "worker.hf_home",
    "worker.python",
];

/// Returns whether a file holds tests, which name codes that do not exist.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

fn is_code(text: &str) -> bool {
    text.split_once('.').is_some_and(|(area, rest)| {
        AREAS.contains(&area)
            && !rest.is_empty()
            && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && !NO_CODES.contains(&text)
    })
}

/// What stands between two marks, line by line.
fn quoted(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.lines().flat_map(move |line| line.split(mark).skip(1).step_by(2))
}

#[test]
fn every_code_is_documented_and_every_documented_code_exists() {
    let root = root();
    let mut codes: BTreeMap<String, PathBuf> = BTreeMap::new();
    let shipped = SHIPPED.iter().flat_map(|folder| sources(&root.join(folder)));
    for (file, text) in shipped.filter(|(file, _)| !is_test(file.strip_prefix(&root).unwrap())) {
        // Codes that only tests name are no codes of ours; log fields have dots too, but stand outside of quotes.
        let text = text.split("#[cfg(test)]").next().unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in quoted(line, '"').filter(|word| is_code(word)) {
                codes.insert(word.to_owned(), file.strip_prefix(&root).unwrap().to_path_buf());
            }
        }
    }
    assert!(codes.len() > 80, "the sources hold many codes: {codes:?}");

    let page = std::fs::read_to_string(root.join("docs/reference/errors.md")).unwrap();
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|code| is_code(code))
        .collect();
    let missing: Vec<String> = codes
        .iter()
        .filter(|(code, _)| !documented.contains(code.as_str()))
        .map(|(code, file)| format!("{code} ({})", file.display()))
        .collect();
    assert!(missing.is_empty(), "not in docs/reference/errors.md: {missing:#?}");
    let gone: Vec<&&str> = documented.iter().filter(|code| !codes.contains_key(**code)).collect();
    assert!(gone.is_empty(), "in docs/reference/errors.md, but nowhere in the sources: {gone:?}");
}
