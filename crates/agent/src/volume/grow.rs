//! Growing an image: by the kernel while it is mounted, where the agent may ask it to; by tools while it is not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::make::{BLOCK, SYSTEM_PATH};
use crate::kernel::{self, LoopDevice};

/// Of ext4's superblock: where it begins, and where in it the low and high parts of the number of blocks stand.
const SUPERBLOCK: u64 = 1024;
const BLOCKS_LOW: u64 = SUPERBLOCK + 0x4;
const BLOCKS_HIGH: u64 = SUPERBLOCK + 0x150;
/// Of linux/capability.h.
const CAP_SYS_RESOURCE: u32 = 24;

/// Makes an image, and the file system in it, as large as `bytes`; never smaller. An agent that died between the two
/// finds out here.
pub(super) fn to(path: &Path, image: &File, bytes: u64) -> io::Result<()> {
    if image.metadata()?.len() < bytes {
        image.set_len(bytes)?;
        image.sync_all()?;
    }
    let whole = image.metadata()?.len();
    if filled(image)? >= whole {
        return Ok(());
    }
    match LoopDevice::find(image)? {
        None if !may_ask_the_kernel() => by_tools(path),
        Some(_) if !may_ask_the_kernel() => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "in use it cannot grow here; it will with its next job after these",
        )),
        found => {
            let device = found.map_or_else(|| LoopDevice::of(image), Ok)?;
            device.refresh()?;
            kernel::resize_ext4(&device.root()?, whole / BLOCK)
        }
    }
}

/// How much of the image the file system says it fills.
fn filled(image: &File) -> io::Result<u64> {
    let number = |at| {
        let mut bytes = [0; 4];
        image.read_exact_at(&mut bytes, at)?;
        Ok::<u64, io::Error>(u32::from_le_bytes(bytes).into())
    };
    Ok((number(BLOCKS_LOW)? | number(BLOCKS_HIGH)? << 32) * BLOCK)
}

/// The kernel resizes only for who may pass limits; not every root may.
fn may_ask_the_kernel() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok())
        .is_some_and(|held| held >> CAP_SYS_RESOURCE & 1 == 1)
}

fn by_tools(path: &Path) -> io::Result<()> {
    // Corrected is fine too.
    run(Command::new("e2fsck").args(["-f", "-p"]).arg(path), 1)?;
    run(Command::new("resize2fs").arg(path), 0)
}

fn run(command: &mut Command, worst: i32) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name} (of e2fsprogs): {error}")))?;
    if done.status.code().is_some_and(|code| code <= worst) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = said.lines().next_back().unwrap_or_default();
    Err(io::Error::other(format!(
        "{name} ended with {}: {said}",
        done.status
    )))
}
