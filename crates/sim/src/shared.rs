//! What lies beside the repository and is never part of it: contracts of others, and traces. Only tests ask; those of other
//! crates have this file as a module of theirs.
//!
//! `TENURE_SHARED` says where it lies, `../shared` unless said. A test against a contract fails where that is absent, for what
//! was never looked at must not look like what holds, unless `TENURE_WITHOUT_SHARED=1` says that this is known. Traces are large
//! and not everybody's to have: a test of them is left out without them, and `make unit` begins by saying so.

use std::path::{Path, PathBuf};

/// Every crate lies two folders below the repository.
const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");

fn folder() -> PathBuf {
    std::env::var_os("TENURE_SHARED").map_or_else(|| PathBuf::from(BESIDE), PathBuf::from)
}

/// A contract by its name; none only where it was said that none are there.
///
/// # Panics
/// Where it is absent and nobody said so.
pub fn contract(name: &str) -> Option<PathBuf> {
    found(folder().join("contracts").join(name), without())
}

fn without() -> bool {
    std::env::var_os("TENURE_WITHOUT_SHARED").is_some_and(|said| said == "1")
}

fn found(path: PathBuf, without: bool) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    let path = path.display();
    assert!(
        without,
        "{path} is not there: name its folder in TENURE_SHARED, or say TENURE_WITHOUT_SHARED=1 to do without"
    );
    eprintln!("left out: {path} is not there");
    None
}

/// A trace by its path among them, where it is at hand. `TENURE_TRACES` names their folder alone, and then it has to be there.
///
/// # Panics
/// Where a folder was named and the trace is not in it.
pub fn trace(path: impl AsRef<Path>) -> Option<PathBuf> {
    let named = std::env::var_os("TENURE_TRACES").map(PathBuf::from);
    let is_named = named.is_some();
    let traces = named.unwrap_or_else(|| folder().join("traces"));
    found(traces.join(path), !is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_no_success() {
        let here = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert_eq!(found(here.clone(), false), Some(here));
        let nowhere = || PathBuf::from("/nowhere/at/all.json");
        assert_eq!(found(nowhere(), true), None);
        assert!(std::panic::catch_unwind(|| found(nowhere(), false)).is_err());
    }
}
