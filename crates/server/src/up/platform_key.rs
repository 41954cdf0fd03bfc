//! The platform's own keys: the one that signs the journal's heads, and the authority that signs nodes' and the
//! agents' door's certificates. Made by the first leader, kept sealed, shared by all servers of the platform.

use std::sync::Arc;

use tenure_engine::local::Authority;
use tenure_journal::{JournalHandle, JournalReader, SigningKey};

use super::UpError;
use crate::keyring::{Keyring, KeyringError};

pub const SIGNING: &str = "platform/head-key";
const AUTHORITY: &str = "platform/authority";

pub struct PlatformKeys {
    pub signing: Arc<SigningKey>,
    pub authority: Arc<Authority>,
}

impl PlatformKeys {
    /// Reads the keys; a platform that was never led has none.
    pub async fn load(keyring: &Keyring, journal: &JournalReader) -> Result<PlatformKeys, UpError> {
        let absent = || {
            UpError::Keyring(KeyringError::BadKey(
                "the leader has not made it yet; try again".into(),
            ))
        };
        let signing = keyring.find(journal, SIGNING).await?.ok_or_else(absent)?;
        let authority = keyring.find(journal, AUTHORITY).await?.ok_or_else(absent)?;
        let unreadable = |error: String| UpError::Keyring(KeyringError::BadKey(error));
        let (certificate, key): (String, String) =
            serde_json::from_slice(&authority).map_err(|error| unreadable(error.to_string()))?;
        Ok(PlatformKeys {
            signing: Arc::new(
                SigningKey::from_pkcs8(&signing).map_err(|error| unreadable(error.to_string()))?,
            ),
            authority: Arc::new(Authority::load(&certificate, &key)?),
        })
    }

    /// The leader makes what is missing.
    pub async fn load_or_make(keyring: &Keyring, journal: &JournalHandle) -> Result<PlatformKeys, UpError> {
        if keyring.find(journal, SIGNING).await?.is_none() {
            let (_, pkcs8) = SigningKey::generate();
            keyring.keep(journal, SIGNING, "", &pkcs8).await?;
        }
        if keyring.find(journal, AUTHORITY).await?.is_none() {
            let (certificate, key) = Authority::create()?.to_pem();
            let kept = serde_json::to_vec(&(certificate, key.reveal())).expect("two texts encode");
            keyring.keep(journal, AUTHORITY, "", &kept).await?;
        }
        PlatformKeys::load(keyring, journal).await
    }
}
