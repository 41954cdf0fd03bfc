//! Reading logs, of what runs and of what was released a while ago.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tenure_api::channel::{LogChunk, LogStream, MAX_LOG_CHUNK};
use tenure_domain::id::AllocationId;
use tokio::time::{Instant, sleep};

use crate::node::Node;

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Reads a piece of a log, waiting for more at its end while the job runs. An order may arrive after the first
/// question about its log, so an allocation not known yet is waited for too.
pub async fn read(
    node: &Node,
    id: AllocationId,
    stream: LogStream,
    offset: u64,
    max: u32,
    wait_ms: u32,
) -> Result<LogChunk, String> {
    let deadline = Instant::now() + Duration::from_millis(wait_ms.min(30_000).into());
    loop {
        let chunk = now(node, id, stream, offset, max)?;
        let late = Instant::now() >= deadline;
        match chunk {
            Some(chunk) if !chunk.bytes.is_empty() || chunk.end || late => return Ok(chunk),
            None if late => return Err("this node does not know of it".to_owned()),
            _ => sleep(LOOK_AGAIN).await,
        }
    }
}

/// What there is now, or beyond the end, where the end is; none for an allocation this node has not heard of.
fn now(
    node: &Node,
    id: AllocationId,
    stream: LogStream,
    offset: u64,
    max: u32,
) -> Result<Option<LogChunk>, String> {
    // Looked up before the file is read: a job that ends in between has a later piece, not a missing one.
    let released = node.is_buried(id);
    let ended = released || node.table.get(id).is_some_and(|record| record.phase.has_ended());
    let name = match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    };
    let (live, kept) = (node.dir.allocation(id), node.dir.released_allocation(id));
    // A release moves the directory: what is no longer in the first place is in the second.
    let file = match File::open(live.join(name)).or_else(|_| File::open(kept.join(name))) {
        Ok(file) => file,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("the log cannot be read: {error}"));
        }
        Err(_) if live.exists() || kept.exists() => {
            return Ok(Some(LogChunk {
                offset,
                bytes: Vec::new(),
                end: ended,
            }));
        }
        Err(_) if released => return Err("the log is not kept any more".to_owned()),
        Err(_) => return Ok(None),
    };
    let read = || {
        let length = file.metadata()?.len();
        let offset = offset.min(length);
        let want = length
            .saturating_sub(offset)
            .min(max.into())
            .min(MAX_LOG_CHUNK as u64);
        let mut bytes = vec![0; want as usize];
        let got = file.read_at(&mut bytes, offset)?;
        bytes.truncate(got);
        let end = ended && offset.saturating_add(got as u64) >= length;
        Ok(LogChunk { offset, bytes, end })
    };
    read()
        .map(Some)
        .map_err(|error: io::Error| format!("the log cannot be read: {error}"))
}
