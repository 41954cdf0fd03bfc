//! A second wall around files, by Landlock: even where a mode or a mount would let it, a job writes only where it
//! has business to, and reaches no process outside its own world by signal or abstract socket.

use std::io;
use std::path::Path;

use crate::{kernel, saved};

/// Where every job writes: its own files, devices, and its own processes' settings.
const WRITABLE: [&str; 4] = ["/tmp", "/var/tmp", "/dev", "/proc"];
/// Where it writes into what is there: the pages of its limits, which the agent and its neighbours have mapped.
const USABLE: &str = "/run/tenure";

/// The version of Landlock this kernel has; none where it has none.
pub fn version() -> Option<u32> {
    kernel::landlock_version()
}

/// Walls this process off for good. `also` are further directories it may write to.
pub fn restrict(also: &[&Path]) -> io::Result<()> {
    let Some(version) = version() else {
        return Ok(());
    };
    let rules = kernel::Ruleset::new(version)?;
    rules.allow(Path::new("/"), kernel::Access::ReadAndRun)?;
    for dir in WRITABLE.into_iter().map(Path::new).chain(also.iter().copied()) {
        if dir.exists() {
            rules.allow(dir, kernel::Access::All)?;
        }
    }
    let usable = Path::new(USABLE);
    if usable.exists() {
        rules.allow(usable, kernel::Access::Use)?;
    }
    // Nobody else has this one mapped, and programs cut short what they write anew.
    if let Ok(checkpoint) = saved::seen_as(true)
        && checkpoint.exists()
    {
        rules.allow(&checkpoint, kernel::Access::OneFile)?;
    }
    rules.restrict()
}
