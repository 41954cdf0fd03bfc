//! A job's way read of events made by hand.

use tenure_journal::Hash;

use super::*;

const ID: &str = "job_6gz54gssw0000";

fn line(seq: u64, event: &str) -> Line {
    Line {
        seq,
        prev: Hash([0; 32]),
        at_ms: seq as i64 * 1000,
        by: "system".into(),
        request: None,
        event: event.into(),
        hash: Hash([0; 32]),
        text: "".into(),
    }
}

fn of(kind: &str) -> String {
    format!("{{\"{kind}\":{{\"job\":\"{ID}\"}}}}")
}

fn spans(kinds: &[&str]) -> (Way, Vec<(&'static str, i64, i64)>) {
    let lines: Vec<Line> = (1..).zip(kinds).map(|(seq, kind)| line(seq, &of(kind))).collect();
    let mut way = Way::new(1);
    way.read(&lines, ID);
    let told = way.told(1_000_000, lines.len() as u64);
    let spans = told.spans.iter().map(|span| (span.what, span.from, span.to));
    let spans = spans.collect();
    (way, spans)
}

#[test]
fn one_that_gave_way_waited_and_ran_twice() {
    let (way, spans) = spans(&[
        "JobSubmitted",
        "JobAdmitted",
        "JobPlaced",
        "JobStarting",
        "JobRunning",
        "JobStopping",
        "JobRequeued",
        "JobPlaced",
        "JobRunning",
        "JobEnded",
    ]);
    let wanted = [
        ("Waited", 1000, 3000),
        ("Started up", 3000, 5000),
        ("Ran", 5000, 6000),
        ("Stopped", 6000, 7000),
        ("Waited", 7000, 8000),
        ("Started up", 8000, 9000),
        ("Ran", 9000, 10_000),
    ];
    assert_eq!(spans, wanted);
    assert!(way.is_over);
}

#[test]
fn a_pause_is_no_running_and_what_failed_is_as_it_was() {
    let (_, spans) = spans(&[
        "JobSubmitted",
        "JobPlaced",
        "JobRunning",
        "JobPausing",
        "JobPaused",
        "JobWanted",
        "JobResuming",
        "JobKept",
        "JobResuming",
        "JobRunning",
    ]);
    let words: Vec<&str> = spans.iter().map(|(what, _, _)| *what).collect();
    let wanted = [
        "Waited",
        "Started up",
        "Ran",
        "Made room",
        "Paused",
        "Waited to go on",
        "Resumed",
        "Paused",
        "Resumed",
        "Ran",
    ];
    assert_eq!(words, wanted);
    assert_eq!(spans.last(), Some(&("Ran", 10_000, 1_000_000)), "it still does");
}

#[test]
fn what_is_of_other_jobs_is_not_its_own() {
    let mut way = Way::new(1);
    let other = of("JobRunning").replace("6gz5", "6gz6");
    let task =
        format!("{{\"TaskSubmitted\":{{\"job\":\"job_6gz54gssw0001\",\"task\":{{\"of\":\"{ID}\"}}}}}}");
    way.read(
        &[line(1, &of("JobSubmitted")), line(2, &other), line(3, &task)],
        ID,
    );
    assert_eq!(way.steps, [(1000, "Waited")]);
    assert_eq!(way.next, 4);
}

#[test]
fn a_long_way_keeps_its_end_and_says_so() {
    let mut kinds = vec!["JobSubmitted"];
    for _ in 0..50 {
        kinds.extend(["JobRunning", "JobRequeued"]);
    }
    let (way, spans) = spans(&kinds);
    assert!(way.cut && spans.len() == STEPS, "{}", spans.len());
    assert_eq!(spans.last(), Some(&("Waited", 101_000, 1_000_000)));
}

#[test]
fn what_was_not_read_yet_is_not_made_up() {
    let mut way = Way::new(1);
    way.read(&[line(1, &of("JobSubmitted")), line(2, &of("JobRunning"))], ID);
    let told = way.told(1_000_000, 9);
    assert_eq!(told.so_far, Some(2));
    assert_eq!(
        told.spans,
        [Span {
            what: "Waited",
            from: 1000,
            to: 2000
        }]
    );
}
