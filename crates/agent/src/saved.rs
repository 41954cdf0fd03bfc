//! When a job last said that its work is safe: it touches, or writes, the file that its environment names.
//!
//! The file is in memory of the job's own, where it fills nothing of the node's, and is as old as 1970 until somebody
//! touches it. From then on it counts when the kernel last saw it changed, which no program sets. Nothing is kept here:
//! whoever asks looks. Deliberately absent: what the job saved, and where; that is its own matter.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::isolate::root::TENURE_DIR;
use crate::record::Record;

/// Where a job reads the file's name.
pub const VARIABLE: &str = "TENURE_CHECKPOINT";
const NAME: &str = "checkpoint";

/// Makes the file in a directory, for anybody to touch.
pub fn make(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join(NAME);
    let file = File::create(&path)?;
    file.set_permissions(Permissions::from_mode(0o666))?;
    file.set_modified(UNIX_EPOCH)?;
    Ok(path)
}

/// What the job knows the file by; without a tree of its own it is beside its other files.
pub fn seen_as(own_tree: bool) -> io::Result<PathBuf> {
    match own_tree {
        true => Ok(Path::new(TENURE_DIR).join(NAME)),
        false => Ok(std::env::current_dir()?.join(NAME)),
    }
}

/// How long ago the job said so, by the node's clock; none where it never did.
pub fn ago_ms(record: &Record, dir: &Path) -> Option<u64> {
    let beside = dir.join(NAME);
    let path = match beside.exists() {
        true => beside,
        // As its first process sees it, which is ours.
        false => {
            let parent = record.pid;
            let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
            let first: u32 = children.split_whitespace().next()?.parse().ok()?;
            PathBuf::from(format!("/proc/{first}/root{TENURE_DIR}")).join(NAME)
        }
    };
    let facts = std::fs::symlink_metadata(path).ok()?;
    if (facts.mtime(), facts.mtime_nsec()) == (0, 0) {
        return None;
    }
    let nanos = u32::try_from(facts.ctime_nsec()).ok()?;
    let changed = UNIX_EPOCH + Duration::new(u64::try_from(facts.ctime()).ok()?, nanos);
    let ago = SystemTime::now().duration_since(changed).unwrap_or_default();
    u64::try_from(ago.as_millis()).ok()
}
