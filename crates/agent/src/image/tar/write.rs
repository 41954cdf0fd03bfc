//! Writes tar archives for tests: such as tools write, and such as no honest one does.

/// One entry, changed at will before it is written.
#[derive(Clone)]
pub struct Member {
    pub flag: u8,
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u32,
    pub modified_s: u64,
    pub content: Vec<u8>,
}

pub fn member(flag: u8, path: impl AsRef<[u8]>) -> Member {
    Member {
        flag,
        path: path.as_ref().to_vec(),
        link: Vec::new(),
        mode: if flag == b'5' { 0o755 } else { 0o644 },
        modified_s: 1_000_000_000,
        content: Vec::new(),
    }
}

pub fn file(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Member {
    Member {
        content: content.as_ref().to_vec(),
        ..member(b'0', path)
    }
}

pub fn directory(path: impl AsRef<[u8]>) -> Member {
    member(b'5', path)
}

pub fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Member {
    Member {
        link: target.as_ref().to_vec(),
        ..member(b'2', path)
    }
}

pub fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Member {
    Member {
        link: target.as_ref().to_vec(),
        ..member(b'1', path)
    }
}

impl Member {
    pub fn mode(mut self, mode: u32) -> Member {
        self.mode = mode;
        self
    }

    /// The header, its checksum right, and the content padded.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (flag, name) in [(b'L', &self.path), (b'K', &self.link)] {
            if name.len() > 100 {
                let mut long = member(flag, "././@LongLink");
                long.content = [name.as_slice(), b"\0"].concat();
                bytes.extend(long.bytes());
            }
        }
        let mut header = [0; 512];
        let mut put = |at: usize, most: usize, field: &[u8]| {
            let length = field.len().min(most);
            header[at..at + length].copy_from_slice(&field[..length]);
        };
        put(0, 100, &self.path);
        put(100, 8, format!("{:07o}", self.mode).as_bytes());
        put(108, 8, b"0000000");
        put(116, 8, b"0000000");
        put(124, 12, format!("{:011o}", self.content.len()).as_bytes());
        put(136, 12, format!("{:011o}", self.modified_s).as_bytes());
        put(156, 1, &[self.flag]);
        put(157, 100, &self.link);
        put(257, 8, b"ustar\x0000");
        seal(&mut header);
        bytes.extend(header);
        bytes.extend(&self.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// Puts the right checksum into a header.
pub fn seal(header: &mut [u8; 512]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A whole archive.
pub fn archive(members: impl IntoIterator<Item = Member>) -> Vec<u8> {
    let mut bytes: Vec<u8> = members.into_iter().flat_map(|member| member.bytes()).collect();
    bytes.extend([0; 1024]);
    bytes
}
