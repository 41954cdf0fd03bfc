//! What is never passed: budgets of a tenant and of its subscriber, raised and lowered as it goes, and with them how far an
//! account may fall. Looked at after every step.

use std::collections::BTreeMap;

use tenure_domain::ledger::account::AccountId;
use tenure_domain::ledger::bill::{BillRow, Eye, What};
use tenure_domain::meter::Of;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State, Time, Wish};

use tenure_domain::time::Period;

use super::super::{House, subscriber, tenant};
use super::Machine;

/// A unit, in micros.
const UNIT: u64 = 1_000_000;

#[derive(Default)]
pub struct Limits {
    /// How much may be spent and held; where a budget was set below what was so already, that much.
    most: BTreeMap<(ScopeId, Period), (u64, u64)>,
    /// Of each level, as its payer sees it: what was charged by use, and everything else that was posted.
    charged: BTreeMap<ScopeId, i64>,
    other: BTreeMap<ScopeId, i64>,
}

fn payers(house: &House) -> [(ScopeId, AccountId); 2] {
    [
        (house.acme, AccountId::Tenant(tenant(house.acme))),
        (house.lab, AccountId::Subscriber(subscriber(house.lab))),
    ]
}

fn gone(state: &State, scope: ScopeId, period: Period, at: Time) -> u64 {
    let spend = state
        .tree
        .get(scope)
        .expect("it lives")
        .spending
        .at(&Of::All, period, at);
    let sum = spend.spent.money.0 + spend.held.money.0;
    u64::try_from(sum).expect("nobody spends less than nothing")
}

impl Limits {
    pub fn row(&mut self, house: &House, path: &str, row: &BillRow) {
        for (scope, _) in payers(house) {
            let own = house.world.state.tree.path(scope);
            let Some(amount) = row.seen(Eye::of(scope)).filter(|_| path.starts_with(&own)) else {
                continue;
            };
            // The platform's fee is charged beside what budgets count.
            let used = match (row.what, Eye::of(scope)) {
                (What::Usage, Eye::Tenant) => row.money.0,
                (What::Usage, _) => amount.0,
                _ => 0,
            };
            *self.charged.entry(scope).or_default() += used;
            *self.other.entry(scope).or_default() -= amount.0 - used;
        }
    }

    pub fn event(&mut self, house: &House, event: &Event) {
        let Event::InvoicePaid {
            posting: Some(posting),
            ..
        } = event
        else {
            return;
        };
        for (scope, account) in payers(house) {
            let sum = self.other.entry(scope).or_default();
            *sum += if posting.to == account {
                posting.amount.0
            } else {
                0
            };
            *sum -= if posting.from == account {
                posting.amount.0
            } else {
                0
            };
        }
    }

    pub fn hold(&mut self, house: &House) {
        let (state, at) = (&house.world.state, house.world.now);
        for ((scope, period), (limit, most)) in &mut self.most {
            let gone = gone(state, *scope, *period, at);
            assert!(
                gone <= *most,
                "{scope}: {gone} spent and held of {most} in a {}",
                period.as_str()
            );
            *most = gone.max(*limit);
        }
        for (scope, account) in payers(house) {
            let of = |sums: &BTreeMap<ScopeId, i64>| sums.get(&scope).copied().unwrap_or(0);
            let (charged, other) = (of(&self.charged), of(&self.other));
            let posted = state.accounts.get(account).posted.0;
            assert_eq!(posted, other - charged, "{account} has what its rows say");
            if let Some((_, most)) = self.most.get(&(scope, Period::Total)) {
                let most = i64::try_from(*most).expect("a small budget");
                assert!(
                    posted >= other - most,
                    "{account} fell below what its budget allows"
                );
            }
        }
    }
}

impl Machine {
    /// A little more than is gone, or less: then nothing new starts until it is raised.
    pub(super) fn budget(&mut self) {
        let scope = self.chance.of(&[self.house.acme, self.house.lab]);
        let periods: &[Period] = if scope == self.house.acme {
            &[Period::Total]
        } else {
            &[Period::Total, Period::Day]
        };
        let mut set = Vec::new();
        for &period in periods {
            let gone = gone(&self.house.world.state, scope, period, self.house.world.now);
            let limit = match self.chance.below(4) {
                0 => gone / 2,
                _ => gone + self.chance.below(30 * UNIT),
            };
            set.push((period, limit, gone));
        }
        let budget = |(period, limit, _): &(Period, u64, u64)| Budget {
            period: *period,
            class: None,
            sku: None,
            kind: None,
            money_micros: Some(*limit),
            gpu_seconds: None,
            frames: None,
            alerts_permille: vec![800],
        };
        let wish = Wish::SetBudgets {
            scope,
            budgets: set.iter().map(budget).collect(),
            revision: None,
        };
        let before = self.done.get("budget").copied();
        let by = self.seller(scope);
        // What holds from then on is known before it is looked at.
        for (period, limit, gone) in &set {
            let most = self.limits.most.entry((scope, *period)).or_default();
            *most = (*limit, (*limit).max(*gone));
        }
        self.act("budget", by, wish);
        assert_ne!(
            self.done.get("budget").copied(),
            before,
            "a budget is set whatever is gone"
        );
    }
}
