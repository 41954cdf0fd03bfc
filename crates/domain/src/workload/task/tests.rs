//! Cuts, pieces and spans by themselves.

use super::cut::{self, Cut};
use super::pieces::{Again, Pieces};
use super::span::Span;
use super::words;
use super::*;
use crate::workload::derive::Derivation;
use crate::workload::picture::{Rendering, Video};

fn rendering(frames: &str) -> JobSpec {
    let workload = Workload::Rendering(Rendering {
        frames: frames.parse().expect("frames"),
        scene: None,
        each_ms: None,
        vram_mib: None,
    });
    JobSpec::of_workload("reel", workload)
}

fn clip(duration_s: u64, segment_s: u64) -> JobSpec {
    let segments = Segments {
        duration_s,
        segment_s,
    };
    let workload = Workload::Video(Video {
        frames: None,
        segments: Some(segments),
        scene: None,
        each_ms: None,
        vram_mib: None,
    });
    JobSpec::of_workload("clip", workload)
}

fn cut(mut spec: JobSpec, each_ms: Option<u64>) -> JobSpec {
    let workload = spec.workload.as_deref_mut().expect("a workload");
    match workload {
        Workload::Rendering(rendering) => rendering.each_ms = each_ms,
        Workload::Video(video) => video.each_ms = each_ms,
        _ => {}
    }
    let derivation = Derivation::of(workload, None).expect("a derivation");
    cut::fill(&mut spec, &derivation, None).expect("cut");
    spec
}

/// All tasks of a job, as they would be made if each succeeded.
fn tasks(spec: &JobSpec) -> Vec<JobSpec> {
    let mut tasks = Tasks::of(spec).expect("a job of tasks");
    let mut all = Vec::new();
    while let Some(task) = tasks.next(JobId(7), spec) {
        tasks.take(JobId(100 + u64::from(task.number)), &task);
        all.push(spec.of_task(&task));
    }
    assert!(tasks.is_given_out());
    all
}

fn frames(spec: &JobSpec) -> String {
    let list = spec.workload.as_deref().and_then(Workload::frame_list);
    list.expect("frames").to_string()
}

#[test]
fn a_task_is_minutes_long_and_has_one_range() {
    let per_task = |spec: &JobSpec| spec.tasks.and_then(|cut| cut.per_task);
    let unknown = cut(rendering("1-240"), None);
    assert_eq!(per_task(&unknown), Some(1), "nothing tells how long one takes");
    let quick = cut(rendering("1-240"), Some(500));
    assert_eq!(per_task(&quick), Some(15), "enough for sixteen at once");
    let slow = cut(rendering("1-24000"), Some(60_000));
    assert_eq!(per_task(&slow), Some(5), "five minutes");
    let many = cut(rendering("1-1000000"), Some(600_000));
    assert_eq!(per_task(&many), Some(100), "ten thousand tasks at most");

    let mut two = rendering("1-5x2,10-13");
    two.tasks = Some(Cut {
        per_task: Some(2),
        ..Cut::default()
    });
    let parts: Vec<String> = tasks(&cut(two, None)).iter().map(frames).collect();
    assert_eq!(parts, ["1-3x2", "5", "10-11", "12-13"]);
}

#[test]
fn ninety_minutes_are_eighteen_tasks() {
    let mut spec = cut(clip(5400, 300), None);
    spec.command = vec![
        "ffmpeg".into(),
        "-ss".into(),
        "{start}".into(),
        "-to={end}".into(),
    ];
    let all = tasks(&spec);
    assert_eq!(all.len(), 18);
    let last = &all[17];
    assert_eq!(*words::command(last), ["ffmpeg", "-ss", "5100", "-to=5400"]);
    let told = words::variables(last);
    let said = |name: &str| {
        told.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| &**value)
    };
    assert_eq!(said("TENURE_SEGMENT_START_S"), Some("5100"));
    assert_eq!(said("TENURE_SEGMENT_END_S"), Some("5400"));
    assert_eq!(said("TENURE_TASK"), Some("17"));
    let uneven = tasks(&cut(clip(5401, 300), None));
    let told = words::variables(&uneven[18]);
    assert!(told.contains(&("TENURE_SEGMENT_END_S", "5401".into())));
}

#[test]
fn words_in_braces_are_replaced_and_other_braces_are_not() {
    let mut spec = rendering("1-240x2");
    spec.command = [
        "r",
        "-f{frames}",
        "out_{frame:04}.png",
        "{x}",
        "{",
        "{{first}}",
        "{frames:04}",
        "{step}",
    ]
    .map(String::from)
    .to_vec();
    spec.tasks = Some(Cut {
        per_task: Some(1),
        ..Cut::default()
    });
    let all = tasks(&cut(spec, None));
    assert_eq!(
        *words::command(&all[4]),
        ["r", "-f9", "out_0009.png", "{x}", "{", "{9}", "{frames:04}", "1"]
    );
    let alone = JobSpec {
        task: None,
        ..all[4].clone()
    };
    assert_eq!(
        *words::command(&alone),
        alone.command,
        "other jobs' commands are theirs"
    );
}

#[test]
fn a_command_that_says_one_frame_gets_one() {
    let mut spec = rendering("1-240");
    spec.command = vec!["r".into(), "{frame}".into()];
    assert_eq!(
        cut(spec.clone(), Some(10)).tasks.and_then(|cut| cut.per_task),
        Some(1)
    );
    let derivation = Derivation::of(spec.workload.as_deref().expect("one"), None).expect("one");
    spec.tasks = Some(Cut {
        per_task: Some(4),
        ..Cut::default()
    });
    let refused = cut::fill(&mut spec, &derivation, None).expect_err("one alone");
    assert_eq!(refused.field.as_deref(), Some("/tasks/per_task"));
    spec.tasks = None;
    spec.command = vec!["r".into(), "{start}".into()];
    let refused = cut::fill(&mut spec, &derivation, None).expect_err("of segments");
    assert_eq!(refused.field.as_deref(), Some("/command"));
}

#[test]
fn what_fails_is_narrowed_down_until_it_is_alone() {
    // Of 240 in one task, frame 100 fails always.
    let mut waiting = vec![Again {
        span: Span::new(0, 240),
        tries: 0,
    }];
    let (mut done, mut tried, mut lost) = (0, 0, None);
    while let Some(again) = waiting.pop() {
        tried += 1;
        if !(again.span.first..again.span.end()).contains(&100) {
            done += again.span.count;
            continue;
        }
        let (back, failed) = Pieces::after_failure(again, 3);
        waiting.extend(back);
        lost = lost.or(failed);
    }
    assert_eq!((done, lost), (239, Some(Span::new(100, 1))));
    assert!(tried < 25, "{tried} tasks in all");
}
