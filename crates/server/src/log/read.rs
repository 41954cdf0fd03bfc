//! One question to a node, and keeping what came of it: whole lines, with the levels that occur in them.

use std::time::Duration;

use tenure_api::channel::{LogChunk, LogStream};
use tenure_engine::{Engine, EngineError};
use tenure_journal::{Appended, NewStretch};
use tokio::time::Instant;

use super::desk::Desk;
use super::level::{Level, UNSAID_BIT};
use super::line::{clean, lines};
use super::pack::pack;
use super::track::Tracked;
use crate::controller::now;

/// A line that was begun and not ended is kept as it is after this long.
const HELD: Duration = Duration::from_secs(5);

/// What came of a question.
pub(super) enum Came {
    /// So many bytes were kept; there is more now, later, or never.
    Kept { bytes: u64, more: More },
    /// A line was begun and is waited for.
    Begun,
    /// Its job has all that is kept of one.
    NotWanted,
    /// It was read further than is known here: by a server that led before, whose last words came late.
    Behind,
    /// Not now.
    Later,
    /// The node does not have it.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Now,
    Later,
    Never,
}

/// One question, and keeping what came.
pub(super) async fn read(
    engine: &dyn Engine,
    desk: &Desk,
    tracked: &Tracked,
    chunk_bytes: u32,
    job_bytes_max: u64,
) -> Came {
    let asked = engine.read_log(
        tracked.node,
        tracked.allocation,
        tracked.stream,
        tracked.next,
        chunk_bytes,
        0,
    );
    let chunk = match asked.await {
        Ok(chunk) if chunk.offset == tracked.next => chunk,
        // What is not the answer to the question is none.
        Ok(_) => return Came::Later,
        Err(EngineError::Refused { .. }) => return Came::Refused,
        Err(_) => return Came::Later,
    };
    let is_full = chunk.bytes.len() >= chunk_bytes as usize;
    let length = whole(&chunk, is_full, tracked.held);
    let is_last = chunk.end && length == chunk.bytes.len();
    if length == 0 && !chunk.bytes.is_empty() {
        return Came::Begun;
    }
    let bytes = length as u64;
    if bytes == 0 && !is_last {
        return Came::Kept {
            bytes,
            more: More::Later,
        };
    }
    let stretch = stretch_of(tracked, &chunk.bytes[..length], is_last, job_bytes_max);
    let more = match (is_last, is_full) {
        (true, _) => More::Never,
        (false, true) => More::Now,
        (false, false) => More::Later,
    };
    match desk.keep(stretch).await {
        Some(Appended::Kept) => Came::Kept { bytes, more },
        Some(Appended::Full) => Came::NotWanted,
        Some(Appended::Behind) => Came::Behind,
        None => Came::Later,
    }
}

/// How much of a chunk is kept now: whole lines, and a line that nobody ends where it has been waited for.
fn whole(chunk: &LogChunk, is_full: bool, held: Option<Instant>) -> usize {
    let all = chunk.bytes.len();
    if chunk.end {
        return all;
    }
    match chunk.bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(last) => last + 1,
        None if is_full || held.is_some_and(|held| held.elapsed() >= HELD) => all,
        None => 0,
    }
}

fn stretch_of(tracked: &Tracked, bytes: &[u8], is_last: bool, job_bytes_max: u64) -> NewStretch {
    let levels = lines(bytes)
        .map(|line| Level::of_line(&clean(line)).map_or(UNSAID_BIT, Level::bit))
        .fold(0, |all, bit| all | bit);
    let note = format!(
        "WARN tenure: of one job's logs {} MiB are kept; what {} wrote from here on is not among them\n",
        job_bytes_max >> 20,
        match tracked.stream {
            LogStream::Stdout => "it",
            LogStream::Stderr => "it to stderr",
        }
    );
    NewStretch {
        source: tracked.id,
        tenant: tracked.tenant.clone(),
        scope: tracked.scope.clone(),
        job: tracked.job.to_string(),
        parent: tracked.parent.map(|of| of.to_string()),
        at_ms: now().0,
        levels,
        first: tracked.next,
        bytes: bytes.len() as u64,
        data: pack(bytes),
        is_last,
        job_bytes_max,
        full: (Level::Warn.bit(), pack(note.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: &[u8], end: bool) -> LogChunk {
        LogChunk {
            offset: 0,
            bytes: bytes.to_vec(),
            end,
        }
    }

    #[test]
    fn lines_are_kept_whole_unless_nobody_ends_them() {
        let long_ago = Instant::now().checked_sub(HELD);
        assert_eq!(whole(&chunk(b"a\nb\nbegun", false), false, None), 4);
        assert_eq!(whole(&chunk(b"begun", false), false, None), 0);
        assert_eq!(whole(&chunk(b"begun", false), false, long_ago), 5);
        assert_eq!(whole(&chunk(b"begun", false), true, None), 5);
        assert_eq!(whole(&chunk(b"a\nlast", true), false, None), 6);
    }
}
