//! How a task's program learns what it is to do: words in braces in its command, and variables.
//!
//! `{frame}`, `{frames}`, `{first}`, `{last}`, `{step}`, `{segment}`, `{start}`, `{end}`, `{port}` and `{task}` are replaced, those
//! that are numbers also as `{frame:04}`; everything else in braces stays as it is. Only commands of tasks are touched.
//! Called when an order is written, so the journal has the command as its user wrote it.

use std::borrow::Cow;

use super::span::Span;
use super::{Work, seconds};
use crate::refusal::Refusal;
use crate::workload::Workload;
use crate::workload::service::PORT_VARIABLE;
use crate::workload::spec::JobSpec;

const OF_ALL: [&str; 1] = ["task"];
const OF_FRAMES: [&str; 5] = ["frame", "frames", "first", "last", "step"];
const OF_REPLICAS: [&str; 1] = ["port"];
const OF_SEGMENTS: [&str; 3] = ["segment", "start", "end"];
/// Those that say one piece, and nothing of a run of them.
const ALONE: [&str; 2] = ["frame", "segment"];

/// What one task is told, by word and as variable.
struct Told {
    words: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
}

/// What a job's command says of its pieces, if it says one that is alone. Refuses words that its pieces do not have.
pub(crate) fn check(command: &[String], workload: &Workload) -> Result<Option<&'static str>, Refusal> {
    let by_frames = workload.frame_list().is_some();
    let strange: &[&'static str] = if by_frames { &OF_SEGMENTS } else { &OF_FRAMES };
    let mut alone = None;
    for argument in command {
        for (word, _, _) in found(argument) {
            if let Some(word) = strange.iter().find(|strange| **strange == word) {
                let (has, has_not) = match by_frames {
                    true => ("frames", "segments"),
                    false => ("segments", "frames"),
                };
                return Err(Refusal::invalid(
                    "/command",
                    format!("{{{word}}} is of {has_not}, and the job has {has}"),
                ));
            }
            alone = alone.or(ALONE.into_iter().find(|one| *one == word));
        }
    }
    Ok(alone)
}

/// The words of an argument, with the width they are padded to and where they stand, braces included.
fn found(argument: &str) -> Vec<(&str, usize, std::ops::Range<usize>)> {
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(open) = argument[from..].find('{').map(|at| from + at) {
        // A word has no brace inside; each character is looked at once, whoever wrote them.
        let Some(close) = argument[open + 1..].find(['{', '}']).map(|at| open + 1 + at) else {
            break;
        };
        if argument.as_bytes()[close] == b'{' {
            from = close;
            continue;
        }
        let inside = &argument[open + 1..close];
        let (word, width) = match inside.split_once(":0") {
            Some((word, width)) => (word, width.parse().ok().filter(|width| (1..=9).contains(width))),
            None => (inside, Some(0)),
        };
        let mut known = OF_ALL
            .iter()
            .chain(&OF_FRAMES)
            .chain(&OF_SEGMENTS)
            .chain(&OF_REPLICAS);
        match width.filter(|width| known.any(|known| *known == word) && (*width == 0 || word != "frames")) {
            Some(width) => {
                all.push((word, width, open..close + 1));
                from = close + 1;
            }
            None => from = close + 1,
        }
    }
    all
}

/// The command of a task with its words replaced; that of any other job as it is.
pub fn command(spec: &JobSpec) -> Cow<'_, [String]> {
    let Some(told) = told(spec) else {
        return Cow::Borrowed(&spec.command);
    };
    let replaced = spec.command.iter().map(|argument| replace(argument, &told.words));
    Cow::Owned(replaced.collect())
}

fn replace(argument: &str, words: &[(&'static str, String)]) -> String {
    let mut text = String::with_capacity(argument.len());
    let mut from = 0;
    for (word, width, at) in found(argument) {
        let Some((_, value)) = words.iter().find(|(known, _)| *known == word) else {
            continue;
        };
        text.push_str(&argument[from..at.start]);
        text.push_str(&format!("{value:0>width$}"));
        from = at.end;
    }
    text.push_str(&argument[from..]);
    text
}

/// What the program of a task finds in its environment; nothing for any other job.
pub fn variables(spec: &JobSpec) -> Vec<(&'static str, String)> {
    told(spec).map_or_else(Vec::new, |told| told.variables)
}

fn told(spec: &JobSpec) -> Option<Told> {
    let task = spec.task.as_deref()?;
    let span = task.work.span();
    let number = task.number.to_string();
    let mut told = Told {
        words: vec![("task", number.clone())],
        variables: vec![
            ("TENURE_TASK", number),
            ("TENURE_TASK_OF", task.of.to_string()),
            ("TENURE_TASK_TRY", (task.tries + 1).to_string()),
        ],
    };
    if let (Work::Replica, Some(service)) = (task.work, &spec.service) {
        let port = service.port_of(task).to_string();
        told.words.push(("port", port.clone()));
        told.variables.push((PORT_VARIABLE, port));
        return Some(told);
    }
    let workload = spec.workload.as_deref()?;
    if let Some(frames) = workload.frame_list() {
        let (first, last) = (frames.first(), frames.last());
        let (first, last, step) = (first.to_string(), last.to_string(), frames.step().to_string());
        told.words.extend([
            ("frame", first.clone()),
            ("frames", frames.to_string()),
            ("first", first.clone()),
            ("last", last.clone()),
            ("step", step.clone()),
        ]);
        told.variables.extend([
            ("TENURE_FRAMES", frames.to_string()),
            ("TENURE_FRAME_FIRST", first),
            ("TENURE_FRAME_LAST", last),
            ("TENURE_FRAME_STEP", step),
        ]);
    } else if let Workload::Video(video) = workload
        && let Some(segments) = video.segments
    {
        // Of a task the clip is its own part, and where that begins follows from its place.
        let start_s = span.first.saturating_mul(segments.segment_s);
        let end_s = start_s + seconds(&segments, Span::new(0, span.count)).map_or(0, |(_, end)| end);
        told.words.extend([
            ("segment", span.first.to_string()),
            ("start", start_s.to_string()),
            ("end", end_s.to_string()),
        ]);
        told.variables.extend([
            ("TENURE_SEGMENT_FIRST", span.first.to_string()),
            ("TENURE_SEGMENT_LAST", (span.end() - 1).to_string()),
            ("TENURE_SEGMENT_START_S", start_s.to_string()),
            ("TENURE_SEGMENT_END_S", end_s.to_string()),
        ]);
    }
    Some(told)
}
