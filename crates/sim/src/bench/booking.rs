//! A year of recurring bookings, and how fast it is booked and asked.

use super::figure::{figure, percentile};
use crate::booking::year;

pub fn run(short: bool) {
    let (nodes, bookings, questions) = if short {
        (12, 100, 200)
    } else {
        (125, 5_000, 10_000)
    };
    let year = year::run(nodes, bookings, questions, 1);
    let ms = |samples: &[std::time::Duration], share: f64| percentile(samples, share).as_secs_f64() * 1000.0;
    let how = format!("{bookings} series, {} windows, {} GPUs", year.windows, nodes * 8);
    figure(
        "booking",
        "is there room, p50",
        ms(&year.questions, 0.5),
        "ms",
        None,
        &how,
    );
    figure(
        "booking",
        "is there room, p99",
        ms(&year.questions, 0.99),
        "ms",
        Some(1.0),
        &how,
    );
    figure(
        "booking",
        "insert of a series, p50",
        ms(&year.inserts, 0.5),
        "ms",
        None,
        &how,
    );
    figure(
        "booking",
        "insert of a series, p99",
        ms(&year.inserts, 0.99),
        "ms",
        Some(5.0),
        &how,
    );
    figure(
        "booking",
        "insert of a series, worst",
        ms(&year.inserts, 1.0),
        "ms",
        Some(5.0),
        &how,
    );
    let refused = format!("{} refused with alternatives", year.refused);
    figure(
        "booking",
        "refusal, p99",
        ms(&year.refusals, 0.99),
        "ms",
        None,
        &refused,
    );
}
