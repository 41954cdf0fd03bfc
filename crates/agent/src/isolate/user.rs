//! A user id for each tenant, given once and kept: jobs of one tenant share it, of two never.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::write_synced;

pub const FIRST_USER_ID: u32 = 200_000;
const USER_IDS: u32 = 65_536;

/// Which user id each tenant has here.
pub struct Users {
    dir: PathBuf,
    first: u32,
    known: BTreeMap<String, u32>,
}

impl Users {
    pub fn open(dir: &Path, first: u32) -> io::Result<Users> {
        let known = match std::fs::read(dir.join("users.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Users {
            dir: dir.to_owned(),
            first,
            known,
        })
    }

    /// The tenant's user id; a new one is on disk before it is used.
    pub fn of(&mut self, tenant: &str) -> io::Result<u32> {
        if let Some(&id) = self.known.get(tenant) {
            return Ok(id);
        }
        let next = self
            .known
            .values()
            .max()
            .map_or(self.first, |last| (last + 1).max(self.first));
        if next - self.first >= USER_IDS {
            return Err(io::Error::other(
                "all user ids set apart for tenants are given away",
            ));
        }
        self.known.insert(tenant.to_owned(), next);
        if let Err(error) = write_synced(&self.dir, "users.json", &serde_json::to_vec(&self.known)?) {
            self.known.remove(tenant);
            return Err(error);
        }
        Ok(next)
    }
}
