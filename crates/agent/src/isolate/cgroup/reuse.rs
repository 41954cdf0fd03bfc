//! Using the cgroups of a run that has ended for another: to the kernel, making and ending a memory cgroup is more work than
//! all else that a short job's start takes.
//!
//! Only what a job without devices leaves empty is used again; whoever asks sees to that (`node/seat/pool.rs`).

use std::fs;
use std::io;
use std::path::Path;

use super::{Cgroups, PERIOD_US, Place, freeze, memory_kills};

/// What may be left of an older run's memory, and counts for the next: the kernel's own, of files it still knows of. As
/// much is left of one run as of ten.
const LEFT_BYTES_MAX: u64 = 1 << 20;

impl Cgroups {
    /// Takes the limits of a run that has ended off its cgroups, for another to set its own. An error where they are not as
    /// good as new.
    pub fn renew(&self, name: &str) -> io::Result<()> {
        let dirs = self.dirs(name);
        if dirs.is_empty() {
            return Err(io::Error::other("there are no cgroups"));
        }
        // How many were killed is counted once and for all.
        if freeze::are_frozen(&dirs) || memory_kills(&dirs) > 0 {
            return Err(io::Error::other(
                "something of the last run is left in its cgroups",
            ));
        }
        self.places
            .iter()
            .try_for_each(|place| place.renew(&place.dir.join(name)))
    }
}

impl Place {
    fn renew(&self, dir: &Path) -> io::Result<()> {
        if !fs::read(dir.join("cgroup.procs"))?.is_empty() {
            return Err(io::Error::other("there are processes"));
        }
        match self.controller.as_deref() {
            None => {
                check_left(&dir.join("memory.current"))?;
                fs::write(dir.join("memory.max"), "max")?;
                fs::write(dir.join("cpu.max"), format!("max {PERIOD_US}"))?;
                fs::write(dir.join("pids.max"), "max")
            }
            Some("memory") => {
                check_left(&dir.join("memory.usage_in_bytes"))?;
                // This one first: it is never below the other.
                let swap = dir.join("memory.memsw.limit_in_bytes");
                if swap.exists() {
                    fs::write(swap, "-1")?;
                }
                fs::write(dir.join("memory.limit_in_bytes"), "-1")
            }
            Some("cpu") => fs::write(dir.join("cpu.cfs_quota_us"), "-1"),
            Some("pids") => fs::write(dir.join("pids.max"), "max"),
            Some(_) => Ok(()),
        }
    }
}

fn check_left(file: &Path) -> io::Result<()> {
    let left = fs::read_to_string(file)?.trim().parse::<u64>();
    match left {
        Ok(left) if left <= LEFT_BYTES_MAX => Ok(()),
        _ => Err(io::Error::other("memory of the last run is left")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cgroups of version 1 as an ended run leaves them, and what is different this time.
    fn left(file: &str, content: &str) -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        for (name, content) in [
            ("cgroup.procs", ""),
            ("memory.usage_in_bytes", "400000\n"),
            ("memory.limit_in_bytes", "33554432\n"),
            ("memory.memsw.limit_in_bytes", "33554432\n"),
            ("memory.oom_control", "oom_kill_disable 0\noom_kill 0\n"),
            ("freezer.state", "THAWED\n"),
            ("cpu.cfs_quota_us", "1000\n"),
            (file, content),
        ] {
            fs::write(run.join(name), content).unwrap();
        }
        let place = |controller: &str| Place {
            controller: Some(controller.to_owned()),
            dir: dir.path().to_owned(),
            filter: false,
            dmem: false,
        };
        let places = ["memory", "cpu", "pids", "freezer", "devices"].map(place).into();
        (dir, Cgroups { places })
    }

    #[test]
    fn limits_are_lifted_where_nothing_is_left() {
        let (dir, cgroups) = left("cpu.shares", "1024");
        cgroups.renew("run").unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join("run").join(name)).unwrap();
        assert_eq!(read("memory.limit_in_bytes"), "-1");
        assert_eq!(read("memory.memsw.limit_in_bytes"), "-1");
        assert_eq!(
            (read("cpu.cfs_quota_us"), read("pids.max")),
            ("-1".into(), "max".into())
        );
    }

    #[test]
    fn what_is_left_of_a_run_is_never_anothers() {
        for (file, content) in [
            ("cgroup.procs", "4711\n"),
            ("memory.usage_in_bytes", "1048577\n"),
            ("memory.usage_in_bytes", "\n"),
            ("memory.oom_control", "oom_kill_disable 0\noom_kill 1\n"),
            ("freezer.state", "FROZEN\n"),
        ] {
            let (_dir, cgroups) = left(file, content);
            assert!(cgroups.renew("run").is_err(), "{file} {content}");
        }
        let (_dir, cgroups) = left("cpu.shares", "1024");
        assert!(cgroups.renew("another").is_err(), "it is not there");
        assert!(Cgroups::default().renew("run").is_err(), "there are none");
    }
}
