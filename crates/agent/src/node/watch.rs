//! Hearing of runs: a thin parent says when its state changed, and its end is seen whether it says so or not.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_domain::id::AllocationId;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixDatagram;

use super::Node;
use super::seat::Left;
use crate::isolate::cgroup;
use crate::kernel;
use crate::record::{Phase, Record};

/// Listens for thin parents on a socket in the agent's directory.
pub(super) fn listen(node: &Arc<Node>) -> io::Result<()> {
    let path = node.dir.root().join("agent.sock");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A socket's path is short; that of an open directory always is.
    let root = std::fs::File::open(node.dir.root())?;
    let short = format!(
        "/proc/self/fd/{}/agent.sock",
        std::os::fd::AsRawFd::as_raw_fd(&root)
    );
    let socket = UnixDatagram::bind(short)?;
    let node = node.clone();
    node.runtime.clone().spawn(async move {
        let mut text = [0; 64];
        loop {
            let Ok(length) = socket.recv(&mut text).await else {
                continue;
            };
            let id = std::str::from_utf8(&text[..length])
                .ok()
                .and_then(|text| text.parse().ok());
            if let Some(id) = id {
                refresh(&node, id);
            }
        }
    });
    Ok(())
}

/// Watches a thin parent until it ends. It may be a child of this process or of one before it.
pub(super) fn parent(node: &Arc<Node>, id: AllocationId, pid: u32, left: Left) -> io::Result<()> {
    let pid = pid as i32;
    watch(node, id, pid, kernel::pidfd(pid)?, Some(left))
}

/// Sees a worker's thin parent off.
pub(super) fn worker(node: &Arc<Node>, id: AllocationId, pid: u32, left: Left) -> io::Result<()> {
    let pid = pid as i32;
    let seats = node.seats.clone();
    let _inside = node.runtime.enter();
    let pidfd = kernel::awaited(kernel::pidfd(pid)?)?;
    node.runtime.spawn(async move {
        if pidfd.readable().await.is_ok() {
            kernel::reap(pid, false);
            tracing::debug!(allocation = %id, pid, "a worker ended");
            let _ = tokio::task::spawn_blocking(move || seats.take_back(left)).await;
        }
    });
    Ok(())
}

/// `left` are the cgroups it has.
pub(super) fn watch(
    node: &Arc<Node>,
    id: AllocationId,
    pid: i32,
    pidfd: OwnedFd,
    left: Option<Left>,
) -> io::Result<()> {
    let _inside = node.runtime.enter();
    // SAFETY: an `OwnedFd` always answers with the same descriptor, and keeps it open.
    let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
    let watched = node.clone();
    node.runtime.spawn(async move {
        if pidfd.readable().await.is_err() {
            return;
        }
        // Only for a child of this process; of an older agent's nothing is learnt.
        let status = kernel::reap(pid, false).map(|(_, status)| status);
        if status.is_some_and(|status| status != 0) {
            tracing::warn!(allocation = %id, pid, status, "a thin parent failed");
        }
        let _ = tokio::task::spawn_blocking(move || {
            // What could not be written down may be ended once more.
            if settle(&watched, id, pid)
                && let Some(left) = left
            {
                watched.seats.take_back(left);
            }
        })
        .await;
    });
    Ok(())
}

/// Takes note of what is written of a run.
fn refresh(node: &Arc<Node>, id: AllocationId) {
    match Record::read(&node.dir.allocation(id)) {
        Ok(Some(record)) if record.phase.has_ended() => {
            // Its devices may make it wait, and what it used of them is written before it is told.
            let node = node.clone();
            node.runtime
                .clone()
                .spawn_blocking(move || node.table.update(node.take_off(record)));
        }
        Ok(Some(record)) => node.table.update(record),
        _ => {}
    }
}

/// The thin parent is gone: whatever it left unfinished ended with it. False where that could not be written down.
pub(super) fn settle(node: &Arc<Node>, id: AllocationId, pid: i32) -> bool {
    let open = || node.table.knows(id) && node.table.get(id).is_none_or(|record| !record.phase.has_ended());
    if !open() {
        return true;
    }
    let dir = node.dir.allocation(id);
    let settled = end_unfinished(&dir, id, pid).and_then(|record| match record.parent() {
        // Another had claimed the run before, and is well.
        Some(pidfd) if !record.phase.has_ended() => {
            let left = Left::of_record(&record);
            watch(node, id, record.pid, pidfd, left).map(|()| record)
        }
        _ => Ok(record),
    });
    match settled {
        Ok(record) if record.phase.has_ended() => node.table.update(node.take_off(record)),
        Ok(record) => node.table.update(record),
        // It said its end itself, and was released meanwhile.
        Err(_) if !open() => {}
        Err(error) => {
            tracing::error!(allocation = %id, %error, "could not write down the end of a run");
            return false;
        }
    }
    true
}

fn end_unfinished(dir: &Path, id: AllocationId, pid: i32) -> io::Result<Record> {
    let never = Record::without_process(id, Phase::evicted(0));
    if never.claim(dir)? {
        // It never claimed the run, and now cannot any more.
        tracing::warn!(allocation = %id, pid, "a thin parent never claimed its run");
        never.replace(dir)?;
        return Ok(never);
    }
    let record = Record::read(dir)?.ok_or(io::ErrorKind::NotFound)?;
    if record.phase.has_ended() || record.pid != pid && record.parent().is_some() {
        return Ok(record);
    }
    tracing::warn!(allocation = %id, pid, phase = ?record.phase, "a thin parent left its run unfinished");
    cgroup::end(&record.cgroups, Duration::from_secs(5));
    let ran_ms = record.report().map_or(0, |report| report.ran_ms);
    let ended = Record {
        phase: Phase::evicted(ran_ms),
        ..record
    };
    ended.replace(dir)?;
    Ok(ended)
}
