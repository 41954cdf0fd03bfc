//! Device memory by the kernel's own hand: the `dmem` controller of version 2, for drivers that register their memory
//! with it (`admin-guide/cgroup-v2`: `dmem.capacity` names the regions, `dmem.max` limits one in a cgroup).
//!
//! Deliberately absent: NVIDIA's memory, which its driver limits (`driver.rs`), and who shares (`share.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The tree of version 2 below this root, whatever controllers it has.
pub fn tree(root: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(dir))
    })
}

/// Whether the tree limits device memory.
pub fn is_in(tree: &Path) -> bool {
    fs::read_to_string(tree.join("cgroup.controllers"))
        .is_ok_and(|list| list.split_whitespace().any(|controller| controller == "dmem"))
}

/// Regions of device memory that drivers registered, as the kernel calls them.
pub fn regions(root: &Path) -> Vec<String> {
    let told = tree(root)
        .filter(|tree| is_in(tree))
        .and_then(|tree| fs::read_to_string(tree.join("dmem.capacity")).ok());
    let lines = told.unwrap_or_default();
    lines
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// The region that is the memory of the device at this slot: `drm/0000:03:00.0/vram0`. One with several, as with
/// several tiles, has none that would be all of it.
pub fn region(regions: &[String], slot: &str) -> Option<String> {
    let own = |region: &&String| {
        let mut names = region.split('/');
        names.next() == Some("drm")
            && names.next() == Some(slot)
            && names.next().is_some_and(|name| name.starts_with("vram"))
    };
    let mut of_device = regions.iter().filter(own);
    of_device.next().cloned().filter(|_| of_device.next().is_none())
}

/// Shares the controller out to the children of these directories.
pub fn share_out(dirs: &[&Path]) -> io::Result<()> {
    dirs.iter()
        .try_for_each(|dir| fs::write(dir.join("cgroup.subtree_control"), "+dmem"))
}

/// Limits what programs in the cgroup may have of a region.
pub fn limit(cgroup: &Path, region: &str, bytes: u64) -> io::Result<()> {
    fs::write(cgroup.join("dmem.max"), format!("{region} {bytes}")).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{region}: its limit could not be set: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_region_or_none() {
        let regions = [
            "drm/0000:03:00.0/vram0",
            "drm/0000:04:00.0/vram0",
            "drm/0000:04:00.0/vram1",
            "drm/0000:05:00.0/stolen",
        ]
        .map(str::to_owned);
        let of = |slot| region(&regions, slot);
        assert_eq!(of("0000:03:00.0").as_deref(), Some("drm/0000:03:00.0/vram0"));
        assert_eq!(of("0000:04:00.0"), None, "two tiles");
        assert_eq!(of("0000:05:00.0"), None);
        assert_eq!(of("0000:03:00"), None);
    }
}
