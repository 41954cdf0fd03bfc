//! Nodes of a seller's own: checked before they are first let and again later; a liar is not paid, and what breaks is not.

use tenure_domain::id::{GpuId, NodeId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::market::auto::AutoSpec;
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::check::{GpuReport, Untried};
use tenure_domain::market::lease::LeaseEnd;
use tenure_domain::market::offer::{OfferSpec, Source};
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::trade::TradePolicy;
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Code, Event, Refusal, Wish};

use super::street::{HOUR_S, LEVELS, Street, Trader, at, demand, instant, offer};
use crate::world::{gpu, inventory, spec};

/// A tenant that brought a node of two GPUs, which do 100 where a class does 90.
struct Own {
    street: Street,
    owner: Trader,
    node: NodeId,
}

impl Own {
    fn new() -> Own {
        let mut street = Street::new();
        let owner = street.trader("owner", 0);
        let gpus = (0..2).map(|n| gpu(&format!("own-{n}"), "H100", 80_000, &LEVELS));
        let node = street
            .world
            .node("own", inventory(64_000, 512_000, gpus.collect()));
        let labels = Labels {
            dedicated: Some(owner.tenant),
            ..Labels::default()
        };
        let wish = Wish::LabelNode {
            node,
            labels,
            revision: None,
        };
        street.world.root(wish).expect("labelled");
        let mut terms = MarketTerms::default();
        terms.least_speed.insert("H100".into(), 90);
        street.world.root(Wish::SetMarketTerms { terms }).expect("set");
        // Only the owner's node is there to be had.
        for node in street.nodes.clone() {
            street.world.root(Wish::CordonNode { node }).expect("cordoned");
        }
        Own { street, owner, node }
    }

    fn list(&mut self) {
        let nodes = vec![self.node];
        let spec = OfferSpec {
            source: Source::Nodes { nodes },
            ..offer(2000)
        };
        let (user, tenant) = (self.owner.user, self.owner.tenant);
        self.street.offer(user, tenant, spec).expect("listed");
    }

    fn questions(&self) -> Vec<(GpuId, u64)> {
        let checks = self.street.world.state.market.checks();
        let open = checks.filter_map(|(gpu, check)| Some((gpu, check.open?.number)));
        open.collect()
    }

    fn answer(
        &mut self,
        gpu: GpuId,
        number: u64,
        memory_mib: u64,
        speed: u64,
    ) -> Result<Vec<Event>, Refusal> {
        self.say(gpu, number, memory_mib, speed, None)
    }

    fn say(
        &mut self,
        gpu: GpuId,
        number: u64,
        memory_mib: u64,
        speed: u64,
        untried: Option<Untried>,
    ) -> Result<Vec<Event>, Refusal> {
        let facts = self
            .street
            .world
            .state
            .fleet
            .node(self.node)
            .and_then(|node| node.gpu(gpu));
        let report = GpuReport {
            uuid: facts.expect("a GPU").facts.uuid.clone(),
            memory_mib,
            speed,
            untried,
        };
        let node = self.node;
        let wish = Wish::AnswerGpuCheck {
            node,
            gpu,
            number,
            report,
        };
        self.street.world.act(Actor::Node(node), wish)
    }

    fn prove_all(&mut self) {
        for (gpu, number) in self.questions() {
            self.answer(gpu, number, 79_000, 100).expect("taken");
        }
    }
}

#[test]
fn a_node_is_let_once_its_gpus_have_been_checked() {
    let mut own = Own::new();
    own.list();
    assert_eq!(own.questions().len(), 2, "both are asked");
    let early = own
        .street
        .startup_bids(instant(2000))
        .expect_err("not checked yet");
    assert_eq!(early.code, Code::NoOffers);
    own.prove_all();
    own.street.startup_bids(instant(2000)).expect("bought");
    // The node is the startup's meanwhile, and its owner's no more.
    let run = own
        .street
        .world
        .submit(own.street.startup.user, spec("run", demand(2), HOUR_S))
        .expect("taken");
    assert_eq!(
        own.street.world.allocation(run).map(|(_, node)| node),
        Some(own.node)
    );
    own.street.runs(run);
    own.street.until("2026-03-02T10:00:00Z");
    own.street.world.exit(run, HOUR_S - 60);
    own.street.until("2026-03-02T11:00:01Z");
    assert_eq!(
        own.street.of(own.owner.tenant),
        1_900_000,
        "two GPUs for two hours, less the fee"
    );
}

#[test]
fn a_liar_found_out_in_a_lease_gets_nothing() {
    let mut own = Own::new();
    let mut terms = own.street.world.state.market.terms.clone();
    terms.check_again_s = 600;
    own.street
        .world
        .root(Wish::SetMarketTerms { terms })
        .expect("set");
    own.list();
    own.prove_all();
    own.street.startup_bids(instant(2000)).expect("bought");
    let run = own
        .street
        .world
        .submit(own.street.startup.user, spec("run", demand(2), HOUR_S))
        .expect("taken");
    own.street.runs(run);
    // Within twice ten minutes each is asked again; nobody could have said when.
    while own.questions().is_empty() {
        own.street.world.pass_s(30);
        own.street.tick();
    }
    let asked_s = own.street.world.now.since_ms(at("2026-03-02T09:00:00Z")) / 1000;
    assert!((600..=1230).contains(&asked_s), "after {asked_s} s");
    let (gpu, number) = own.questions()[0];
    let events = own.answer(gpu, number, 79_000, 45).expect("taken");
    let withdrawn = events.iter().find_map(|event| match event {
        Event::OfferWithdrawn { why, .. } => Some(why.as_str()),
        _ => None,
    });
    let why = withdrawn.expect("its offers are withdrawn");
    assert!(
        why.contains("it does 45 where a GPU of class H100 does 90"),
        "{why}"
    );
    assert_eq!(own.street.of(own.owner.tenant), 0, "its payout is withheld");
    assert_eq!(own.street.has(AccountId::Escrow), 0, "and went back to the buyer");
    assert_eq!(own.street.phase(run), Phase::Stopping);
    let now = own.street.world.now;
    let reliable = own
        .street
        .world
        .state
        .market
        .reliability_permille(own.owner.tenant, now);
    assert!(reliable < 900, "{reliable} ‰");
    // An old answer, or one nobody asked for, says nothing.
    let again = own.answer(gpu, number, 79_000, 100).expect_err("answered");
    assert_eq!(again.code, Code::ContradictoryReport);
}

#[test]
fn too_little_memory_or_another_identity_is_a_lie_before_the_first_lease() {
    let mut own = Own::new();
    own.list();
    let [(gpu, number), ..] = own.questions()[..] else {
        panic!("two are asked")
    };
    let events = own.answer(gpu, number, 40_000, 100).expect("taken");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::OfferWithdrawn { .. }))
    );
    assert_eq!(own.street.world.state.market.offers().count(), 0);
}

#[test]
fn what_nobody_can_measure_is_not_let() {
    let mut own = Own::new();
    own.list();
    let [(gpu, number), ..] = own.questions()[..] else {
        panic!("two are asked")
    };
    let why = Untried::Because("no driver serves it".into());
    let events = own.say(gpu, number, 80_000, 0, Some(why)).expect("taken");
    let withdrawn = events.iter().find_map(|event| match event {
        Event::OfferWithdrawn { why, .. } => Some(why.as_str()),
        _ => None,
    });
    let why = withdrawn.expect("it is not offered");
    assert!(
        why.contains("could not be measured: no driver serves it"),
        "{why}"
    );
    let refusal = own
        .street
        .startup_bids(instant(2000))
        .expect_err("nothing to let");
    assert_eq!(refusal.code, Code::NoOffers);
}

#[test]
fn a_gpu_in_use_is_asked_again_and_stays_what_it_showed_itself_to_be() {
    let mut own = Own::new();
    let mut terms = own.street.world.state.market.terms.clone();
    terms.check_again_s = 600;
    own.street
        .world
        .root(Wish::SetMarketTerms { terms })
        .expect("set");
    own.list();
    own.prove_all();
    own.street.startup_bids(instant(2000)).expect("bought");
    let ask = |own: &mut Own| {
        while own.questions().is_empty() {
            own.street.world.pass_s(30);
            own.street.tick();
        }
        own.questions()[0]
    };
    let (gpu, number) = ask(&mut own);
    // Nobody's work is there yet, so that is no answer, and the question stays.
    let idle = own.say(gpu, number, 80_000, 0, Some(Untried::InUse));
    assert_eq!(idle.expect_err("it is idle").code, Code::ContradictoryReport);
    assert_eq!(own.questions().len(), 1);
    let run = own
        .street
        .world
        .submit(own.street.startup.user, spec("run", demand(2), HOUR_S))
        .expect("taken");
    own.street.runs(run);
    let events = own
        .say(gpu, number, 80_000, 0, Some(Untried::InUse))
        .expect("taken");
    assert_eq!(events.len(), 1, "{events:?}");
    let market = &own.street.world.state.market;
    assert!(market.gpu_check(gpu).is_some_and(|check| check.passed.is_some()));
    assert_eq!(market.leases().count(), 1, "the lease goes on");
    // What its driver says of memory is held against it all the same.
    while !own.questions().iter().any(|(asked, _)| *asked == gpu) {
        own.street.world.pass_s(30);
        own.street.tick();
    }
    let (_, number) = own
        .questions()
        .into_iter()
        .find(|(asked, _)| *asked == gpu)
        .expect("asked");
    let events = own
        .say(gpu, number, 40_000, 0, Some(Untried::InUse))
        .expect("taken");
    let ended = events.iter().find_map(|event| match event {
        Event::LeaseEnded { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(ended, Some(LeaseEnd::Lied));
}

#[test]
fn who_does_not_answer_is_not_offered() {
    let mut own = Own::new();
    own.list();
    own.street.until("2026-03-02T09:10:01Z");
    assert_eq!(own.street.world.state.market.offers().count(), 0);
}

#[test]
fn a_node_that_dies_in_a_lease_refunds_by_itself() {
    let mut own = Own::new();
    own.list();
    own.prove_all();
    own.street.startup_bids(instant(2000)).expect("bought");
    let run = own
        .street
        .world
        .submit(own.street.startup.user, spec("run", demand(2), HOUR_S))
        .expect("taken");
    own.street.runs(run);
    own.street.until("2026-03-02T09:30:00Z");
    let node = own.node;
    let events = own.street.world.system(Wish::LoseNode { node }).expect("lost");
    let ended = events.iter().find_map(|event| match event {
        Event::LeaseEnded {
            why, had_ms, cost, ..
        } => Some((*why, *had_ms, cost.0)),
        _ => None,
    });
    assert_eq!(
        ended,
        Some((LeaseEnd::Fault, 1_800_000, 500_000)),
        "in the same batch, for the half hour that was had"
    );
    assert_eq!(own.street.has(AccountId::Escrow), 0);
    let (fee, ran) = (25_000, own.street.world.state.jobs[&run].charged.money.0);
    assert_eq!(own.street.of(own.owner.tenant), 500_000 - fee);
    assert_eq!(own.street.of(own.street.startup.tenant), -500_000 - ran);
    let now = own.street.world.now;
    let reliable = own
        .street
        .world
        .state
        .market
        .reliability_permille(own.owner.tenant, now);
    assert_eq!(reliable, 892, "three GPU-hours of the four promised were not had");
}

/// One of each event of the exchange, for the golden file.
pub fn life() -> Vec<Event> {
    let mut own = Own::new();
    let startup = own.street.startup.scope();
    let mut events = Vec::new();
    let trade = TradePolicy {
        may_buy: Some(true),
        may_sell: Some(true),
        counterparties: Some([own.owner.tenant, own.street.studio.tenant].into()),
        regions: None,
        min_isolation: Some(Isolation::Fenced),
        min_price_micros: Some(1),
        max_price_micros: Some(2_000_000),
        max_bound_micros: Some(100_000_000),
    };
    let policy = Policy {
        trade: Some(Box::new(trade)),
        ..Policy::default()
    };
    let wish = Wish::SetPolicy {
        scope: startup,
        policy,
        revision: None,
    };
    events.extend(own.street.world.root(wish).expect("set"));
    let terms = MarketTerms {
        credit_micros: Some(50_000_000),
        ..own.street.world.state.market.terms.clone()
    };
    events.extend(
        own.street
            .world
            .root(Wish::SetMarketTerms { terms })
            .expect("set"),
    );
    let nodes = vec![own.node];
    let (owner, seller) = (own.owner.user, own.owner.tenant);
    let spec_of = OfferSpec {
        source: Source::Nodes { nodes },
        ..offer(2000)
    };
    let wish = Wish::MakeOffer {
        seller,
        spec: Box::new(spec_of),
        zone: None,
    };
    events.extend(own.street.world.by(owner, wish).expect("listed"));
    for (gpu, number) in own.questions() {
        events.extend(own.answer(gpu, number, 79_000, 100).expect("taken"));
    }
    events.extend(own.street.startup_bids(instant(2000)).expect("bought"));
    let lease = own.street.world.state.market.leases().next().expect("a lease").id;
    let user = own.street.startup.user;
    let run = own
        .street
        .world
        .submit(user, spec("run", demand(2), HOUR_S))
        .expect("taken");
    own.street.runs(run);
    events.extend(
        own.street
            .world
            .by(owner, Wish::RecallLease { lease })
            .expect("recalled"),
    );
    events.extend(own.street.until("2026-03-02T09:11:00Z"));
    let nights = OfferSpec {
        windows: Windows::Daily {
            from_minute: 1260,
            until_minute: 360,
            zone: "Europe/Berlin".into(),
        },
        ..offer(2000)
    };
    let id = own.street.studio_offers(nights).expect("listed");
    let (studio, seller) = (own.street.studio.user, own.street.studio.tenant);
    let auto = AutoSpec {
        class: "H100".into(),
        floor: Micros(400_000),
        reserve_milli: 1000,
        min_lease_s: HOUR_S,
        max_lease_s: 8 * HOUR_S,
        notice_s: 600,
        buyers: Some([own.street.startup.tenant].into()),
        isolation: Isolation::Fenced,
    };
    let spec_of = Box::new(auto);
    let wish = Wish::SetAutoOffer {
        seller,
        spec: spec_of,
    };
    events.extend(own.street.world.by(studio, wish).expect("it stands"));
    let class = "H100".into();
    events.extend(
        own.street
            .world
            .by(studio, Wish::RemoveAutoOffer { seller, class })
            .expect("removed"),
    );
    let limit = BidSpec {
        kind: BidKind::Limit {
            expires: at("2026-03-11T09:00:00Z"),
        },
        ..instant(1000)
    };
    events.extend(own.street.startup_bids(limit).expect("it waits"));
    let bid = own.street.world.state.market.bids().next().expect("a bid").id;
    events.extend(
        own.street
            .world
            .by(user, Wish::CancelBid { bid })
            .expect("cancelled"),
    );
    own.street.world.now = at("2026-03-10T09:00:00Z");
    events.extend(own.street.tick());
    events.extend(
        own.street
            .world
            .by(studio, Wish::WithdrawOffer { offer: id })
            .expect("withdrawn"),
    );
    let quota = own
        .street
        .studio_offers(offer(500))
        .map(|_| own.street.startup_bids(instant(500)));
    events.extend(quota.expect("listed").expect("bought"));
    events
}
