//! Removing images: the least recently used first, while there is more than the operator wants, and what a
//! crash left. Never what an allocation uses, nor what somebody is about to use.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use tenure_domain::workload::image::ImageDigest;

use super::ImageError;
use super::index::Index;
use super::store::{Aside, Store, USE, Use, failed};

#[derive(Default)]
struct Used {
    images: BTreeSet<String>,
    /// Of these images, and so perhaps of others too.
    layers: BTreeSet<String>,
}

impl Store {
    /// Removes what was not used for longest until there is no more than wanted.
    pub fn collect(&self) -> Result<(), ImageError> {
        // What is moved aside is removed when this ends, after the lock is given back: it may be much.
        let mut aside = Vec::new();
        let removed = Index::change(&self.dir, |index| self.collect_within(index, &mut aside))
            .map_err(failed("write the index of images"))?
            .map_err(failed("remove an image"))?;
        if removed > 0 {
            tracing::info!(removed, "removed images that were not used for longest");
            self.tell_changed();
        }
        Ok(())
    }

    fn collect_within(&self, index: &mut Index, aside: &mut Vec<Aside>) -> io::Result<usize> {
        let over = |index: &Index| index.layers.values().sum::<u64>() > self.config.kept_bytes;
        let mut removed = 0;
        if over(index) {
            self.drop_orphans(index, aside)?;
        }
        let mut oldest: Vec<(u64, String)> = index
            .images
            .iter()
            .map(|(digest, kept)| (kept.used_s, digest.clone()))
            .collect();
        oldest.sort();
        let used = self.used()?;
        // The newest stays, however large: it is the one somebody came for.
        oldest.pop();
        for (_, digest) in oldest {
            if !over(index) {
                break;
            }
            if used.images.contains(&digest) {
                continue;
            }
            index.forget(&digest);
            removed += 1;
            self.drop_orphans(index, aside)?;
        }
        Ok(removed)
    }

    /// Removes one image by name or digest, if nothing uses it.
    pub fn remove(&self, key: &str) -> Result<(), ImageError> {
        let used = self.used().map_err(failed("read what allocations use"))?;
        let mut aside = Vec::new();
        let removed = Index::change(&self.dir, |index| {
            let Some((digest, _)) = index.find(key) else {
                return Ok(Err(ImageError::Refused(format!("there is no image {key} here"))));
            };
            if used.images.contains(digest) {
                return Ok(Err(ImageError::Refused(format!("a job uses {key}"))));
            }
            let digest = digest.to_owned();
            index.forget(&digest);
            self.drop_orphans(index, &mut aside).map(Ok)
        })
        .map_err(failed("write the index of images"))?
        .map_err(failed("remove an image"))?;
        self.tell_changed();
        removed
    }

    /// Removes layers no image has any more; one that somebody holds stays for the next time.
    fn drop_orphans(&self, index: &mut Index, aside: &mut Vec<Aside>) -> io::Result<()> {
        for layer in index.orphans() {
            let gone = match layer.parse::<ImageDigest>() {
                Ok(digest) => self.drop_layer(&self.layer_dir(&digest), &layer, aside)?,
                Err(_) => true,
            };
            if gone {
                index.layers.remove(&layer);
            }
        }
        Ok(())
    }

    /// False when it is in use.
    fn drop_layer(&self, path: &Path, layer: &str, aside: &mut Vec<Aside>) -> io::Result<bool> {
        let dir = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            other => other?,
        };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // Only now: whoever held it before has said so by this time.
        if self.used()?.layers.contains(layer) {
            return Ok(false);
        }
        let away = Aside::new(&self.dir.join("tmp"))?;
        fs::rename(path, away.path.join("layer"))?;
        aside.push(away);
        Ok(true)
    }

    /// What allocations say they use.
    fn used(&self) -> io::Result<Used> {
        let mut used = Used::default();
        let allocations = match fs::read_dir(&self.allocations) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(used),
            other => other?,
        };
        for allocation in allocations {
            match fs::read(allocation?.path().join(USE)) {
                Ok(bytes) => {
                    let one: Use = serde_json::from_slice(&bytes)?;
                    used.images.insert(one.digest);
                    used.layers.extend(one.layers);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    /// Clears away what a crash left: half-made layers, and layers of no image.
    pub(super) fn tidy(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir.join("tmp"))? {
            let path = entry?.path();
            let unused = File::open(&path)
                .is_ok_and(|dir| rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok());
            if unused {
                fs::remove_dir_all(&path)?;
            }
        }
        let mut aside = Vec::new();
        Index::change(&self.dir, |index| {
            // A layer that came into place without its size being known is one of these too.
            for entry in fs::read_dir(self.dir.join("layers"))? {
                let name = entry?.file_name();
                let layer = format!("sha256:{}", name.to_string_lossy());
                index.layers.entry(layer).or_insert(0);
            }
            self.drop_orphans(index, &mut aside)
        })?
    }
}
