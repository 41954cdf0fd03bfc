//! Settling a lease: for what was had to the seller, less the fee; the rest of the escrow back; a penalty where the seller
//! cut short what it promised.

use super::lease::{Lease, LeaseEnd, RecallReason};
use super::terms::permille;
use crate::event::Event;
use crate::ledger::account::{AccountId, Posting};
use crate::money::Micros;
use crate::time::Time;

/// Why a lease that is over now is.
pub fn why(lease: &Lease) -> LeaseEnd {
    match lease.recalled {
        None => LeaseEnd::Over,
        Some(RecallReason::Seller) => LeaseEnd::Recalled,
        Some(RecallReason::Outbid(_)) => LeaseEnd::Outbid,
    }
}

/// The end of a lease, with all its money.
pub fn end(lease: &Lease, why: LeaseEnd, at: Time) -> Event {
    let had_ms = lease.had_ms(at);
    let paid_ms = match why {
        LeaseEnd::Lied => 0,
        // Who gives it back has bought the minimum.
        LeaseEnd::Returned => had_ms.max(lease.min_ms()).min(lease.length_ms()),
        _ => had_ms,
    };
    let cut_ms = match why {
        LeaseEnd::Recalled => lease.min_ms().saturating_sub(had_ms),
        _ => 0,
    };
    // INVARIANT: the escrow is the price of the whole length it began with, which no end passes.
    let earned = lease.cost_of(paid_ms).min(lease.escrow);
    let fee = permille(earned, lease.fee_permille);
    let penalty = permille(lease.cost_of(cut_ms), lease.penalty_permille);
    let (seller, buyer) = (AccountId::Tenant(lease.seller), AccountId::Tenant(lease.buyer));
    let moves = [
        (AccountId::Escrow, seller, Micros(earned.0 - fee.0)),
        (AccountId::Escrow, AccountId::Revenue, fee),
        (AccountId::Escrow, buyer, Micros(lease.escrow.0 - earned.0)),
        (seller, buyer, penalty),
    ];
    let moves = moves.into_iter().filter(|(.., amount)| amount.0 > 0);
    Event::LeaseEnded {
        lease: lease.id,
        scope: lease.scope,
        seller: lease.seller,
        why,
        had_ms,
        cost: earned,
        postings: moves
            .map(|(from, to, amount)| Posting { from, to, amount })
            .collect(),
    }
}

/// Of what was promised, GPU time that was kept and that was not.
pub fn promise(lease: &Lease, why: LeaseEnd, had_ms: u64) -> (u64, u64) {
    let had = lease.gpu_ms(had_ms);
    let rest = lease.gpu_ms(lease.length_ms().saturating_sub(had_ms));
    match why {
        LeaseEnd::Over | LeaseEnd::Outbid | LeaseEnd::Returned => (had, 0),
        LeaseEnd::Recalled => (had, lease.gpu_ms(lease.min_ms().saturating_sub(had_ms))),
        LeaseEnd::Fault => (had, rest),
        LeaseEnd::Lied => (0, had.saturating_add(rest)),
    }
}
