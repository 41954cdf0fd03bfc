//! A policy in words: what jobs of a place may ask for, and what it may do at the exchange. What it does not say is left
//! out; what stands above it still holds.

use std::collections::BTreeSet;

use tenure_domain::id::TenantId;
use tenure_domain::tenancy::policy::{Egress, Policy};
use tenure_domain::tenancy::trade::TradePolicy;

use super::super::html::inert;
use super::super::show;

type Rule = (&'static str, String);

/// What a policy says, rule by rule. Tenants are called by what `named` makes of their ids.
pub(super) fn said(policy: &Policy, currency: &str, named: impl Fn(&str) -> String) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut rule = |name: &'static str, said: Option<String>| rules.extend(said.map(|said| (name, said)));
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let tenants = |all: &BTreeSet<TenantId>| {
        listed(
            all.iter().map(|tenant| inert(&named(&tenant.to_string()))),
            "nobody",
        )
    };
    rule(
        "Kinds of jobs",
        policy
            .kinds
            .as_ref()
            .map(|all| listed(all.iter().map(|kind| show::words(kind.as_str())), "none")),
    );
    rule(
        "Priorities",
        policy
            .priorities
            .as_ref()
            .map(|all| listed(all.iter().map(|priority| priority.as_str().to_owned()), "none")),
    );
    rule(
        "GPU classes",
        policy
            .classes
            .as_ref()
            .map(|all| listed(all.iter().map(|class| inert(class)), "none")),
    );
    rule(
        "Isolation at least",
        policy.min_isolation.map(|level| level.as_str().to_owned()),
    );
    rule(
        "Shares devices with other tenants at guarded",
        policy.share_guarded.map(yes),
    );
    rule(
        "Tenants it shares devices with",
        policy.share_with.as_ref().map(tenants),
    );
    rule(
        "Longest run",
        policy.max_run_time_s.map(|s| show::span(s.saturating_mul(1000))),
    );
    rule(
        "Largest share of one GPU",
        policy
            .max_compute_permille
            .map(|share| show::permille(share.into())),
    );
    rule(
        "GPU memory of one job at most",
        policy.max_vram_mib_per_job.map(show::mib),
    );
    rule(
        "GPUs of one job at most",
        policy.max_gpus_per_job.map(|gpus| show::count(gpus.into())),
    );
    rule(
        "Tasks of one job at once",
        policy.max_parallel_tasks.map(|tasks| show::count(tasks.into())),
    );
    rule(
        "Reaches",
        policy.egress.map(|egress| {
            match egress {
                Egress::None => "nothing outside its own network",
                Egress::Internet => "public addresses",
            }
            .to_owned()
        }),
    );
    rule(
        "To and from there at most",
        policy
            .max_egress_mbit
            .map(|mbit| format!("{}\u{a0}Mbit/s", show::count(mbit.into()))),
    );
    rule(
        "Runs before it gives way",
        policy
            .guaranteed_run_s
            .map(|s| show::span(s.saturating_mul(1000))),
    );
    rule(
        "Gives way within an hour at most",
        policy
            .max_evictions_per_hour
            .map(|times| show::things(times.into(), "time")),
    );
    rule(
        "Gives way in its life at most",
        policy
            .max_evictions_per_job
            .map(|times| show::things(times.into(), "time")),
    );
    rule(
        "Gives way to other tenants' higher priority",
        policy.preempt_tenants.map(yes),
    );
    rule(
        "Gives way to much shorter jobs where nothing is lost",
        policy.preempt_longer.map(yes),
    );
    if let Some(trade) = &policy.trade {
        rules.extend(traded(trade, currency, tenants));
    }
    rules
}

/// What of the exchange.
fn traded(trade: &TradePolicy, currency: &str, tenants: impl Fn(&BTreeSet<TenantId>) -> String) -> Vec<Rule> {
    let may = |yes: bool| if yes { "may" } else { "may not" }.to_owned();
    let price = |micros: u64| {
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        format!("{} for a GPU by the hour", show::money(micros, currency))
    };
    let rules = [
        ("Buys at the exchange", trade.may_buy.map(may)),
        ("Sells at the exchange", trade.may_sell.map(may)),
        ("Trades with", trade.counterparties.as_ref().map(tenants)),
        (
            "Buys in regions",
            trade
                .regions
                .as_ref()
                .map(|all| listed(all.iter().map(|region| inert(region)), "none")),
        ),
        (
            "Trades at isolation at least",
            trade.min_isolation.map(|level| level.as_str().to_owned()),
        ),
        ("Trades at a price of at least", trade.min_price_micros.map(price)),
        ("Trades at a price of at most", trade.max_price_micros.map(price)),
        (
            "Bound at the exchange at most",
            trade
                .max_bound_micros
                .map(|micros| show::money(i64::try_from(micros).unwrap_or(i64::MAX), currency)),
        ),
    ];
    rules
        .into_iter()
        .filter_map(|(name, said)| Some((name, said?)))
        .collect()
}

fn listed(all: impl Iterator<Item = String>, none: &str) -> String {
    let all: Vec<String> = all.collect();
    match all.is_empty() {
        true => none.to_owned(),
        false => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: serde_json::Value) -> Vec<Rule> {
        let policy: Policy = serde_json::from_value(policy).unwrap();
        said(&policy, "EUR", |id| id.replace("ten_", "tenant "))
    }

    #[test]
    fn a_policy_reads_as_people_speak() {
        let rules = of(serde_json::json!({
            "kinds": ["batch", "fine_tune"], "min_isolation": "fenced", "max_run_time_s": 7200, "max_compute_permille": 500,
            "share_with": [], "egress": "none", "max_evictions_per_hour": 1,
            "trade": { "may_sell": false, "max_price_micros": 2_500_000, "counterparties": ["ten_0000000000001"] },
        }));
        let wanted: Vec<Rule> = vec![
            ("Kinds of jobs", "batch, fine tune".into()),
            ("Isolation at least", "fenced".into()),
            ("Tenants it shares devices with", "nobody".into()),
            ("Longest run", "2\u{a0}h 00\u{a0}min".into()),
            ("Largest share of one GPU", "50\u{a0}%".into()),
            ("Reaches", "nothing outside its own network".into()),
            ("Gives way within an hour at most", "1\u{a0}time".into()),
            ("Sells at the exchange", "may not".into()),
            ("Trades with", "tenant 0000000000001".into()),
            (
                "Trades at a price of at most",
                "2.50\u{a0}EUR for a GPU by the hour".into(),
            ),
        ];
        assert_eq!(rules, wanted);
        assert!(of(serde_json::json!({})).is_empty());
    }

    #[test]
    fn every_field_has_its_words() {
        // One of each: a field that is added and not said here would be ruled by and never shown.
        let all = serde_json::json!({
            "kinds": ["batch"], "priorities": ["low"], "classes": ["H100"], "min_isolation": "fenced", "share_guarded": true,
            "share_with": ["ten_0000000000001"], "max_run_time_s": 1, "max_compute_permille": 1, "max_vram_mib_per_job": 1,
            "max_gpus_per_job": 1, "max_parallel_tasks": 1, "egress": "internet", "max_egress_mbit": 1,
            "guaranteed_run_s": 1, "max_evictions_per_hour": 1, "max_evictions_per_job": 1, "preempt_tenants": true,
            "preempt_longer": true,
            "trade": { "may_buy": true, "may_sell": true, "counterparties": [], "regions": [], "min_isolation": "fenced",
                "min_price_micros": 1, "max_price_micros": 1, "max_bound_micros": 1 },
        });
        let policy: Policy = serde_json::from_value(all.clone()).unwrap();
        assert_eq!(serde_json::to_value(&policy).unwrap(), all, "all of it");
        let fields = all.as_object().unwrap().len() - 1 + all["trade"].as_object().unwrap().len();
        assert_eq!(said(&policy, "EUR", str::to_owned).len(), fields);
    }
}
