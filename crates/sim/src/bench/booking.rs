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
    let rows = [
        ("is there room, p50", &year.questions, 0.5, None),
        ("is there room, p99", &year.questions, 0.99, Some(1.0)),
        ("insert of a series, p50", &year.inserts, 0.5, None),
        ("insert of a series, p99", &year.inserts, 0.99, Some(5.0)),
        ("insert of a series, worst", &year.inserts, 1.0, Some(5.0)),
        ("edit of one window, p99", &year.edits, 0.99, Some(5.0)),
        ("submit of a job beside them, p99", &year.starts, 0.99, None),
    ];
    for (name, samples, share, most) in rows {
        figure("booking", name, ms(samples, share), "ms", most, &how);
    }
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
