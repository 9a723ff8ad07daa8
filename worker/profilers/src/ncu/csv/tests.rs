//! The table of a real program, and what damage does to it.

use proptest::prelude::*;

use super::*;

const REAL: &str = include_str!("../../../tests/fixtures/h200/ncu_raw.csv");

fn value(launch: &Launch, name: &str) -> f64 {
    launch.values.get(name).copied().unwrap_or(f64::NAN)
}

fn is(launch: &Launch, name: &str, expected: f64) -> bool {
    (value(launch, name) - expected).abs() < 1e-6 * expected.abs().max(1.0)
}

#[test]
fn a_real_table_is_read_through_the_words_around_it() {
    let launches = parse(REAL);
    assert_eq!(launches.len(), 6);
    let (saxpy, matmul) = (&launches[0], &launches[1]);
    assert_eq!(saxpy.kernel, "saxpy(const float *, const float *, float *, int)");
    assert_eq!((matmul.grid.as_str(), matmul.block.as_str()), ("(128, 128, 1)", "(16, 16, 1)"));
    assert!(is(saxpy, "gpu__time_duration.sum", 14_944.0));
    assert!(is(matmul, "gpu__time_duration.sum", 2_757_984.0));
    assert!(is(saxpy, "launch__registers_per_thread", 16.0));
    assert!(is(matmul, "launch__registers_per_thread", 32.0));
    assert!(is(matmul, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 34_597_697.0));
    assert!(is(saxpy, "dram__bytes_read.sum.per_second", 2_245_618_843_683.08));
}

#[test]
fn what_is_no_number_is_left_out() {
    let launches = parse(REAL);
    for text in ["device__attribute_display_name", "launch__cluster_scheduling_policy"] {
        assert!(REAL.contains(text) && !launches[0].values.contains_key(text), "{text}");
    }
    assert!(launches.iter().all(|launch| launch.values.values().all(|value| value.is_finite())));
}

fn table(unit: &str, value: &str) -> String {
    format!(
        "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"gpu__x.sum\"\n\"\",\"\",\"\",\"\",\"{unit}\"\n\
         \"0\",\"f(int)\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"{value}\"\n"
    )
}

#[test]
fn units_are_brought_to_their_base() {
    for (unit, value, expected) in [
        ("ns", "1,234.5", 1_234.5),
        ("us", "2", 2e3),
        ("msecond", "3", 3e6),
        ("second", "1", 1e9),
        ("Kbyte", "4", 4e3),
        ("Gbyte/s", "5", 5e9),
        ("Tbyte/s", "1.5", 1.5e12),
        ("byte/block", "7", 7.0),
        ("%", "12.25", 12.25),
        ("", "6", 6.0),
    ] {
        let launches = parse(&table(unit, value));
        assert!(is(&launches[0], "gpu__x.sum", expected), "{unit}: {launches:?}");
    }
}

#[test]
fn a_number_of_an_unknown_unit_is_none() {
    for (unit, value) in [
        ("furlong", "1"),
        ("byte/us", "1"),
        ("ns", "nan"),
        ("ns", "no data"),
        ("ns", ""),
        ("ns", "1e999"),
        ("ns", "inf"),
    ] {
        assert!(parse(&table(unit, value))[0].values.is_empty(), "{unit} {value}");
    }
}

#[test]
fn quotes_and_commas_in_names_stay_where_they_are() {
    let text = table("ns", "1").replace("f(int)", "f<\"\"a, b\"\">(int, char)");
    assert_eq!(parse(&text)[0].kernel, "f<\"a, b\">(int, char)");
}

#[test]
fn what_stands_between_and_behind_the_rows_is_passed_over() {
    let text = format!("{}==PROF== Disconnected from process 9\nprinted \"by\" the program\n", table("ns", "1"));
    assert_eq!(parse(&text).len(), 1);
}

#[test]
fn a_row_that_was_cut_off_is_no_launch() {
    let text = table("ns", "1");
    assert!(parse(text.get(..text.len() - 20).unwrap()).is_empty());
    for cut in 0..REAL.len() {
        if REAL.is_char_boundary(cut) && cut % 97 == 0 {
            assert!(parse(REAL.get(..cut).unwrap()).len() <= 6);
        }
    }
}

#[test]
fn what_is_no_table_gives_nothing() {
    for text in
        ["", "\n", "==ERROR== nothing", "\"ID\"", "\"ID\",\"x\"\n", "\u{0}\u{1}\"ID\",", "\"ID\",\"Kernel Name\""]
    {
        assert!(parse(text).is_empty(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "(\"ID\",\"Kernel Name\",\"a__b\"\n)?[\"',a-z0-9_ \n\r\u{0}-\u{7f}ä]{0,400}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_damage_makes_reading_panic(hits in prop::collection::vec((0_usize..8_000, any::<u8>()), 1..60)) {
        let mut bytes = REAL.as_bytes().to_vec();
        for (at, value) in hits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        prop_assert!(parse(&String::from_utf8_lossy(&bytes)).len() <= MAX_LAUNCHES + 1);
    }
}
