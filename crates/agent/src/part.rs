//! Parts made for allocations: each written down before it is made and until it is removed, so that an agent started
//! anew knows its own from those of others and leaves none behind.
//!
//! INVARIANT: only what is written down here is ever removed from a device, and it is written down only when its place
//! was free. Deliberately absent: what a driver does for it (`driver.rs`). Called by `node/part.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_api::channel::Order;
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::hardware::PartChoice;

use crate::clock;
use crate::discover::Found;
use crate::driver::{Driver, Made, Site};
use crate::record::write_synced;

#[cfg(test)]
mod tests;

/// Between two tries to remove a part that is in use.
pub const AGAIN: Duration = Duration::from_secs(5);
/// A look around that began before a part was removed may tell of it this much later.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A part of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Own {
    allocation: AllocationId,
    /// Parts do not outlive a boot: what is there after the next one was made by somebody else.
    boot_id: String,
    #[serde(flatten)]
    site: Site,
    part: PartChoice,
    /// None until it was made.
    made: Option<Made>,
}

impl Own {
    /// Whether the two cannot be there at once: AMD's devices have one mode for all of their parts.
    fn is_in_the_way_of(&self, other: &Own) -> bool {
        let modes = self.site.amd.is_some() && self.part.id != other.part.id;
        modes || self.part.placement.overlaps(other.part.placement)
    }
}

fn site(uuid: &str, found: &Found) -> Site {
    let device = found.device(uuid);
    Site {
        gpu: uuid.to_owned(),
        amd: device
            .filter(|device| device.facts.vendor == "AMD")
            .and_then(|device| device.slot()),
    }
}

/// The parts of this node's devices that are ours.
pub struct Parts {
    dir: PathBuf,
    driver: Box<dyn Driver>,
    again: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By the file each is written down in.
    own: BTreeMap<String, Own>,
    removed: Vec<(Own, Instant)>,
    tried: BTreeMap<String, Instant>,
}

impl Parts {
    /// Takes up what an older agent wrote down in this boot.
    pub fn open(state_dir: &Path, driver: Box<dyn Driver>, again: Duration) -> io::Result<Parts> {
        let dir = state_dir.join("parts");
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let (mut inner, boot_id) = (Inner::default(), clock::boot_id());
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let own = fs::read(&path)
                .ok()
                .and_then(|bytes| serde_json::from_slice::<Own>(&bytes).ok());
            match (own, path.file_name().and_then(|name| name.to_str())) {
                (Some(own), Some(name)) if own.boot_id == boot_id => {
                    inner.own.insert(name.to_owned(), own);
                }
                // Of another boot, or the draft of one that was never begun.
                _ => fs::remove_file(&path)?,
            }
        }
        Ok(Parts {
            dir,
            driver,
            again,
            inner: Mutex::new(inner),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the parts an order names, in the order of its devices; all of them or, with the reason, none.
    pub fn make(&self, order: &Order, found: &Found) -> Result<Vec<Option<Made>>, String> {
        let mut all = Vec::new();
        for (number, slice) in order.devices.iter().enumerate() {
            let Some(part) = &slice.part else {
                all.push(None);
                continue;
            };
            let own = Own {
                allocation: order.allocation,
                boot_id: clock::boot_id(),
                site: site(&slice.uuid, found),
                part: part.clone(),
                made: None,
            };
            match self.make_one(&format!("{}-{number}.json", order.allocation), own) {
                Ok(made) => all.push(Some(made)),
                Err(error) => {
                    self.remove(order.allocation);
                    return Err(error.to_string());
                }
            }
        }
        Ok(all)
    }

    fn make_one(&self, name: &str, mut own: Own) -> io::Result<Made> {
        {
            let mut inner = self.inner();
            if let Some(made) = inner.own.get(name).and_then(|known| known.made.clone()) {
                // Of a start that came to nothing, and is said again.
                return Ok(made);
            }
            let lies = |other: &&Own| other.site.gpu == own.site.gpu && other.is_in_the_way_of(&own);
            if let Some(other) = inner.own.values().find(lies) {
                return Err(io::Error::other(format!(
                    "the part of {} lies on device {} at {}",
                    other.allocation, own.site.gpu, other.part.placement.start
                )));
            }
            write_synced(&self.dir, name, &serde_json::to_vec(&own)?)?;
            inner.own.insert(name.to_owned(), own.clone());
        }
        let made = match self.driver.make_part(&own.site, &own.part) {
            Ok(made) => made,
            Err(error) => {
                // Its child said that nothing is there. One that said nothing may have made it: that is kept, and
                // removed when it can be.
                if error.kind() != io::ErrorKind::TimedOut {
                    self.forget(name)?;
                }
                return Err(error);
            }
        };
        own.made = Some(made.clone());
        write_synced(&self.dir, name, &serde_json::to_vec(&own)?)?;
        self.inner().own.insert(name.to_owned(), own);
        Ok(made)
    }

    fn forget(&self, name: &str) -> io::Result<()> {
        let mut inner = self.inner();
        match fs::remove_file(self.dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        inner.tried.remove(name);
        let now = Instant::now();
        inner
            .removed
            .retain(|(_, at)| now.duration_since(*at) < REMEMBERED);
        if let Some(own) = inner.own.remove(name) {
            inner.removed.push((own, now));
        }
        Ok(())
    }

    /// Removes what an allocation has; what is in use still is tried again by `clear`.
    pub fn remove(&self, id: AllocationId) {
        self.remove_where(|own, _| own.allocation == id);
    }

    /// Removes what no living allocation has.
    pub fn clear(&self, alive: impl Fn(AllocationId) -> bool) {
        self.remove_where(|own, tried| {
            tried.is_none_or(|at| at.elapsed() >= self.again) && !alive(own.allocation)
        });
    }

    fn remove_where(&self, which: impl Fn(&Own, Option<&Instant>) -> bool) {
        let wanted: Vec<(String, Own)> = {
            let inner = self.inner();
            let own = inner.own.iter();
            own.filter(|(name, own)| which(own, inner.tried.get(*name)))
                .map(|(name, own)| (name.clone(), own.clone()))
                .collect()
        };
        for (name, own) in wanted {
            let instance = own.made.as_ref().and_then(|made| made.instance);
            let removed = self
                .driver
                .remove_part(&own.site, &own.part, instance)
                .and_then(|()| self.forget(&name));
            if let Err(error) = removed {
                tracing::warn!(allocation = %own.allocation, %error, "a part stays on its device");
                self.inner().tried.insert(name, Instant::now());
            }
        }
    }

    /// Takes our own out of what was found: the server knows those better. What of ours nobody has any more, and could
    /// not be removed, is left in: its place is taken.
    pub fn hide(&self, found: &mut Found, alive: impl Fn(AllocationId) -> bool) {
        let inner = self.inner();
        let living = inner.own.values().filter(|own| alive(own.allocation));
        let removed = inner
            .removed
            .iter()
            .filter(|(_, at)| at.elapsed() < REMEMBERED)
            .map(|(own, _)| own);
        let hidden: Vec<&Own> = living.chain(removed).collect();
        for device in &mut found.devices {
            let uuid = device.facts.uuid.clone();
            let Some(hardware) = device.facts.hardware.as_mut() else {
                continue;
            };
            let Some(how) = hardware.partitioning.as_mut() else {
                continue;
            };
            let ours = |at| {
                let mut ours = hidden.iter().filter(|own| own.site.gpu == uuid);
                ours.any(|own| own.part.placement == at)
            };
            how.parts.retain(|part| !part.placement.is_some_and(ours));
            how.taken.retain(|taken| !ours(taken.placement));
        }
    }
}
