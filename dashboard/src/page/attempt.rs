//! One attempt: the five answers, the evidence, the source.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::gpu_text;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::rubric::{JudgeOpinion, RubricScores};

use crate::format::{answer, nanoseconds, speedup};
use crate::shell::{Page, Section, model_label};

/// The page.
pub(crate) fn page(detail: &RunDetail, attempt: &Attempt, source: Option<&str>, log: Option<&str>) -> Page {
    let task = detail.summary.digest.task.clone();
    let title = format!("{task}, attempt {}", attempt.number);
    let share = attempt
        .verdict
        .custom_kernel_time_share
        .map_or_else(|| "not known".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let findings = attempt
        .findings
        .iter()
        .map(|finding| {
            let line = finding.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            view! { <li><code>{finding.code.clone()}</code>" "{line}{finding.message.clone()}</li> }
        })
        .collect::<Vec<_>>();
    let (campaign, run) = (&detail.summary.campaign, &detail.summary.id);
    let (above, above_it) = (format!("/campaigns/{campaign}"), format!("/runs/{run}"));
    Page::new(
        title,
        view! {
            <h1>"Attempt "{attempt.number}</h1>
            <p class="quiet">
                {attempt.stage.as_str()}" · "
                <span class=format!("tag {}", attempt.outcome.as_str())>{attempt.outcome.as_str().replace('_', " ")}</span>
                " · replies: "{model_label(&detail.summary.digest.model, detail.summary.digest.scripted)}
            </p>
            <h2>"Verdict"</h2>
            <dl>
                <dt>"Compiled"</dt><dd>{answer(attempt.verdict.compiled)}</dd>
                <dt>"Numerically correct"</dt><dd>{answer(attempt.verdict.numerically_correct)}</dd>
                <dt>"Contract compliant"</dt><dd>{answer(attempt.verdict.contract_compliant)}</dd>
                <dt>"Fast"</dt><dd>{answer(attempt.verdict.fast)}</dd>
                <dt>"Time in own kernels"</dt><dd>{share}</dd>
            </dl>
            {(!findings.is_empty()).then(|| view! { <h2>"Findings"</h2><ul>{findings}</ul> })}
            {tuning(attempt)}
            {attempt.measurement.as_ref().map(|m| measurement("Measurement", m))}
            {attempt.confirmation.as_ref().map(|m| measurement("Confirmation in a fresh process", m))}
            {check(attempt)}
            {gpu(attempt)}
            {diagnosis(attempt)}
            {rubric(attempt)}
            {log.filter(|log| !log.trim().is_empty()).map(|log| view! { <h2>"Compiler output"</h2><pre>{log.to_owned()}</pre> })}
            {source.map(|source| view! { <h2>"Source"</h2><pre>{source.to_owned()}</pre> })}
        },
    )
    .section(Section::Campaigns)
    .crumb("Campaigns", "/")
    .crumb("Campaign", above)
    .crumb(task, above_it)
}

/// The search over its tunables.
fn tuning(attempt: &Attempt) -> Option<impl IntoView + use<>> {
    let report = attempt.tuning.as_ref()?;
    let lines = report.lines().into_iter().map(|line| view! { <li>{line}</li> }).collect::<Vec<_>>();
    Some(view! { <h2>"Tuning"</h2><p>{report.summary()}</p><ul>{lines}</ul> })
}

fn measurement(title: &'static str, m: &Measurement) -> impl IntoView + use<> {
    let interval = format!("{} at {:.0} % confidence", speedup(m.speedup), m.confidence * 100.0);
    let samples = format!(
        "{} interleaved pairs, coefficient of variation {:.1} % and {:.1} %",
        m.candidate_samples_ns.len(),
        m.baseline_cv * 100.0,
        m.candidate_cv * 100.0
    );
    view! {
        <h2>{title}</h2>
        <dl>
            <dt>"Speedup"</dt><dd>{interval}{(!m.precise).then_some(", wanted precision not reached")}</dd>
            <dt>"Candidate"</dt><dd>{nanoseconds(m.candidate_median_ns)}</dd>
            <dt>"Baseline"</dt><dd>{nanoseconds(m.baseline_median_ns)}" ("{m.baseline.clone()}")"</dd>
            <dt>"Samples"</dt><dd>{samples}</dd>
            <dt>"Machine"</dt><dd>{m.machine.processor.clone()}</dd>
            <dt>"Isolation"</dt><dd>{m.sandbox.summary()}</dd>
        </dl>
    }
}

fn check(attempt: &Attempt) -> Option<impl IntoView + use<>> {
    let report = attempt.check.as_ref()?;
    let rows = report
        .cases
        .iter()
        .map(|case| {
            let worst = case.worst.as_ref().map(|worst| {
                let index = worst.index.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                let given = worst.candidate.map_or_else(|| "not finite".to_owned(), |value| value.to_string());
                format!("{}[{index}]: {given}, truth {}", worst.tensor, worst.truth)
            });
            view! {
                <tr>
                    <td>{case.shape.clone()}</td><td>{case.inputs.clone()}</td>
                    <td>{if case.passed { "right" } else { "wrong" }}</td>
                    <td class="number">{case.wrong_elements}" of "{case.elements}</td>
                    <td class="quiet">{worst}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    Some(view! {
        <h2>"Checks"</h2>
        <p>{report.end.describe()}</p>
        <div class="scroll">
            <table>
                <thead>
                    <tr><th>"Shape"</th><th>"Inputs"</th><th>"Result"</th><th class="number">"Wrong"</th><th>"Worst element"</th></tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    })
}

/// What a GPU adds: the kernels as they were built, the sanitizer's checks, and what the profilers saw.
fn gpu(attempt: &Attempt) -> impl IntoView + use<> {
    let built = attempt.build.as_ref().and_then(|build| build.cuda.as_ref()).map(gpu_text::built);
    let checks = attempt.sanitize.as_ref().map(gpu_text::sanitizer);
    let profile = attempt.profile.as_ref();
    let timeline = profile.and_then(|profile| profile.timeline.as_ref()).map(gpu_text::timeline);
    let counters = profile.map(|profile| gpu_text::counters(&profile.kernels));
    let bound = profile.and_then(|profile| profile.bound.as_ref()).map(|by| vec![gpu_text::bound(by)]);
    let missing = profile.filter(|profile| !profile.tiers.is_empty()).map(|profile| gpu_text::missing(profile, true));
    [
        ("Kernels as they were built", built),
        ("Memory and races", checks),
        ("Bound by", bound),
        ("On the device", timeline),
        ("Hardware counters", counters),
        ("Not seen", missing),
    ]
    .into_iter()
    .filter_map(|(title, lines)| lines.filter(|lines| !lines.is_empty()).map(|lines| (title, lines)))
    .map(|(title, lines)| {
        let lines = lines.into_iter().map(|line| view! { <li>{line}</li> }).collect::<Vec<_>>();
        view! { <h2>{title}</h2><ul>{lines}</ul> }
    })
    .collect::<Vec<_>>()
}

fn diagnosis(attempt: &Attempt) -> Option<impl IntoView + use<>> {
    let diagnosis = attempt.diagnosis.as_ref()?;
    Some(view! {
        <h2>"Diagnosis"</h2>
        <dl>
            <dt>"Critical issue"</dt><dd>{diagnosis.critical_issue.clone()}</dd>
            <dt>"Modification"</dt><dd>{diagnosis.modification.clone()}</dd>
        </dl>
    })
}

fn rubric(attempt: &Attempt) -> Option<impl IntoView + use<>> {
    let rubric = attempt.rubric.as_ref()?;
    let judge = match &rubric.judge {
        JudgeOpinion::Rated { scores: rated, .. } => scores(*rated),
        JudgeOpinion::JudgeUnavailable { reason } => format!("unavailable: {reason}"),
    };
    let reasons = rubric.rule_reasons.iter().map(|reason| view! { <li>{reason.clone()}</li> }).collect::<Vec<_>>();
    let reward = attempt.reward.as_ref().map(|reward| format!("{:.3} (version {})", reward.reward, reward.version));
    Some(view! {
        <h2>"Rubric"</h2>
        <dl>
            <dt>"By rules"</dt><dd>{scores(rubric.rules)}</dd>
            <dt>"By the judge"</dt><dd>{judge}</dd>
            <dt>"Reward"</dt><dd>{reward}</dd>
        </dl>
        <ul>{reasons}</ul>
    })
}

fn scores(scores: RubricScores) -> String {
    format!(
        "anti-hacking {}, CUDA engineering {}, operator coverage {}, skill compliance {} (total {})",
        scores.anti_hacking,
        scores.cuda_engineering,
        scores.operator_coverage,
        scores.skill_compliance,
        scores.total()
    )
}
