//! A new agent finds what an older one left: runs that go on, runs that ended meanwhile, starts that came to
//! nothing, and, after a reboot, what the reboot ended.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tenure_domain::id::AllocationId;

use super::seat::Left;
use super::{Node, watch};
use crate::clock;
use crate::record::{Phase, Record};

pub(super) fn all(node: &Arc<Node>) -> io::Result<()> {
    let boot_id = clock::boot_id();
    let mut adopted = 0;
    for entry in fs::read_dir(node.dir.allocations())? {
        let entry = entry?;
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<AllocationId>().ok())
        else {
            continue;
        };
        adopted += usize::from(one(node, id, &entry.path(), &boot_id)?);
    }
    tracing::info!(
        adopted,
        known = node.table.whole().len(),
        "took over the allocations of this node"
    );
    Ok(())
}

/// True when it still runs.
fn one(node: &Arc<Node>, id: AllocationId, dir: &Path, boot_id: &str) -> io::Result<bool> {
    if node.is_buried(id) {
        // Released, but the older agent did not come to clear it away.
        node.clear_away(id)?;
        return Ok(false);
    }
    let record = match Record::read(dir) {
        Ok(Some(record)) => record,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            // Half a record: only a power cut leaves one, so whatever ran is over.
            let lost = Record::without_process(id, Phase::evicted(0));
            lost.replace(dir)?;
            node.table.put(lost);
            return Ok(false);
        }
        Err(error) => return Err(error),
        Ok(None) => {
            // Prepared, never claimed. Its thin parent may be just about to: whoever is first has it.
            let void = Record::without_process(id, Phase::Void);
            if void.claim(dir)? {
                node.put_aside(id)?;
                return Ok(false);
            }
            Record::read(dir)?.ok_or_else(|| io::Error::other("a record vanished"))?
        }
    };
    if record.phase == Phase::Void {
        node.put_aside(id)?;
        return Ok(false);
    }
    if record.phase.has_ended() {
        node.table.put(node.take_off(record));
        return Ok(false);
    }
    if record.boot_id != boot_id {
        // The reboot ended it. How long it ran until then nobody saw, so nothing more is claimed.
        let ended = Record {
            phase: Phase::evicted(0),
            ..record
        };
        ended.replace(dir)?;
        node.table.put(ended);
        return Ok(false);
    }
    let (pid, parent, left) = (record.pid, record.parent(), Left::of_record(&record));
    node.table.put(record);
    match parent {
        Some(pidfd) => {
            watch::watch(node, id, pid, pidfd, left)?;
            Ok(true)
        }
        None => {
            watch::settle(node, id, pid);
            Ok(false)
        }
    }
}
