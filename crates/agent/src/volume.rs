//! Volumes: each a file system of its own in a sparse file, so that its size is its limit and nobody else's.
//!
//! `VOLUMES/ID.img` is an ext4 image. A job gets it as a mount that is nowhere, by descriptor beside its launch, and
//! puts it at `/volumes/NAME` in its own tree; no directory of the host ever shows it. What is in use is therefore
//! what the kernel says is: the block device of an image is there while a mount of it is, and goes with the last one,
//! so an agent that dies forgets nothing. Deliberately absent: whose a volume is, and how many there may be (the
//! server), and copies on other nodes.

mod grow;
mod make;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tenure_api::channel::VolumeOrder;
use tenure_domain::id::VolumeId;
use tenure_domain::storage::volume::MIN_SIZE_MIB;

use crate::isolate::Isolation;
use crate::kernel::LoopDevice;

const MIB: u64 = 1 << 20;
const GIB_IN_MIB: u64 = 1024;

/// What this node has of volumes.
pub struct Volumes {
    dir: PathBuf,
    space_mib: u64,
    /// Why there are none.
    lacking: Option<String>,
    /// One at a time: what is looked for is not made meanwhile.
    lock: Mutex<()>,
}

/// What became of a wish to erase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    Gone,
    InUse,
}

impl Volumes {
    /// `space` is how many bytes are set apart; by default half of what is free or theirs already.
    pub fn open(
        root: &Path,
        space: Option<u64>,
        isolation: &Isolation,
        notes: &mut Vec<String>,
    ) -> io::Result<Volumes> {
        let dir = root.join("volumes");
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        make::clear(&dir)?;
        let lacking = if space == Some(0) {
            Some("no space is set apart for them".to_owned())
        } else {
            lacking(&dir, isolation).err()
        };
        let mut volumes = Volumes {
            dir,
            space_mib: 0,
            lacking,
            lock: Mutex::new(()),
        };
        if volumes.lacking.is_none() {
            volumes.space_mib = match space {
                Some(bytes) => bytes / MIB,
                None => volumes.half_of_free_mib()?,
            };
        }
        notes.push(match &volumes.lacking {
            Some(why) => format!("volumes: none; {why}"),
            None => format!("volumes: {} MiB", volumes.space_mib),
        });
        Ok(volumes)
    }

    /// What the server may fill with volumes.
    pub fn space_mib(&self) -> u64 {
        self.space_mib
    }

    /// Why this node gives no volumes.
    pub fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// In whole GiB where there is that much, so that it does not change with every file.
    fn half_of_free_mib(&self) -> io::Result<u64> {
        let facts = rustix::fs::statvfs(&self.dir)?;
        let mut ours = 0;
        for (_, image) in self.images()? {
            ours += image.blocks() * 512;
        }
        let half_mib = (facts.f_bavail * facts.f_frsize + ours) / 2 / MIB;
        Ok(match half_mib / GIB_IN_MIB {
            0 => half_mib,
            gib => gib * GIB_IN_MIB,
        })
    }

    fn images(&self) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
        let mut images = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|kind| kind == "img") {
                images.push((entry.path(), entry.metadata()?));
            }
        }
        Ok(images)
    }

    fn image(&self, id: VolumeId) -> PathBuf {
        self.dir.join(format!("{id}.img"))
    }

    /// A mount of each volume, in their order. New ones are made, belonging to `user_id`; those that grew fill their
    /// size. They are in use while the mounts are.
    pub fn mounts(&self, wanted: &[VolumeOrder], user_id: u32) -> io::Result<Vec<OwnedFd>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        wanted
            .iter()
            .map(|volume| {
                self.mount(volume, user_id)
                    .map_err(|error| io::Error::new(error.kind(), format!("volume {}: {error}", volume.name)))
            })
            .collect()
    }

    fn mount(&self, volume: &VolumeOrder, user_id: u32) -> io::Result<OwnedFd> {
        let path = self.image(volume.id);
        let new = !path.exists();
        if new {
            let taken: u64 = self.images()?.iter().map(|(_, image)| image.len()).sum();
            if taken / MIB + volume.size_mib > self.space_mib {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    format!(
                        "{} MiB are set apart for volumes, and {} of them taken",
                        self.space_mib,
                        taken / MIB
                    ),
                ));
            }
            make::image(&self.dir, &path, volume.size_mib * MIB, user_id)?;
        }
        let image = open(&path)?;
        if let Err(error) = grow::to(&path, &image, volume.size_mib * MIB) {
            // What it holds is there all the same; the job finds it smaller.
            tracing::warn!(volume = %volume.id, %error, "a volume did not grow");
        }
        let device = LoopDevice::of(&image)?;
        if new {
            // Its owner did not make it and cannot use it; a repair of the file system makes it anew.
            let _ = rustix::fs::unlinkat(device.root()?, "lost+found", rustix::fs::AtFlags::REMOVEDIR);
        }
        device.mount_ext4(volume.read_only)
    }

    /// Gives a volume that is here its new size, whether or not jobs use it.
    pub fn grow(&self, id: VolumeId, size_mib: u64) -> io::Result<()> {
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.image(id);
        if !path.exists() {
            return Ok(());
        }
        grow::to(&path, &open(&path)?, size_mib * MIB)
    }

    /// Erases what is here of a volume, unless a job still has it.
    pub fn erase(&self, id: VolumeId) -> io::Result<Erased> {
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.image(id);
        let image = match File::open(&path) {
            Ok(image) => image,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Erased::Gone),
            Err(error) => return Err(error),
        };
        if LoopDevice::find(&image)?.is_some() {
            return Ok(Erased::InUse);
        }
        fs::remove_file(&path)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(Erased::Gone)
    }
}

fn open(image: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(image)
}

/// Whether this host can have volumes at all; tried with a small one at `dir`.
fn lacking(dir: &Path, isolation: &Isolation) -> Result<(), String> {
    if !isolation.root {
        return Err("the agent is not root and cannot mount".to_owned());
    }
    if !isolation.namespaces.own {
        return Err("jobs have no mounts of their own here".to_owned());
    }
    let probe = dir.join(format!("probe-{}.{}", std::process::id(), make::DRAFT));
    let tried = make::filesystem(&probe, MIN_SIZE_MIB * MIB, 0)
        .and_then(|()| LoopDevice::of(&open(&probe)?)?.mount_ext4(false))
        .map_err(|error| format!("a file could not be mounted: {error}"));
    let _ = fs::remove_file(&probe);
    tried.map(drop)
}

/// What `tenure-agent doctor` says of them.
pub fn note(isolation: &Isolation) -> String {
    let dir = std::env::temp_dir();
    match lacking(&dir, isolation) {
        Ok(()) => "volumes: file systems in files".to_owned(),
        Err(why) => format!("volumes: none; {why}"),
    }
}
