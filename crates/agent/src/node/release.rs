//! Forgetting: a released allocation leaves its log for a while and its id for longer, so that an order
//! replayed late does not run it again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_domain::id::AllocationId;

use super::Node;
use crate::record::write_synced;

const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);
/// How directories are called in which nothing ever ran, and how long they are kept: longer than any process
/// could be about to start in them.
const ASIDE: &str = "aside-";
const ASIDE_KEPT: Duration = Duration::from_secs(3600);
/// The file is written anew when it has so many lines more than are remembered.
const SLACK: usize = 10_000;

/// Ids of released allocations, and when they were.
pub(super) struct Tombstones {
    dir: PathBuf,
    file: File,
    buried: BTreeMap<AllocationId, u64>,
    lines: usize,
}

impl Tombstones {
    pub(super) fn open(dir: &Path) -> io::Result<Tombstones> {
        let text = match fs::read_to_string(dir.join("tombstones")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        // The last line may be cut short; it was then not yet believed.
        let buried = text.lines().filter_map(|line| {
            line.split_once(' ')
                .and_then(|(id, at)| Some((id.parse().ok()?, at.parse().ok()?)))
        });
        let mut tombstones = Tombstones {
            dir: dir.to_owned(),
            file: File::options()
                .create(true)
                .append(true)
                .open(dir.join("tombstones"))?,
            buried: buried.collect(),
            lines: text.lines().count(),
        };
        tombstones.compact()?;
        Ok(tombstones)
    }

    pub(super) fn holds(&self, id: AllocationId) -> bool {
        self.buried.contains_key(&id)
    }

    fn bury(&mut self, id: AllocationId) -> io::Result<()> {
        let at = now_s();
        // Not synced: it guards against orders replayed in one boot, and after a power cut the server knows the end.
        self.file.write_all(format!("{id} {at}\n").as_bytes())?;
        self.buried.insert(id, at);
        self.lines += 1;
        if self.lines > self.buried.len() + SLACK {
            self.compact()
        } else {
            Ok(())
        }
    }

    fn compact(&mut self) -> io::Result<()> {
        let oldest = now_s().saturating_sub(REMEMBERED.as_secs());
        self.buried.retain(|_, at| *at >= oldest);
        let text: String = self
            .buried
            .iter()
            .map(|(id, at)| format!("{id} {at}\n"))
            .collect();
        write_synced(&self.dir, "tombstones", text.as_bytes())?;
        self.file = File::options().append(true).open(self.dir.join("tombstones"))?;
        self.lines = self.buried.len();
        Ok(())
    }
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Node {
    /// What still runs is not forgotten: it must be stopped first.
    pub(super) fn release(&self, id: AllocationId) -> io::Result<()> {
        match self.table.get(id) {
            Some(record) if !record.phase.has_ended() => {
                self.table.tell_again(id);
                return Ok(());
            }
            None if self.table.knows(id) => return Ok(()),
            _ => {}
        }
        if self.is_buried(id) {
            return Ok(());
        }
        self.tombstones
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bury(id)?;
        self.table.remove(id);
        self.steps.forget(id);
        self.clear_away(id)
    }

    /// Keeps log and state of a released allocation, removes the rest.
    pub(super) fn clear_away(&self, id: AllocationId) -> io::Result<()> {
        self.clear_worker(id);
        let (dir, kept) = (self.dir.allocation(id), self.dir.released_allocation(id));
        if dir.exists() {
            let _ = fs::remove_file(dir.join("stop.json"));
            if kept.exists() {
                fs::remove_dir_all(&kept)?;
            }
            fs::rename(&dir, &kept)?;
            // Its age counts from the release.
            let _ = File::open(&kept).and_then(|kept| kept.set_modified(SystemTime::now()));
            // May be much, so nobody waits for it; what a crash leaves goes with the log.
            self.runtime
                .spawn_blocking(move || fs::remove_dir_all(kept.join("tmp")));
        }
        Ok(())
    }

    /// Takes a directory in which nothing may run out of the way of a later start.
    ///
    /// INVARIANT: it is moved, not removed: a thin parent may still be at work in it, and must find there that
    /// the run is not its own. An emptied directory would let it claim a run that another then repeats.
    pub(super) fn put_aside(&self, id: AllocationId) -> io::Result<()> {
        let aside = self.dir.released().join(format!(
            "{ASIDE}{id}-{}-{}",
            std::process::id(),
            crate::clock::boottime_ms()
        ));
        fs::rename(self.dir.allocation(id), aside)
    }

    /// Removes kept logs that are too old, and the oldest while there is too much of them.
    pub fn prune_logs(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(self.dir.released())? {
            let entry = entry?;
            let size = |name: &str| fs::metadata(entry.path().join(name)).map_or(0, |file| file.len());
            kept.push((
                entry.metadata()?.modified()?,
                size("stdout") + size("stderr"),
                entry.path(),
            ));
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (released, bytes, path) in kept {
            let age = released.elapsed().unwrap_or_default();
            let aside = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(ASIDE));
            let over = age > self.config.logs_kept || total > self.config.logs_kept_bytes;
            if if aside { age > ASIDE_KEPT } else { over } {
                fs::remove_dir_all(&path)?;
                total -= bytes;
            }
        }
        Ok(())
    }
}
