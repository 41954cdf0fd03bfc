//! The keyring: one master key in a file of its own; everything else secret is kept in the journal's erasable
//! store, sealed under it. Servers that share a database share the master key.

use std::io::Write;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use tenure_journal::{JournalError, JournalHandle, JournalReader};

/// Why a secret could not be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    #[error("the master key file {path} cannot be used: {why}")]
    File { path: String, why: String },
    #[error("a secret does not open with this master key; is it the file the platform was founded with?")]
    WrongKey,
    #[error("the secret store failed")]
    Store(#[from] JournalError),
    #[error("the platform's own key is not readable: {0}")]
    BadKey(String),
}

/// Seals and opens under the master key.
pub struct Keyring {
    key: LessSafeKey,
}

impl Keyring {
    /// Reads the master key, or makes one where there is none.
    pub fn open(path: &Path) -> Result<Keyring, KeyringError> {
        let bad = |why: &dyn std::fmt::Display| KeyringError::File {
            path: path.display().to_string(),
            why: why.to_string(),
        };
        match std::fs::metadata(path) {
            Ok(meta) => {
                use std::os::unix::fs::PermissionsExt;
                if !meta.is_file() {
                    return Err(bad(&"it is not a file"));
                }
                if meta.permissions().mode() & 0o077 != 0 {
                    return Err(bad(&"others may read it; chmod 600 it, and consider it known"));
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create(path).map_err(|error| bad(&error))?
            }
            Err(error) => return Err(bad(&error)),
        }
        let bytes = std::fs::read(path).map_err(|error| bad(&error))?;
        let master: [u8; 32] = bytes.try_into().map_err(|_| bad(&"it does not hold 32 bytes"))?;
        Ok(Keyring::new(&master))
    }

    pub fn new(master: &[u8; 32]) -> Keyring {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tenure keyring 1");
        let derived = salt.extract(master);
        let okm = derived
            .expand(&[b"seal"], &CHACHA20_POLY1305)
            .expect("a constant length");
        Keyring {
            key: LessSafeKey::new(UnboundKey::from(okm)),
        }
    }

    /// `id` is bound to the box: moved to another id it does not open.
    pub fn seal(&self, id: &str, plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random();
        let mut sealed = plain.to_vec();
        let tag = self.key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(id.as_bytes()),
            &mut sealed,
        );
        let mut bytes = nonce.to_vec();
        bytes.append(&mut sealed);
        bytes.extend_from_slice(tag.expect("secrets are short").as_ref());
        bytes
    }

    pub fn open_box(&self, id: &str, sealed: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let Some((nonce, body)) = sealed.split_first_chunk::<NONCE_LEN>() else {
            return Err(KeyringError::WrongKey);
        };
        let mut body = body.to_vec();
        let plain = self.key.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(id.as_bytes()),
            &mut body,
        );
        plain
            .map(|plain| plain.to_vec())
            .map_err(|_| KeyringError::WrongKey)
    }

    /// A platform secret by name; absent where it was never made.
    pub async fn find(&self, journal: &JournalReader, id: &str) -> Result<Option<Vec<u8>>, KeyringError> {
        match journal.get_secret(id).await? {
            Some(sealed) => self.open_box(id, &sealed).map(Some),
            None => Ok(None),
        }
    }

    pub async fn keep(
        &self,
        journal: &JournalHandle,
        id: &str,
        scope: &str,
        plain: &[u8],
    ) -> Result<(), KeyringError> {
        Ok(journal.put_secret(id, scope, self.seal(id, plain)).await?)
    }
}

fn create(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&random::<32>())?;
    file.sync_all()
}

/// Bytes nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_opens_only_under_its_key_and_id() {
        let (ours, theirs) = (Keyring::new(&[1; 32]), Keyring::new(&[2; 32]));
        let sealed = ours.seal("sec_a", b"hunter2");
        assert_eq!(ours.open_box("sec_a", &sealed).unwrap(), b"hunter2");
        assert!(ours.open_box("sec_b", &sealed).is_err());
        assert!(theirs.open_box("sec_a", &sealed).is_err());
        assert!(ours.open_box("sec_a", &sealed[..5]).is_err());
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
    }

    #[test]
    fn a_key_file_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        Keyring::open(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Keyring::open(&path), Err(KeyringError::File { .. })));
    }
}
