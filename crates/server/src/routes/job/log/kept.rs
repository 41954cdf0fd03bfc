//! A job's log where its node cannot give it: out of what was collected, saying what is missing.

use tenure_api::channel::LogStream;
use tenure_domain::id::AllocationId;

use super::Piece;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::log::unpack;

/// Where what was collected of a log ends; none where nothing was.
pub(super) async fn end(shared: &Shared, allocation: AllocationId, stream: LogStream) -> Answer<Option<u64>> {
    let source = shared
        .app
        .logs
        .source(&allocation.to_string(), name(stream))
        .await?;
    Ok(source.map(|source| source.full_at.unwrap_or(source.next)))
}

fn name(stream: LogStream) -> &'static str {
    match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    }
}

/// What was kept from `offset` on; none where only the node can say.
pub(super) async fn read(
    shared: &Shared,
    allocation: AllocationId,
    stream: LogStream,
    offset: u64,
) -> Answer<Option<Piece>> {
    let store = &shared.app.logs;
    let Some(source) = store.source(&allocation.to_string(), name(stream)).await? else {
        return Ok(None);
    };
    let is_live = shared
        .app
        .controller
        .view()
        .read()
        .fleet
        .allocation(allocation)
        .is_some();
    if source.is_open && (source.next == 0 || (is_live && offset >= source.next)) {
        return Ok(None);
    }
    if let Some(stretch) = store.stretch_at(&source, offset).await? {
        let first = stretch.first.unwrap_or(0);
        if first > offset {
            return Ok(Some(missing(offset, first)));
        }
        let mut bytes = unpack(&stretch.data);
        let skipped = usize::try_from(offset - first).unwrap_or(usize::MAX);
        bytes.drain(..skipped.min(bytes.len()));
        return Ok(Some(Piece {
            bytes,
            next: first + stretch.bytes,
            end: false,
        }));
    }
    let all = source.full_at.unwrap_or(source.next);
    if offset < all {
        return Ok(Some(missing(offset, all)));
    }
    let bytes = match (source.full_at, source.is_open) {
        (Some(_), _) => note("what is kept of one job ends here; it wrote more".to_owned()),
        (None, true) => note("the rest is on a node that cannot be asked".to_owned()),
        (None, false) => Vec::new(),
    };
    Ok(Some(Piece {
        bytes,
        next: offset,
        end: true,
    }))
}

fn missing(from: u64, to: u64) -> Piece {
    Piece {
        bytes: note(format!("{} bytes are not kept any more", to - from)),
        next: to,
        end: false,
    }
}

fn note(text: String) -> Vec<u8> {
    format!("tenure: {text}\n").into_bytes()
}
