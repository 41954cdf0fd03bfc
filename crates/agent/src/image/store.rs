//! The images of this node: `images/` in the agent's directory, each layer unpacked once and kept by digest.
//!
//! `layers/<digest>/` is what the archive of that digest holds; `tmp/` what is being made or removed;
//! `index.json` which images there are. A layer is complete or not there: it is made aside and moved.
//!
//! INVARIANT: a layer is removed only under an exclusive lock on its directory, after a look at what allocations
//! use; whoever is about to use one holds a shared lock until the allocation's directory says so.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tenure_api::secret_text::SecretText;
use tenure_domain::workload::image::{ImageDigest, ImageName};
use tokio::sync::{Notify, Semaphore};

use super::index::{Index, Kept, now_s};
use super::layer::{Checked, unpack_layer};
use super::manifest::{Described, Descriptor};
use super::registry::Registry;
use super::session::{Body, Session};
use super::unpack::hides_all_below;
use super::{Image, ImageConfig, ImageError};

/// In an allocation's directory: which image it uses.
pub const USE: &str = "image.json";
/// Layers fetched at once, each by a thread that waits for its registry; enough that slow ones of one tenant do
/// not hold up another's, and few enough to leave the runtime threads for other work.
const FETCHES: usize = 128;

pub struct Store {
    pub(super) dir: PathBuf,
    /// Where allocations say what they use.
    pub(super) allocations: PathBuf,
    pub(super) config: ImageConfig,
    registry: Arc<Registry>,
    /// One download at a time of each layer.
    fetching: Mutex<HashMap<ImageDigest, Weak<tokio::sync::Mutex<()>>>>,
    fetches: Arc<Semaphore>,
    changed: Notify,
}

/// An image that stays while this is held.
#[derive(Debug)]
pub struct Held {
    pub image: Image,
    layers: Vec<String>,
    _pins: Vec<File>,
}

/// What an allocation's directory says of its image.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Use {
    pub digest: String,
    pub layers: Vec<String>,
}

impl Held {
    /// Says in an allocation's directory that it uses the image, which then stays until that directory goes.
    pub fn note(&self, allocation: &Path) -> io::Result<()> {
        let used = Use {
            digest: self.image.digest.to_string(),
            layers: self.layers.clone(),
        };
        crate::record::write_whole(allocation, USE, &serde_json::to_vec(&used)?)
    }
}

/// One line of `tenure-agent image list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub digest: String,
    pub names: Vec<String>,
    pub bytes: u64,
    pub used_s: u64,
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    ImageError::io(what)
}

impl Store {
    /// Opens the store in an agent's directory; what a crash left half-made goes.
    pub fn open(state_dir: &Path, config: ImageConfig) -> Result<Arc<Store>, ImageError> {
        let dir = state_dir.join("images");
        for below in ["layers", "tmp"] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir.join(below))
                .map_err(failed("make the directory of images"))?;
        }
        let store = Store {
            registry: Arc::new(Registry::new(&config)?),
            dir,
            allocations: state_dir.join("allocations"),
            config,
            fetching: Mutex::default(),
            fetches: Arc::new(Semaphore::new(FETCHES)),
            changed: Notify::new(),
        };
        store.tidy().map_err(failed("tidy the directory of images"))?;
        Ok(Arc::new(store))
    }

    /// The image, fetched if it must be. A digest, and a tag other than `latest`, is not asked for again while
    /// the image is here, unless only those with credentials may have it: then the registry says who may.
    pub async fn ensure(
        self: &Arc<Self>,
        name: &ImageName,
        credentials: Option<&SecretText>,
    ) -> Result<Held, ImageError> {
        let key = name.key();
        if !name.is_latest()
            && let Some(held) = self.apart(move |store| store.held(&key, false)).await?
        {
            return Ok(held);
        }
        self.pull(name, credentials).await
    }

    /// The image as its registry has it now.
    pub async fn pull(
        self: &Arc<Self>,
        name: &ImageName,
        credentials: Option<&SecretText>,
    ) -> Result<Held, ImageError> {
        let session = Session::new(self.registry.clone(), name.clone(), credentials.cloned());
        let resolved = session.resolve().await?;
        let names: Vec<String> = [Some(name.key()), resolved.index.map(|index| index.to_string())]
            .into_iter()
            .flatten()
            .collect();
        // The registry has just let the manifest be read, so whoever asks may have what it names.
        let (digest, open) = (resolved.digest, session.is_open());
        let here = self
            .apart(move |store| store.held(&digest.to_string(), true))
            .await?;
        if let Some(held) = here {
            return self.apart(move |store| store.remember(held, &names, open)).await;
        }
        let described = Described::read(&session.small(&resolved.manifest.config).await?)?;
        if described.diff_ids.len() != resolved.manifest.layers.len() {
            return Err(ImageError::Refused(
                "the image's manifest and its configuration disagree about layers".to_owned(),
            ));
        }
        let announced: u64 = resolved
            .manifest
            .layers
            .iter()
            .fold(0, |sum, layer| sum.saturating_add(layer.size));
        self.refuse_above(announced)?;
        let mut pins = Vec::new();
        let mut bytes = 0;
        for (layer, &diff_id) in resolved.manifest.layers.iter().zip(&described.diff_ids) {
            let pin = self.fetch_layer(&session, layer, diff_id, bytes).await?;
            bytes += self.bytes_of(diff_id)?;
            pins.push(pin);
        }
        tracing::info!(image = %name, %digest, bytes, "fetched an image");
        self.apart(move |store| {
            let held = store.hold(digest, &described, bytes, pins);
            store.remember(held, &names, open)
        })
        .await
    }

    /// On a thread that may wait for the disk and for locks.
    async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Store) -> Result<T, ImageError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| ImageError::Io {
            what: "keep an image".to_owned(),
            source: io::Error::other(error),
        })?
    }

    fn refuse_above(&self, bytes: u64) -> Result<(), ImageError> {
        if bytes > self.config.image_bytes_max {
            return Err(ImageError::TooLarge {
                what: "the image",
                limit: self.config.image_bytes_max,
                unit: "bytes",
            });
        }
        Ok(())
    }

    /// The image if it is here, its layers pinned. Without `entitled` only what anybody may have.
    fn held(&self, key: &str, entitled: bool) -> Result<Option<Held>, ImageError> {
        let index = Index::read(&self.dir).map_err(failed("read the index of images"))?;
        let Some((digest, kept)) = index.find(key).filter(|(_, kept)| kept.open || entitled) else {
            return Ok(None);
        };
        let mut pins = Vec::new();
        for layer in &kept.layers {
            match self.pin(layer).map_err(failed("open a layer"))? {
                Some(pin) => pins.push(pin),
                None => return Ok(None),
            }
        }
        let described = Described {
            config: kept.config.clone(),
            diff_ids: kept
                .layers
                .iter()
                .map(|layer| layer.parse())
                .collect::<Result<_, _>>()?,
        };
        let (digest, bytes) = (digest.to_owned(), index.bytes_of(kept));
        let recent = now_s().saturating_sub(kept.used_s) < 60;
        if !recent {
            let used = digest.clone();
            Index::change(&self.dir, |index| {
                if let Some(kept) = index.images.get_mut(&used) {
                    kept.used_s = now_s();
                }
            })
            .map_err(failed("write the index of images"))?;
        }
        Ok(Some(self.hold(digest.parse()?, &described, bytes, pins)))
    }

    fn hold(&self, digest: ImageDigest, described: &Described, bytes: u64, pins: Vec<File>) -> Held {
        let layers: Vec<String> = described.diff_ids.iter().map(ImageDigest::to_string).collect();
        let mut stacked: Vec<PathBuf> = Vec::new();
        for diff_id in described.diff_ids.iter().rev() {
            let layer = self.layer_dir(diff_id);
            let last = hides_all_below(&layer);
            // The same layer twice, as an empty one often is, counts where it is higher.
            if !stacked.contains(&layer) {
                stacked.push(layer);
            }
            if last {
                break;
            }
        }
        Held {
            image: Image {
                digest,
                layers: stacked,
                config: described.config.clone(),
                bytes,
            },
            layers,
            _pins: pins,
        }
    }

    /// Writes down that an image is here and what it is called, and makes room if there is too much.
    fn remember(&self, held: Held, names: &[String], open: bool) -> Result<Held, ImageError> {
        let digest = held.image.digest.to_string();
        let changed = Index::change(&self.dir, |index| {
            let before = index.clone();
            let was_open = index.images.get(&digest).is_some_and(|kept| kept.open);
            for name in names.iter().filter(|name| **name != digest) {
                index.names.insert(name.clone(), digest.clone());
            }
            index.images.insert(
                digest.clone(),
                Kept {
                    layers: held.layers.clone(),
                    config: held.image.config.clone(),
                    used_s: now_s(),
                    open: open || was_open,
                },
            );
            before.names != index.names || before.images.len() != index.images.len()
        })
        .map_err(failed("write the index of images"))?;
        if changed {
            self.changed.notify_one();
        }
        self.collect()?;
        Ok(held)
    }

    pub(super) fn layer_dir(&self, diff_id: &ImageDigest) -> PathBuf {
        self.dir.join("layers").join(diff_id.hex())
    }

    fn bytes_of(&self, diff_id: ImageDigest) -> Result<u64, ImageError> {
        let index = Index::read(&self.dir).map_err(failed("read the index of images"))?;
        Ok(index.layers.get(&diff_id.to_string()).copied().unwrap_or(0))
    }

    /// Holds a layer if it is here.
    fn pin(&self, layer: &str) -> io::Result<Option<File>> {
        let Ok(digest) = layer.parse::<ImageDigest>() else {
            return Ok(None);
        };
        let path = self.layer_dir(&digest);
        let dir = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        rustix::fs::flock(&dir, FlockOperation::LockShared)?;
        // It may have been moved away while the lock was waited for.
        let same = fs::metadata(&path).is_ok_and(|now| {
            dir.metadata()
                .is_ok_and(|held| held.ino() == now.ino() && held.dev() == now.dev())
        });
        Ok(same.then_some(dir))
    }

    /// Fetches a layer unless it is here or comes by another's doing.
    async fn fetch_layer(
        self: &Arc<Self>,
        session: &Session,
        layer: &Descriptor,
        diff_id: ImageDigest,
        before: u64,
    ) -> Result<File, ImageError> {
        let turn = self.turn(diff_id);
        let _turn = turn.lock().await;
        let opened = || self.pin(&diff_id.to_string()).map_err(failed("open a layer"));
        if let Some(pin) = opened()? {
            return Ok(pin);
        }
        let digest = layer.digest()?;
        let size = layer.size;
        let mut patience = session.registry().patience();
        loop {
            let fetched = async {
                let permit = self.fetches.clone().acquire_owned().await;
                let response = session.blob(digest).await?;
                let cancelled = CancelOnDrop::default();
                let body = Body::new(
                    tokio::runtime::Handle::current(),
                    response,
                    cancelled.0.clone(),
                    self.config.stall,
                );
                self.apart(move |store| {
                    let _permit = permit;
                    store.unpack(&mut Checked::sized(body, digest, size), diff_id, before)
                })
                .await
            };
            match fetched.await {
                Ok(()) => break,
                Err(error) => patience.meet(error).await?,
            }
        }
        opened()?.ok_or_else(|| ImageError::Io {
            what: "open a layer".to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    fn turn(&self, diff_id: ImageDigest) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.retain(|_, turn| turn.strong_count() > 0);
        let known = fetching.get(&diff_id).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::default();
            fetching.insert(diff_id, Arc::downgrade(&turn));
            turn
        })
    }

    /// Unpacks a layer aside and moves it into place. `before` is what the image's other layers have.
    fn unpack(&self, source: &mut dyn io::Read, diff_id: ImageDigest, before: u64) -> Result<(), ImageError> {
        let aside = Aside::new(&self.dir.join("tmp")).map_err(failed("make a directory for a layer"))?;
        let into = aside.path.join("layer");
        fs::create_dir(&into).map_err(failed("make a directory for a layer"))?;
        let bytes_max = self.config.image_bytes_max.saturating_sub(before);
        let unpacked = unpack_layer(source, diff_id, &into, bytes_max, self.config.entries_max)?;
        self.refuse_above(before.saturating_add(unpacked.bytes))?;
        Index::change(&self.dir, |index| {
            index.layers.insert(diff_id.to_string(), unpacked.bytes)
        })
        .map_err(failed("write the index of images"))?;
        match fs::rename(&into, self.layer_dir(&diff_id)) {
            // Another process was faster, with the same.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY)) => Ok(()),
            other => other.map_err(failed("put a layer in its place")),
        }
    }

    /// Brings in an image from elsewhere than a registry, layer after layer, bottom first.
    pub(super) fn bring(
        &self,
        digest: ImageDigest,
        described: &Described,
        names: &[String],
        mut layer: impl FnMut(usize) -> Result<Box<dyn io::Read>, ImageError>,
    ) -> Result<Image, ImageError> {
        let mut pins = Vec::new();
        let mut bytes = 0;
        for (number, &diff_id) in described.diff_ids.iter().enumerate() {
            let opened = || self.pin(&diff_id.to_string()).map_err(failed("open a layer"));
            let pin = match opened()? {
                Some(pin) => pin,
                None => {
                    self.unpack(&mut *layer(number)?, diff_id, bytes)?;
                    opened()?.ok_or(ImageError::Cancelled)?
                }
            };
            bytes += self.bytes_of(diff_id)?;
            pins.push(pin);
        }
        let held = self.hold(digest, described, bytes, pins);
        Ok(self.remember(held, names, true)?.image)
    }

    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let index = Index::read(&self.dir).map_err(failed("read the index of images"))?;
        let mut listed: Vec<Listed> = index
            .images
            .iter()
            .map(|(digest, kept)| Listed {
                digest: digest.clone(),
                names: index
                    .names
                    .iter()
                    .filter(|(name, means)| *means == digest && !name.starts_with("sha256:"))
                    .map(|(name, _)| name.clone())
                    .collect(),
                bytes: index.bytes_of(kept),
                used_s: kept.used_s,
            })
            .collect();
        listed.sort_by_key(|listed| std::cmp::Reverse(listed.used_s));
        Ok(listed)
    }

    /// What placement is told: names and digests, of those used last, in an order that use does not change.
    pub fn known(&self) -> Vec<String> {
        let index = Index::read(&self.dir).unwrap_or_default();
        let mut images: Vec<(&String, &Kept)> = index.images.iter().collect();
        images.sort_by_key(|(_, kept)| std::cmp::Reverse(kept.used_s));
        let mut known = BTreeSet::new();
        for (digest, _) in images {
            let names = index.names.iter().filter(|(_, means)| *means == digest);
            for key in names.map(|(name, _)| name).chain([digest]) {
                if known.len() < tenure_domain::schedule::fleet::MAX_IMAGES {
                    known.insert(key.clone());
                }
            }
        }
        known.into_iter().collect()
    }

    /// Returns when an image came or went.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn tell_changed(&self) {
        self.changed.notify_one();
    }

    pub fn config(&self) -> &ImageConfig {
        &self.config
    }
}

/// Tells a thread at work that nobody waits for it any more.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory for what is not complete; locked while it is used, gone when it is not.
pub(super) struct Aside {
    pub path: PathBuf,
    _lock: File,
}

impl Aside {
    pub fn new(tmp: &Path) -> io::Result<Aside> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = tmp.join(format!("{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of a process that had the same number, and is gone or being cleared away.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            let lock = File::open(&path)?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            // Whoever tidies may have come between.
            if path.exists() {
                return Ok(Aside { path, _lock: lock });
            }
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "could not remove an unfinished layer yet");
        }
    }
}
