//! The page of an attempt, with a recorded one and with hostile ones.

mod result;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AttemptOutcome, EarlierVersion};
use nightshift_protocol::attempt_memory::{Candidate, Correction, Gain};
use nightshift_protocol::measurement::CompilerMessage;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::profile::{KernelTime, Times};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};

use super::material::CallTexts;
use super::*;
use crate::page::sample::Sample;
use crate::trace::Trace;

/// Largest page of an attempt, in bytes, before it is compressed.
const MAX_PAGE_BYTES: usize = 6 << 20;

fn material(sample: &Sample, attempt: &Attempt, against: Option<&Attempt>) -> Material {
    let stored = |hash: &ArtifactHash| {
        sample.text(hash).map_or_else(|| Stored::Gone("not in the sample".to_owned()), Stored::Here)
    };
    Material {
        source: attempt.source.as_ref().map_or(Stored::Never, stored),
        other: against
            .map(|other| (format!("attempt {}", other.number), other.source.as_ref().map_or(Stored::Never, stored))),
        build_log: attempt.build.as_ref().map_or(Stored::Never, |build| stored(&build.log)),
        calls: attempt.calls.iter().map(|call| call_texts(call, stored)).enumerate().collect(),
        trace: Ok(Sample::trace()),
        steps: sample.steps.clone(),
        ..Material::default()
    }
}

fn call_texts(call: &ModelCallSummary, stored: impl Fn(&ArtifactHash) -> Stored) -> CallTexts {
    CallTexts {
        prompt: stored(&call.prompt),
        reasoning: call.reasoning.as_ref().map_or(Stored::Never, &stored),
        reply: stored(&call.reply),
    }
}

fn html(sample: &Sample, attempt: &Attempt, material: &Material, look: &Look) -> String {
    report::with_links(page(&sample.detail, attempt, material, look, "Night"))
}

/// Every tab, one below the other.
fn whole() -> Look {
    Look::default().whole()
}

/// What stands between `<` and `>`; quoted values hold neither.
fn tags(html: &str) -> impl Iterator<Item = &str> {
    let body = html.split("<body").nth(1).unwrap_or_default();
    body.split('<').skip(1).filter_map(|rest| rest.split('>').next())
}

/// The words of a page: its text without tags.
fn spoken(html: &str) -> String {
    let body = html.split("<body").nth(1).unwrap_or_default();
    let mut text = String::new();
    let mut in_tag = true;
    for character in body.chars() {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => in_tag = false,
            other if !in_tag => text.push(other),
            _ => {}
        }
    }
    text.replace("&amp;", "&")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&#x27;", "'")
}

fn fourth(sample: &Sample) -> Attempt {
    sample
        .detail
        .view
        .attempts
        .iter()
        .find(|attempt| attempt.number == 4)
        .cloned()
        .unwrap_or_else(|| panic!("attempt 4"))
}

#[test]
fn everything_that_is_known_about_an_attempt_is_on_its_page() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &whole());
    let words = spoken(&html);
    let parts = [
        "1.51× (1.48 to 1.55)",
        "at 95 % confidence",
        "Numerically correct",
        "interleaved pairs",
        "Hold the row in registers",
        "softmax_in_registers(const float4 *, float4 *, long, int)",
        "_Z20softmax_in_registersPK6float4PS_li",
        "compute_90a",
        "Bound by launch, by timeline and hardware counters.",
        "long scoreboard",
        "38 °C",
        "NVIDIA H200",
        "GPU-ed128917",
        "the subtask is about the heaviest operator",
        "Stores that bypass the cache",
        "the Verifier sees nothing more to gain",
        "You are the Coder",
        "no capabilities",
        "memcheck",
        "48.4 %",
        "tensor cores, 16 bit",
        "2.448",
    ];
    for part in parts {
        assert!(words.contains(part), "{part} is missing");
    }
    for anchor in [
        "result",
        "baselines",
        "verdict",
        "source",
        "timing",
        "checks",
        "build",
        "bound",
        "kernels",
        "timeline",
        "tools",
        "counters",
        "roofline",
        "rubric",
        "conversation",
        "artifacts",
    ] {
        assert!(html.contains(&format!("id=\"{anchor}\"")), "{anchor}");
    }
    assert!(html.len() < MAX_PAGE_BYTES, "{}", html.len());
}

#[test]
fn the_conclusion_comes_before_what_it_rests_on() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let html = |attempt: &Attempt| html(&sample, attempt, &material(&sample, attempt, None), &whole());
    let whole = html(&attempt);
    let place = |anchor: &str| whole.find(&format!("id=\"{anchor}\"")).unwrap_or(usize::MAX);
    assert!(whole.find("class=\"strip\"").is_some_and(|strip| strip < place("result")));
    assert!(place("result") < place("verdict") && place("verdict") < place("diagnosis"));
    assert!(place("diagnosis") < place("roofline") && place("timeline") < place("source"));
    assert!(
        whole.contains("Calls with right results (25)") && !whole.contains(">wrong<"),
        "what passed is folded away"
    );
    assert!(whole.contains("<title>cuda_row_softmax, attempt 4 of run "), "tabs of several runs are told apart");
    for case in attempt.check.iter_mut().flat_map(|check| &mut check.cases).take(2) {
        case.passed = false;
    }
    let wrong = html(&attempt);
    let place = |words: &str| wrong.find(words).unwrap_or(usize::MAX);
    assert!(place(">wrong<") < place("Calls with right results (23)"), "what is wrong is read first");
}

#[test]
fn what_a_program_said_last_stands_beside_how_it_ended() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    if let Some(check) = &mut attempt.check {
        check.end = ProcessEnd::CallFailed { entry_point: "forward".to_owned(), status: 1 };
        check.printed = "  File \"candidate.py\", line 9\nValueError: <b>boom\u{1b}[2J\n".to_owned();
    }
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &whole());
    let words = spoken(&html);
    assert!(words.contains("`forward` returned the error status 1: ValueError: <b>boom\u{fffd}[2J"), "{words}");
    assert!(words.contains("Its last words"), "{words}");
}

#[test]
fn replies_from_files_have_neither_tokens_nor_a_price() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    assert!(attempt.calls.iter().all(|call| call.scripted));
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &whole());
    let talk = html.split("id=\"conversation\"").nth(1).and_then(|rest| rest.split("</table>").next());
    let talk = talk.unwrap_or_default();
    assert!(talk.contains('–') && !talk.contains("not known") && !talk.contains("0 ns"), "{talk}");
}

/// Every text and number in the stored form of an attempt is somewhere on its page, in one form or another.
#[test]
fn no_text_of_an_attempt_is_left_out() {
    fn texts(value: &serde_json::Value, path: &str, found: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::String(text) => found.push((path.to_owned(), text.clone())),
            serde_json::Value::Array(items) => items.iter().for_each(|item| texts(item, path, found)),
            serde_json::Value::Object(fields) => {
                fields.iter().for_each(|(name, field)| texts(field, &format!("{path}.{name}"), found));
            }
            _ => {}
        }
    }
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &whole());
    let words = format!("{} {html}", spoken(&html));
    let mut found = Vec::new();
    texts(&serde_json::to_value(&attempt).unwrap_or_default(), "", &mut found);
    assert!(found.len() > 300, "{}", found.len());
    // Names that pages say in words of their own, and what only machines need.
    let said_otherwise = [
        "pass",
        "finished",
        "clean",
        "from_scratch",
        "rule",
        "end",
        "timeline",
        "kernels",
        "code",
        "roofline",
        "rated",
        "shared",
    ];
    let missing: Vec<_> = found
        .into_iter()
        .filter(|(path, text)| {
            let shown = crate::format::words(text);
            let is_shown = words.contains(text.as_str()) || words.contains(&shown);
            let is_of_the_compilers = path.contains("machine.cpp_toolchain") || path.contains("machine.cuda_toolchain");
            !is_shown && !said_otherwise.contains(&text.as_str()) && !is_of_the_compilers
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_source_is_compared_with_what_the_address_names() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let parent = sample.detail.view.attempts.iter().find(|other| Some(other.number) == attempt.parent);
    for (view, class) in [("inline", "diff inline"), ("split", "diff split")] {
        let look = Look::of(&[("diff".to_owned(), "parent".to_owned()), ("view".to_owned(), view.to_owned())]);
        let html = html(&sample, &attempt, &material(&sample, &attempt, parent), &look);
        assert!(html.contains(class), "{view}");
        assert!(spoken(&html).contains("From attempt 3 to this one:"));
    }
    let look = Look::of(&[("diff".to_owned(), "99".to_owned())]);
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &look);
    assert!(spoken(&html).contains("There is no `99` to compare it with."));
}

#[test]
fn counters_are_held_against_a_pinned_attempt() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let look = Look::of(&[("pin".to_owned(), "3".to_owned())]);
    let words = spoken(&html(&sample, &attempt, &material(&sample, &attempt, None), &look));
    assert!(words.contains("Difference") && words.contains("which is pinned"), "{words}");
}

#[test]
fn what_is_gone_is_said_to_be_gone() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let gone = || Stored::Gone("it was pruned (artifact.not_found)".to_owned());
    let material = Material {
        source: gone(),
        build_log: gone(),
        calls: (0..attempt.calls.len())
            .map(|place| (place, CallTexts { prompt: gone(), reasoning: gone(), reply: gone() }))
            .collect(),
        trace: Err(material::NoTrace::Gone("it was pruned".to_owned())),
        ..Material::default()
    };
    let words = spoken(&html(&sample, &attempt, &material, &whole()));
    assert!(words.contains("The source cannot be shown: it was pruned"), "{words}");
    assert!(words.contains("Prompt cannot be shown") && words.contains("The trace cannot be had"));
}

#[test]
fn attempts_that_failed_early_have_a_page_too() {
    let sample = Sample::read();
    for attempt in &sample.detail.view.attempts {
        let bare =
            Attempt { build: None, check: None, measurement: None, profile: None, rubric: None, ..attempt.clone() };
        let words = spoken(&html(&sample, &bare, &Material::default(), &whole()));
        assert!(words.contains("it was not timed") || words.contains("confirmed"), "{words}");
        assert!(
            words.contains("nothing is known about what it does") && !words.contains("No cheating detected"),
            "{words}"
        );
    }
}

#[test]
fn versions_that_were_fixed_are_listed_with_the_reason_and_the_output_of_the_compiler() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let source = Look::of(&[("tab".to_owned(), "source".to_owned())]);
    let shown = |attempt: &Attempt| html(&sample, attempt, &Material::default(), &source);
    assert!(!spoken(&shown(&attempt)).contains("Earlier versions"));
    let mut build = attempt.build.clone().unwrap_or_else(|| panic!("it was built"));
    build.log = ArtifactHash::of(b"what nvcc said");
    build.library = None;
    build.messages = vec![CompilerMessage {
        file: "candidate.cu".to_owned(),
        line: 17,
        column: 3,
        severity: "error".to_owned(),
        message: "identifier \"warp\" is undefined".to_owned(),
    }];
    let (earlier, outcome) = (ArtifactHash::of(b"earlier"), AttemptOutcome::CompileFailed);
    let log = build.log.clone();
    let version = EarlierVersion { build: Some(build), ..EarlierVersion::new(earlier.clone(), outcome, Vec::new()) };
    attempt.earlier_versions = vec![version];
    let html = shown(&attempt);
    let words = spoken(&html);
    for said in ["Earlier versions", "compile failed", "line 17: identifier"] {
        assert!(words.contains(said), "{said} in {words}");
    }
    assert!(html.contains(earlier.as_str()) && html.contains(log.as_str()), "both can be downloaded");
}

#[test]
fn messages_about_headers_do_not_lead_to_lines_of_the_program() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let message = |file: &str, line| CompilerMessage {
        file: file.to_owned(),
        line,
        column: 3,
        severity: "warning".to_owned(),
        message: format!("said about {file}"),
    };
    if let Some(build) = &mut attempt.build {
        build.messages = vec![message("candidate.cu", 7), message("vector.hpp", 9)];
    }
    let source = Look::of(&[("tab".to_owned(), "source".to_owned())]);
    let html = html(&sample, &attempt, &material(&sample, &attempt, None), &source);
    assert!(
        html.contains("href=\"#L7\">candidate.cu:7:3") && html.contains("<td class=\"\">vector.hpp:9:3</td>"),
        "{html}"
    );
    let note = |file: &str| html.contains(&format!("data-words=\"warning: said about {file}\""));
    assert!(note("candidate.cu") && !note("vector.hpp"));
}

#[test]
fn a_source_that_is_cut_is_downloaded_and_not_copied() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let source = Look::of(&[("tab".to_owned(), "source".to_owned()), ("as".to_owned(), "model-new".to_owned())]);
    let shown = |text: &str| {
        let text = || Stored::Here(text.to_owned());
        let material = Material { source: text(), model_new: text(), ..Material::default() };
        html(&sample, &attempt, &material, &source)
    };
    let (whole, cut) =
        (shown("int x;\n"), shown(&"a + b * c;".repeat(120).lines().cycle().take(400).collect::<Vec<_>>().join("\n")));
    assert_eq!(whole.matches("-text\" class=\"needs-script\">Copy</button>").count(), 2, "{whole}");
    assert!(!whole.contains("too long to be shown whole"));
    assert_eq!((cut.matches("data-copy=").count(), cut.matches("too long to be shown whole").count()), (0, 2));
    assert!(cut.contains(">Download<") && cut.contains("more lines are not shown"));
}

#[test]
fn every_call_can_be_opened_however_many_there_are() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    attempt.calls = attempt.calls.iter().cloned().cycle().take(60).collect();
    let places = |talk: &str| {
        let query = [("tab", "conversation"), ("talk", talk)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        material::shown_calls(&attempt, &Look::of(&query)).map(|(place, _)| place).collect::<Vec<_>>()
    };
    assert_eq!(places("55"), [55]);
    assert_eq!((places("all").len(), places("all").last().copied()), (40, Some(39)));
    let material = Material { calls: [(55, CallTexts::default())].into(), ..Material::default() };
    let query = [("tab".to_owned(), "conversation".to_owned()), ("talk".to_owned(), "55".to_owned())];
    let html = html(&sample, &attempt, &material, &Look::of(&query));
    assert_eq!(html.matches("Show the prompt and the reply").count(), 59, "{html}");
}

/// A text that an attacker could store to run scripts in the page.
const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onload=\"alert(1) \u{202e}evil\u{0}\u{1b}[31m&lt;";

#[test]
fn hostile_texts_stay_texts_everywhere() {
    let sample = Sample::read();
    let mut detail = sample.detail.clone();
    detail.summary.digest.task = HOSTILE.to_owned();
    let mut attempt = fourth(&sample);
    attempt.findings = vec![Finding {
        code: HOSTILE.to_owned(),
        severity: Severity::Violation,
        message: HOSTILE.to_owned(),
        line: Some(2),
    }];
    attempt.earlier_versions =
        vec![EarlierVersion::new(ArtifactHash::of(b"earlier"), AttemptOutcome::NotCompliant, attempt.findings.clone())];
    attempt.correction = Some(Correction {
        critical_issue: HOSTILE.to_owned(),
        why_it_matters: HOSTILE.to_owned(),
        minimal_fix: HOSTILE.to_owned(),
    });
    attempt.gain = Some(Gain { over: 3, expected: Some(f64::NAN), measured: f64::INFINITY });
    attempt.candidate = Some(Candidate { number: 1, of: 4, group: Some(1) });
    if let Some(modification) = &mut attempt.modification {
        modification.text = HOSTILE.to_owned();
    }
    if let Some(check) = &mut attempt.check {
        check.printed = HOSTILE.to_owned();
    }
    if let Some(profile) = &mut attempt.profile {
        profile.kernels.iter_mut().for_each(|kernel| kernel.name = HOSTILE.to_owned());
        profile.tiers.iter_mut().for_each(|tier| tier.reason = Some(HOSTILE.to_owned()));
    }
    let texts = || Stored::Here(format!("{HOSTILE}\n{HOSTILE}\n"));
    let material = Material {
        source: texts(),
        other: Some((HOSTILE.to_owned(), texts())),
        build_log: texts(),
        calls: (0..attempt.calls.len())
            .map(|place| (place, CallTexts { prompt: texts(), reasoning: texts(), reply: texts() }))
            .collect(),
        trace: Trace::read(&hostile_trace()).map_err(material::NoTrace::Unreadable),
        ..Material::default()
    };
    let look = Look::of(&[("diff".to_owned(), "baseline".to_owned())]);
    let html = report::with_links(page(&detail, &attempt, &material, &look, HOSTILE));
    for tag in tags(&html) {
        assert!(!tag.starts_with("script") && !tag.starts_with("img"), "{tag}");
        // What stands outside of the quotes of a tag are names of ours.
        let names: String = tag.split('"').step_by(2).collect();
        assert!(!names.contains("alert") && !names.contains("onload"), "{tag}");
    }
    assert!(!html.contains('\u{0}') && !html.contains('\u{1b}'), "control characters are shown as symbols");
    assert!(html.contains("[U+202E]evil"));
}

fn hostile_trace() -> Vec<u8> {
    let event =
        serde_json::json!({ "ph": "X", "name": HOSTILE, "cat": "kernel", "pid": 2, "tid": 7, "ts": 1.0, "dur": 2.0 });
    serde_json::json!({ "traceEvents": [event] }).to_string().into_bytes()
}

#[test]
fn ten_thousand_kernels_and_a_line_of_ten_megabytes_are_a_bounded_page() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let times = Times { count: 3, total_ns: 30, min_ns: 1, max_ns: 20 };
    if let Some(profile) = &mut attempt.profile {
        let kernel = profile.kernels.first().cloned().unwrap_or_default();
        profile.kernels = vec![kernel; 10_000];
        if let Some(timeline) = &mut profile.timeline {
            timeline.kernels = (0..10_000)
                .map(|n| KernelTime { name: format!("kernel {n}"), times, ..KernelTime::default() })
                .collect();
        }
    }
    if let Some(cuda) = attempt.build.as_mut().and_then(|build| build.cuda.as_mut()) {
        let kernel = cuda.kernels.first().cloned().unwrap_or_default();
        cuda.kernels = vec![kernel; 10_000];
    }
    let long = "x".repeat(10 << 20);
    let texts = || Stored::Here(long.clone());
    let material = Material {
        source: texts(),
        other: Some(("the baseline".to_owned(), Stored::Here(format!("{long}y")))),
        build_log: texts(),
        calls: (0..attempt.calls.len())
            .map(|place| (place, CallTexts { prompt: texts(), reasoning: texts(), reply: texts() }))
            .collect(),
        trace: Trace::read(&crate::trace::tests::sample(10_000)).map_err(material::NoTrace::Unreadable),
        ..Material::default()
    };
    let look = Look::of(&[("diff".to_owned(), "baseline".to_owned())]);
    let html = html(&sample, &attempt, &material, &look);
    assert!(html.len() < MAX_PAGE_BYTES, "{} bytes", html.len());
    assert!(spoken(&html).contains("1 lines added, 1 removed"), "the difference beyond what is shown counts");
}
