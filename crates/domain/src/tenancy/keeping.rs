//! How long, and how much of, what jobs wrote is kept: as the platform says, and less where a tenant says so.
//!
//! Absent: logs themselves, and erasing them (`server/log`).

use serde::{Deserialize, Serialize};

use super::scope::ScopeId;
use crate::id::TenantId;
use crate::refusal::Refusal;
use crate::state::State;

pub const DEFAULT_DAYS: u32 = 14;
pub const DEFAULT_MIB: u64 = 10 * 1024;
pub const DEFAULT_TENANT_MIB: u64 = 2 * 1024;
pub const DEFAULT_JOB_MIB: u64 = 64;

const MAX_DAYS: u32 = 3660;
const MAX_MIB: u64 = 1 << 30;

/// What a platform or a tenant says of its logs; what is absent is as above it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Keeping {
    /// Erased after so many days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Stored at most, of all its jobs together; beyond it the oldest goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mib: Option<u64>,
    /// Of what one job writes; what comes after is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_mib: Option<u64>,
    /// Of the platform alone: stored at most of one tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_mib: Option<u64>,
}

/// What holds for one tenant, or for the platform, once everything is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub days: u32,
    pub mib: u64,
    pub job_mib: u64,
}

impl Keeping {
    pub fn is_default(&self) -> bool {
        *self == Keeping::default()
    }

    /// Refuses what cannot be meant at this scope.
    pub fn check(&self, scope: ScopeId) -> Result<(), Refusal> {
        match scope {
            ScopeId::Platform => {}
            ScopeId::Tenant(_) if self.tenant_mib.is_none() => {}
            ScopeId::Tenant(_) => {
                return Err(Refusal::invalid(
                    "/tenant_mib",
                    "what each tenant may keep is the platform's to say",
                )
                .hint("a tenant says `mib`"));
            }
            _ => {
                return Err(Refusal::invalid(
                    "",
                    "how logs are kept is said by the platform and by tenants, for all below them",
                ));
            }
        }
        if self.days.is_some_and(|days| days == 0 || days > MAX_DAYS) {
            return Err(Refusal::invalid(
                "/days",
                format!("logs are kept for 1 to {MAX_DAYS} days"),
            ));
        }
        let sizes = [
            (self.mib, "/mib"),
            (self.job_mib, "/job_mib"),
            (self.tenant_mib, "/tenant_mib"),
        ];
        for (size, field) in sizes {
            if size.is_some_and(|mib| mib == 0 || mib > MAX_MIB) {
                return Err(Refusal::invalid(field, format!("a size is 1 to {MAX_MIB} MiB")));
            }
        }
        Ok(())
    }

    /// Refuses a tenant's wish for more than the platform keeps of anybody.
    pub fn check_within(&self, platform: &Kept) -> Result<(), Refusal> {
        let more = |field, most: String| {
            Err(Refusal::invalid(
                field,
                format!("the platform keeps {most} at most, and a tenant may only say less"),
            ))
        };
        if self.days.is_some_and(|days| days > platform.days) {
            return more("/days", format!("{} days", platform.days));
        }
        if self.mib.is_some_and(|mib| mib > platform.mib) {
            return more("/mib", format!("{} MiB of a tenant", platform.mib));
        }
        if self.job_mib.is_some_and(|mib| mib > platform.job_mib) {
            return more("/job_mib", format!("{} MiB of a job", platform.job_mib));
        }
        Ok(())
    }
}

impl State {
    fn said_of_logs(&self, scope: ScopeId) -> Keeping {
        self.tree
            .get(scope)
            .map_or_else(Keeping::default, |scope| scope.keeping)
    }

    /// What is kept of all tenants and the platform's own jobs together.
    pub fn logs_of_platform(&self) -> Kept {
        let said = self.said_of_logs(ScopeId::Platform);
        Kept {
            days: said.days.unwrap_or(DEFAULT_DAYS),
            mib: said.mib.unwrap_or(DEFAULT_MIB),
            job_mib: said.job_mib.unwrap_or(DEFAULT_JOB_MIB),
        }
    }

    /// What the platform keeps of any one tenant.
    pub fn logs_of_each(&self) -> Kept {
        let platform = self.logs_of_platform();
        let said = self.said_of_logs(ScopeId::Platform);
        Kept {
            mib: said.tenant_mib.unwrap_or(DEFAULT_TENANT_MIB).min(platform.mib),
            ..platform
        }
    }

    /// What is kept of one tenant, or of the platform's own jobs. The platform's word holds where it came to say less
    /// than the tenant.
    pub fn logs_of(&self, tenant: Option<TenantId>) -> Kept {
        let each = self.logs_of_each();
        let said = tenant.map_or_else(Keeping::default, |tenant| {
            self.said_of_logs(ScopeId::Tenant(tenant))
        });
        Kept {
            days: said.days.unwrap_or(each.days).min(each.days),
            mib: said.mib.unwrap_or(each.mib).min(each.mib),
            job_mib: said.job_mib.unwrap_or(each.job_mib).min(each.job_mib),
        }
    }
}
