//! The 32-byte SHA-256 value that links events, names tree nodes and guards stored blobs.
//!
//! Only the value and its hexadecimal spelling live here; what is hashed is decided in `line`,
//! `merkle` and `snapshot`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 32]);

#[derive(Debug, thiserror::Error)]
#[error("expected 64 lower-case hexadecimal digits")]
pub struct NotAHash;

impl Hash {
    /// What the first event of a journal names as its predecessor.
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }

    pub fn of_parts(parts: &[&[u8]]) -> Hash {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Hash(hasher.finalize().into())
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Hash> {
        bytes.try_into().ok().map(Hash)
    }

    pub(crate) fn write_hex(&self, out: &mut String) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        let (pairs, _) = hex.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(self.0) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        out.push_str(std::str::from_utf8(&hex).expect("digits are ASCII"));
    }
}

/// A short check value over the fields of a row that the chain does not cover. It finds damage, not
/// forgery. Each field goes in with its length, so that none can run into the next.
pub(crate) fn row_sum(fields: &[&[u8]]) -> [u8; 8] {
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update((field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    let sum: [u8; 32] = hasher.finalize().into();
    std::array::from_fn(|at| sum[at])
}

/// Hashes laid end to end, as batch rows keep them; `None` when the length does not divide.
pub(crate) fn split(bytes: &[u8]) -> Option<Vec<Hash>> {
    let (whole, rest) = bytes.as_chunks::<32>();
    rest.is_empty().then(|| whole.iter().copied().map(Hash).collect())
}

pub(crate) fn join(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = String::with_capacity(64);
        self.write_hex(&mut hex);
        f.write_str(&hex)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Hash, NotAHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NotAHash),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(NotAHash);
        }
        let mut hash = Hash::ZERO;
        for (byte, pair) in hash.0.iter_mut().zip(pairs) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(hash)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
