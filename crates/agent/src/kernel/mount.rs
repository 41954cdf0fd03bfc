//! Mounts, by the newer calls that take whole trees and long lists.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use super::check;

/// Takes rights from a mount, and with `whole` from all below it: no set-user-id programs ever, no device files
/// in a tree, and with `read_only` no writing.
pub fn restrict_mount(at: &Path, whole: bool, read_only: bool) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_encoded_bytes())?;
    // SAFETY: all zero is a valid value.
    let mut attributes: libc::mount_attr = unsafe { std::mem::zeroed() };
    attributes.attr_set = libc::MOUNT_ATTR_NOSUID;
    if whole {
        attributes.attr_set |= libc::MOUNT_ATTR_NODEV;
    }
    if read_only {
        attributes.attr_set |= libc::MOUNT_ATTR_RDONLY;
    }
    let flags = if whole { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a live text ending with zero, the struct live and as long as is said.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            flags,
            &attributes,
            size_of::<libc::mount_attr>(),
        )
    } as libc::c_int)
    .map(drop)
}

/// Mounts `top` and `layers` below it, topmost first, as one read-only tree.
pub fn mount_overlay(top: &Path, layers: &[PathBuf], at: &Path) -> io::Result<()> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen, move_mount,
    };
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // One by one: joined they would be longer than the kernel takes.
    for layer in std::iter::once(top).chain(layers.iter().map(PathBuf::as_path)) {
        fsconfig_set_string(&overlay, "lowerdir+", layer.as_os_str().as_encoded_bytes())?;
    }
    // Opaque directories of layers carry the mark that needs no root to set.
    fsconfig_set_flag(&overlay, "userxattr")?;
    fsconfig_create(&overlay)?;
    let mounted = fsmount(
        &overlay,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?;
    move_mount(
        &mounted,
        "",
        rustix::fs::CWD,
        at,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}
