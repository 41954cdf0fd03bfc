//! What a thin parent is given: the order and how to wall it off. It travels in memory only, for it carries
//! the job's secrets.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use serde::{Deserialize, Serialize};
use tenure_api::channel::Order;

use crate::isolate::cgroup::Cgroups;
use crate::isolate::namespace::Namespaces;

#[derive(Debug, Serialize, Deserialize)]
pub struct Launch {
    pub order: Order,
    /// Whose user id the job runs under; none leaves it the agent's own.
    pub user_id: Option<u32>,
    pub namespaces: Namespaces,
    pub cgroups: Cgroups,
    pub log_bytes_max: u64,
    pub processes_max: u32,
}

impl Launch {
    /// Puts the launch into a file that exists only in memory.
    pub fn seal(&self) -> io::Result<File> {
        let mut file = File::from(rustix::fs::memfd_create(
            "launch",
            rustix::fs::MemfdFlags::CLOEXEC,
        )?);
        let mut bytes = serde_json::to_vec(self)?;
        let written = file.write_all(&bytes);
        bytes.fill(0);
        written?;
        file.rewind()?;
        Ok(file)
    }

    pub fn unseal(mut from: impl Read) -> io::Result<Launch> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let launch = serde_json::from_slice(&bytes);
        bytes.fill(0);
        Ok(launch?)
    }
}
