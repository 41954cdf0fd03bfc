//! Erasing what is too old, what is too much, and what was a closed tenant's.

use tenure_domain::Time;
use tenure_domain::id::TenantId;
use tenure_domain::tenancy::keeping::Kept;
use tenure_domain::time::HOUR_MS;
use tenure_journal::{JournalError, LogStore};

use crate::view::View;

/// Stretches erased in one transaction.
const STEP: u32 = 500;
const MIB: u64 = 1 << 20;
const DAY_MS: i64 = 24 * HOUR_MS as i64;
/// So long it is remembered that there was a log, of which nothing is kept.
const FORGOTTEN_DAYS: i64 = 90;
/// Transactions of one sweep; the next goes on.
const STEPS_MAX: usize = 2000;

/// One round, as of this moment.
pub async fn sweep(view: &View, store: &LogStore, now: Time) -> Result<(), JournalError> {
    let mut steps = 0;
    let mut sizes = store.sizes().await?;
    for (tenant, size) in &mut sizes {
        let Some(kept) = kept_of(view, tenant) else {
            while !store.erase_tenant(tenant, STEP).await? {}
            tracing::info!(tenant, "the logs of a closed tenant were erased");
            *size = 0;
            continue;
        };
        let before = now.0 - i64::from(kept.days) * DAY_MS;
        loop {
            let gone = store.erase_oldest(tenant, before, 0, STEP).await?;
            *size = size.saturating_sub(gone.size);
            steps += 1;
            if gone.stretches < STEP.into() || steps > STEPS_MAX {
                break;
            }
        }
        while *size > kept.mib * MIB && steps <= STEPS_MAX {
            let gone = shrink(store, tenant, *size - kept.mib * MIB).await?;
            *size = size.saturating_sub(gone);
            steps += 1;
            if gone == 0 {
                break;
            }
        }
    }
    // Where all together are too much, whoever has the most gives.
    let bound = view.read().logs_of_platform().mib * MIB;
    while steps <= STEPS_MAX {
        let total: u64 = sizes.iter().map(|(_, size)| size).sum();
        let Some((tenant, size)) = sizes.iter_mut().max_by_key(|(_, size)| *size) else {
            break;
        };
        if total <= bound {
            break;
        }
        let gone = shrink(store, tenant, total - bound).await?;
        *size = size.saturating_sub(gone);
        steps += 1;
        if gone == 0 {
            break;
        }
    }
    store.forget(now.0 - FORGOTTEN_DAYS * DAY_MS).await.map(drop)
}

/// Erases a little more than is too much, so that not every stretch that comes costs one.
async fn shrink(store: &LogStore, tenant: &str, over: u64) -> Result<u64, JournalError> {
    let gone = store
        .erase_oldest(tenant, i64::MIN, over + over / 8, STEP)
        .await?;
    Ok(gone.size)
}

/// What is kept of a tenant; none where there is no such tenant any more.
fn kept_of(view: &View, tenant: &str) -> Option<Kept> {
    let state = view.read();
    if tenant.is_empty() {
        return Some(state.logs_of(None));
    }
    let id: TenantId = tenant.parse().ok()?;
    let stands = state
        .tree
        .get(tenure_domain::tenancy::scope::ScopeId::Tenant(id))
        .is_some();
    stands.then(|| state.logs_of(Some(id)))
}
