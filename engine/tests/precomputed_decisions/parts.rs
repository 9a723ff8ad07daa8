//! Tests that a decision writes only the changed parts of the state.

use crate::site::{Site, done, phases};

#[tokio::test]
async fn a_decision_writes_the_parts_that_changed() {
    let mut site = Site::begun(&phases(&[1, 1, 1])).await;
    assert_eq!(site.stored().parts.len(), 1, "the creation is folded");
    let report = site.report_of("phase0/step0", done("a"));
    site.report_ahead(report, |_| {}).await;
    // What the previous decision scheduled, and the report.
    assert_eq!((site.stored().parts.len(), site.stored().parts_written), (3, 2));
    let report = site.report_of("phase1/step0", done("b"));
    site.report_ahead(report, |_| {}).await;
    assert_eq!((site.stored().parts.len(), site.stored().parts_written), (5, 2));
}

#[tokio::test]
async fn a_driver_that_remembers_nothing_writes_the_parts_that_changed() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    site.driver.forget(&site.run);
    let report = site.report_of("phase0/step0", done("a"));
    site.report_and_drive(report, false).await;
    assert_eq!((site.stored().parts.len(), site.stored().parts_written), (3, 2));
}

#[tokio::test]
async fn a_state_that_is_one_document_is_stored_in_parts_with_the_next_decision() {
    let mut site = Site::begun(&phases(&[1, 1, 1])).await;
    site.driver.forget(&site.run);
    site.store.world().runs.get_mut(&site.run).unwrap().make_one_document();
    let report = site.report_of("phase0/step0", done("a"));
    site.report_and_drive(report, false).await;
    let stored = site.stored();
    assert_eq!((stored.parts.len(), stored.parts_written), (3, 3));
    let seen = stored.record.state.unwrap()["seen"].as_array().map(Vec::len);
    assert_eq!(seen, Some(3), "nothing is there twice");
    let report = site.report_of("phase1/step0", done("b"));
    site.report_ahead(report, |_| {}).await;
    assert_eq!((site.stored().parts.len(), site.stored().parts_written), (5, 2));
}
