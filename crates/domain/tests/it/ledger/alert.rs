//! Budgets: thresholds are told once a period, and a hard stop is passed by no more than an interval.

use tenure_domain::command::{Observation, Ran};
use tenure_domain::ledger::book::Book;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::alert::{Alert, Unit};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::{Code, Event, Wish};

use super::{House, house};
use crate::world::{plain_prices, spec, whole};

fn budget(period: Period, money: u64, alerts: &[u16]) -> Budget {
    Budget {
        period,
        class: None,
        sku: None,
        kind: None,
        money_micros: Some(money),
        gpu_seconds: None,
        frames: None,
        alerts_permille: alerts.to_vec(),
    }
}

impl House {
    fn limit(&mut self, scope: ScopeId, budgets: Vec<Budget>) -> Result<Vec<Event>, tenure_domain::Refusal> {
        self.world.root(Wish::SetBudgets {
            scope,
            budgets,
            revision: None,
        })
    }

    /// A job for so many seconds that runs; what is metered of it each ten seconds.
    pub fn metered(&mut self, seconds: u64, steps: u64) -> Vec<Event> {
        let (ada, mut events) = (self.ada, Vec::new());
        let job = self
            .world
            .submit(ada, spec("train", whole(1), seconds))
            .expect("taken");
        self.world.observe(job, Observation::Running).expect("it runs");
        let (allocation, node) = self.world.allocation(job).expect("it is placed");
        for step in 1..=steps {
            self.world.pass_s(10);
            let ran = vec![Ran {
                allocation,
                ran_ms: step * 10_000,
                usage: None,
            }];
            let by = tenure_domain::Actor::Node(node);
            events.extend(self.world.act(by, Wish::Meter { node, ran }).expect("metered"));
        }
        events.extend(self.world.exit(job, steps * 10));
        events
    }
}

fn alerts(events: &[Event]) -> Vec<(ScopeId, &Alert)> {
    let alerts = events.iter().filter_map(|event| match event {
        Event::BudgetAlerted { scope, alert } => Some((*scope, alert)),
        _ => None,
    });
    alerts.collect()
}

#[test]
fn each_threshold_is_told_once_a_period() {
    let mut house = house(plain_prices());
    // An hour of a GPU is a million micros: ten seconds are 2,777 or so.
    let lab = house.lab;
    house
        .limit(lab, vec![budget(Period::Day, 20_000, &[250, 500, 1000])])
        .expect("set");
    let events = house.metered(60, 6);
    let told: Vec<(u16, Unit, u64)> = alerts(&events)
        .iter()
        .map(|(scope, alert)| {
            assert_eq!((*scope, alert.limit), (lab, 20_000));
            (alert.permille, alert.unit, alert.spent)
        })
        .collect();
    assert_eq!(
        told,
        [(250, Unit::MoneyMicros, 5555), (500, Unit::MoneyMicros, 11_111)]
    );
    // More of the same is not told again; the next day is another.
    assert_eq!(alerts(&house.metered(10, 1)).len(), 0);
    house.world.pass_s(86_400);
    let next = house.metered(30, 3);
    assert_eq!(
        alerts(&next)
            .iter()
            .map(|(_, alert)| alert.permille)
            .collect::<Vec<_>>(),
        [250]
    );
    // A jump over several tells the highest.
    house
        .limit(lab, vec![budget(Period::Day, 12_000, &[100, 200, 900])])
        .expect("set");
    assert_eq!(
        alerts(&house.metered(10, 1))
            .iter()
            .map(|(_, alert)| alert.permille)
            .collect::<Vec<_>>(),
        [900]
    );
}

#[test]
fn each_level_is_told_in_its_own_prices() {
    let mut house = house(plain_prices());
    let (acme, lab) = (house.acme, house.lab);
    let book = Book {
        markup_permille: 2000,
        ..Book::default()
    };
    house.book(acme, book).expect("set");
    for scope in [acme, lab] {
        house
            .limit(scope, vec![budget(Period::Month, 100_000, &[100])])
            .expect("set");
    }
    let events = house.metered(60, 6);
    let told: Vec<(ScopeId, u64)> = alerts(&events)
        .iter()
        .map(|(scope, alert)| (*scope, alert.spent))
        .collect();
    assert_eq!(
        told,
        [(lab, 11_111), (acme, 11_111)],
        "the tenant's two steps later"
    );
}

#[test]
fn a_hard_stop_is_passed_by_no_more_than_an_interval() {
    for limit in [1, 2777, 10_000, 16_666, 16_667] {
        let mut house = house(plain_prices());
        let (ada, lab) = (house.ada, house.lab);
        house
            .limit(lab, vec![budget(Period::Day, limit, &[1000])])
            .expect("set");
        // A job that would cost more than there is does not begin.
        let refused = house.world.submit(ada, spec("long", whole(1), 3600)).map(drop);
        assert_eq!(refused.unwrap_err().code, Code::ExceedsBudget);
        // One that fits runs over its time, and its node reports late and long.
        let seconds = limit * 3600 / 1_000_000;
        if seconds == 0 {
            continue;
        }
        let events = house.metered(seconds, seconds / 10 + 30);
        let spent = house.world.state.tree.get(lab).expect("it is there").spending.at(
            &tenure_domain::meter::Of::All,
            Period::Day,
            house.world.now,
        );
        let interval = Micros(1_000_000).for_ms_at_hourly(10_000).0;
        assert!(
            spent.spent.money.0 <= i64::try_from(limit).unwrap() + interval,
            "{limit}: {spent:?}"
        );
        assert!(
            spent.spent.money.0 <= i64::try_from(limit).unwrap(),
            "no charge passes its hold"
        );
        assert!(!events.is_empty());
    }
}

#[test]
fn thresholds_that_make_no_sense_are_refused() {
    let mut house = house(plain_prices());
    let lab = house.lab;
    for bad in [
        &[0][..],
        &[1001],
        &[500, 500],
        &[500, 400],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    ] {
        let refused = house
            .limit(lab, vec![budget(Period::Day, 1000, bad)])
            .unwrap_err();
        assert_eq!(
            (refused.code, refused.field.as_deref()),
            (Code::InvalidField, Some("/0/alerts_permille")),
            "{bad:?}"
        );
    }
}
