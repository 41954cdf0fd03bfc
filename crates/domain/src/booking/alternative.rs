//! What could be had instead of a window there is no room for: the nearest one, a smaller size, another class.

use super::allow::allowed;
use super::plan::{Plan, Wanted, rooms, vram_of};
use super::record::Size;
use super::slot::Slot;
use crate::refusal::{Code, Refusal};
use crate::time::{HOUR_MS, Time};

/// How far after a window others are looked for, and how far before it.
const AROUND_MS: u64 = 14 * 24 * HOUR_MS;
const BEFORE_MS: u64 = 3 * 24 * HOUR_MS;
const BEFORE_STEP_MS: u64 = HOUR_MS;

/// The refusal of a booking whose first window without room is this one.
pub(super) fn booked_out(wanted: &Wanted<'_>, plan: &Plan, slot: &Slot) -> Refusal {
    let (start, end) = (slot.start, slot.end);
    let all = plan.windows.len() + plan.missed.len();
    let sentence = match (plan.missed.len(), all) {
        (1, 1) => format!(
            "there is no room for it from {} to {}",
            start.rfc3339(),
            end.rfc3339()
        ),
        (missed, all) => format!(
            "there is no room for {missed} of {all} windows, the first from {} to {}",
            start.rfc3339(),
            end.rfc3339()
        ),
    };
    let others: Vec<String> = [
        nearest(wanted, slot),
        spread(wanted, slot),
        smaller(wanted, slot),
        classes(wanted, slot),
    ]
    .into_iter()
    .flatten()
    .collect();
    let hint = match others.is_empty() {
        true => "nothing like it is free within two weeks; ask for less, or leave these dates out".to_owned(),
        false => format!("free instead: {}", others.join("; ")),
    };
    Refusal::new(Code::BookedOut, sentence).field("/start").hint(hint)
}

fn nearest(wanted: &Wanted<'_>, slot: &Slot) -> Option<String> {
    let spec = wanted.spec;
    let rooms = rooms(wanted.state, wanted.scope, &spec.class, spec.region.as_deref());
    let take = slot.size.take(vram_of(wanted.state, &spec.class));
    let length_ms = slot.end.since_ms(slot.start);
    let free = |from: Time, before: Time| {
        wanted
            .shelf
            .next(&rooms, &spec.class, take, from, length_ms, before)
    };
    let later = free(slot.start, slot.start.plus_ms(AROUND_MS));
    // Hours before it, nearest first: people move a meeting by the hour.
    let steps = 1..=BEFORE_MS / BEFORE_STEP_MS;
    let before = steps.map(|step| Time(slot.start.0.saturating_sub_unsigned(step * BEFORE_STEP_MS)));
    let sooner = before.take_while(|from| *from > wanted.at).find(|from| {
        let until = from.plus_ms(length_ms);
        wanted
            .shelf
            .seats(&rooms, &spec.class, take, *from, until, &[])
            .is_some()
    });
    let times: Vec<String> = [sooner, later].into_iter().flatten().map(Time::rfc3339).collect();
    (!times.is_empty()).then(|| format!("the same from {}", times.join(" or from ")))
}

fn fits(wanted: &Wanted<'_>, class: &str, size: Size, slot: &Slot) -> bool {
    let rooms = rooms(wanted.state, wanted.scope, class, wanted.spec.region.as_deref());
    let take = size.take(vram_of(wanted.state, class));
    let seats = wanted.shelf.seats(&rooms, class, take, slot.start, slot.end, &[]);
    seats.is_some()
}

fn spread(wanted: &Wanted<'_>, slot: &Slot) -> Option<String> {
    let Size::Gpus { count, spread: false } = slot.size else {
        return None;
    };
    let size = Size::Gpus { count, spread: true };
    fits(wanted, &wanted.spec.class, size, slot).then(|| "as many, spread over several nodes".into())
}

fn smaller(wanted: &Wanted<'_>, slot: &Slot) -> Option<String> {
    let size = slot.size;
    let fits = |count: &u32| fits(wanted, &wanted.spec.class, size.with_count(*count), slot);
    // INVARIANT: what fits with so many fits with fewer.
    let (mut least, mut most) = (0, size.count());
    while least + 1 < most {
        let middle = least + (most - least) / 2;
        if fits(&middle) {
            least = middle;
        } else {
            most = middle;
        }
    }
    (least > 0).then(|| format!("{least} of them then"))
}

fn classes(wanted: &Wanted<'_>, slot: &Slot) -> Option<String> {
    let gpus = wanted.state.fleet.nodes().flat_map(|node| &node.gpus);
    let classes: std::collections::BTreeSet<&str> = gpus.map(|gpu| &*gpu.facts.class).collect();
    let others = classes.into_iter().filter(|class| *class != &*wanted.spec.class);
    let others = others.filter(|class| allowed(wanted.state, wanted.scope, class).is_ok());
    let free: Vec<&str> = others
        .filter(|class| fits(wanted, class, slot.size, slot))
        .take(3)
        .collect();
    (!free.is_empty()).then(|| format!("as many of class {} then", free.join(" or ")))
}
