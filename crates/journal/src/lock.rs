//! The data directory: that it can be used, and that one server uses it.
//!
//! SQLite would let two processes write in turn; the flock on `journal.lock` is what makes a journal
//! have one leader on one machine. It goes with the process, however that ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock, fsync, statfs};

use crate::error::JournalError;

pub(crate) struct LockFile {
    _file: File,
}

/// Makes sure of a local, writable directory; creates it when there is nothing.
pub(crate) fn prepare(dir: &Path) -> Result<(), JournalError> {
    let not_writable = |source| JournalError::NotWritable {
        path: dir.to_owned(),
        source: Some(source),
    };
    match std::fs::metadata(dir) {
        Ok(found) if !found.is_dir() => return Err(JournalError::NotDirectory { path: dir.to_owned() }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(dir).map_err(not_writable)?;
            if let Some(parent) = dir.canonicalize().map_err(not_writable)?.parent() {
                let parent = File::open(parent).map_err(not_writable)?;
                fsync(&parent).map_err(|error| not_writable(error.into()))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(JournalError::NotDirectory { path: dir.to_owned() });
        }
        Err(error) => return Err(not_writable(error)),
    }
    let found = statfs(dir).map_err(|error| not_writable(error.into()))?;
    if is_network(found.f_type as u64) {
        return Err(JournalError::NetworkFileSystem { path: dir.to_owned() });
    }
    Ok(())
}

/// NFS, SMB and its elders, AFS, Ceph: the magic numbers of statfs(2).
fn is_network(magic: u64) -> bool {
    matches!(
        magic & 0xffff_ffff,
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x517b | 0x5346_414f | 0x6b41_4653 | 0x00c3_6400
    )
}

impl LockFile {
    pub fn take(dir: &Path, holder: &str) -> Result<LockFile, JournalError> {
        let path = dir.join("journal.lock");
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = open.map_err(|source| JournalError::NotWritable {
            path: path.clone(),
            source: Some(source),
        })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(JournalError::Held {
                    holder: holder.trim().to_owned(),
                });
            }
            Err(error) => {
                return Err(JournalError::NotWritable {
                    path,
                    source: Some(error.into()),
                });
            }
        }
        // Only a courtesy to whoever is refused; the lock is the flock.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{holder}, process {}", std::process::id());
        Ok(LockFile { _file: file })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        assert!(super::is_network(0x6969));
        assert!(super::is_network(0xff53_4d42));
        assert!(super::is_network(0xffff_ffff_ff53_4d42));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1] {
            assert!(!super::is_network(local), "{local:x}");
        }
    }
}
