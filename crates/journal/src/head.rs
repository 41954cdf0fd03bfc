//! Signed heads: a key vouches for the whole journal up to one event.
//!
//! A head kept off this machine is what finds a rewritten chain and a cut tail. Ed25519; the keys'
//! storage and rotation belong to the server.

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::chain::Head;
use crate::error::JournalError;
use crate::hash::Hash;
use crate::leader::JournalHandle;
use crate::reader::JournalReader;
use crate::store::{Row, args};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    pub platform: String,
    pub seq: u64,
    pub hash: Hash,
    pub root: Hash,
    pub at_ms: i64,
    pub key_id: String,
    /// Hexadecimal, 64 bytes.
    pub signature: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("not an Ed25519 private key in PKCS #8")]
    NotAKey,
    #[error("the head was signed with another key")]
    OtherKey,
    #[error("the head belongs to another platform")]
    OtherPlatform,
    #[error("the signature does not match")]
    BadSignature,
}

/// An Ed25519 private key.
pub struct SigningKey {
    pair: Ed25519KeyPair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey(pub [u8; 32]);

impl SigningKey {
    /// A new key and its PKCS #8 form, for the caller to keep.
    pub fn generate() -> (SigningKey, Vec<u8>) {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system gives random numbers");
        let key = SigningKey::from_pkcs8(document.as_ref()).expect("a key just made is well formed");
        (key, document.as_ref().to_vec())
    }

    pub fn from_pkcs8(bytes: &[u8]) -> Result<SigningKey, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).map_err(|_| KeyError::NotAKey)?;
        Ok(SigningKey { pair })
    }

    pub fn public_key(&self) -> PublicKey {
        PublicKey(
            self.pair
                .public_key()
                .as_ref()
                .try_into()
                .expect("Ed25519 public keys are 32 bytes"),
        )
    }

    pub fn sign(&self, platform: &str, head: Head, at_ms: i64) -> SignedHead {
        let mut signed = SignedHead {
            platform: platform.to_owned(),
            seq: head.seq,
            hash: head.hash,
            root: head.root,
            at_ms,
            key_id: self.public_key().id(),
            signature: String::new(),
        };
        signed.signature = to_hex(self.pair.sign(signed.message().as_bytes()).as_ref());
        signed
    }
}

impl PublicKey {
    /// The first 16 hexadecimal digits of the key's SHA-256.
    pub fn id(&self) -> String {
        to_hex(&Hash::of(&self.0).0[..8])
    }
}

impl SignedHead {
    pub fn check(&self, key: &PublicKey) -> Result<(), KeyError> {
        if self.key_id != key.id() {
            return Err(KeyError::OtherKey);
        }
        let signature = from_hex(&self.signature).ok_or(KeyError::BadSignature)?;
        UnparsedPublicKey::new(&ED25519, key.0)
            .verify(self.message().as_bytes(), &signature)
            .map_err(|_| KeyError::BadSignature)
    }

    /// Field lengths are fixed or digits only, and the platform comes last: no two heads share a message.
    fn message(&self) -> String {
        let SignedHead {
            platform,
            seq,
            hash,
            root,
            at_ms,
            key_id,
            ..
        } = self;
        format!("tenure-head-1\n{seq}\n{hash}\n{root}\n{at_ms}\n{key_id}\n{platform}")
    }
}

impl JournalHandle {
    /// Signs the end of the journal as committed now, keeps the head and returns it for export.
    pub async fn sign_head(&self, key: &SigningKey, at_ms: i64) -> Result<SignedHead, JournalError> {
        let signed = key.sign(self.platform(), self.head(), at_ms);
        let signature = from_hex(&signed.signature).unwrap_or_default();
        let mut tx = self.begin().await?;
        tx.run(
            "signing a head",
            "INSERT INTO head (seq, key_id, at_ms, hash, root, signature) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (seq, key_id) DO UPDATE SET at_ms = $3, hash = $4, root = $5, signature = $6",
            args![
                signed.seq,
                signed.key_id.as_str(),
                at_ms,
                signed.hash,
                signed.root,
                signature
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(signed)
    }
}

impl JournalReader {
    /// The heads kept beside the journal, oldest first. Whoever can cut the journal can cut these too.
    pub async fn heads(&self) -> Result<Vec<SignedHead>, JournalError> {
        let mut conn = self.conn().await?;
        let rows = conn
            .rows(
                "SELECT seq, key_id, at_ms, hash, root, signature FROM head ORDER BY seq, at_ms",
                args![],
            )
            .await
            .map_err(|error| JournalError::storage("reading heads", error))?;
        rows.iter().map(|row| head_row(self.platform(), row)).collect()
    }
}

fn head_row(platform: &str, row: &Row) -> Result<SignedHead, JournalError> {
    Ok(SignedHead {
        platform: platform.to_owned(),
        seq: row.count(0)?,
        key_id: row.text(1)?,
        at_ms: row.int(2)?,
        hash: row.hash(3)?,
        root: row.hash(4)?,
        signature: to_hex(&row.blob(5)?),
    })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok())
        .collect()
}
