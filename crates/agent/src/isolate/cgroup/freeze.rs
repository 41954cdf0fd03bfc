//! Holding a job's processes still, by the freezer of version 1 or the one every cgroup of version 2 has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kernel;

/// How long processes may take to stand still; one in the midst of a long call into a driver holds all up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Holds every process there still, and comes back when all are; where one would not, all go on.
pub fn freeze(dirs: &[PathBuf]) -> Result<(), String> {
    let dir = dirs
        .iter()
        .find(|dir| Files::of(dir).is_some())
        .ok_or("its processes cannot be held still: it has no cgroup that does so")?;
    let files = Files::of(dir).ok_or("its cgroup is gone")?;
    let failed = |error: std::io::Error| format!("its processes cannot be held still: {error}");
    let deadline = Instant::now() + PATIENCE;
    while !files.are_still(dir) {
        // Said again, as version 1 gives up where a process was in the way.
        files.say(dir, true).map_err(failed)?;
        if Instant::now() >= deadline {
            thaw(dirs);
            return Err("its processes would not stand still".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Lets them go on.
pub fn thaw(dirs: &[PathBuf]) {
    for dir in dirs {
        if let Some(files) = Files::of(dir) {
            let _ = files.say(dir, false);
        }
    }
}

pub fn are_frozen(dirs: &[PathBuf]) -> bool {
    dirs.iter()
        .any(|dir| Files::of(dir).is_some_and(|files| files.are_still(dir)))
}

/// Ends every process there before one of them runs again.
pub fn kill_frozen(dirs: &[PathBuf]) {
    for dir in dirs {
        let processes = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        processes
            .lines()
            .filter_map(|pid| pid.parse().ok())
            .filter(|&pid| pid > 1)
            .for_each(|pid| kernel::kill(pid, libc::SIGKILL));
    }
    thaw(dirs);
}

#[derive(Clone, Copy)]
enum Files {
    Version1,
    Version2,
}

impl Files {
    fn of(dir: &Path) -> Option<Files> {
        if dir.join("freezer.state").exists() {
            Some(Files::Version1)
        } else {
            dir.join("cgroup.freeze").exists().then_some(Files::Version2)
        }
    }

    fn say(self, dir: &Path, still: bool) -> std::io::Result<()> {
        match self {
            Files::Version1 => fs::write(dir.join("freezer.state"), if still { "FROZEN" } else { "THAWED" }),
            Files::Version2 => fs::write(dir.join("cgroup.freeze"), if still { "1" } else { "0" }),
        }
    }

    fn are_still(self, dir: &Path) -> bool {
        let read = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
        match self {
            Files::Version1 => read("freezer.state").trim() == "FROZEN",
            Files::Version2 => read("cgroup.events").lines().any(|line| line == "frozen 1"),
        }
    }
}
