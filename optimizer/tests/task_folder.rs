//! Task folders: what is wrong with one is said with a stable code, file, line and column.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nightshift_optimizer::task_file::{
    MAX_REFERENCE_BYTES, MAX_TASK_FILE_BYTES, TaskError, bundle, load_folder, parse_spec, run_input,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::campaign::{CampaignSpec, CampaignTask, ModelChoice};
use nightshift_protocol::signal::Gate;
use nightshift_protocol::task::{CudaLibrary, Target, TaskGoal};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const GOOD: &str = r#"schema = 1
name = "row_scale"
title = "Scale rows"
description = "out = x * s"
target = "cpu"
reference = "reference.cpp"
dims = { rows = 8, cols = 16 }
flops = 128.0
inputs = [
    { name = "x", dtype = "f32", shape = ["rows", "cols"] },
    { name = "s", dtype = "f32", shape = ["rows"], distribution = { kind = "uniform", low = 0.5, high = 2.0 } },
]
outputs = [{ name = "out", dtype = "f32", shape = ["rows", "cols"] }]
tolerance = { atol = 1e-6, rtol = 1e-5 }
operators = [{ name = "scale", class = "elementwise" }]
variants = [{ name = "odd", dims = { rows = 3 } }]

[limits]
memory_bytes = 67108864

[goal]
max_attempts = 4
"#;

/// The same task for a GPU.
fn good_on_cuda() -> String {
    GOOD.replace("target = \"cpu\"", "target = \"cuda\"").replace(
        "reference = \"reference.cpp\"",
        "reference = \"reference.cu\"\nlibraries = [\"cublaslt\", \"cutlass\"]\nmin_compute_capability = \"9.0\"",
    )
}

#[test]
fn a_task_for_a_gpu_names_its_libraries_and_the_least_it_needs_of_the_device() -> TestResult {
    let spec = parse_spec(&good_on_cuda(), "task.toml")?;
    assert_eq!(spec.target, Target::Cuda);
    assert_eq!(spec.libraries, BTreeSet::from([CudaLibrary::CublasLt, CudaLibrary::Cutlass]));
    assert_eq!(spec.min_compute_capability.map(|least| least.to_string()).as_deref(), Some("9.0"));
    let plain = GOOD.replace("\"cpu\"", "\"cuda\"").replace("reference.cpp", "reference.cu");
    let spec = parse_spec(&plain, "task.toml")?;
    assert!(spec.libraries.is_empty() && spec.min_compute_capability.is_none(), "nothing is allowed unless it is said");
    // What a task for a processor stores has not changed.
    let stored = serde_json::to_value(parse_spec(GOOD, "task.toml")?)?;
    assert!(stored.get("libraries").is_none() && stored.get("min_compute_capability").is_none(), "{stored}");
    Ok(())
}

#[test]
fn every_mistake_about_a_gpu_has_its_code_and_its_place() -> TestResult {
    let good = good_on_cuda();
    let libraries = "libraries = [\"cublaslt\", \"cutlass\"]";
    let rows = [
        // what stands there, what it is replaced by, code, line, column, a part of the message
        ("\"reference.cu\"", "\"reference.cpp\"", "task.no_reference", 6, 13, "name a `.cu` file"),
        ("\"cutlass\"", "\"cuttlass\"", "task.malformed", 7, 26, "did you mean `cutlass`"),
        ("\"cutlass\"", "\"cufft\"", "task.malformed", 7, 26, "expected one of cublas, cublaslt, cudnn, cccl, cutlass"),
        (libraries, "libraries = \"cublas\"", "task.malformed", 7, 13, "a list `[ ... ]` is wanted"),
        (libraries, "librarys = []", "task.unknown_field", 7, 1, "did you mean `libraries`"),
        ("\"9.0\"", "\"hopper\"", "task.malformed", 8, 26, "`hopper` is not a compute capability such as 9.0"),
        ("\"9.0\"", "9.0", "task.malformed", 8, 26, "text in quotation marks is wanted"),
        ("\"9.0\"", "\"90.0\"", "task.bad_limit", 8, 26, "no GPU has the compute capability 90.0"),
        (
            "target = \"cuda\"\nreference = \"reference.cu\"",
            "target = \"cpu\"\nreference = \"reference.cpp\"",
            "task.not_for_target",
            7,
            13,
            "leave it out",
        ),
        (
            "target = \"cuda\"\nreference = \"reference.cu\"\nlibraries = [\"cublaslt\", \"cutlass\"]",
            "target = \"cpu\"\nreference = \"reference.cpp\"",
            "task.not_for_target",
            7,
            26,
            "`min_compute_capability` is for the target `cuda`",
        ),
    ];
    for (from, to, code, line, column, part) in rows {
        assert_eq!(good.matches(from).count(), 1, "`{from}` has to stand in the good file once");
        let error =
            parse_spec(&good.replace(from, to), "t/task.toml").err().ok_or_else(|| format!("`{to}` was accepted"))?;
        let place = (error.line(), error.column());
        assert!(
            error.code() == code && place == (Some(line), Some(column)) && error.message().contains(part),
            "{to}: {} {error} (expected {code} at {line}:{column}, `{part}`)",
            error.code()
        );
    }
    Ok(())
}

#[test]
fn a_form_that_cannot_be_verified_is_refused_with_its_place() -> TestResult {
    let reference = "reference = \"reference.cpp\"";
    let error = error_of(reference, "form = \"torch\"\nreference = \"model.py\"")?;
    assert_eq!((error.code(), error.line()), ("task.form_unverified", Some(6)), "{error}");
    assert!(error.message().contains("leave `form` out"), "{error}");
    let unknown = error_of(reference, &format!("form = \"tourch\"\n{reference}"))?;
    assert_eq!(unknown.code(), "task.malformed", "{unknown}");
    let native = parse_spec(&GOOD.replace(reference, &format!("form = \"native\"\n{reference}")), "task.toml")?;
    assert_eq!(serde_json::to_value(&native)?.get("form"), None, "what is as usual is not stored");
    Ok(())
}

#[test]
fn short_floats_are_for_gpus() -> TestResult {
    let x = "name = \"x\", dtype = \"f32\"";
    for short in ["f16", "bf16"] {
        let shortened = x.replace("f32", short);
        let spec = parse_spec(&good_on_cuda().replace(x, &shortened), "task.toml")?;
        assert_eq!(spec.inputs[0].dtype.size_bytes(), 2);
        assert_eq!(serde_json::to_value(spec.inputs[0].dtype)?, short);
        let error = error_of(x, &shortened)?;
        assert!(error.code() == "task.not_for_target" && error.line() == Some(10), "{error}");
        assert!(error.message().contains("`x` has 16-bit floats"), "{error}");
    }
    Ok(())
}

/// The error of the good file with one text replaced, which has to stand in it once.
fn error_of(from: &str, to: &str) -> Result<TaskError, String> {
    assert_eq!(GOOD.matches(from).count(), 1, "`{from}` has to stand in the good file once");
    let text = GOOD.replace(from, to);
    parse_spec(&text, "t/task.toml").err().ok_or_else(|| format!("`{to}` instead of `{from}` was accepted"))
}

#[test]
fn a_good_file_is_read() -> TestResult {
    let spec = parse_spec(GOOD, "task.toml")?;
    assert_eq!(spec.name, "row_scale");
    assert_eq!(spec.all_shapes()?.len(), 2);
    assert_eq!(spec.goal.max_attempts, Some(4));
    Ok(())
}

#[test]
fn every_mistake_has_its_code_and_its_place() -> TestResult {
    let rows = [
        // what stands there, what it is replaced by, code, line, column, a part of the message
        ("title = \"Scale rows\"", "title = \"Scale", "task.malformed", 3, 15, ""),
        ("target = \"cpu\"", "target = \"cpo\"", "task.malformed", 5, 10, "did you mean `cpu`"),
        ("target = \"cpu\"", "target cpu", "task.malformed", 5, 8, ""),
        ("tolerance = {", "tolerence = {", "task.unknown_field", 14, 1, "did you mean `tolerance`"),
        ("memory_bytes = 67108864", "memory = 1", "task.unknown_field", 19, 1, "expected one of memory_bytes"),
        ("schema = 1", "schema = 2", "task.unsupported_schema", 1, 10, "schema 2"),
        ("\"row_scale\"", "\"Row Scale\"", "task.invalid_name", 2, 8, "lower-case"),
        ("\"row_scale\"", "\"\"", "task.invalid_name", 2, 8, "lower-case"),
        ("\"out = x * s\"", "\" \"", "task.malformed", 4, 15, "empty"),
        ("\"reference.cpp\"", "\"../reference.cpp\"", "task.no_reference", 6, 13, "inside"),
        ("\"reference.cpp\"", "\"/etc/passwd\"", "task.no_reference", 6, 13, "inside"),
        ("\"reference.cpp\"", "\"reference.cu\"", "task.no_reference", 6, 13, ".cpp"),
        ("rows = 8,", "rows = 0,", "task.zero_extent", 7, 17, "`rows`"),
        ("rows = 8,", "rows = -1,", "task.malformed", 7, 17, ""),
        ("rows = 8,", "rows = 99999999999999999999,", "task.malformed", 7, 17, ""),
        ("rows = 8,", "rows = 4611686018427387904,", "task.shape_overflow", 10, 42, "`x`"),
        ("rows = 8,", "rows = 1000000000,", "task.shape_overflow", 10, 42, "make the shape smaller"),
        ("name = \"s\"", "name = \"x\"", "task.duplicate_name", 11, 14, "`x`"),
        ("name = \"s\"", "name = \"2s\"", "task.invalid_name", 11, 14, "`2s`"),
        ("shape = [\"rows\"]", "shape = [\"row\"]", "task.unknown_dimension", 11, 43, "did you mean `rows`"),
        ("shape = [\"rows\"]", "shape = [0]", "task.zero_extent", 11, 43, "`s`"),
        ("low = 0.5", "low = 2.5", "task.bad_distribution", 11, 67, "`s`"),
        ("low = 0.5", "low = nan", "task.bad_distribution", 11, 67, "`s`"),
        ("kind = \"uniform\",", "kind = \"steps\", step = 0,", "task.bad_distribution", 11, 67, "`step` above zero"),
        ("kind = \"uniform\",", "kind = \"steps\", step = 1e-12,", "task.bad_distribution", 11, 67, "2^32"),
        ("kind = \"uniform\",", "kind = \"steps\",", "task.malformed", 11, 67, "`step`"),
        (
            "[{ name = \"out\", dtype = \"f32\", shape = [\"rows\", \"cols\"] }]",
            "[]",
            "task.no_tensors",
            13,
            11,
            "outputs",
        ),
        ("atol = 1e-6", "atol = -1.0", "task.bad_tolerance", 14, 22, "`atol`"),
        ("rtol = 1e-5", "rtol = inf", "task.bad_tolerance", 14, 35, "`rtol`"),
        ("rtol = 1e-5", "rtol = 0.9", "task.bad_tolerance", 14, 35, "`rtol`"),
        ("atol = 1e-6, rtol = 1e-5", "atol = 0.0, rtol = 0.0", "task.bad_tolerance", 14, 22, "both zero"),
        ("{ name = \"scale\",", "{ name = \"sc ale\",", "task.invalid_name", 15, 23, "operator"),
        ("{ name = \"scale\",", "{ after = [\"mul\"], name = \"scale\",", "task.unknown_operator", 15, 25, "`mul`"),
        ("name = \"odd\"", "name = \"default\"", "task.duplicate_name", 16, 22, "`default`"),
        ("{ rows = 3 }", "{ rowz = 3 }", "task.unknown_dimension", 16, 45, "did you mean `rows`"),
        ("{ rows = 3 }", "{ rows = 0 }", "task.zero_extent", 16, 45, "`odd`"),
        ("{ rows = 3 }", "{ rows = 1000000000000 }", "task.shape_overflow", 16, 36, "`odd`"),
        ("flops = 128.0", "flops = 0.0", "task.bad_number", 8, 9, "`flops`"),
        ("memory_bytes = 67108864", "memory_bytes = 1", "task.bad_limit", 19, 16, "`memory_bytes`"),
        ("memory_bytes = 67108864", "call_timeout_ms = 9999999", "task.bad_limit", 19, 19, "`call_timeout_ms`"),
        ("max_attempts = 4", "max_attempts = 0", "task.bad_goal", 22, 16, "`max_attempts`"),
        ("max_attempts = 4", "target_speedup = -1.0", "task.bad_goal", 22, 18, "`target_speedup`"),
        ("max_attempts = 4", "min_gain = nan", "task.bad_goal", 22, 12, "`min_gain`"),
        ("max_attempts = 4", "replan_after_failed = 0", "task.bad_goal", 22, 23, "`replan_after_failed`"),
    ];
    let mut wrong = Vec::new();
    for (from, to, code, line, column, part) in rows {
        let error = error_of(from, to)?;
        let place = (error.line(), error.column());
        if error.code() != code || place != (Some(line), Some(column)) || !error.message().contains(part) {
            wrong.push(format!("{to}: {} {error} (expected {code} at {line}:{column}, `{part}`)", error.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_value_of_the_wrong_kind_is_described_without_a_word_of_the_compiler() -> TestResult {
    let rows = [
        // what stands there, what it is replaced by, the whole error
        ("rows = 8,", "rows = -3,", "7:17: `-3` cannot stand here: a whole number from 0 is wanted"),
        ("rows = 8,", "rows = 8.5,", "7:17: `8.5` cannot stand here: a whole number from 0 is wanted"),
        ("rows = 8,", "rows = \"8\",", "7:17: the text \"8\" cannot stand here: a whole number from 0 is wanted"),
        ("atol = 1e-6", "atol = \"x\"", "14:22: the text \"x\" cannot stand here: a number is wanted"),
        ("\"Scale rows\"", "3", "3:9: `3` cannot stand here: text in quotation marks is wanted"),
        ("\"Scale rows\"", "true", "3:9: `true` cannot stand here: text in quotation marks is wanted"),
        ("[\"rows\", \"cols\"] },\n    {", "4 },\n    {", "10:42: `4` cannot stand here: a list `[ ... ]` is wanted"),
        ("{ rows = 8, cols = 16 }", "7", "7:8: `7` cannot stand here: a table `{ ... }` is wanted"),
        ("{ atol = 1e-6, rtol = 1e-5 }", "7", "14:13: `7` cannot stand here: a table `{ ... }` is wanted"),
        ("\"cpu\"", "7", "5:10: one of the known words in quotation marks is wanted"),
        (
            "max_attempts = 4",
            "max_attempts = -4",
            "22:16: `-4` cannot stand here: a whole number from 0 to 4294967295 is wanted",
        ),
    ];
    let mut wrong = Vec::new();
    for (from, to, expected) in rows {
        let error = error_of(from, to)?;
        if error.to_string() != format!("t/task.toml:{expected}") {
            wrong.push(format!("{to}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for to in ["shape = [-1]", "shape = [1.5]", "shape = [true]", "shape = [[]]", "shape = { a = 1 }"] {
        let message = error_of("shape = [\"rows\"]", to)?.message().to_owned();
        assert!(message.contains("whole number from 1") || to.contains('{'), "{to}: {message}");
        for jargon in ["u64", "untagged", "enum", "DimText", "sequence", "expected"] {
            assert!(!message.contains(jargon), "{to}: {message}");
        }
    }
    Ok(())
}

#[test]
fn an_error_reads_as_file_line_column() -> TestResult {
    let error = error_of("rows = 8,", "rows = 0,")?;
    assert_eq!(error.to_string(), "t/task.toml:7:17: the dimension `rows` is zero");
    Ok(())
}

#[test]
fn a_missing_field_is_named() -> TestResult {
    let error = error_of("tolerance = { atol = 1e-6, rtol = 1e-5 }\n", "")?;
    assert_eq!(error.code(), "task.malformed");
    assert!(error.message().contains("tolerance") && error.line().is_some(), "{error}");
    Ok(())
}

#[test]
fn too_large_files_are_refused() {
    let error = parse_spec(&"#".repeat(MAX_TASK_FILE_BYTES + 1), "task.toml").err();
    assert_eq!(error.map(|error| error.code()), Some("task.too_large"));
    let error = bundle(GOOD, "task.toml", "x".repeat(MAX_REFERENCE_BYTES + 1)).err();
    assert_eq!(error.map(|error| error.code()), Some("task.too_large"));
    let error = bundle(GOOD, "task.toml", " \n".to_owned()).err();
    assert_eq!(error.map(|error| error.code()), Some("task.no_reference"));
}

#[test]
fn a_folder_is_loaded_with_its_replies() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("task.toml"), GOOD)?;
    fs::write(folder.path().join("reference.cpp"), "int x;\n")?;
    assert_eq!(load_folder(folder.path())?.replies, None);

    fs::create_dir(folder.path().join("replies"))?;
    fs::write(folder.path().join("replies/plan.md"), "a plan")?;
    fs::write(folder.path().join("replies/subtask1.attempt1.write_code.md"), "code")?;
    fs::write(folder.path().join("replies/notes.txt"), "no reply")?;
    let loaded = load_folder(&folder.path().join("task.toml"))?;
    assert_eq!(loaded.bundle.reference_source, "int x;\n");
    let replies = loaded.replies.unwrap_or_default();
    assert_eq!(replies.keys().map(String::as_str).collect::<Vec<_>>(), ["plan", "subtask1.attempt1.write_code"]);
    assert_eq!(replies["plan"], "a plan");
    Ok(())
}

#[test]
fn a_task_for_a_gpu_is_loaded_with_its_library_baseline() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("reference.cpp"), "int x;\n")?;
    fs::write(folder.path().join("library.cu"), "int y;\n")?;
    fs::write(folder.path().join("reference.cu"), "int x;\n")?;
    for (spec, library) in [(GOOD.to_owned(), None), (good_on_cuda(), Some("int y;\n"))] {
        fs::write(folder.path().join("task.toml"), spec)?;
        assert_eq!(load_folder(folder.path())?.bundle.library_source.as_deref(), library);
    }
    Ok(())
}

#[test]
fn a_folder_that_is_not_a_task_is_explained() -> TestResult {
    let code = |path: &Path| load_folder(path).err().map(|error| error.code());
    let folder = tempfile::tempdir()?;
    assert_eq!(code(&folder.path().join("nowhere")), Some("task.not_found"));
    assert_eq!(code(folder.path()), Some("task.not_found"));
    fs::write(folder.path().join("other.txt"), "")?;
    assert_eq!(code(&folder.path().join("other.txt")), Some("task.not_found"));

    fs::write(folder.path().join("task.toml"), GOOD)?;
    let Err(error) = load_folder(folder.path()) else { panic!("a task without its reference was loaded") };
    assert_eq!((error.code(), error.line(), error.column()), ("task.no_reference", Some(6), Some(13)));

    fs::write(folder.path().join("task.toml"), b"schema = 1\nname = \"\xff\"\n")?;
    let Err(error) = load_folder(folder.path()) else { panic!("bytes that are no text were loaded") };
    assert_eq!((error.code(), error.line(), error.column()), ("task.malformed", Some(2), Some(9)));
    Ok(())
}

#[test]
fn every_bundled_example_is_a_task_with_replies() -> TestResult {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut names = Vec::new();
    for entry in fs::read_dir(examples)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        let loaded = load_folder(&folder)?;
        assert!(loaded.replies.is_some_and(|replies| replies.contains_key("plan")), "{}", folder.display());
        assert_eq!(Some(loaded.bundle.spec.name.as_str()), folder.file_name().and_then(|name| name.to_str()));
        names.push(loaded.bundle.spec.name);
    }
    assert!(names.len() >= 5, "{names:?}");
    Ok(())
}

#[test]
fn a_live_model_needs_a_sandbox_unless_the_campaign_waives_it() -> TestResult {
    let spec = parse_spec(GOOD, "task.toml")?;
    let task = CampaignTask {
        name: spec.name.clone(),
        bundle: ArtifactHash::of(b"bundle"),
        scripted_replies: Some(ArtifactHash::of(b"replies")),
    };
    let mut campaign = CampaignSpec {
        schema: 1,
        name: "night".to_owned(),
        model: ModelChoice::Scripted,
        models: nightshift_protocol::models::ModelPlan::default(),
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        untrusted_replies: false,
        strategy: "stitch".to_owned(),
        goal: TaskGoal { max_attempts: Some(9), ..TaskGoal::default() },
        allow_unsandboxed: false,
        budget: BudgetCaps::default(),
        schedule: None,
        priority: 0,
        weight: 1,
        gates: BTreeSet::from([Gate::Plan]),
        labels: BTreeSet::from(["pool=night".parse()?]),
        tasks: vec![task.clone()],
    };
    let input = run_input(&campaign, &task, &spec);
    assert!(!input.sandbox_required);
    assert_eq!((&input.gates, &input.labels), (&campaign.gates, &campaign.labels));
    assert_eq!((input.goal.max_attempts, input.goal.max_replans), (Some(9), Some(2)));
    campaign.model = ModelChoice::Live { endpoint: "openai".to_owned(), model: "m".to_owned() };
    assert!(run_input(&campaign, &task, &spec).sandbox_required);
    campaign.allow_unsandboxed = true;
    assert!(!run_input(&campaign, &task, &spec).sandbox_required);
    Ok(())
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() -> TestResult {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for pipe in ["task.toml", "reference.cpp"] {
        let folder = tempfile::tempdir()?;
        for (name, text) in [("task.toml", GOOD), ("reference.cpp", "// nothing")] {
            if name == pipe {
                mknodat(CWD, folder.path().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            } else {
                fs::write(folder.path().join(name), text)?;
            }
        }
        let Err(error) = load_folder(folder.path()) else { panic!("the pipe {pipe} was read") };
        assert_eq!(error.code(), "task.unreadable", "{error}");
        assert!(error.file().ends_with(pipe) && error.message().contains("no regular file"), "{error}");
    }
    Ok(())
}
