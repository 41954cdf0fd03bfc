//! What is kept of a webhook in the erasable store, sealed: its URL, and the keys its messages are signed with.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};
use tenure_api::secret_text::SecretText;
use tenure_domain::Time;
use tenure_domain::id::SecretId;
use tenure_journal::JournalReader;

use crate::keyring::{Keyring, KeyringError, random};

/// For how long an old key signs too, where nothing else is said, and at most.
pub(crate) const DAY_S: u64 = 86_400;
pub(crate) const WEEK_S: u64 = 7 * DAY_S;
/// As receivers' libraries know secrets.
const PREFIX: &str = "whsec_";
/// Rotated again and again, a webhook has no more keys than this.
const MAX_KEYS: usize = 4;

#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    url: SecretText,
    /// The newest first.
    keys: Vec<KeptKey>,
}

#[derive(Serialize, Deserialize)]
struct KeptKey {
    key: SecretText,
    /// Signs until then; for ever where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
}

fn new_key() -> KeptKey {
    let bytes: [u8; 32] = random();
    KeptKey {
        key: SecretText::new(BASE64_STANDARD.encode(bytes)),
        until: None,
    }
}

impl Kept {
    /// For a new webhook, with its key as it is shown once.
    pub fn new(url: SecretText) -> (Kept, SecretText) {
        let keys = vec![new_key()];
        let shown = shown(&keys[0]);
        (Kept { url, keys }, shown)
    }

    /// The same with another key. The present one signs too until then.
    pub fn rotated(self, now: Time, old_until: Time) -> (Kept, SecretText) {
        let mut keys = vec![new_key()];
        let shown = shown(&keys[0]);
        keys.extend(self.keys.into_iter().map(|old| KeptKey {
            until: Some(old.until.unwrap_or(old_until).min(old_until)),
            key: old.key,
        }));
        keys.retain(|key| key.until.is_none_or(|until| until > now));
        keys.truncate(MAX_KEYS);
        (Kept { url: self.url, keys }, shown)
    }

    pub fn url(&self) -> &str {
        self.url.reveal()
    }

    /// Those that sign now, the newest first.
    pub fn keys(&self, now: Time) -> impl Iterator<Item = Vec<u8>> {
        let living = self
            .keys
            .iter()
            .filter(move |key| key.until.is_none_or(|until| until > now));
        living.filter_map(|key| BASE64_STANDARD.decode(key.key.reveal()).ok())
    }

    pub fn sealed(&self, keyring: &Keyring, id: SecretId) -> Vec<u8> {
        let text = serde_json::to_vec(self).expect("texts encode");
        keyring.seal(&id.to_string(), &text)
    }

    /// None where it is not in the store: erased, or left out of a backup.
    pub async fn find(
        keyring: &Keyring,
        reader: &JournalReader,
        id: SecretId,
    ) -> Result<Option<Kept>, KeyringError> {
        let text = keyring.find(reader, &id.to_string()).await?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }
}

fn shown(key: &KeptKey) -> SecretText {
    SecretText::new(format!("{PREFIX}{}", key.key.reveal()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_signs_as_long_as_it_was_given_and_no_longer() {
        let (kept, first) = Kept::new(SecretText::new("https://example.com/in"));
        let now = Time(1_000);
        let (kept, second) = kept.rotated(now, now.plus_ms(500));
        assert_ne!(first.reveal(), second.reveal());
        let shown = |at: Time| -> Vec<String> {
            let keys = kept.keys(at);
            keys.map(|key| format!("{PREFIX}{}", BASE64_STANDARD.encode(key)))
                .collect()
        };
        assert_eq!(shown(Time(1_499)), [second.reveal(), first.reveal()]);
        assert_eq!(shown(Time(1_500)), [second.reveal()]);
        // What was to end sooner does not live on by another rotation.
        let (kept, _) = kept.rotated(Time(1_400), Time(9_000));
        assert_eq!(kept.keys(Time(1_450)).count(), 3);
        assert_eq!(kept.keys(Time(1_600)).count(), 2);
        let (kept, _) = kept.rotated(Time(2_000), Time(2_000));
        assert_eq!(
            kept.keys(Time(2_000)).count(),
            1,
            "the others were to end at once"
        );
    }
}
