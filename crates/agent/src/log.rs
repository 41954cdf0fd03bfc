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

/// Reads a piece of a log, waiting for more at its end while the job runs.
pub async fn read(node: &Node, id: AllocationId, stream: LogStream, offset: u64, max: u32, wait_ms: u32) -> Result<LogChunk, String> {
    let deadline = Instant::now() + Duration::from_millis(wait_ms.min(30_000).into());
    loop {
        let chunk = now(node, id, stream, offset, max)?;
        if !chunk.bytes.is_empty() || chunk.end || Instant::now() >= deadline {
            return Ok(chunk);
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn now(node: &Node, id: AllocationId, stream: LogStream, offset: u64, max: u32) -> Result<LogChunk, String> {
    // Looked up before the file is read: a job that ends in between has a later piece, not a missing one.
    let ended = !node.table.knows(id) || node.table.get(id).is_some_and(|record| record.phase.has_ended());
    let name = match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    };
    let live = node.dir.allocation(id);
    let dir = if live.exists() { live } else { node.dir.released_allocation(id) };
    if !dir.exists() {
        return Err("the log is not kept any more".to_owned());
    }
    let read = || {
        let file = File::open(dir.join(name))?;
        let length = file.metadata()?.len();
        let want = length.saturating_sub(offset).min(max.into()).min(MAX_LOG_CHUNK as u64);
        let mut bytes = vec![0; want as usize];
        let got = file.read_at(&mut bytes, offset)?;
        bytes.truncate(got);
        let end = ended && offset.saturating_add(got as u64) >= length;
        Ok(LogChunk { offset, bytes, end })
    };
    match read() {
        Ok(chunk) => Ok(chunk),
        // Nothing was said yet, or ever.
        Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Ok(LogChunk { offset, bytes: Vec::new(), end: ended }),
        Err(error) => Err(format!("the log cannot be read: {error}")),
    }
}
