//! Reads tar archives: ustar, GNU long names and pax, as image layers are written.
//!
//! A reader of our own, since what it reads is hostile: names and extensions are bounded before they are held
//! in memory, every header's checksum is checked, and nothing here touches a file system. Refused: sparse files.

use std::io::{self, Read};

const BLOCK: usize = 512;
/// The longest path or link target taken, which is the kernel's own limit.
const NAME_MAX: u64 = 4096;
const PAX_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    /// Devices, pipes and what else there may be.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    pub size: u64,
    pub modified_s: i64,
}

pub struct Tar<R> {
    from: R,
    position: u64,
    /// Of the present entry's content.
    left: u64,
    padding: u64,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a tar archive: {why}"))
}

/// What pax and GNU entries say of the entry that follows them.
#[derive(Default)]
struct Ahead {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified_s: Option<i64>,
}

impl<R: Read> Tar<R> {
    pub fn new(from: R) -> Tar<R> {
        Tar {
            from,
            position: 0,
            left: 0,
            padding: 0,
        }
    }

    /// Where the present entry's content begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; what was not read of the last one is skipped.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut ahead = Ahead::default();
        loop {
            let rest = self.left + self.padding;
            self.skip(rest)?;
            (self.left, self.padding) = (0, 0);
            let mut header = [0; BLOCK];
            if !self.header(&mut header)? {
                return Ok(None);
            }
            let size = number(&header[124..136])?;
            self.begin(size);
            match header[156] {
                b'L' => ahead.path = Some(self.long_name()?),
                b'K' => ahead.link = Some(self.long_name()?),
                b'x' => self.pax(&mut ahead)?,
                // For the whole archive: nothing in it is of use here.
                b'g' => {}
                b'S' => return Err(wrong("it has sparse files")),
                flag => {
                    let entry = entry(&header, flag, size, ahead)?;
                    self.begin(if entry.kind == Kind::File {
                        entry.size
                    } else {
                        size
                    });
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// Passes over the present entry's content by another way than reading.
    pub fn pass_over(&mut self, seek: impl FnOnce(&mut R, u64) -> io::Result<()>) -> io::Result<()> {
        let rest = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        self.position += rest;
        seek(&mut self.from, rest)
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// False at the end, which is a block of zeroes or nothing at all.
    fn header(&mut self, header: &mut [u8; BLOCK]) -> io::Result<bool> {
        let mut got = 0;
        while got < BLOCK {
            match self.from.read(&mut header[got..]) {
                Ok(0) if got == 0 => return Ok(false),
                Ok(0) => return Err(wrong("it ends inside a header")),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.position += BLOCK as u64;
        if header.iter().all(|&byte| byte == 0) {
            return Ok(false);
        }
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        let own: u64 = header[148..156].iter().map(|&byte| u64::from(byte)).sum();
        if number(&header[148..156])? != sum - own + 8 * u64::from(b' ') {
            return Err(wrong("a header's checksum is wrong"));
        }
        Ok(true)
    }

    fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        let mut drain = [0; 16 * 1024];
        while bytes > 0 {
            let most = drain.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            match self.from.read(&mut drain[..most]) {
                Ok(0) => return Err(wrong("it ends inside a file")),
                Ok(got) => {
                    bytes -= got as u64;
                    self.position += got as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn content(&mut self, most: u64) -> io::Result<Vec<u8>> {
        if self.left > most {
            return Err(wrong("a name or an extension is too long"));
        }
        let mut content = Vec::new();
        let expected = self.left;
        self.read_to_end(&mut content)?;
        if content.len() as u64 != expected {
            return Err(wrong("it ends inside a name"));
        }
        Ok(content)
    }

    fn long_name(&mut self) -> io::Result<Vec<u8>> {
        let mut name = self.content(NAME_MAX + 1)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn pax(&mut self, ahead: &mut Ahead) -> io::Result<()> {
        let content = self.content(PAX_MAX)?;
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            let bad = || wrong("a pax record is malformed");
            let space = rest.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
            let length: usize = std::str::from_utf8(&rest[..space])
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(bad)?;
            let record = rest.get(space + 1..length).ok_or_else(bad)?;
            let record = record.strip_suffix(b"\n").ok_or_else(bad)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            let text = || std::str::from_utf8(value).map_err(|_| bad());
            match key {
                b"path" => ahead.path = Some(value.to_vec()),
                b"linkpath" => ahead.link = Some(value.to_vec()),
                b"size" => {
                    let size: u64 = text()?.parse().map_err(|_| bad())?;
                    ahead.size = Some(size).filter(|size| *size <= i64::MAX as u64);
                    ahead.size.ok_or_else(bad)?;
                }
                b"mtime" => {
                    let whole = text()?.split('.').next().unwrap_or_default();
                    ahead.modified_s = Some(whole.parse().map_err(|_| bad())?);
                }
                _ if key.starts_with(b"GNU.sparse.") => return Err(wrong("it has sparse files")),
                _ => {}
            }
            rest = &rest[length..];
        }
        Ok(())
    }
}

impl<R: Read> Read for Tar<R> {
    /// Of the present entry's content.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let got = self.from.read(&mut buffer[..most])?;
        if got == 0 {
            return Err(wrong("it ends inside a file"));
        }
        self.left -= got as u64;
        self.position += got as u64;
        Ok(got)
    }
}

fn entry(header: &[u8; BLOCK], flag: u8, size: u64, ahead: Ahead) -> io::Result<Entry> {
    let path = match ahead.path {
        Some(path) => path,
        None => {
            let mut path = until_zero(&header[345..500]).to_vec();
            // Only POSIX archives have a prefix; GNU ones keep other things there.
            if &header[257..263] != b"ustar\0" || path.is_empty() {
                path.clear();
            } else {
                path.push(b'/');
            }
            path.extend_from_slice(until_zero(&header[..100]));
            path
        }
    };
    let link = ahead
        .link
        .unwrap_or_else(|| until_zero(&header[157..257]).to_vec());
    if path.len() as u64 > NAME_MAX || link.len() as u64 > NAME_MAX {
        return Err(wrong("a name is too long"));
    }
    let kind = match flag {
        // Archives older than the flag mark a directory by its name.
        0 if path.ends_with(b"/") => Kind::Directory,
        0 | b'0' | b'7' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'5' => Kind::Directory,
        _ => Kind::Other,
    };
    Ok(Entry {
        path,
        link,
        kind,
        mode: u32::try_from(number(&header[100..108])? & 0o7777).unwrap_or(0),
        size: if kind == Kind::File {
            ahead.size.unwrap_or(size)
        } else {
            0
        },
        modified_s: match ahead.modified_s {
            Some(modified_s) => modified_s,
            None => i64::try_from(number(&header[136..148]).unwrap_or(0)).unwrap_or(0),
        },
    })
}

fn until_zero(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// Octal digits, or, with the first bit set, a big-endian number.
fn number(field: &[u8]) -> io::Result<u64> {
    if field[0] & 0x80 != 0 {
        if field[0] & 0x40 != 0 {
            return Err(wrong("a number is negative"));
        }
        let mut value = u64::from(field[0] & 0x3f);
        for &byte in &field[1..] {
            value = value
                .checked_mul(256)
                .ok_or_else(|| wrong("a number is too large"))?
                | u64::from(byte);
        }
        return if value > i64::MAX as u64 {
            Err(wrong("a number is too large"))
        } else {
            Ok(value)
        };
    }
    let digits = until_zero(field).trim_ascii();
    digits.iter().try_fold(0u64, |value, &digit| match digit {
        b'0'..=b'7' if value < 1 << 60 => Ok(value << 3 | u64::from(digit - b'0')),
        _ => Err(wrong("a number is malformed")),
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub mod write;
