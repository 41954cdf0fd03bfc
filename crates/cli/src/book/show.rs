//! Bookings and their windows as tables.

use tenure_api::v1::booking::{BookingView, CalendarWindow, QuoteView};
use tenure_domain::booking::record::Size;
use tenure_domain::money::Micros;

use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::units;

fn said(size: Size) -> String {
    match size {
        Size::Slices {
            count,
            compute_permille,
            vram_mib,
        } => format!(
            "{count} × {} of a GPU, {}",
            units::show_permille(compute_permille.into()),
            units::show_mib(vram_mib)
        ),
        Size::Gpus { count, spread } => {
            let gpus = if count == 1 { "GPU" } else { "GPUs" };
            format!("{count} {gpus}{}", if spread { ", spread" } else { "" })
        }
        Size::Nodes { count: 1 } => "1 node".into(),
        Size::Nodes { count } => format!("{count} nodes"),
    }
}

pub fn list(context: &Context, bookings: &[BookingView]) -> Result<(), Failure> {
    context.out.list(
        bookings,
        |booking| booking.id.to_string(),
        "no bookings; `tenure book make` makes one",
        |bookings| {
            let mut table = Table::new(&[
                "BOOKING", "CLASS", "SIZE", "NEXT", "ZONE", "WINDOWS", "HELD", "OF", "ID",
            ]);
            for booking in bookings {
                let next = booking.windows.first().map_or("-", |window| window.of.as_str());
                let more = if booking.more { "+" } else { "" };
                table.row(vec![
                    text(&booking.name),
                    text(&booking.class),
                    text(said(booking.size)),
                    text(next),
                    text(&booking.zone),
                    figure(format!("{}{more}", booking.windows.len())),
                    figure(Micros(booking.price_micros)),
                    text(&booking.scope_path),
                    text(booking.id.to_string()),
                ]);
            }
            table
        },
    )
}

/// What would be held, and what it would cost.
pub fn windows(context: &Context, quote: &QuoteView) -> Result<(), Failure> {
    context.out.one(
        quote,
        |quote| quote.price_micros.to_string(),
        |quote| {
            let money = |micros: i64| figure(units::show_money(micros, &quote.currency));
            let mut table = Table::new(&["WINDOW", "FROM", "TO", "GPUS", "NODES", "PRICE"]);
            for window in &quote.windows {
                table.row(vec![
                    text(&window.of),
                    text(window.start.to_string()),
                    text(window.end.to_string()),
                    figure(window.gpus),
                    text(window.nodes.join(", ")),
                    money(window.price_micros),
                ]);
            }
            let all = match quote.more {
                true => format!("{}, and more to come", quote.windows.len()),
                false => quote.windows.len().to_string(),
            };
            let none = || text("");
            table.row(vec![
                text("all"),
                none(),
                none(),
                figure(all),
                none(),
                money(quote.price_micros),
            ]);
            table
        },
    )
}

/// Windows in the order they begin.
pub fn week(context: &Context, windows: &[CalendarWindow]) -> Result<(), Failure> {
    context.out.list(
        windows,
        |window| format!("{}/{}", window.booking, window.window.of),
        "no windows in the next seven days",
        |windows| {
            let mut table = Table::new(&["FROM", "TO", "BOOKING", "CLASS", "GPUS", "NODES", "PHASE", "OF"]);
            for CalendarWindow {
                name,
                class,
                scope_path,
                window,
                ..
            } in windows
            {
                table.row(vec![
                    text(window.start.to_string()),
                    text(window.end.to_string()),
                    text(name),
                    text(class),
                    figure(window.gpus),
                    text(window.nodes.join(", ")),
                    text(&window.phase),
                    text(scope_path),
                ]);
            }
            table
        },
    )
}

pub fn one(context: &Context, booking: &BookingView) -> Result<(), Failure> {
    context.out.one(
        booking,
        |booking| booking.id.to_string(),
        |booking| {
            let mut table = Table::fields();
            table
                .field("booking", text(&booking.name).paint(Paint::Bold))
                .field("id", booking.id.to_string())
                .field("of", text(&booking.scope_path))
                .field("class", text(&booking.class))
                .field("size", said(booking.size))
                .field("zone", format!("{} (tzdata {})", booking.zone, booking.tzdata))
                .field("first window", format!("{} to {}", booking.start, booking.end));
            table.field_if("rule", booking.rule.clone()).field_if(
                "note",
                booking.note.as_deref().map(|note| text(note).paint(Paint::Bad)),
            );
            let next = booking.windows.iter().take(5).map(|window| {
                format!(
                    "{} {} ({} GPUs on {})",
                    window.of,
                    window.phase,
                    window.gpus,
                    window.nodes.join(", ")
                )
            });
            let more = if booking.more { " and more to come" } else { "" };
            table
                .field("windows", format!("{}{more}", booking.windows.len()))
                .field("next", next.collect::<Vec<_>>().join("\n"))
                .field("held", Micros(booking.price_micros).to_string());
            table
        },
    )
}
