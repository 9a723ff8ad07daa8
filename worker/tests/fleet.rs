//! Libraries that another machine built.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/bench.rs"]
mod bench;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::verdict::ProcessEnd;

use self::bench::Bench;

const REFERENCE: &str = r#"#include "nightshift.h"
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    for (int64_t i = 0; i < inputs[0].shape[0]; i++) y[i] = x[i] * ns_real(2);
    return 0;
}
"#;

/// The library as a machine with another processor would have built it: it cannot be run here, and says so.
fn of_another_machine(bench: &Bench, library: &ArtifactHash, fingerprint: &str) -> ArtifactHash {
    let mut bytes = bench.store.get(library).unwrap();
    let places = |bytes: &[u8]| bytes.windows(fingerprint.len()).position(|part| part == fingerprint.as_bytes());
    let place = places(&bytes).unwrap();
    bytes[place..place + fingerprint.len()].fill(b'0');
    assert_eq!(places(&bytes), None, "the fingerprint is there once");
    // Its code is erased: a process that loads and calls it crashes.
    let file = object::File::parse(bytes.as_slice()).unwrap();
    let (begin, size) = {
        use object::{Object as _, ObjectSection as _};
        file.section_by_name(".text").unwrap().file_range().unwrap()
    };
    let (begin, size) = (usize::try_from(begin).unwrap(), usize::try_from(size).unwrap());
    bytes[begin..begin + size].fill(0xcc);
    bench.store.keep(&bytes)
}

#[test]
fn libraries_of_another_machine_are_built_again_for_this_one() {
    let bench = Bench::new();
    let task = bench.task(REFERENCE, "cpu", 60_000);
    let Ok(StepOutput::TaskPrepared { prepared }) = bench.execute(&StepInput::PrepareTask { task: task.clone() })
    else {
        panic!("not prepared")
    };
    let build = bench.build(&REFERENCE.replace("x[i] * ns_real(2)", "x[i] + x[i]"));
    let foreign = |library: &ArtifactHash| of_another_machine(&bench, library, &build.toolchain.fingerprint);
    let check = StepInput::Check {
        task,
        library: foreign(build.library.as_ref().unwrap()),
        reference_library: foreign(&prepared.reference_library),
        truth_library: foreign(&prepared.truth_library),
        sandbox_required: false,
    };
    let Ok(StepOutput::Checked { report }) = bench.execute(&check) else { panic!("not checked") };
    assert_eq!(report.end, ProcessEnd::Finished);
    assert!(!report.cases.is_empty() && report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
}

#[test]
fn a_library_of_another_machine_whose_source_is_gone_is_no_verdict_on_its_author() {
    let bench = Bench::new();
    let task = bench.task(REFERENCE, "cpu", 60_000);
    let build = bench.build(REFERENCE);
    let library = of_another_machine(&bench, build.library.as_ref().unwrap(), &build.toolchain.fingerprint);
    bench.store.0.lock().unwrap().remove(&ArtifactHash::of(REFERENCE.as_bytes()));
    std::fs::remove_dir_all(bench.folder.path().join("cache")).unwrap();
    let fresh = Bench { inner: bench::open(bench.folder.path(), &bench.store), ..bench };
    let measure = StepInput::Measure {
        task,
        library: library.clone(),
        reference_library: library,
        confirms: false,
        sandbox_required: false,
    };
    let failure = fresh.execute(&measure).unwrap_err();
    assert_eq!(failure.code, "artifact.not_found");
}
