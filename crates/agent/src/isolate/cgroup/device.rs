//! Which device files a job may open, by the device controller of version 1. Under version 2 the same wall is the
//! job's own `/dev`, from which no other device file can be reached or made.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// null, zero, full, random, urandom, tty, ptmx and the terminals below pts.
const PLAIN: [&str; 8] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

pub(super) fn only_plain(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("devices.deny"), "a")?;
    PLAIN
        .iter()
        .try_for_each(|rule| fs::write(dir.join("devices.allow"), rule))
}

pub(super) fn also(dir: &Path, files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        let facts = fs::metadata(file)?;
        let kind = if facts.file_type().is_char_device() {
            'c'
        } else if facts.file_type().is_block_device() {
            'b'
        } else {
            return Err(io::Error::other(format!("{} is no device", file.display())));
        };
        let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
        fs::write(dir.join("devices.allow"), format!("{kind} {major}:{minor} rw"))?;
    }
    Ok(())
}
