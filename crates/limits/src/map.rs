//! The file and its mapping: making it, opening it, checking it.
//!
//! A page appears under its name only when it is whole. It is opened by path, or by a descriptor the job inherited
//! (`fd:N`), which is opened again so that locks belong to this process alone.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cut::Watched;
use crate::error::Error;
use crate::layout::{MAGIC, PAGE_SIZE, Page, VERSION};

pub(crate) struct Map {
    page: NonNull<Page>,
    /// Left before the page is unmapped.
    watched: Option<Watched>,
    source: PathBuf,
}

// SAFETY: the mapping is shared memory made of atomics only; it lives as long as the Map.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Makes a new page under `path`; fails if one stands there.
    pub fn create(path: &Path) -> Result<Map, Error> {
        let draft = path.with_extension(format!("draft.{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_CLOEXEC)
            .open(&draft)
            .map_err(|error| Error::Io("make the limits page", error))?;
        let named = (|| {
            file.set_len(PAGE_SIZE as u64)
                .map_err(|error| Error::Io("size the limits page", error))?;
            let map = Map::over(&file, path)?;
            let header = &map.page().header;
            header.version.store(VERSION, Relaxed);
            header.size.store(PAGE_SIZE as u32, Relaxed);
            header.magic.store(MAGIC, Release);
            // A link, not a rename: it refuses to replace a page that is in use.
            std::fs::hard_link(&draft, path).map_err(|error| Error::Io("name the limits page", error))?;
            Ok(map)
        })();
        let _ = std::fs::remove_file(&draft);
        named
    }

    /// Opens the page at `path`, or the one behind the inherited descriptor `fd:N`.
    pub fn open(path: &Path) -> Result<Map, Error> {
        let source = source_of(path);
        let file = open_again(&source)?;
        let size = file
            .metadata()
            .map_err(|error| Error::Io("look at the limits page", error))?
            .len();
        if size < PAGE_SIZE as u64 {
            return Err(Error::NotAPage("the file is too short"));
        }
        let map = Map::over(&file, &source)?;
        check(
            map.page().header.magic.load(Acquire),
            map.page().header.version.load(Relaxed),
            map.page().header.size.load(Relaxed),
        )?;
        Ok(map)
    }

    fn over(file: &File, source: &Path) -> Result<Map, Error> {
        // SAFETY: a fresh shared mapping of a file at least PAGE_SIZE long; nothing else lives at the address chosen.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os("map the limits page"));
        }
        let page = NonNull::new(address.cast()).ok_or(Error::NotAPage("mapped at zero"))?;
        Ok(Map {
            page,
            watched: Some(Watched::new(page)),
            source: source.to_owned(),
        })
    }

    pub fn page(&self) -> &Page {
        // SAFETY: mapped for as long as self lives; Page is valid for every bit pattern.
        unsafe { self.page.as_ref() }
    }

    /// A descriptor of its own: locks taken on it die with it, not with the mapping (a mapping keeps its descriptor's
    /// locks alive, in a forked child too).
    pub fn open_for_locks(&self) -> Result<OwnedFd, Error> {
        Ok(open_again(&self.source)?.into())
    }

    /// Whether the file still carries the whole page. A truncated one would raise SIGBUS when touched.
    pub fn whole(&self, fd: i32) -> bool {
        !self.is_lost() && length(fd).is_some_and(|length| length >= PAGE_SIZE as u64)
    }

    /// Whether what is mapped is no longer the file, for that was cut short.
    pub fn is_lost(&self) -> bool {
        self.watched.as_ref().is_some_and(Watched::is_lost)
    }
}

/// The file's length; none where it cannot be asked.
pub(crate) fn length(fd: i32) -> Option<u64> {
    // SAFETY: an all-zero stat is a valid out-value; the kernel fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live stat.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some(stat.st_size as u64)
}

/// Writes again how long a page is and what every page says of itself, into the file and not into the mapping: that may
/// be of another file by now.
pub(crate) fn write_again(fd: i32) {
    let mut head = [0u8; 16];
    head[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    head[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    head[12..].copy_from_slice(&(PAGE_SIZE as u32).to_ne_bytes());
    // SAFETY: an open file, and a live buffer of the length that is said. What fails is seen at the next look.
    unsafe {
        if length(fd) != Some(PAGE_SIZE as u64) {
            libc::ftruncate(fd, PAGE_SIZE as libc::off_t);
        }
        libc::pwrite(fd, head.as_ptr().cast(), head.len(), 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: mapped in `over` with this size and unmapped only here.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_SIZE) };
    }
}

/// Where a page named by `path` is opened: `fd:N` stands for an inherited descriptor.
pub(crate) fn source_of(path: &Path) -> PathBuf {
    let number = path.to_str().and_then(|text| text.strip_prefix("fd:"));
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(number) => PathBuf::from(format!("/proc/self/fd/{number}")),
        None => path.to_owned(),
    }
}

fn open_again(source: &Path) -> Result<File, Error> {
    let path = CString::new(source.as_os_str().as_bytes())
        .map_err(|_| Error::NotAPage("a zero byte in its path"))?;
    // SAFETY: a valid C string; the result is checked and owned at once.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY) };
    if fd < 0 {
        return Err(Error::last_os("open the limits page"));
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Checks what every page says of itself first.
pub(crate) fn check(magic: u64, version: u32, size: u32) -> Result<(), Error> {
    if magic != MAGIC {
        return Err(Error::NotAPage("wrong magic"));
    }
    if version > VERSION {
        return Err(Error::Newer { found: version });
    }
    if version != VERSION || size as usize != PAGE_SIZE {
        return Err(Error::NotAPage("another layout"));
    }
    Ok(())
}
