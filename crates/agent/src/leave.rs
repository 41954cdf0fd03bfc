//! `tenure-agent leave`: takes what an agent made out of its host. What still runs is ended; networks, packet rules,
//! cgroups, parts and the pages of devices go. Deliberately left: its directory, with keys, logs, images and volumes.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::discover::setting::Setting;
use crate::driver::Drivers;
use crate::isolate::cgroup::{self, Cgroups};
use crate::isolate::mps::{self, Mps};
use crate::isolate::network;
use crate::part::Parts;
use crate::record::Record;
use crate::state_dir::StateDir;
use crate::{kernel, node, share};

const PATIENCE: Duration = Duration::from_secs(10);

/// Fails while an agent is at work there.
pub fn main(state_dir: &Path) -> anyhow::Result<()> {
    let dir = StateDir::open(state_dir)?;
    for place in ["allocations", "workers"] {
        let Ok(entries) = std::fs::read_dir(dir.root().join(place)) else {
            continue;
        };
        for record in entries
            .flatten()
            .filter_map(|entry| Record::read(&entry.path()).ok()?)
        {
            end(&record);
        }
    }
    let cgroups = Cgroups::of_this_host(&mut Vec::new());
    let prefix = node::cgroup_prefix(dir.root())?;
    cgroup::end(&cgroups.beginning(&prefix), PATIENCE);
    let drivers = Box::new(Drivers(Setting::from_environment()));
    Parts::open(dir.root(), drivers, Duration::ZERO)?.clear(|_| false);
    Mps::open(dir.root(), mps::PROGRAM.into())?.leave()?;
    network::leave(dir.root())?;
    match std::fs::remove_dir_all(share::place(dir.root())?) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn end(record: &Record) {
    if record.parent().is_some() {
        kernel::kill(record.pid, libc::SIGKILL);
    }
    cgroup::end(&record.cgroups, PATIENCE);
}
