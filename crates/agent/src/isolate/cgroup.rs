//! Limits on what a job's processes use together, by writing the kernel's cgroup files, version 2 or 1.

mod device;
pub mod freeze;
mod reuse;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::dmem;
use crate::discover::setting::Setting;
use crate::kernel;

const PERIOD_US: u64 = 100_000;
/// What sockets hold, which version 1 counts apart.
const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";
/// How soon it is looked again whether all have died.
const FIRST_LOOK: Duration = Duration::from_micros(200);

/// Where this host's cgroups for jobs are made. Empty where there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    places: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// A v1 controller; none for the v2 tree that has them all.
    controller: Option<String>,
    dir: PathBuf,
    /// The v2 tree takes a filter for devices.
    #[serde(default)]
    filter: bool,
    /// It limits device memory.
    #[serde(default)]
    dmem: bool,
}

/// The tree of version 2 beside controllers of version 1, where device memory is limited there.
const DMEM: &str = "dmem";

/// Whether jobs have cgroups of version 2 on a host with this root.
pub fn has_version_2(root: &Path) -> bool {
    dmem::tree(root).is_some_and(|tree| {
        let list = fs::read_to_string(tree.join("cgroup.controllers")).unwrap_or_default();
        list.split_whitespace().any(|one| ["memory", DMEM].contains(&one))
    })
}

/// What a job may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub memory_mib: u64,
    pub cpu_milli: u32,
    /// What it weighs against others when processors are scarce.
    pub cpu_weight_milli: u32,
    pub processes_max: u32,
}

impl Cgroups {
    pub fn of_this_host(notes: &mut Vec<String>) -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut found = Cgroups::found(&mounts, &own, notes);
        found.add_device_memory(&Setting::from_environment().root, notes);
        found
    }

    /// Takes the controller of device memory in, where the kernel has it.
    fn add_device_memory(&mut self, root: &Path, notes: &mut Vec<String>) {
        let Some(tree) = dmem::tree(root).filter(|tree| dmem::is_in(tree)) else {
            return;
        };
        let own = |place: &&mut Place| place.controller.is_none() && place.dir.starts_with(&tree);
        let added = match self.places.iter_mut().find(own) {
            Some(place) => {
                let above = place.dir.parent().unwrap_or(&tree);
                dmem::share_out(&[above, &place.dir]).map(|()| place.dmem = true)
            }
            None => {
                let dir = tree.join("tenure");
                let made = fs::create_dir_all(&dir).and_then(|()| dmem::share_out(&[&tree, &dir]));
                made.map(|()| {
                    self.places.push(Place {
                        controller: Some(DMEM.to_owned()),
                        dir,
                        filter: false,
                        dmem: true,
                    });
                })
            }
        };
        notes.push(match added {
            Ok(()) => "cgroups: device memory, of drivers that register it".to_owned(),
            Err(error) => format!("cgroups: no limit on device memory: {error}"),
        });
    }

    /// Where one allocation is in the tree of version 2.
    pub fn version_2(&self, name: &str) -> Option<PathBuf> {
        let is_it = |place: &&Place| {
            place
                .controller
                .as_deref()
                .is_none_or(|controller| controller == DMEM)
        };
        self.places.iter().find(is_it).map(|place| place.dir.join(name))
    }

    /// Sets what the processes there may have of regions of device memory, in bytes.
    pub fn limit_device_memory(&self, name: &str, regions: &[(String, u64)]) -> io::Result<()> {
        if regions.is_empty() {
            return Ok(());
        }
        // Fail closed: a slice that nobody holds to its size is none.
        let place = self.places.iter().find(|place| place.dmem).ok_or_else(|| {
            io::Error::other("the limit on its device memory cannot be set: the host has no dmem controller")
        })?;
        let dir = place.dir.join(name);
        regions
            .iter()
            .try_for_each(|(region, bytes)| dmem::limit(&dir, region, *bytes))
    }

    fn found(mounts: &str, own: &str, notes: &mut Vec<String>) -> Cgroups {
        let v2 = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(dir))
        });
        if let Some(root) = v2
            && fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|list| list.split_whitespace().any(|c| c == "memory"))
        {
            let below = own
                .lines()
                .find_map(|line| line.strip_prefix("0::/"))
                .unwrap_or_default();
            return match prepare_v2(&root, &root.join(below)) {
                Ok(dir) => {
                    let tried = device::try_filter(&dir);
                    notes.push(match &tried {
                        Ok(()) => "cgroups: version 2; memory, CPU, processes, devices".to_owned(),
                        Err(error) => format!(
                            "cgroups: version 2; memory, CPU, processes; no filter for devices ({error}), a job's own /dev is the wall"
                        ),
                    });
                    Cgroups {
                        places: vec![Place {
                            controller: None,
                            dir,
                            filter: tried.is_ok(),
                            dmem: false,
                        }],
                    }
                }
                Err(error) => {
                    notes.push(format!("cgroups: none; could not prepare version 2: {error}"));
                    Cgroups::default()
                }
            };
        }
        let mut places = Vec::new();
        for controller in ["memory", "cpu", "pids", "freezer", "devices"] {
            match prepare_v1(mounts, own, controller) {
                Ok(dir) => places.push(Place {
                    controller: Some(controller.to_owned()),
                    dir,
                    filter: false,
                    dmem: false,
                }),
                Err(error) => notes.push(format!("cgroups: no {controller} limit: {error}")),
            }
        }
        if !places.is_empty() {
            let names: Vec<&str> = places
                .iter()
                .filter_map(|place| place.controller.as_deref())
                .collect();
            notes.push(format!("cgroups: version 1; {}", names.join(", ")));
        }
        Cgroups { places }
    }

    /// Where the cgroups of one allocation are.
    pub fn dirs(&self, name: &str) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.dir.join(name)).collect()
    }

    /// Makes the cgroups of one seat, without limits yet but with the rule for devices. Those that are there already were
    /// emptied for it.
    pub fn make(&self, name: &str) -> io::Result<()> {
        for place in &self.places {
            let dir = place.dir.join(name);
            match fs::create_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            if let Some(way) = place.devices() {
                device::only_plain(way, &dir)?;
            }
        }
        Ok(())
    }

    /// Sets what the processes there may use together, and which device files.
    pub fn limit(&self, name: &str, limits: Limits, device_files: &[PathBuf]) -> io::Result<()> {
        for place in &self.places {
            let dir = place.dir.join(name);
            place.limit(&dir, limits)?;
            if let Some(way) = place.devices() {
                device::also(way, &dir, device_files)?;
            }
        }
        Ok(())
    }

    /// All that begin so.
    pub fn beginning(&self, prefix: &str) -> Vec<PathBuf> {
        let dirs = self
            .places
            .iter()
            .filter_map(|place| fs::read_dir(&place.dir).ok());
        dirs.flatten()
            .flatten()
            .filter(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.starts_with(prefix))
            })
            .map(|entry| entry.path())
            .collect()
    }
}

impl Place {
    fn devices(&self) -> Option<device::Way> {
        match self.controller.as_deref() {
            Some("devices") => Some(device::Way::Files),
            None if self.filter => Some(device::Way::Filter),
            _ => None,
        }
    }

    fn limit(&self, dir: &Path, limits: Limits) -> io::Result<()> {
        let memory = limits
            .memory_mib
            .saturating_mul(1 << 20)
            .min(i64::MAX as u64)
            .to_string();
        let quota_us = (u64::from(limits.cpu_milli) * PERIOD_US / 1000).max(1000);
        let processes = limits.processes_max.to_string();
        match self.controller.as_deref() {
            None => {
                fs::write(dir.join("memory.max"), memory)?;
                // Absent where the host has no swap.
                let _ = fs::write(dir.join("memory.swap.max"), "0");
                fs::write(dir.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
                // 100 is a plain one, and here what has one processor.
                let weight = (limits.cpu_weight_milli / 10).clamp(1, 10_000);
                fs::write(dir.join("cpu.weight"), weight.to_string())?;
                fs::write(dir.join("pids.max"), processes)
            }
            Some("memory") => {
                fs::write(dir.join("memory.limit_in_bytes"), &memory)?;
                // Absent where the kernel does not count swap, or sockets, apart.
                let also = ["memory.memsw.limit_in_bytes", SOCKETS];
                also.into_iter()
                    .map(|name| dir.join(name))
                    .filter(|file| file.exists())
                    .try_for_each(|file| fs::write(file, &memory))
            }
            Some("cpu") => {
                fs::write(dir.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(dir.join("cpu.cfs_quota_us"), quota_us.to_string())?;
                let shares = (u64::from(limits.cpu_weight_milli) * 1024 / 1000).clamp(2, 262_144);
                fs::write(dir.join("cpu.shares"), shares.to_string())
            }
            Some("pids") => fs::write(dir.join("pids.max"), processes),
            Some(_) => Ok(()),
        }
    }
}

/// Moves the calling process, which has one thread, into the cgroups.
pub fn enter(dirs: &[PathBuf]) -> io::Result<()> {
    dirs.iter().try_for_each(|dir| {
        // Version 1 moves the one thread at once; to move a process it first waits, for milliseconds and with every
        // fork of the host, until no processor is amid one.
        match fs::OpenOptions::new().write(true).open(dir.join("tasks")) {
            Ok(mut tasks) => tasks.write_all(b"0"),
            Err(_) => fs::write(dir.join("cgroup.procs"), "0"),
        }
    })
}

/// Says that the cgroups are somebody's, for as long as the caller or a child of its lives and keeps this.
pub fn hold(dirs: &[PathBuf]) -> io::Result<Option<File>> {
    let Some(dir) = dirs.first() else {
        return Ok(None);
    };
    let held = File::open(dir)?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(held))
}

/// How many processes the kernel killed there for want of memory.
pub fn memory_kills(dirs: &[PathBuf]) -> u64 {
    let count = |text: String| {
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    };
    let files = dirs
        .iter()
        .flat_map(|dir| [dir.join("memory.events"), dir.join("memory.oom_control")]);
    files
        .filter_map(|file| fs::read_to_string(file).ok().and_then(count))
        .max()
        .unwrap_or(0)
}

/// Ends every process still there and removes the cgroups. False when some would not go.
pub fn end(dirs: &[PathBuf], patience: Duration) -> bool {
    until_gone(dirs, patience, |dir| fs::remove_dir(dir).is_ok() || !dir.exists())
}

/// Ends every process still there. False when some would not go.
pub fn empty(dirs: &[PathBuf], patience: Duration) -> bool {
    until_gone(dirs, patience, |dir| {
        !fs::read(dir.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
    })
}

fn until_gone(dirs: &[PathBuf], patience: Duration, is_gone: impl Fn(&Path) -> bool) -> bool {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_LOOK;
    loop {
        let mut left = false;
        for dir in dirs {
            if is_gone(dir) {
                continue;
            }
            left = true;
            if fs::write(dir.join("cgroup.kill"), "1").is_err() {
                let processes = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                processes
                    .lines()
                    .filter_map(|pid| pid.parse().ok())
                    .filter(|&pid| pid > 1)
                    .for_each(|pid| kernel::kill(pid, libc::SIGKILL));
            }
        }
        if !left {
            return true;
        }
        // What stands still does not die in version 1, whatever it was sent. Few do, so not at the first look.
        if pause > FIRST_LOOK {
            freeze::thaw(dirs);
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn prepare_v1(mounts: &str, own: &str, controller: &str) -> io::Result<PathBuf> {
    let root = mounts
        .lines()
        .find_map(|line| {
            let mut fields = line.split(' ');
            let (_, dir, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup" && options.split(',').any(|option| option == controller))
                .then(|| PathBuf::from(dir))
        })
        .ok_or_else(|| io::Error::other("the host has not mounted it"))?;
    let below = own
        .lines()
        .find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            controllers
                .split(',')
                .any(|c| c == controller)
                .then(|| path.trim_start_matches('/'))
        })
        .unwrap_or_default();
    let dir = root.join(below).join("tenure");
    fs::create_dir_all(&dir)?;
    // Counting what sockets hold is switched on for the whole host with the first limit and off with the last, which is
    // slow: once, and not with each job.
    let sockets = dir.join(SOCKETS);
    if sockets.exists() {
        let _ = fs::write(sockets, (i64::MAX >> 12 << 12).to_string());
    }
    Ok(dir)
}

/// Below the agent's own cgroup where it may share out controllers, else at the top.
fn prepare_v2(root: &Path, own: &Path) -> io::Result<PathBuf> {
    if own == root {
        return share_out(root);
    }
    // A cgroup with processes in it cannot share out its controllers, so the agent moves to a leaf of its own;
    // restarted, it finds itself there already.
    let own = if own.file_name().is_some_and(|name| name == "tenure-agent") {
        own.parent().unwrap_or(own)
    } else {
        own
    };
    let leaf = own.join("tenure-agent");
    let moved = fs::create_dir_all(&leaf).and_then(|()| fs::write(leaf.join("cgroup.procs"), "0"));
    moved.and_then(|()| share_out(own)).or_else(|_| share_out(root))
}

fn share_out(above: &Path) -> io::Result<PathBuf> {
    let dir = above.join("tenure");
    fs::create_dir_all(&dir)?;
    for above in [above, &dir] {
        fs::write(above.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(controller: Option<&str>, limits: Limits, there: &[&str]) -> impl Fn(&str) -> String + use<> {
        let dir = tempfile::tempdir().unwrap();
        for name in there {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let place = Place {
            controller: controller.map(str::to_owned),
            dir: dir.path().to_owned(),
            filter: false,
            dmem: false,
        };
        place.limit(dir.path(), limits).unwrap();
        move |name| fs::read_to_string(dir.path().join(name)).unwrap_or_default()
    }

    #[test]
    fn what_is_scarce_is_shared_by_what_was_asked_for() {
        let limits = |cpu_weight_milli| Limits {
            memory_mib: 64,
            cpu_milli: 2000,
            cpu_weight_milli,
            processes_max: 10,
        };
        for (milli, weight, shares) in [
            (1000, "100", "1024"),
            (300, "30", "307"),
            (1, "1", "2"),
            (u32::MAX, "10000", "262144"),
        ] {
            let two = written(None, limits(milli), &[]);
            assert_eq!(
                (two("cpu.weight"), two("cpu.max")),
                (weight.into(), "200000 100000".into())
            );
            let one = written(Some("cpu"), limits(milli), &[]);
            assert_eq!(
                (one("cpu.shares"), one("cpu.cfs_quota_us")),
                (shares.into(), "200000".into())
            );
        }
        let bytes = (64u64 << 20).to_string();
        let swap = "memory.memsw.limit_in_bytes";
        let counted = written(Some("memory"), limits(1), &[swap, SOCKETS]);
        assert_eq!((counted(swap), counted(SOCKETS)), (bytes.clone(), bytes));
        let not_counted = written(Some("memory"), limits(1), &[]);
        assert_eq!(
            (not_counted(swap), not_counted(SOCKETS)),
            (String::new(), String::new())
        );
    }
}
