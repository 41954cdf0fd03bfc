//! What the store remembers: `index.json`, one file for all images, written whole under a lock that holds
//! between processes too (`tenure-agent image` beside a running agent).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::Config;
use crate::record::write_synced;

/// An image that is here. Digests are texts, so that what a newer agent wrote is still read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Of each layer as an archive, bottom first; also what its directory is called.
    pub layers: Vec<String>,
    pub config: Config,
    pub used_s: u64,
    /// Anybody may have it: it was read without credentials, or an operator brought it.
    pub open: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Index {
    /// By digest.
    #[serde(default)]
    pub images: BTreeMap<String, Kept>,
    /// Names, and digests of indexes, each with the image it was last seen to mean.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// Bytes of each layer.
    #[serde(default)]
    pub layers: BTreeMap<String, u64>,
}

impl Index {
    /// None there, or one that a power cut or a person spoilt, is an empty one: layers are fetched again.
    pub fn read(dir: &Path) -> io::Result<Index> {
        match std::fs::read(dir.join("index.json")) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%error, "the index of images is not readable; images are fetched again");
                Index::default()
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::default()),
            Err(error) => Err(error),
        }
    }

    /// Changes the index; nobody else does meanwhile.
    pub fn change<T>(dir: &Path, change: impl FnOnce(&mut Index) -> T) -> io::Result<T> {
        let lock = File::options().create(true).append(true).open(dir.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let mut index = Index::read(dir)?;
        let done = change(&mut index);
        write_synced(dir, "index.json", &serde_json::to_vec_pretty(&index)?)?;
        Ok(done)
    }

    /// What a name, or a digest, means here.
    pub fn find(&self, key: &str) -> Option<(&str, &Kept)> {
        let digest = self.names.get(key).map_or(key, String::as_str);
        self.images
            .get_key_value(digest)
            .map(|(digest, kept)| (digest.as_str(), kept))
    }

    pub fn bytes_of(&self, kept: &Kept) -> u64 {
        kept.layers
            .iter()
            .filter_map(|layer| self.layers.get(layer))
            .sum()
    }

    /// Layers no image here has any more.
    pub fn orphans(&self) -> Vec<String> {
        let needed = |layer: &String| self.images.values().any(|kept| kept.layers.contains(layer));
        self.layers
            .keys()
            .filter(|layer| !needed(layer))
            .cloned()
            .collect()
    }

    pub fn forget(&mut self, digest: &str) {
        self.images.remove(digest);
        self.names.retain(|_, means| means != digest);
    }
}

pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
