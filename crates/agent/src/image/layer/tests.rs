//! Layers in every form they come in.

use std::io::Write;

use super::super::tar::write::{archive, file};
use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Unpacks with the right digests unless told otherwise.
fn through(bytes: &[u8], announced: &[u8], diff_id: ImageDigest, most: u64) -> Result<String, ImageError> {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Checked::sized(bytes, digest_of(announced), announced.len() as u64);
    unpack_layer(&mut source, diff_id, dir.path(), most, 100)?;
    Ok(std::fs::read_to_string(dir.path().join("a")).unwrap())
}

#[test]
fn layers_come_plain_and_compressed() {
    let plain = archive([file("a", "content")]);
    let id = digest_of(&plain);
    let (head, tail) = plain.split_at(512);
    let skipped = [
        &[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3],
        zstd(&plain).as_slice(),
    ]
    .concat();
    let two_frames = [
        zstd(head),
        skipped[..11].to_vec(),
        zstd(tail),
        skipped[..11].to_vec(),
    ]
    .concat();
    let two_members = [gzip(head), gzip(tail)].concat();
    for bytes in [plain.clone(), gzip(&plain), two_members, zstd(&plain), two_frames] {
        assert_eq!(through(&bytes, &bytes, id, 1 << 20).unwrap(), "content");
    }
}

#[test]
fn wrong_bytes_are_found() {
    let plain = archive([file("a", "content")]);
    let other = archive([file("a", "another")]);
    let id = digest_of(&plain);
    for form in [|bytes: &[u8]| bytes.to_vec(), gzip, zstd] {
        let (right, wrong) = (form(&plain), form(&other));
        let damaged = |result: Result<String, ImageError>, what: &str| match result {
            Err(ImageError::Damaged { .. } | ImageError::Refused(_)) => {}
            other => panic!("{what}: {other:?}"),
        };
        damaged(through(&wrong, &right, id, 1 << 20), "other bytes than announced");
        damaged(
            through(&wrong, &wrong, id, 1 << 20),
            "another archive than configured",
        );
        damaged(
            through(&right[..right.len() - 1], &right, id, 1 << 20),
            "cut short",
        );
        damaged(
            through(&right[..right.len() / 2], &right, id, 1 << 20),
            "cut in half",
        );
        let longer = [right.as_slice(), b"more"].concat();
        damaged(through(&longer, &right, id, 1 << 20), "more than announced");
        let mut flipped = right.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x10;
        damaged(through(&flipped, &right, id, 1 << 20), "a flipped bit");
    }
}

#[test]
fn a_bomb_is_put_out() {
    let bomb = archive([file("a", vec![0; 8 << 20])]);
    for bytes in [gzip(&bomb), zstd(&bomb)] {
        assert!(bytes.len() < 100_000);
        let result = through(&bytes, &bytes, digest_of(&bomb), 1 << 20);
        assert!(matches!(result, Err(ImageError::TooLarge { .. })), "{result:?}");
    }
}
