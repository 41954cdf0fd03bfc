//! A scope's share: its weight, its nominal quotas, and how it stands to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_domain::tenancy::share::Share;
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    pub share: Share,
    /// By GPU class with a nominal quota.
    #[schema(value_type = BTreeMap<String, ClassUse>)]
    pub used: BTreeMap<Box<str>, ClassUse>,
    /// GPU time of this scope and everything below it, what is past counting for half after each half-life.
    pub lately_gpu_seconds: u64,
    /// That and what runs now over what its weight gives it among its siblings: 1000 is its due.
    pub over_milli: u64,
    pub revision: u64,
}

/// What a scope has of one class.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct ClassUse {
    pub gpu_milli: u64,
    /// Beyond its nominal quota.
    pub borrowed_milli: u64,
    /// Idle of its nominal quota, and others may have it.
    pub lent_milli: u64,
}
