//! The file tree a job sees: the host's programs read-only, and nothing else of the host.
//!
//! It is built in two steps, so that the slow one can be done before there is a job: `prepare` makes what every
//! job's tree has alike, `finish` adds what is this job's own and makes the tree the root. Deliberately absent:
//! who may write where inside it (`landlock.rs`, and the files' own modes).

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_move, unmount,
};
use serde::{Deserialize, Serialize};

use crate::{kernel, saved};

/// Where a job finds what Tenure gives it.
pub const TENURE_DIR: &str = "/run/tenure";

/// Where it finds its volumes.
pub const VOLUMES_DIR: &str = "/volumes";

/// Of the host, read-only: programs and their settings. No homes, no state, no logs, no sockets.
const PROGRAMS: [&str; 9] = [
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "etc",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Of the kernel's view of the host, what programs ask to know their processors.
const SYSTEM: &str = "devices/system";
/// And what GPU drivers ask to find their devices.
const BUSES: [&str; 6] = ["devices", "bus", "class", "dev", "module", "kernel/iommu_groups"];
/// What says more of the host than a job should know.
const MASKED_FILES: [&str; 8] = [
    "proc/interrupts",
    "proc/kcore",
    "proc/key-users",
    "proc/keys",
    "proc/timer_list",
    "proc/sysrq-trigger",
    "proc/kallsyms",
    "proc/kpagecount",
];

const MASKED_DIRS: [&str; 2] = ["proc/fs", "proc/pressure"];

/// An empty directory of the tree, which is seen in place of what is masked: volumes are mounted over it, and never
/// anything is written to it.
const EMPTY: &str = "volumes";

/// What is made of the tree's own memory, whichever root it is seen in. No file systems of their own: one costs more to
/// make and to end than all that is in it, and to the kernel each is one more thing to look through when a job's memory is
/// given back.
const PREPARED: [&str; 3] = ["dev", "sys", "run"];

/// A directory of the host that an operator shows to every job, under the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDir {
    pub path: PathBuf,
    pub writable: bool,
}

impl std::str::FromStr for HostDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, writable) = match text.strip_suffix(":rw") {
            Some(path) => (path, true),
            None => (text.strip_suffix(":ro").unwrap_or(text), false),
        };
        let path = PathBuf::from(path);
        let plain = path.is_absolute()
            && path.components().count() > 1
            && !path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        let hidden = ["/tmp", "/var/tmp", "/proc", "/dev", "/sys", "/run"];
        if hidden.iter().any(|dir| path.starts_with(dir)) {
            Err("every job has a place of its own there; give a directory elsewhere".to_owned())
        } else if plain {
            Ok(HostDir { path, writable })
        } else {
            Err("give an absolute path below /, and :rw where jobs may write".to_owned())
        }
    }
}

/// Something bound into a job's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub from: PathBuf,
    pub to: PathBuf,
    pub writable: bool,
}

/// What is this job's own.
#[derive(Debug)]
pub struct Own<'a> {
    /// How much `/tmp` and `/var/tmp` hold together: memory of the job's own, which its limit counts. It fills no disk,
    /// and goes with the job.
    pub tmp_mib: u64,
    /// Layers of its image, topmost first; empty for the host's programs.
    pub layers: &'a [PathBuf],
    /// Its devices' files, under the paths they have on the host.
    pub device_files: &'a [PathBuf],
    pub bound: &'a [Bound],
    /// Mounts that are nowhere yet, by the name each has below `/volumes`.
    pub volumes: &'a [(String, OwnedFd)],
    /// Files of `/etc` that differ from job to job: name and content.
    pub settings: &'a [(&'static str, String)],
    /// Whether programs may look for OpenCL drivers.
    pub opencl: bool,
}

/// Mounts made from here on stay here.
pub fn private() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Builds at `at` what every job's tree has alike. Call in a mount namespace of one's own, as its first process.
pub fn prepare(at: &Path, host_dirs: &[HostDir]) -> io::Result<()> {
    private()?;
    tmpfs(at, c"mode=755,size=8m")?;
    for name in PROGRAMS {
        let (from, to) = (Path::new("/").join(name), at.join(name));
        let Ok(facts) = fs::symlink_metadata(&from) else {
            continue;
        };
        if facts.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if facts.is_dir() {
            fs::create_dir(&to)?;
            bind_tree(&from, &to, false)?;
        }
    }
    for name in ["proc", "dev", "sys", "run", "tmp", "var", "volumes"] {
        fs::create_dir(at.join(name))?;
    }
    fs::create_dir(at.join("var/tmp"))?;
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", at.join("proc"), "proc", plain, None)?;
    for name in MASKED_FILES {
        let masked = at.join(name);
        if masked.exists() {
            mount_bind("/dev/null", &masked)?;
        }
    }
    for masked in MASKED_DIRS.map(|name| at.join(name)) {
        if masked.is_dir() {
            mask(at, &masked)?;
        }
    }
    devices(&at.join("dev"))?;
    let system = at.join("sys").join(SYSTEM);
    fs::create_dir_all(&system)?;
    bind_tree(&Path::new("/sys").join(SYSTEM), &system, false)?;
    fs::create_dir(at.join("run/tenure"))?;
    for dir in host_dirs {
        let to = inside(at, &dir.path)?;
        fs::create_dir_all(&to)?;
        bind_tree(&dir.path, &to, dir.writable)?;
    }
    Ok(())
}

fn devices(dev: &Path) -> io::Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    for name in DEVICES {
        bind_file(&Path::new("/dev").join(name), &dev.join(name), true)?;
    }
    fs::create_dir(dev.join("pts"))?;
    // Terminals are counted for the whole host: without a bound of its own, one job could have them all.
    mount(
        "devpts",
        dev.join("pts"),
        "devpts",
        quiet,
        Some(c"newinstance,ptmxmode=0666,mode=0620,max=64"),
    )?;
    symlink("pts/ptmx", dev.join("ptmx"))?;
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(to, dev.join(name))?;
    }
    fs::create_dir(dev.join("shm"))?;
    mount(
        "tmpfs",
        dev.join("shm"),
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=1777"),
    )?;
    Ok(())
}

/// Adds what is the job's own to the tree at `at`, and makes it the root.
pub fn finish(at: &Path, own: &Own<'_>) -> io::Result<()> {
    let at = if own.layers.is_empty() {
        at.to_owned()
    } else {
        image(at, own.layers)?
    };
    let options = CString::new(format!("mode=1777,size={}m", own.tmp_mib)).map_err(io::Error::other)?;
    tmpfs(&at.join("tmp"), &options)?;
    bind_tree(&at.join("tmp"), &at.join("var/tmp"), true)?;
    let tenure = inside(&at, Path::new(TENURE_DIR))?;
    // A mount of its own: what is around it is read-only.
    let checkpoint = saved::make(&tenure)?;
    bind_file(&checkpoint, &checkpoint, true)?;
    let etc = tenure.join("etc");
    fs::create_dir(&etc)?;
    for (name, content) in own.settings {
        fs::write(etc.join(name), content)?;
        let to = inside(&at, &Path::new("/etc").join(name))?;
        // A link, as systemd makes of resolv.conf, points at what is not here; it cannot be replaced.
        if fs::symlink_metadata(&to).is_ok_and(|facts| facts.is_file()) {
            mount_bind(etc.join(name), &to)?;
            kernel::restrict_mount(&to, false, true)?;
        }
    }
    let vendors = at.join("etc/OpenCL");
    if !own.opencl && own.layers.is_empty() && vendors.is_dir() {
        mask(&at, &vendors)?;
    }
    if !own.device_files.is_empty() {
        for name in BUSES {
            let (from, to) = (Path::new("/sys").join(name), at.join("sys").join(name));
            if from.is_dir() {
                fs::create_dir_all(&to)?;
                bind_tree(&from, &to, false)?;
            }
        }
    }
    for file in own.device_files {
        let to = inside(&at, file)?;
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        bind_file(file, &to, true)?;
    }
    for bound in own.bound {
        let to = inside(&at, &bound.to)?;
        if bound.from.is_dir() {
            fs::create_dir_all(&to)?;
            bind_tree(&bound.from, &to, bound.writable)?;
        } else {
            bind_file(&bound.from, &to, bound.writable)?;
        }
    }
    volumes(&at, own.volumes)?;
    // Below an image's root each is a mount of its own.
    let apart: &[&str] = match own.layers.is_empty() {
        true => &[],
        false => &PREPARED,
    };
    for read_only in [""].iter().chain(apart) {
        kernel::restrict_mount(&at.join(read_only), false, true)?;
    }
    rustix::process::chdir(&at)?;
    // The old root is put under the new one at the same place, and let go.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Puts each volume at its name, in a directory that nothing else is written to.
fn volumes(at: &Path, volumes: &[(String, OwnedFd)]) -> io::Result<()> {
    if volumes.is_empty() {
        return Ok(());
    }
    let dir = inside(at, Path::new(VOLUMES_DIR))?;
    tmpfs(&dir, c"mode=755,size=64k")?;
    for (name, mount) in volumes {
        let to = inside(&dir, Path::new(name))?;
        fs::create_dir(&to).map_err(|error| said(&to, error))?;
        kernel::place_mount(mount, &to).map_err(|error| said(&to, error))?;
    }
    kernel::restrict_mount(&dir, false, true)
}

/// Stacks an image's layers below a top of our own that has the places to mount at, and has what is prepared seen in it.
fn image(prepared: &Path, layers: &[PathBuf]) -> io::Result<PathBuf> {
    let stack = prepared.join("run/stack");
    let top = prepared.join("run/top");
    for dir in [&stack, &top] {
        fs::create_dir(dir)?;
    }
    let places = ["proc", "tmp", "var/tmp", "volumes", "etc"];
    for name in PREPARED.into_iter().chain(places) {
        fs::create_dir_all(top.join(name))?;
    }
    for name in ["passwd", "group", "hosts", "hostname", "resolv.conf"] {
        File::create(top.join("etc").join(name))?;
    }
    kernel::mount_overlay(&top, layers, &stack)?;
    let at = prepared.join("tmp");
    mount_move(&stack, &at)?;
    mount_move(prepared.join("proc"), at.join("proc"))?;
    for name in PREPARED {
        mount_bind_recursive(prepared.join(name), at.join(name))?;
    }
    Ok(at)
}

/// A path of the job's as one below `at`; nothing climbs out.
fn inside(at: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut to = at.to_owned();
    for part in path.components() {
        match part {
            std::path::Component::RootDir | std::path::Component::CurDir => {}
            std::path::Component::Normal(name) => to.push(name),
            _ => return Err(io::Error::other(format!("{} climbs", path.display()))),
        }
    }
    Ok(to)
}

/// Shows nothing where something is, which nobody can change.
fn mask(at: &Path, masked: &Path) -> io::Result<()> {
    mount_bind(at.join(EMPTY), masked)?;
    kernel::restrict_mount(masked, true, true)
}

fn tmpfs(at: &Path, options: &std::ffi::CStr) -> io::Result<()> {
    mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(options),
    )?;
    Ok(())
}

fn bind_tree(from: &Path, to: &Path, writable: bool) -> io::Result<()> {
    mount_bind_recursive(from, to).map_err(|error| said(from, error))?;
    kernel::restrict_mount(to, true, !writable).map_err(|error| said(to, error))
}

fn bind_file(from: &Path, to: &Path, writable: bool) -> io::Result<()> {
    // What is there already is covered, never opened: it may be a file of the host's.
    if fs::symlink_metadata(to).is_err() {
        File::create(to).map_err(|error| said(to, error))?;
    }
    mount_bind(from, to).map_err(|error| said(from, error))?;
    if writable {
        Ok(())
    } else {
        kernel::restrict_mount(to, false, true)
    }
}

fn said(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
