//! The export of a real program, and what damage does to it.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::timeline::{Calls, sum_up};

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/h200/nsys_saxpy_matmul.sqlite"))
}

fn bytes() -> Vec<u8> {
    std::fs::read(fixture()).unwrap()
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.sqlite");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// The fixture after some changes.
fn changed(statements: &str) -> (TempDir, PathBuf) {
    let (folder, path) = file(&bytes());
    Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    (folder, path)
}

#[test]
fn a_real_export_is_read_to_the_last_number() {
    use CopyDirection::{DeviceToHost, HostToDevice};

    let activity = read(&fixture()).unwrap();
    assert_eq!((activity.kernels.len(), activity.copies.len(), activity.api.len(), activity.cut), (6, 3, 23, false));
    let first = &activity.kernels[0];
    assert_eq!(first.span, Span { start_ns: 338_743_398, end_ns: 338_756_998 });
    assert_eq!(first.name.as_ref(), "saxpy(const float *, const float *, float *, int)");
    assert_eq!((first.short.as_ref(), first.mangled.as_deref()), ("saxpy", Some("_Z5saxpyPKfS0_Pfi")));
    assert_eq!((first.grid, first.block, first.registers, first.stream), ([16384, 1, 1], [256, 1, 1], 16, 7));
    assert_eq!(activity.kernels[1].shared_bytes, 2176);
    let copies: Vec<_> = activity.copies.iter().map(|copy| (copy.direction, copy.bytes)).collect();
    assert_eq!(copies, [(HostToDevice, 16_777_216), (HostToDevice, 16_777_216), (DeviceToHost, 16_777_216)]);
    assert_eq!(activity.api[1].name.as_ref(), "cudaMalloc", "versions are cut off");
    assert_eq!(activity.api.iter().filter(|call| call.name.starts_with("cuda")).count(), 13);
}

#[test]
fn a_real_export_is_summed_up_as_the_tools_own_summary_is() {
    let activity = read(&fixture()).unwrap();
    let timeline = sum_up(&activity, &Calls::find(&activity, 3));
    let kernels: Vec<_> = timeline
        .kernels
        .iter()
        .map(|k| (k.times.count, k.times.total_ns, k.times.min_ns, k.registers_per_thread))
        .collect();
    assert_eq!(kernels, [(3, 8_271_221, 2_756_956, 32), (3, 42_880, 13_600, 16)]);
    assert!(timeline.kernels[0].share > 0.99);
    assert_eq!(timeline.calls, 0, "this program marks no calls");
    // Kernels and copies never ran side by side here.
    assert_eq!((timeline.busy_ns, timeline.overlap_ns), (8_314_101 + 3_788_347, 0));
    assert_eq!(timeline.span_ns, 348_045_786 - 335_683_082);
    assert_eq!(timeline.gaps.between.count, 8);
    assert_eq!(timeline.launches.host.count, 6);
    assert_eq!(timeline.api[0].name, "cudaMalloc");
}

#[test]
fn tables_that_are_absent_hold_nothing() {
    let (_folder, path) = changed("DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;");
    let activity = read(&path).unwrap();
    assert_eq!((activity.kernels.len(), activity.copies.len(), activity.api.len()), (6, 0, 0));
}

#[test]
fn an_export_without_any_activity_is_an_error() {
    let (_folder, path) = changed(
        "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE \
         CUPTI_ACTIVITY_KIND_KERNEL;",
    );
    assert!(matches!(read(&path), Err(ExportError::Empty)));
}

#[test]
fn names_are_not_needed() {
    let (_folder, path) = changed("DROP TABLE StringIds;");
    let activity = read(&path).unwrap();
    assert!(activity.kernels.iter().all(|kernel| kernel.name.as_ref() == NAMELESS && kernel.mangled.is_none()));
}

#[test]
fn columns_that_another_version_lacks_are_not_needed_but_for_the_times() {
    let table = "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN";
    let (_folder, path) = changed(&format!("{table} registersPerThread TO registers; {table} streamId TO stream;"));
    let kernels = read(&path).unwrap().kernels;
    assert!(kernels.iter().all(|kernel| (kernel.registers, kernel.stream) == (0, 0)));
    let (_folder, path) = changed(&format!("{table} end TO finish;"));
    assert!(matches!(read(&path), Err(ExportError::Column { column: "end", .. })));
}

#[test]
fn rows_that_make_no_sense_are_passed_over() {
    let (_folder, path) = changed(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'noon' WHERE correlationId = 126; \
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE correlationId = 129; \
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -5 WHERE correlationId = 131; \
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = -1, registersPerThread = 2.5 WHERE correlationId = 133;",
    );
    let kernels = read(&path).unwrap().kernels;
    assert_eq!(kernels.len(), 3);
    assert_eq!((kernels[0].grid[0], kernels[0].registers), (0, 0));
}

#[test]
fn a_view_in_the_place_of_a_table_is_refused() {
    let (_folder, path) = changed(
        "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY; CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS WITH RECURSIVE forever(start) AS \
         (VALUES (1) UNION ALL SELECT start + 1 FROM forever) SELECT start, start AS end FROM forever WHERE start < 0;",
    );
    assert!(matches!(read(&path), Err(ExportError::Sqlite(_))));
}

#[test]
fn a_long_trace_is_cut_at_its_end_in_whatever_order_the_tool_wrote_it() {
    let (_folder, path) = changed(&format!(
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end); WITH RECURSIVE \
         backwards(start) AS (VALUES ({MAX_EVENTS}) UNION ALL SELECT start - 1 FROM backwards WHERE start > 0) INSERT INTO \
         CUPTI_ACTIVITY_KIND_RUNTIME SELECT start, start + 1 FROM backwards;"
    ));
    let activity = read(&path).unwrap();
    assert!(activity.cut && activity.api.len() == MAX_EVENTS);
    assert_eq!(activity.api[0].span.start_ns, 0);
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    for bytes in [&b""[..], b"not a database at all", &[0xff; 5000], b"SQLite format 3\0"] {
        let (_folder, path) = file(bytes);
        let error = read(&path).unwrap_err();
        assert!(matches!(error, ExportError::Sqlite(_) | ExportError::Empty), "{error}");
    }
    assert!(matches!(read(Path::new("/nowhere/timeline.sqlite")), Err(ExportError::File(_))));
}

#[test]
fn a_link_or_a_journal_is_not_followed() {
    let (folder, path) = file(&bytes());
    let link = folder.path().join("link.sqlite");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(read(&link), Err(ExportError::File(_))));
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("timeline.sqlite-wal")).unwrap();
    assert!(matches!(read(&path), Err(ExportError::File(_))));
}

#[test]
fn an_export_that_was_cut_off_is_no_panic() {
    let whole = bytes();
    for length in (0..whole.len()).step_by(20_011) {
        let (_folder, path) = file(whole.get(..length).unwrap());
        let _ = read(&path);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_damage_makes_reading_panic(hits in prop::collection::vec((0_usize..188_416, any::<u8>()), 1..200)) {
        let mut damaged = bytes();
        for (at, value) in hits {
            if let Some(byte) = damaged.get_mut(at) {
                *byte = value;
            }
        }
        let (_folder, path) = file(&damaged);
        if let Ok(activity) = read(&path) {
            let timeline = sum_up(&activity, &Calls::find(&activity, 3));
            prop_assert!((0.0..=1.0).contains(&timeline.host_share));
        }
    }
}
