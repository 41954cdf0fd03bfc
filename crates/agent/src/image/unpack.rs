//! Turns the archive of one layer into a directory that overlayfs takes as a read-only lower one.
//!
//! What comes out: files, directories, links; a whiteout (`.wh.name`) becomes overlayfs's own, a character
//! device 0/0, and an opaque directory its extended attribute. Everything belongs to the agent's user, and
//! everything is readable, and executable where its owner could execute it, by all: jobs run under their tenant's
//! user id, and the directories above the store let nobody else in. Times of files are kept.
//!
//! What is left out: owners, set-user-id and set-group-id bits, extended attributes (capabilities among them),
//! devices and pipes. Without root the same comes out, where the kernel allows whiteouts (5.8 and later).
//!
//! Hostile archives: a name with `..` or a zero byte, a link to outside, a whiteout of `.` or `..`, and too many
//! entries are refused; a directory that is only made on the way to an entry is one. Every path is resolved by the kernel inside the layer (`openat2`), so that no link in
//! it, however made, leads out.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;

use super::ImageError;
use super::tar::{Entry, Kind, Tar};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other marks of an old file system, which mean nothing to anybody else.
const MARK: &[u8] = b".wh..wh.";
/// How deep a path is, and a directory may come to lie by way of links: whoever removes the layer holds each open.
const DEPTH_MAX: usize = 512;
/// What a file costs beside its bytes.
const ENTRY_BYTES: u64 = 4096;

/// What was unpacked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    pub bytes: u64,
    pub entries: u64,
}

/// Unpacks into an empty directory.
pub fn unpack(archive: impl Read, into: &std::path::Path, entries_max: u64) -> Result<Unpacked, ImageError> {
    let failed = ImageError::io("unpack a layer");
    let mut layer = match Layer::open(into, entries_max) {
        Ok(layer) => layer,
        Err(error) => return Err(failed(error)),
    };
    let mut tar = Tar::new(archive);
    loop {
        let entry = match tar.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => return Err(failed(error)),
        };
        if let Err(error) = layer.take(&entry, &mut tar) {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            return Err(match error {
                Bad::TooMany => ImageError::TooLarge {
                    what: "a layer",
                    limit: entries_max,
                    unit: "files and directories",
                },
                Bad::Entry(why) => ImageError::Refused(format!("the layer's entry {path:?} {why}")),
                Bad::Io(source) => ImageError::from_read(format!("unpack {path:?} of a layer"), source),
            });
        }
    }
    // Before it is called complete: a power cut must not leave empty files in it.
    rustix::fs::syncfs(&layer.root).map_err(|error| failed(error.into()))?;
    Ok(layer.unpacked)
}

enum Bad {
    /// The archive's fault.
    Entry(&'static str),
    /// It has more files and directories than are allowed.
    TooMany,
    Io(io::Error),
}

impl From<io::Error> for Bad {
    fn from(error: io::Error) -> Bad {
        Bad::Io(error)
    }
}

impl From<Errno> for Bad {
    fn from(error: Errno) -> Bad {
        match error {
            Errno::NAMETOOLONG => Bad::Entry("has a name that is too long"),
            Errno::LOOP => Bad::Entry("goes through too many symbolic links"),
            Errno::NOTDIR => Bad::Entry("goes through what is not a directory"),
            Errno::XDEV => Bad::Entry("leads out of the layer"),
            other => Bad::Io(other.into()),
        }
    }
}

struct Layer {
    root: OwnedFd,
    /// How deep the layer itself lies.
    above: usize,
    unpacked: Unpacked,
    entries_max: u64,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Layer {
    fn open(into: &std::path::Path, entries_max: u64) -> io::Result<Layer> {
        let root = rustix::fs::openat(CWD, into, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Layer {
            above: depth(root.as_fd())?,
            root,
            unpacked: Unpacked::default(),
            entries_max,
        })
    }

    /// Before a file or directory is made, whether the archive names it or it is only on the way to one.
    fn count(&mut self) -> Result<(), Bad> {
        self.unpacked.entries += 1;
        self.unpacked.bytes += ENTRY_BYTES;
        if self.unpacked.entries > self.entries_max {
            return Err(Bad::TooMany);
        }
        Ok(())
    }

    fn take(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), Bad> {
        self.count()?;
        self.unpacked.bytes += entry.size;
        let parts = parts(&entry.path)?;
        let Some((name, above)) = parts.split_last() else {
            // The layer's own root; a file cannot take its place.
            return match entry.kind {
                Kind::Directory => Ok(rustix::fs::fchmod(&self.root, directory_mode(entry.mode))?),
                _ => Err(Bad::Entry("would replace the root")),
            };
        };
        if above.iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(Bad::Entry("lies below a whiteout"));
        }
        let parent = self.directory(above)?;
        if *name == OPAQUE {
            return opaque(parent.as_fd());
        }
        if name.starts_with(MARK) {
            return Ok(());
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return whiteout(parent.as_fd(), hidden);
        }
        let name = text(name)?;
        match entry.kind {
            Kind::Directory => self.make_directory(parent.as_fd(), &name, directory_mode(entry.mode)),
            Kind::File => make_file(parent.as_fd(), &name, entry, content),
            Kind::Symlink => {
                let target = text(&entry.link)?;
                if target.is_empty() {
                    return Err(Bad::Entry("is a link to nothing"));
                }
                clear(parent.as_fd(), &name)?;
                Ok(rustix::fs::symlinkat(&target, &parent, &name)?)
            }
            Kind::HardLink => self.link(parent.as_fd(), &name, &entry.link),
            Kind::Other => Ok(()),
        }
    }

    /// The directory at a path inside the layer; what is missing of it is made.
    fn directory(&mut self, parts: &[&[u8]]) -> Result<OwnedFd, Bad> {
        let Some((last, above)) = parts.split_last() else {
            return Ok(rustix::fs::openat(&self.root, c".", DIRECTORY, Mode::empty())?);
        };
        match self.resolve(parts, DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
        let parent = self.directory(above)?;
        let name = text(last)?;
        match kind(parent.as_fd(), &name)? {
            None | Some(FileType::CharacterDevice) => {
                self.count()?;
                self.make_directory(parent.as_fd(), &name, Mode::from_raw_mode(0o755))?;
            }
            Some(_) => return Err(Bad::Entry("goes through what is not a directory")),
        }
        Ok(rustix::fs::openat(
            &parent,
            &name,
            DIRECTORY.union(OFlags::NOFOLLOW),
            Mode::empty(),
        )?)
    }

    /// A directory that is there stays, and takes the mode; one in place of a whiteout hides all below.
    fn make_directory(&self, parent: BorrowedFd<'_>, name: &CString, mode: Mode) -> Result<(), Bad> {
        let before = kind(parent, name)?;
        if before != Some(FileType::Directory) {
            if depth(parent)? >= self.above + DEPTH_MAX {
                return Err(Bad::Entry("lies too deep"));
            }
            clear(parent, name)?;
            rustix::fs::mkdirat(parent, name, mode)?;
        }
        let made = rustix::fs::openat(parent, name, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty())?;
        rustix::fs::fchmod(&made, mode)?;
        if before == Some(FileType::CharacterDevice) {
            opaque(made.as_fd())?;
        }
        Ok(())
    }

    /// Opens a path as if the layer were the whole file system: the kernel lets no link lead out of it.
    fn resolve(&self, parts: &[&[u8]], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = CString::new(parts.join(&b'/')).map_err(|_| Errno::INVAL)?;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, &path, flags, Mode::empty(), within)
    }

    fn link(&mut self, parent: BorrowedFd<'_>, name: &CString, target: &[u8]) -> Result<(), Bad> {
        let missing = Bad::Entry("is a hard link to what is not in the layer");
        let parts = parts(target)?;
        let Some((last, above)) = parts.split_last() else {
            return Err(missing);
        };
        let from = if above.is_empty() {
            self.directory(above)?
        } else {
            match self.resolve(above, DIRECTORY) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Err(missing),
                other => other?,
            }
        };
        let last = text(last)?;
        match kind(from.as_fd(), &last)? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            _ => return Err(missing),
        }
        // A link to itself: it is there already.
        let itself = |fd: BorrowedFd<'_>, name: &CString| {
            rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
        };
        if itself(from.as_fd(), &last).ok() == itself(parent, name).ok() {
            return Ok(());
        }
        clear(parent, name)?;
        Ok(rustix::fs::linkat(&from, &last, parent, name, AtFlags::empty())?)
    }
}

/// The parts of a path: without a leading `/` and `.`, and never with `..`.
fn parts(path: &[u8]) -> Result<Vec<&[u8]>, Bad> {
    let parts: Vec<&[u8]> = path
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(Bad::Entry("leads out of the layer"));
    }
    if parts.len() > DEPTH_MAX {
        return Err(Bad::Entry("lies too deep"));
    }
    Ok(parts)
}

fn text(name: &[u8]) -> Result<CString, Bad> {
    CString::new(name).map_err(|_| Bad::Entry("has a zero byte in its name"))
}

fn kind(parent: BorrowedFd<'_>, name: &CString) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes room for a later entry of the same name: the last one counts.
fn clear(parent: BorrowedFd<'_>, name: &CString) -> Result<(), Bad> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => remove_tree(parent, name),
        Err(error) => Err(error.into()),
    }
}

fn remove_tree(parent: BorrowedFd<'_>, name: &CString) -> Result<(), Bad> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(name.as_bytes());
    let path = std::path::Path::new("/proc/self/fd")
        .join(parent.as_raw_fd().to_string())
        .join(name);
    Ok(std::fs::remove_dir_all(path)?)
}

fn directory_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o1777 | 0o755)
}

fn file_mode(mode: u32) -> Mode {
    let execute = if mode & 0o100 != 0 { 0o111 } else { 0 };
    Mode::from_raw_mode(mode & 0o777 | 0o644 | execute)
}

/// How many directories lie above one, links on the way to it counted as where they lead.
fn depth(directory: BorrowedFd<'_>) -> Result<usize, Errno> {
    let itself = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, itself, Vec::new())?;
    Ok(path.as_bytes().iter().filter(|&&byte| byte == b'/').count())
}

fn make_file(
    parent: BorrowedFd<'_>,
    name: &CString,
    entry: &Entry,
    content: &mut impl Read,
) -> Result<(), Bad> {
    clear(parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::openat(
        parent,
        name,
        flags,
        Mode::from_raw_mode(0o600),
    )?);
    io::copy(content, &mut file)?;
    rustix::fs::fchmod(&file, file_mode(entry.mode))?;
    let when = rustix::fs::Timespec {
        tv_sec: entry.modified_s,
        tv_nsec: 0,
    };
    // A time the file system cannot hold is no reason to refuse the file.
    let _ = rustix::fs::futimens(
        &file,
        &rustix::fs::Timestamps {
            last_access: when,
            last_modification: when,
        },
    );
    Ok(())
}

/// Hides a name of the layers below. What this very layer has under the name stays; of a directory, all of
/// the layers below it is hidden.
fn whiteout(parent: BorrowedFd<'_>, hidden: &[u8]) -> Result<(), Bad> {
    if matches!(hidden, b"" | b"." | b"..") {
        return Err(Bad::Entry("is a whiteout of no name"));
    }
    let name = text(hidden)?;
    match kind(parent, &name)? {
        Some(FileType::Directory) => {
            let directory =
                rustix::fs::openat(parent, &name, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty())?;
            opaque(directory.as_fd())
        }
        Some(_) => Ok(()),
        None => Ok(rustix::fs::mknodat(
            parent,
            &name,
            FileType::CharacterDevice,
            Mode::empty(),
            0,
        )?),
    }
}

/// Hides what the layers below have in a directory. Under both names: the one for mounts with `userxattr` anybody
/// may set, the other only root.
fn opaque(directory: BorrowedFd<'_>) -> Result<(), Bad> {
    let set = |name: &std::ffi::CStr| rustix::fs::fsetxattr(directory, name, b"y", XattrFlags::empty());
    let user = set(c"user.overlay.opaque");
    match set(c"trusted.overlay.opaque") {
        Err(_) if user.is_ok() => Ok(()),
        other => Ok(other?),
    }
}

/// Whether a layer hides everything below it. Overlayfs does not look for the mark on a layer's own root, so
/// whoever stacks layers must.
pub fn hides_all_below(layer: &std::path::Path) -> bool {
    let mut value = [0; 1];
    [c"user.overlay.opaque", c"trusted.overlay.opaque"]
        .iter()
        .any(|name| rustix::fs::lgetxattr(layer, *name, &mut value).is_ok_and(|_| value == *b"y"))
}

#[cfg(test)]
mod tests;
