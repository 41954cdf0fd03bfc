//! Files as the kernel's lists of mappings name them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::check;

/// Device and inode of a file as a process that has it mapped is shown to have them. What `stat` says may differ: file
/// systems that are stacked or cut into volumes number their files in two ways.
pub fn mapped_as(file: &File) -> io::Result<String> {
    // SAFETY: a new mapping wherever there is room, which nobody reads or writes.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let maps = std::fs::read("/proc/self/maps");
    // SAFETY: mapped above, and known to nobody else.
    check(unsafe { libc::munmap(at, 1) })?;
    let maps = maps?;
    let begins = format!("{:08x}-", at as usize);
    let line = maps
        .split(|&byte| byte == b'\n')
        .find(|line| line.starts_with(begins.as_bytes()))
        .map(String::from_utf8_lossy);
    line.as_deref()
        .and_then(mapped_file)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other("a file that is mapped is not among the mappings"))
}

/// Device and inode in a line of such a list.
pub fn mapped_file(line: &str) -> Option<&str> {
    let mut spaces = line.match_indices(' ').map(|(at, _)| at);
    let begin = spaces.nth(2)? + 1;
    let inode = spaces.next()? + 1;
    let end = line[inode..]
        .find(' ')
        .map_or(line.len(), |length| inode + length);
    Some(&line[begin..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_as_whoever_has_it_mapped_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        std::fs::write(&path, "some").unwrap();
        std::fs::hard_link(&path, dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("third"), "some").unwrap();
        let named = |name: &str| mapped_as(&File::open(dir.path().join(name)).unwrap()).unwrap();
        assert_eq!(named("one"), named("other"));
        assert_ne!(named("one"), named("third"));
        let line = "7f00-7f10 r-xp 00000000 fd:00 12  /usr/lib/a library.so";
        assert_eq!(mapped_file(line), Some("fd:00 12"));
        assert_eq!(mapped_file("7f00-7f10 rw-p 00000000 00:00 0"), Some("00:00 0"));
        assert_eq!(mapped_file("7f00-7f10 rw-p"), None);
    }
}
