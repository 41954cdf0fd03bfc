//! What the worker itself has to say to the audit: messages that the small library never sends.
//!
//! Everything else is counted by the guard in front of the driver. A message like that is rare and ends its connection,
//! so the slice's page is joined for the moment of counting it.

use std::path::Path;

use tenure_limits::{Counter, Process};

/// Counts one malformed message on the slice's page; on the first, where there are several.
pub fn malformed() {
    let first = |name: &str| {
        let list = std::env::var(name).ok()?;
        list.split(';').next().map(str::to_owned)
    };
    let (Some(page), Some(slice)) = (first("TENURE_GUARD_PAGE"), first("TENURE_GUARD_SLICE")) else {
        return;
    };
    let joined = slice
        .parse()
        .ok()
        .map(|slice| Process::join(Path::new(&page), slice));
    // Otherwise the slice is ending, and the tenant's time with it.
    if let Some(Ok(process)) = joined {
        process.count(Counter::Malformed, 1);
    }
}
