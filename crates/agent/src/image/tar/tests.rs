//! What is read back as written, and what is refused.

use super::write::{archive, file, member, seal};
use super::*;

fn all(bytes: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
    let mut tar = Tar::new(bytes);
    let mut entries = Vec::new();
    while let Some(entry) = tar.next()? {
        let mut content = Vec::new();
        if entry.kind == Kind::File {
            tar.read_to_end(&mut content)?;
        }
        entries.push((entry, content));
    }
    Ok(entries)
}

fn pax(record: &str) -> write::Member {
    let mut length = record.len() + 2;
    while format!("{length} {record}\n").len() != length {
        length += 1;
    }
    write::Member {
        content: format!("{length} {record}\n").into_bytes(),
        ..member(b'x', "pax")
    }
}

#[test]
fn what_tar_writes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(140));
    std::fs::create_dir(dir.path().join("d".repeat(120))).unwrap();
    std::fs::write(dir.path().join(&long), "long").unwrap();
    std::fs::write(dir.path().join("plain"), vec![7; 1000]).unwrap();
    std::os::unix::fs::symlink("x".repeat(150), dir.path().join("link")).unwrap();
    std::fs::hard_link(dir.path().join("plain"), dir.path().join("second")).unwrap();
    for format in ["gnu", "posix", "ustar"] {
        let mut command = std::process::Command::new("tar");
        command
            .arg(format!("--format={format}"))
            .arg("-cf")
            .arg("-")
            .arg("-C")
            .arg(dir.path());
        command.arg("plain").arg("second");
        // A link target of more than 100 bytes has no place in a ustar header.
        if format != "ustar" {
            command.arg(&long).arg("link");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let entries = all(&output.stdout).unwrap();
        assert_eq!(entries[0].0.path, b"plain");
        assert_eq!(entries[0].1, vec![7; 1000]);
        assert_eq!(
            (entries[1].0.kind, entries[1].0.link.as_slice()),
            (Kind::HardLink, b"plain".as_slice())
        );
        if format != "ustar" {
            assert_eq!(entries[2].0.path, long.as_bytes(), "{format}");
            assert_eq!(entries[2].1, b"long");
            assert_eq!(entries[3].0.link, vec![b'x'; 150], "{format}");
        }
    }
}

#[test]
fn pax_says_it_better() {
    let bytes = archive([
        pax("path=a/better/name"),
        pax("mtime=12.5"),
        pax("size=3"),
        file("worse", "abc"),
        file("next", "d"),
    ]);
    let entries = all(&bytes).unwrap();
    assert_eq!(entries[0].0.path, b"a/better/name");
    assert_eq!(
        (entries[0].0.modified_s, entries[0].1.as_slice()),
        (12, b"abc".as_slice())
    );
    assert_eq!(entries[1].0.path, b"next", "and only of the one that follows");
}

#[test]
fn malformed_archives_are_refused() {
    let whole = archive([file("a", vec![1; 600])]);
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    let mut huge = file("a", "");
    huge.content = Vec::new();
    let mut endless: [u8; 512] = huge.bytes().try_into().unwrap();
    endless[124..136].copy_from_slice(b"77777777777\0");
    seal(&mut endless);
    let mut negative = endless;
    negative[124] = 0xff;
    seal(&mut negative);
    let mut overflow = endless;
    overflow[124..136].fill(0xbf);
    seal(&mut overflow);
    let mut name = member(b'L', "././@LongLink");
    name.content = vec![b'a'; 5000];
    for (what, bytes) in [
        ("half a header", whole[..300].to_vec()),
        ("half a file", whole[..800].to_vec()),
        ("a wrong checksum", flipped),
        ("a file without end", endless.to_vec()),
        ("a negative size", negative.to_vec()),
        ("a size beyond all sizes", overflow.to_vec()),
        ("a name of 5000 bytes", archive([name, file("a", "")])),
        (
            "a pax name of 5000 bytes",
            archive([pax(&format!("path={}", "p".repeat(5000))), file("a", "")]),
        ),
        (
            "an extension of 2 MiB",
            archive([write::Member {
                content: vec![b'1'; 2 << 20],
                ..member(b'x', "x")
            }]),
        ),
        (
            "a record without length",
            archive([write::Member {
                content: b"path=x\n".to_vec(),
                ..member(b'x', "x")
            }]),
        ),
        (
            "a record that is too long",
            archive([write::Member {
                content: b"99 path=x\n".to_vec(),
                ..member(b'x', "x")
            }]),
        ),
        (
            "a record of length 0",
            archive([write::Member {
                content: b"0 path=x\n".to_vec(),
                ..member(b'x', "x")
            }]),
        ),
        (
            "a size beyond all sizes in pax",
            archive([pax("size=18446744073709551615"), file("a", "")]),
        ),
        ("an old sparse file", archive([member(b'S', "a")])),
        (
            "a new sparse file",
            archive([pax("GNU.sparse.major=1"), file("a", "")]),
        ),
        ("no archive", b"hello".repeat(200)),
    ] {
        let error = all(&bytes).expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}: {error}");
    }
    assert!(all(&[]).unwrap().is_empty(), "nothing is an empty archive");
}
