//! Programs that use a driver past the guard: one of their processes has a driver's library loaded and the guard's not.
//!
//! Seen from outside, in the process's own maps, where the guard is known by its file and not by its name: a job may give
//! its own files any name. A driver under another name is not known here; what it reaches is held
//! by the kernel: no device file that the job was not given, and no more memory than the job has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tenure_domain::id::AllocationId;

use super::{Jobs, Watchdog};
use crate::isolate::guard::Mapping;
use crate::share::SharedReading;

/// Looks in a row that must agree: a loader may load drivers before it loads the guard.
const AGREE: u32 = 3;

impl Watchdog {
    /// Allocations with shared slices that a driver serves without the guard, and the line that says so.
    pub fn past_the_guard(&self, pages: &[SharedReading], jobs: &impl Jobs) -> Vec<(AllocationId, String)> {
        let shared = pages.iter().flat_map(|page| &page.snapshot.slices);
        let ids: Vec<AllocationId> = shared
            .filter(|slice| slice.weight_per_mille < 1000)
            .map(|slice| AllocationId(slice.id))
            .collect();
        if ids.is_empty() {
            return Vec::new();
        }
        let drivers = drivers(&self.root);
        let mut past = self
            .past
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::mem::take(&mut *past);
        let mut over = Vec::new();
        for id in ids {
            let processes = jobs.processes_with_drivers(id);
            let found = processes
                .into_iter()
                .find_map(|pid| Some((pid, bare_driver(&self.root, pid, &drivers, self.guard.as_ref())?)));
            let Some((pid, driver)) = found else {
                continue;
            };
            let looks = before.get(&id).copied().unwrap_or(0) + 1;
            past.insert(id, looks);
            if looks >= AGREE {
                over.push((
                    id,
                    format!("ended: its process {pid} used the driver {driver} past the guard"),
                ));
            }
        }
        over
    }
}

/// What drivers' libraries are called, up to their version, as OpenCL loaders are told.
fn drivers(root: &Path) -> Vec<String> {
    let Ok(files) = fs::read_dir(root.join("etc/OpenCL/vendors")) else {
        return Vec::new();
    };
    files
        .flatten()
        .filter_map(|file| {
            let named = fs::read_to_string(file.path()).ok()?;
            let name = Path::new(named.trim()).file_name()?.to_str()?.to_owned();
            let stem = name.split_once(".so").map_or(name.as_str(), |(stem, _)| stem);
            Some(format!("{stem}.so"))
        })
        .collect()
}

/// The driver a process has loaded without the guard.
fn bare_driver(root: &Path, pid: i32, drivers: &[String], guard: Option<&Mapping>) -> Option<String> {
    let maps = fs::read_to_string(root.join(format!("proc/{pid}/maps"))).ok()?;
    in_maps(&maps, drivers, guard)
}

fn in_maps(maps: &str, drivers: &[String], guard: Option<&Mapping>) -> Option<String> {
    let mut found = None;
    for line in maps.lines() {
        if guard.is_some_and(|guard| guard.is_in(line)) {
            return None;
        }
        let Some(name) = line.rsplit('/').next().filter(|name| name.len() < line.len()) else {
            continue;
        };
        if found.is_none() && drivers.iter().any(|driver| name.starts_with(driver.as_str())) {
            found = Some(name.to_owned());
        }
    }
    found
}

/// How often in a row an allocation was seen so.
pub(super) type Past = BTreeMap<AllocationId, u32>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_past_the_guard_only_without_it() {
        let drivers = ["libpocl.so".to_owned()];
        let driver = "7f00-7f10 r-xp 00000000 fd:00 1  /usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0\n";
        let guard = "7f20-7f30 r-xp 00001000 fd:00 2  /run/tenure/libtenure_guard.so\n";
        let other = "7f40-7f50 rw-p 00000000 00:00 0 \n7f60-7f70 r-xp 0 fd:00 3  /usr/lib/libpoclx.so\n";
        let known = Mapping::read("fd:00 2").expect("a device and an inode");
        let seen = |text: &[&str]| in_maps(&text.concat(), &drivers, Some(&known));
        assert_eq!(seen(&[other, driver]).as_deref(), Some("libpocl.so.2.10.0"));
        assert_eq!(seen(&[driver, guard]), None);
        assert_eq!(seen(&[guard, driver]), None);
        assert_eq!(seen(&[other]), None);
        for forged in [
            "7f20-7f30 r-xp 00001000 fd:00 7  /tmp/libtenure_guard.so\n",
            "7f20-7f30 r-xp 00001000 00:2a 2  /tmp/libtenure_guard.so\n",
            "7f20-7f30 r--p 00001000 fd:00 2  /run/tenure/libtenure_guard.so\n",
        ] {
            assert!(seen(&[forged, driver]).is_some(), "{forged}");
        }
        let nothing_known = in_maps(&[guard, driver].concat(), &drivers, None);
        assert!(
            nothing_known.is_some(),
            "without a guard there is none to be past of"
        );
    }
}
