//! Programs that use a driver past the guard: one of their processes has a driver's library loaded, or a shared device's
//! file open, and the guard's library not loaded.
//!
//! Seen from outside, in the process's own maps, where the guard is known by its file and not by its name: a job may give
//! its own files any name. What drivers are known by is `known`'s.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::id::AllocationId;

use super::known::{DeviceFiles, Drivers, Known};
use super::pace::Pace;
use super::round::Round;
use super::{Jobs, UNSEEN, Watchdog, too_many};
use crate::discover::Found;
use crate::isolate::guard::Mapping;
use crate::share::Given;

/// How long a loader may take from the first driver to the guard, in time of its own; and by the clock, whatever holds
/// it up, so that nobody goes on for ever by being slow or by one process after the other.
const OWN_TIME: Duration = Duration::from_millis(500);
const BY_THE_CLOCK: Duration = Duration::from_secs(10);
/// No program has more mappings than this; one that has is not looked through to its end.
const MAPPINGS_MAX: usize = 1 << 18;
/// A host's drivers are looked up again after so long: they change under a running agent.
const DRIVERS_AGAIN: Duration = Duration::from_secs(10);
/// Of so many processes past the guard it is asked how fast they are; of more the clock decides.
const PACED_MAX: usize = 64;

impl Watchdog {
    /// Allocations with shared slices that a driver serves without the guard, and the line that says so.
    pub fn past_the_guard(
        &self,
        found: &Found,
        given: &[Given],
        jobs: &impl Jobs,
    ) -> Vec<(AllocationId, String)> {
        let shared: Vec<&Given> = given
            .iter()
            .filter(|slice| slice.weight_per_mille < 1000 && !is_one_tenants(found, slice))
            .collect();
        let ids: std::collections::BTreeSet<AllocationId> =
            shared.iter().map(|slice| slice.allocation).collect();
        if ids.is_empty() {
            self.past
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clear();
            return Vec::new();
        }
        let drivers = self.drivers();
        let devices = shared.iter().filter_map(|slice| found.device(&slice.uuid));
        let known = Known {
            drivers: &drivers,
            devices: &DeviceFiles::of(devices.flat_map(|device| &device.files)),
        };
        let mut past = self
            .past
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut before = std::mem::take(&mut *past);
        let now = Instant::now();
        let mut over = Vec::new();
        let count = ids.len();
        for id in ids {
            let mut one = before.remove(&id).unwrap_or_default();
            one.round.go(
                &jobs.processes_with_drivers(id),
                &self.budget(count),
                |seen| seen.is_some(),
                |pid| bare(&self.root, pid, known, self.guard.as_ref()),
            );
            over.extend(one.judged(&self.root, now).map(|note| (id, note)));
            past.insert(id, one);
        }
        over
    }

    fn drivers(&self) -> Arc<Drivers> {
        let mut drivers = self
            .drivers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*drivers {
            Some((at, known)) if at.elapsed() < DRIVERS_AGAIN => known.clone(),
            _ => {
                let known = Arc::new(Drivers::of(&self.root, &self.libraries));
                *drivers = Some((Instant::now(), known.clone()));
                known
            }
        }
    }
}

/// What one tenant's programs share among themselves has walls of another kind.
fn is_one_tenants(found: &Found, slice: &Given) -> bool {
    let device = found.device(&slice.uuid);
    device
        .and_then(|device| device.hardware())
        .is_some_and(|hardware| hardware.one_tenant)
}

/// What a process's mappings say of it.
#[derive(Debug, PartialEq, Eq)]
enum Mapped {
    TheGuard,
    /// Something past it.
    Past(String),
    Nothing,
}

/// What a process does past the guard; none where it does not.
fn bare(root: &Path, pid: i32, known: Known<'_>, guard: Option<&Mapping>) -> Option<String> {
    let maps = File::open(root.join(format!("proc/{pid}/maps")));
    let seen = maps.and_then(|maps| in_maps(BufReader::with_capacity(1 << 16, maps), known, guard));
    let seen = seen.and_then(|seen| match seen {
        Mapped::TheGuard => Ok(None),
        Mapped::Past(does) => Ok(Some(does)),
        Mapped::Nothing => known.devices.open_in(root, pid),
    });
    match seen {
        Ok(seen) => seen,
        // It has ended.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => None,
        // Without root's rights an agent may not look at all, and so at nobody.
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() =>
        {
            None
        }
        // Fail closed: what cannot be seen may be anything.
        Err(error) => Some(format!("does not let be seen what it has mapped ({error})")),
    }
}

/// Line by line, and as bytes: what a file is called is the job's to say, and a driver's mapping says enough of itself.
fn in_maps(mut maps: impl BufRead, known: Known<'_>, guard: Option<&Mapping>) -> io::Result<Mapped> {
    let mut found = Mapped::Nothing;
    let mut line = Vec::new();
    for _ in 0..MAPPINGS_MAX {
        line.clear();
        if maps.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\n');
        if guard.is_some_and(|guard| guard.is_in(line)) {
            return Ok(Mapped::TheGuard);
        }
        if found == Mapped::Nothing
            && let Some(does) = known.in_line(line)
        {
            found = Mapped::Past(does);
        }
    }
    Ok(Mapped::Past("has more mappings than can be looked at".to_owned()))
}

/// What is known of allocations with shared slices.
pub(super) type Past = BTreeMap<AllocationId, Bare>;

/// Which processes of one allocation have a driver and no guard, and since when there is always one.
#[derive(Debug, Default)]
pub(super) struct Bare {
    round: Round<Option<String>>,
    since: Option<Instant>,
    paces: BTreeMap<i32, Pace>,
}

impl Bare {
    #[cfg(test)]
    pub(super) fn notes(&self) -> Vec<String> {
        self.round.seen().filter_map(|(_, seen)| seen.clone()).collect()
    }

    /// Why it is to be ended.
    fn judged(&mut self, root: &Path, now: Instant) -> Option<String> {
        let bare = self
            .round
            .seen()
            .filter_map(|(pid, seen)| Some((pid, seen.as_ref()?)));
        let mut earlier = std::mem::take(&mut self.paces);
        let (mut since, mut ended) = (None, None);
        for (number, (pid, does)) in bare.enumerate() {
            let since = *since.get_or_insert(self.since.unwrap_or(now));
            let mut own = Duration::ZERO;
            if number < PACED_MAX {
                let pace = match earlier.remove(&pid) {
                    Some(mut pace) => {
                        pace.look(root, pid, now);
                        pace
                    }
                    None => Pace::begin(root, pid, now),
                };
                own = pace.own();
                self.paces.insert(pid, pace);
            }
            if ended.is_none() && (own >= OWN_TIME || now.duration_since(since) >= BY_THE_CLOCK) {
                ended = Some(format!("ended: its process {pid} {does}"));
            }
        }
        self.since = since;
        ended.or_else(|| (self.round.unseen() > UNSEEN).then(too_many))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_past_the_guard_only_without_it() {
        let root = tempfile::tempdir().unwrap();
        let vendors = root.path().join("etc/OpenCL/vendors");
        std::fs::create_dir_all(&vendors).unwrap();
        std::fs::write(vendors.join("pocl.icd"), "libpocl.so.2.10.0\n").unwrap();
        let (drivers, devices) = (Drivers::of(root.path(), &[]), DeviceFiles::default());
        let known = Known {
            drivers: &drivers,
            devices: &devices,
        };
        let driver = "7f00-7f10 r-xp 00000000 fd:00 1  /usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0\n";
        let guard = "7f20-7f30 r-xp 00001000 fd:00 2  /run/tenure/libtenure_guard.so\n";
        let other = "7f40-7f50 rw-p 00000000 00:00 0 \n7f60-7f70 r-xp 0 fd:00 3  /usr/lib/libpoclx.so\n";
        let its = Mapping::read("fd:00 2").expect("a device and an inode");
        let seen = |text: &[&str]| in_maps(text.concat().as_bytes(), known, Some(&its)).unwrap();
        let past = Mapped::Past("used the driver libpocl.so.2.10.0 past the guard".into());
        assert_eq!(seen(&[other, driver]), past);
        assert_eq!(seen(&[driver, guard]), Mapped::TheGuard);
        assert_eq!(seen(&[guard, driver]), Mapped::TheGuard);
        assert_eq!(seen(&[other]), Mapped::Nothing);
        for forged in [
            "7f20-7f30 r-xp 00001000 fd:00 7  /tmp/libtenure_guard.so\n",
            "7f20-7f30 r-xp 00001000 00:2a 2  /tmp/libtenure_guard.so\n",
            "7f20-7f30 r--p 00001000 fd:00 2  /run/tenure/libtenure_guard.so\n",
        ] {
            assert_eq!(seen(&[forged, driver]), past, "{forged}");
        }
        let nothing_known = in_maps([guard, driver].concat().as_bytes(), known, None).unwrap();
        assert_eq!(nothing_known, past, "without a guard there is none to be past of");
        let no_text = [b"7e00-7e10 r--p 00000000 fd:00 9  /tmp/\xff\n", driver.as_bytes()].concat();
        assert_eq!(in_maps(no_text.as_slice(), known, Some(&its)).unwrap(), past);
        let endless = other.repeat(MAPPINGS_MAX / 2 + 1);
        assert!(matches!(seen(&[endless.as_str()]), Mapped::Past(does) if does.contains("more mappings")));
    }
}
