//! Making an image: under another name until it is whole, so that a crash leaves none that is half made.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How an image is called that is not whole yet.
pub(super) const DRAFT: &str = "new";
pub(super) const BLOCK: u64 = 4096;
const MKFS: &str = "mkfs.ext4";
/// Says where it is, when it is not where it always is.
const MKFS_VARIABLE: &str = "TENURE_MKFS";
/// Where tools are, whatever the agent's own PATH says.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

/// Removes what an older agent left half made.
pub(super) fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == DRAFT) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Makes the image `path` with so many bytes, whose root belongs to `user_id`.
pub(super) fn image(dir: &Path, path: &Path, bytes: u64, user_id: u32) -> io::Result<()> {
    let draft = path.with_extension(DRAFT);
    let made = filesystem(&draft, bytes, user_id).and_then(|()| {
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(dir)?.sync_all()
    });
    if made.is_err() {
        let _ = fs::remove_file(&draft);
    }
    made
}

/// Makes a sparse file with an empty file system.
pub(super) fn filesystem(path: &Path, bytes: u64, user_id: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .set_len(bytes)?;
    let program = std::env::var_os(MKFS_VARIABLE).unwrap_or_else(|| MKFS.into());
    let made = Command::new(program)
        .args(["-q", "-F", "-m", "0", "-b"])
        .arg(BLOCK.to_string())
        // The kernel fills tables in when they are used, so that even a large one is made at once.
        .arg("-E")
        .arg(format!(
            "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner={user_id}:{user_id}"
        ))
        .arg(path)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{MKFS} (of e2fsprogs): {error}")))?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    let said = said.lines().next_back().unwrap_or_default();
    Err(io::Error::other(format!(
        "{MKFS} ended with {}: {said}",
        made.status
    )))
}
