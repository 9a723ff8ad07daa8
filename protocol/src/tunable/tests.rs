use super::*;

const PROGRAM: &str = r#"#include "nightshift.h"
// NIGHTSHIFT_TUNABLE(COMMENTED, 1, 1, 2);
/* NIGHTSHIFT_TUNABLE(ALSO, 1, 1, 2); */
static const char *text = "NIGHTSHIFT_TUNABLE(TEXT, 1, 1, 2);";
static const char *raw = R"x(
NIGHTSHIFT_TUNABLE(RAW, 1, 1, 2); )" )x";
static const int big = 1'000'000; static const char quote = '"';
NIGHTSHIFT_TUNABLE(TILE, 64, 16, 32, 64, 128);
  NIGHTSHIFT_TUNABLE ( UNROLL ,
      /* as measured */ 4, 1, 2,
      4);
NIGHTSHIFT_TUNABLE(SHIFT, -1, -1, 0);
int MY_NIGHTSHIFT_TUNABLE(int); int NIGHTSHIFT_TUNABLES;
"#;

fn problems(source: &str) -> Vec<(u32, String)> {
    match parse(source) {
        Ok(tunables) => panic!("accepted: {tunables:?}"),
        Err(bad) => bad.problems.into_iter().map(|problem| (problem.line, problem.message)).collect(),
    }
}

fn tunables(source: &str) -> Vec<Tunable> {
    parse(source).unwrap_or_else(|bad| panic!("{bad}"))
}

#[test]
fn declarations_are_found_where_the_compiler_sees_them() {
    let found: Vec<(String, u32, i64, Vec<i64>)> =
        tunables(PROGRAM).into_iter().map(|t| (t.name, t.line, t.value, t.values)).collect();
    let expected = [
        ("TILE".to_owned(), 8, 64, vec![16, 32, 64, 128]),
        ("UNROLL".to_owned(), 9, 4, vec![1, 2, 4]),
        ("SHIFT".to_owned(), 12, -1, vec![-1, 0]),
    ];
    assert_eq!(found, expected);
    assert_eq!(configurations(&tunables(PROGRAM)), 24);
    assert_eq!(configurations(&[]), 1);
}

#[test]
fn values_are_written_into_the_declarations_and_nothing_else_changes() {
    let Ok(written) = with_values(PROGRAM, &[128, 1, 0]) else { panic!("refused") };
    let values: Vec<i64> = tunables(&written).into_iter().map(|tunable| tunable.value).collect();
    assert_eq!(values, [128, 1, 0]);
    let Ok(back) = with_values(&written, &[64, 4, -1]) else { panic!("refused") };
    assert_eq!(back, PROGRAM);
    assert_eq!(with_values(PROGRAM, &[7, 4, -1]).as_deref(), Ok(PROGRAM), "7 is not allowed");
}

#[test]
fn what_is_malformed_is_refused_with_its_line() {
    for (declaration, said) in [
        ("NIGHTSHIFT_TUNABLE(TILE, 64, 32)", "semicolon"),
        ("NIGHTSHIFT_TUNABLE;", "wants (NAME"),
        ("NIGHTSHIFT_TUNABLE();", "wants (NAME"),
        ("NIGHTSHIFT_TUNABLE(TILE);", "wants (NAME"),
        ("NIGHTSHIFT_TUNABLE(TILE, 64);", "2 to 16 allowed values, not 0"),
        ("NIGHTSHIFT_TUNABLE(TILE, 64, 64);", "2 to 16 allowed values, not 1"),
        ("NIGHTSHIFT_TUNABLE(TILE, 1, 32, 64);", "none of its allowed"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, 64, 32);", "32 twice"),
        ("NIGHTSHIFT_TUNABLE(2TILE, 32, 32, 64);", "no name"),
        ("NIGHTSHIFT_TUNABLE(TILE, 0x20, 32, 64);", "no plain decimal"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, 064);", "no plain decimal"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, 4294967296);", "no plain decimal"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, N * 2);", "no plain decimal"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, (64));", "not closed"),
        ("NIGHTSHIFT_TUNABLE(TILE, 32, 32, 64", "not closed"),
        ("#define T NIGHTSHIFT_TUNABLE(TILE, 32, 32, 64);", "directive"),
        ("#define NIGHTSHIFT_TUNABLE(name, value, ...) constexpr int name = 7;", "directive"),
        ("#undef NIGHTSHIFT_TUNABLE", "directive"),
        ("#define T \\\n  NIGHTSHIFT_TUNABLE(TILE, 32, 32, 64);", "directive"),
    ] {
        let found = problems(&format!("int a;\n\n{declaration}\n"));
        let at = if declaration.contains('\n') { 4 } else { 3 };
        assert!(found.len() == 1 && found[0].0 == at && found[0].1.contains(said), "{declaration}: {found:?}");
    }
    let twice =
        problems("NIGHTSHIFT_TUNABLE(A, 1, 1, 2);\nNIGHTSHIFT_TUNABLE(A, 1, 1, 2);\nNIGHTSHIFT_TUNABLE(B, 3, 1, 2);");
    assert_eq!(twice.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3], "every problem is told");
}

#[test]
fn a_program_may_not_declare_more_than_can_be_tried() {
    let many: Vec<String> = (0..=MAX_TUNABLES).map(|i| format!("NIGHTSHIFT_TUNABLE(T{i}, 1, 1, 2);\n")).collect();
    let many = many.concat();
    assert!(problems(&many)[0].1.contains("at most 8 tunables"));
    let wide: Vec<String> = (0..3).map(|i| format!("NIGHTSHIFT_TUNABLE(T{i}, 1, 1, 2, 3, 4, 5, 6, 7);\n")).collect();
    let wide = wide.concat();
    let found = problems(&wide);
    assert_eq!((found[0].0, found[0].1.contains("343 variants")), (3, true), "{found:?}");
}

#[test]
fn variants_begin_with_the_program_as_it_stands_and_its_neighbours() {
    let tunables = tunables(PROGRAM);
    let all = variants(&tunables, 1_000);
    assert_eq!(all.len(), 24);
    assert_eq!(all[0], [64, 4, -1]);
    assert!(
        all[1..7]
            .iter()
            .all(|variant| { variant.iter().zip(&all[0]).filter(|(value, standing)| value != standing).count() == 1 })
    );
    let mut distinct = all.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 24);
    assert_eq!(variants(&tunables, 9), all[..9]);
    assert_eq!(variants(&tunables, 0), all[..1]);
    assert_eq!(variants(&[], 5), [Vec::<i64>::new()]);
}

#[test]
fn no_text_breaks_the_reader() {
    for source in
        ["", "\"", "'", "R\"", "R\"x(", "/*", "//\\", "//\\\n", "NIGHTSHIFT_TUNABLE(", "é'é\"é", "1'", "#\\\n"]
    {
        let _ = parse(source);
        let _ = parse(&format!("{source}NIGHTSHIFT_TUNABLE(A, 1, 1, 2);"));
    }
}
