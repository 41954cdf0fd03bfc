//! What time does to the exchange: leases are vacated and end, bids expire, offers open and close, GPUs are asked again,
//! standing orders look ahead, and who waits is served.
//!
//! Deliberately absent: looking at the clock; the server asks every second, and at once again while something was due, for what
//! a step makes room for is had in the next, by those who waited before those who come.

use std::collections::{BTreeMap, BTreeSet};

use super::auto::{Auto, hour_of};
use super::check::GpuCheck;
use super::fault::{is_broken, leave_of};
use super::fill::{Found, Taken, Want, find};
use super::funds;
use super::lease::{Lease, LeaseEnd};
use super::leave::{goes, leaving};
use super::offer::{MAX_PRICE_MICROS, Offer};
use super::settle;
use super::window::Windows;
use crate::booking::zone::Zone;
use crate::event::Event;
use crate::id::{BidId, GpuId, Ids, JobId, LeaseId, OfferId};
use crate::money::Micros;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{HOUR_MS, SECOND_MS, Time};

/// Of each kind at once, so that a decision stays short; the next second has the others.
const AT_ONCE: usize = 256;
/// Whoever leaves is told in time to be gone at the end; a grace beyond this is cut.
const LOOK_AHEAD_MS: u64 = HOUR_MS;
/// Time comes in steps.
const NOTICE_MS: u64 = 2 * SECOND_MS;

/// Everything that is due.
pub fn advance(state: &State, zones: fn(&str) -> Option<Zone>, ids: &mut Ids, at: Time) -> Vec<Event> {
    let market = &state.market;
    let mut events = Vec::new();
    let mut told: BTreeSet<JobId> = BTreeSet::new();
    let mut over: BTreeMap<(ScopeId, &str), Vec<&Lease>> = BTreeMap::new();
    for lease in market.ending_before(at.plus_ms(1)).take(AT_ONCE) {
        events.push(settle::end(lease, settle::why(lease), at));
        over.entry((lease.scope, &*lease.class)).or_default().push(lease);
    }
    for leases in over.values() {
        let jobs = leaving(state, leases, &told);
        told.extend(jobs.iter().map(|job| job.id));
        events.extend(jobs.into_iter().map(|job| goes(state, job, leases)));
    }
    let mut over: BTreeSet<LeaseId> = over.values().flatten().map(|lease| lease.id).collect();
    let coming = market.ending_before(at.plus_ms(LOOK_AHEAD_MS));
    for lease in coming.filter(|lease| !over.contains(&lease.id)).take(AT_ONCE) {
        events.extend(vacate(state, lease, &mut told, at));
    }
    for lease in market.leases_of_nodes().filter(|lease| is_broken(state, lease)) {
        if !over.insert(lease.id) {
            continue;
        }
        events.push(settle::end(lease, LeaseEnd::Fault, at));
        events.extend(leave_of(state, lease, &mut told));
    }
    let mut expired: BTreeSet<BidId> = BTreeSet::new();
    for bid in market.expiring_before(at.plus_ms(1)).take(AT_ONCE) {
        expired.insert(bid.id);
        events.push(Event::BidEnded {
            bid: bid.id,
            scope: bid.scope,
            why: "it expired".into(),
        });
    }
    let mut gone: BTreeSet<OfferId> = BTreeSet::new();
    for offer in market.due_by(at).take(AT_ONCE) {
        let event = offer_due(offer, zones, at);
        if let Some(Event::OfferWithdrawn { offer, .. }) = event {
            gone.insert(offer);
        }
        events.extend(event);
    }
    let mut asked = 0;
    for auto in market.autos() {
        if asked > AT_ONCE {
            break;
        }
        let before = events.len();
        events.extend(ask_auto(state, auto, &mut gone, ids, at));
        asked += events.len() - before;
    }
    for (gpu, check) in market.checks() {
        if asked > 2 * AT_ONCE {
            break;
        }
        let before = events.len();
        events.extend(check_due(state, gpu, check, &mut gone, &mut over, ids, at));
        asked += events.len() - before;
    }
    // What ends here still counts as leased: it is had from the next step on.
    events.extend(serve(state, &gone, &expired, ids, at));
    events
}

fn vacate(state: &State, lease: &Lease, told: &mut BTreeSet<JobId>, at: Time) -> Vec<Event> {
    if lease.vacating {
        return vec![];
    }
    let jobs = leaving(state, &[lease], told);
    let grace_s = jobs.iter().map(|job| u64::from(job.spec.grace_s)).max();
    let due = grace_s.is_some_and(|grace_s| at.plus_ms(grace_s * SECOND_MS + NOTICE_MS) >= lease.end);
    if !due {
        return vec![];
    }
    told.extend(jobs.iter().map(|job| job.id));
    let vacating = Event::LeaseVacating {
        lease: lease.id,
        scope: lease.scope,
        victims: jobs.iter().map(|job| job.id).collect(),
    };
    let goes = jobs.into_iter().map(|job| goes(state, job, &[lease]));
    std::iter::once(vacating).chain(goes).collect()
}

fn withdrawn(offer: &Offer, why: impl Into<String>) -> Event {
    Event::OfferWithdrawn {
        offer: offer.id,
        seller: offer.seller,
        why: why.into(),
    }
}

fn offer_due(offer: &Offer, zones: fn(&str) -> Option<Zone>, at: Time) -> Option<Event> {
    if let Windows::Daily { zone, .. } = &offer.spec.windows
        && let Some(zone) = zones(zone)
    {
        let open = offer.spec.windows.open(Some(&zone), at);
        return (open != offer.open).then_some(Event::OfferRenewed {
            offer: offer.id,
            seller: offer.seller,
            open,
        });
    }
    offer.is_over(at).then(|| withdrawn(offer, "its window is over"))
}

/// Has the standing order's offer follow its forecast, at most once an hour while it stands.
fn ask_auto(state: &State, auto: &Auto, gone: &mut BTreeSet<OfferId>, ids: &mut Ids, at: Time) -> Vec<Event> {
    let market = &state.market;
    let stands = auto.offer.and_then(|offer| market.offer(offer));
    let stands = stands.filter(|offer| !gone.contains(&offer.id));
    if stands.is_some_and(|offer| hour_of(offer.made) == hour_of(at)) {
        return vec![];
    }
    let (seller, class) = (auto.seller, &*auto.spec.class);
    let left = stands.map_or(0, Offer::left_milli);
    let let_milli = state
        .tree
        .get(ScopeId::Tenant(seller))
        .map_or(0, |scope| scope.leased.of(class).let_milli);
    let own = super::fill::own_milli(state, seller, class).unwrap_or(0);
    let free = own
        .saturating_sub(let_milli)
        .saturating_sub(market.offered_milli(seller, class).saturating_sub(left));
    let mut forecast = auto.forecast(state, at);
    if let Some(forecast) = &mut forecast {
        forecast.idle_milli = forecast.idle_milli.saturating_sub(let_milli).min(free);
    }
    let forecast = forecast.filter(|forecast| forecast.idle_milli > 0);
    let same = match (stands, &forecast) {
        (None, None) => true,
        (Some(offer), Some(forecast)) => {
            offer.left_milli() == forecast.idle_milli
                && offer.open.last().is_some_and(|span| span.end == forecast.until)
        }
        _ => false,
    };
    if same {
        return vec![];
    }
    let mut events = Vec::new();
    if let Some(offer) = stands {
        gone.insert(offer.id);
        events.push(withdrawn(offer, "the forecast is another"));
    }
    if let Some(forecast) = forecast {
        let traded = market
            .prices()
            .of(class)
            .last()
            .map_or(Micros::ZERO, |hour| hour.mean());
        let price = auto.spec.floor.max(traded).min(Micros(MAX_PRICE_MICROS));
        let spec = auto.offer_spec(&forecast, price, at);
        if super::allow::may_sell(state, seller, &spec, None, at).is_ok() {
            let open = spec.windows.open(None, at);
            events.push(Event::OfferMade {
                offer: Box::new(Offer {
                    id: OfferId(ids.take()),
                    seller,
                    spec,
                    made: at,
                    open,
                    leased_milli: 0,
                    forecast: Some(forecast.basis.into()),
                    by: None,
                }),
            });
        }
    }
    events
}

/// Asks a GPU again whose time has come; one that does not answer is not offered, and not paid for from now on.
fn check_due(
    state: &State,
    gpu: GpuId,
    check: &GpuCheck,
    gone: &mut BTreeSet<OfferId>,
    over: &mut BTreeSet<LeaseId>,
    ids: &mut Ids,
    at: Time,
) -> Vec<Event> {
    let market = &state.market;
    match check.open {
        None if check.next <= at && market.node(check.node) != (None, None) => vec![Event::GpuCheckAsked {
            node: check.node,
            gpu,
            number: ids.take(),
            due: at.plus_ms(market.terms.check_answer_s * SECOND_MS),
        }],
        Some(question) if question.due <= at => silent(state, check, gone, over, at),
        _ => vec![],
    }
}

fn silent(
    state: &State,
    check: &GpuCheck,
    gone: &mut BTreeSet<OfferId>,
    over: &mut BTreeSet<LeaseId>,
    at: Time,
) -> Vec<Event> {
    let market = &state.market;
    let (offer, lease) = market.node(check.node);
    let mut events = Vec::new();
    if let Some(offer) = offer.and_then(|offer| market.offer(offer))
        && gone.insert(offer.id)
    {
        events.push(withdrawn(offer, "a GPU of it was not checked in time"));
    }
    if let Some(lease) = lease.and_then(|lease| market.lease(lease))
        && over.insert(lease.id)
    {
        events.push(settle::end(lease, LeaseEnd::Fault, at));
        events.extend(leave_of(state, lease, &mut BTreeSet::new()));
    }
    events
}

/// Fills bids that wait, the one that pays most first, from what has come free or opened since.
fn serve(
    state: &State,
    gone: &BTreeSet<OfferId>,
    expired: &BTreeSet<BidId>,
    ids: &mut Ids,
    at: Time,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut taken = Taken::without(gone);
    for (_, lists) in state.market.book().classes() {
        if lists.asks.is_empty() {
            continue;
        }
        let waiting = lists.bids.iter().filter(|(.., id)| !expired.contains(id));
        for (.., id) in waiting.take(AT_ONCE) {
            let Some(bid) = state.market.bid(*id) else {
                continue;
            };
            let want = Want::of(bid, at);
            // What it may cost is held already.
            if super::allow::may_buy(state, &want, Some(Micros::ZERO)).is_err() {
                continue;
            }
            events.extend(filled(state, &want, &mut taken, ids));
            if events.len() >= AT_ONCE {
                return events;
            }
        }
    }
    events
}

fn filled(state: &State, want: &Want<'_>, taken: &mut Taken, ids: &mut Ids) -> Vec<Event> {
    let found = find(state, want, taken);
    leases(state, want, &found, ids)
}

/// The leases of a bid that waits. Many small ones may cost some micros more than what was held for one.
pub fn leases(state: &State, want: &Want<'_>, found: &Found<'_>, ids: &mut Ids) -> Vec<Event> {
    let left = want.gpu_milli - found.gpu_milli();
    let events: Vec<Event> = found
        .fills
        .iter()
        .map(|fill| fill.lease(state, want, ids))
        .collect();
    let held = want.spec.most(want.gpu_milli).0;
    let more = escrow_of(&events).0 + want.spec.most(left).0 - held;
    let class = &want.spec.class;
    let paid = more <= 0 || funds::fits(state, want.scope, want.buyer, class, Micros(more), want.at).is_ok();
    if paid { events } else { vec![] }
}

/// What these leases cost in all.
pub fn escrow_of(events: &[Event]) -> Micros {
    let sum = events.iter().map(|event| match event {
        Event::LeaseBegan { escrow, .. } => escrow.amount.0,
        _ => 0,
    });
    Micros(sum.fold(0, i64::saturating_add))
}
