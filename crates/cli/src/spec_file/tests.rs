//! Job files: what is read, and how errors point at the line.

use super::*;

fn document(text: &str) -> Document {
    Document {
        name: "job.yaml".into(),
        text: text.into(),
    }
}

fn drawn(text: &str) -> String {
    match read_jobs(&document(text)) {
        Ok(jobs) => panic!("taken: {jobs:?}"),
        Err(error) => error.draw(false),
    }
}

/// The line with the caret, and the one above it that it points into.
fn pointed(text: &str) -> (String, String) {
    let drawn = drawn(text);
    let lines: Vec<&str> = drawn.lines().collect();
    let caret = lines
        .iter()
        .position(|line| line.contains('─') && line.contains('·') || line.contains("▲"))
        .unwrap_or_else(|| panic!("{drawn}"));
    (lines[caret - 1].trim().to_owned(), lines[caret].to_owned())
}

const GOOD: &str = "name: train\ncommand: [python3, train.py]\ndemand:\n  gpus: 1\n  vram_mib: 8192\n";

#[test]
fn a_job_file_is_a_job() {
    let jobs = read_jobs(&document(GOOD)).unwrap();
    assert_eq!(
        (jobs[0].name.as_str(), jobs[0].demand.gpus, jobs[0].run_time_s),
        ("train", 1, 3600)
    );
}

#[test]
fn several_documents_are_several_jobs() {
    let jobs = read_jobs(&document("name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n")).unwrap();
    assert_eq!(
        jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn line_ends_of_windows_are_line_ends() {
    let jobs = read_jobs(&document(&GOOD.replace('\n', "\r\n"))).unwrap();
    assert_eq!(jobs[0].command, ["python3", "train.py"]);
}

#[test]
fn an_unknown_key_is_pointed_at() {
    let text = "name: a\ncommand: [x]\ndemand:\n  gpu: 1\n";
    assert!(
        drawn(text).starts_with("error: job.yaml:4  [invalid_file]\n"),
        "{}",
        drawn(text)
    );
    assert!(
        drawn(text).contains("gpu") && drawn(text).contains("gpus"),
        "names what is known: {}",
        drawn(text)
    );
    let (line, _) = pointed(text);
    assert!(line.contains("gpu: 1"), "{line}");
}

#[test]
fn a_duplicate_key_is_pointed_at() {
    let text = "name: a\ncommand: [x]\nname: b\n";
    assert!(drawn(text).contains("job.yaml:3"), "{}", drawn(text));
    assert!(
        drawn(text).to_lowercase().contains("duplicate"),
        "{}",
        drawn(text)
    );
}

#[test]
fn a_wrong_type_is_pointed_at() {
    let text = "name: a\ncommand: [x]\nrun_time_s: soon\n";
    assert!(drawn(text).contains("job.yaml:3"), "{}", drawn(text));
    let (line, _) = pointed(text);
    assert!(line.contains("run_time_s: soon"), "{line}");
}

#[test]
fn what_only_the_domain_knows_points_at_its_field_too() {
    let text = "# a file\nname: a\ncommand: [x]\ndemand:\n  gpus: 0\n  vram_mib: 8192\n";
    let expected = "error: job.yaml:6  [invalid_field]\n  × VRAM without a GPU; ask for at least one\n   ╭─[job.yaml:6:13]\n 5 │   gpus: 0\n 6 │   vram_mib: 8192\n   ·             ──┬─\n   ·               ╰── here\n   ╰────\n";
    assert_eq!(drawn(text), expected);
}

#[test]
fn the_second_document_is_meant_when_it_is_wrong() {
    let text = "name: a\ncommand: [x]\n---\nname: 'b b'\ncommand: [y]\n";
    assert!(drawn(text).contains("job.yaml:4"), "{}", drawn(text));
    assert!(
        drawn(text).contains("help: choose a short token"),
        "{}",
        drawn(text)
    );
}

#[test]
fn broken_yaml_and_empty_files_are_told() {
    for text in [
        "name: [",
        "\t- x",
        "name: a\n command: b: c",
        "{",
        "- a\n- b\n",
        "just words",
        "&a [*a]",
        "!!python/object:os.system x",
    ] {
        assert!(
            drawn(text).starts_with("error: job.yaml"),
            "{text}: {}",
            drawn(text)
        );
    }
    assert!(drawn("").contains("the file holds no job"));
    assert!(drawn("# nothing\n").contains("the file holds no job"));
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{inner}]\n");
    }
    assert!(drawn(&text).starts_with("error: job.yaml"));
}

#[test]
fn escapes_in_a_file_do_not_reach_the_terminal_and_carets_stay_in_place() {
    let text = "name: a\ncommand: [x]\nrun_time_s: \"\\e\u{9b}\u{202e}bad\" # \u{9b}31m\n";
    let drawn = drawn(text);
    assert!(!drawn.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{drawn:?}");
}

#[test]
fn no_text_makes_it_panic() {
    let base = "name: ä\ncommand: [x, \"y\"]\nenv: {A: '1'}\ndemand: {gpus: 1, vram_mib: 1}\n";
    for cut in 0..base.len() {
        for insert in ["", "\t", "\u{0}", "é", "\r\n", "- ", "*", "\""] {
            if base.is_char_boundary(cut) {
                let text = format!("{}{insert}{}", &base[..cut], &base[cut..]);
                if let Err(error) = read_jobs(&document(&text)) {
                    error.draw(false);
                }
            }
        }
    }
}
