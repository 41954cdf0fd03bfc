//! Bytes of a log as they are stored: compressed, and whole when they are read again.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// No stretch is larger; what says otherwise is damaged.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    packed
        .write_all(bytes)
        .and_then(|()| packed.finish())
        .expect("INVARIANT: memory takes what is written to it")
}

/// As much as can be read of it.
pub(crate) fn unpack(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = ZlibDecoder::new(data).take(MAX_BYTES).read_to_end(&mut bytes) {
        tracing::error!(%error, "a stretch of a log is damaged");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_the_same_and_damage_is_no_panic() {
        let text = b"step 1 loss 0.5\n".repeat(1000);
        let packed = pack(&text);
        assert!(packed.len() * 20 < text.len(), "{}", packed.len());
        assert_eq!(unpack(&packed), text);
        assert!(unpack(b"no zlib at all").is_empty());
        assert!(unpack(&packed[..packed.len() / 2]).len() <= text.len());
    }
}
