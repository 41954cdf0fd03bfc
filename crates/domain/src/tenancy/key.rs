//! API keys as the state knows them: whose, until when, for what; and the SHA-256 of the secret.
//! The secret itself is shown once by the server and never reaches an event.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::role::Action;
use crate::id::{KeyId, UserId};
use crate::time::Time;

/// A SHA-256, written in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            use std::fmt::Write;
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let bad = || serde::de::Error::custom("a digest is 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Digest(bytes))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub id: KeyId,
    pub user: UserId,
    pub label: Box<str>,
    pub digest: Digest,
    pub created: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// When set, the key allows only these of its user's actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeSet<Action>>,
}

/// Live keys, found by digest and by user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Key>", into = "Vec<Key>")]
pub struct Keys {
    keys: BTreeMap<KeyId, Key>,
    by_digest: BTreeMap<Digest, KeyId>,
    by_user: BTreeMap<UserId, BTreeSet<KeyId>>,
}

impl From<Vec<Key>> for Keys {
    fn from(list: Vec<Key>) -> Keys {
        let mut keys = Keys::default();
        list.into_iter().for_each(|key| keys.insert(key));
        keys
    }
}

impl From<Keys> for Vec<Key> {
    fn from(keys: Keys) -> Vec<Key> {
        keys.keys.into_values().collect()
    }
}

impl Keys {
    pub fn get(&self, id: KeyId) -> Option<&Key> {
        self.keys.get(&id)
    }

    pub fn by_digest(&self, digest: &Digest) -> Option<&Key> {
        self.by_digest.get(digest).and_then(|id| self.keys.get(id))
    }

    pub fn of_user(&self, user: UserId) -> impl Iterator<Item = &Key> {
        self.by_user
            .get(&user)
            .into_iter()
            .flatten()
            .filter_map(|id| self.keys.get(id))
    }

    pub(crate) fn insert(&mut self, key: Key) {
        self.by_digest.insert(key.digest, key.id);
        self.by_user.entry(key.user).or_default().insert(key.id);
        self.keys.insert(key.id, key);
    }

    pub(crate) fn remove(&mut self, id: KeyId) {
        if let Some(key) = self.keys.remove(&id) {
            self.by_digest.remove(&key.digest);
            if let Some(keys) = self.by_user.get_mut(&key.user) {
                keys.remove(&id);
                if keys.is_empty() {
                    self.by_user.remove(&key.user);
                }
            }
        }
    }
}
