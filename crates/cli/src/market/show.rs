//! The exchange as tables. Prices are for a whole GPU by the hour.

use tenure_api::v1::market::{
    AutoOfferView, BidView, BookView, LeaseView, OfferView, PlacedView, PriceHourView, PurchaseView,
};
use tenure_api::v1::time::Moment;

use crate::context::Context;
use crate::moment::length;
use crate::refusal::Failure;
use crate::table::{Table, Text, figure, text};
use crate::units::{show_gpu_ms, show_milli, show_money, show_permille};

fn money(micros: i64) -> Text {
    figure(show_money(micros, ""))
}

fn seconds(seconds: u64) -> Text {
    text(length(seconds.saturating_mul(1000)))
}

fn when(moment: Option<Moment>, otherwise: &str) -> Text {
    text(moment.map_or_else(|| otherwise.to_owned(), |moment| moment.to_string()))
}

pub fn offers(context: &Context, offers: &[OfferView]) -> Result<(), Failure> {
    context.out.list(
        offers,
        |offer| offer.id.to_string(),
        "no offers; `tenure market bid` waits for one",
        |offers| {
            let mut table = Table::new(&[
                "CLASS", "LEFT", "OF", "PRICE", "MIN", "MAX", "NOTICE", "RELIABLE", "REGION", "UNTIL", "ID",
            ]);
            for offer in offers {
                table.row(vec![
                    text(&offer.class),
                    figure(show_milli(offer.left_milli)),
                    figure(show_milli(offer.gpu_milli)),
                    money(offer.price_micros),
                    seconds(offer.min_lease_s),
                    seconds(offer.max_lease_s),
                    seconds(offer.notice_s),
                    figure(show_permille(offer.reliability_permille)),
                    text(offer.region.as_deref().unwrap_or("-")),
                    when(offer.open_until, "-"),
                    text(offer.id.to_string()),
                ]);
            }
            table
        },
    )
}

pub fn bids(context: &Context, bids: &[BidView]) -> Result<(), Failure> {
    context.out.list(
        bids,
        |bid| bid.id.to_string(),
        "no bids wait; `tenure market bid` places one",
        |bids| {
            let mut table = Table::new(&[
                "CLASS", "LEFT", "OF", "FOR", "PRICE", "SPOT", "HELD", "EXPIRES", "BY", "ID",
            ]);
            for bid in bids {
                table.row(vec![
                    text(&bid.class),
                    figure(show_milli(bid.left_milli)),
                    figure(show_milli(bid.gpu_milli)),
                    seconds(bid.duration_s),
                    money(bid.price_micros),
                    text(if bid.spot { "yes" } else { "no" }),
                    money(bid.held_micros),
                    when(bid.expires, "-"),
                    text(&bid.scope_path),
                    text(bid.id.to_string()),
                ]);
            }
            table
        },
    )
}

fn lease_table(leases: &[LeaseView]) -> Table {
    let mut table = Table::new(&[
        "CLASS", "GPUS", "PRICE", "ESCROW", "COST", "UNTIL", "STATE", "BUYER", "SELLER", "ID",
    ]);
    for lease in leases {
        let state = match (&lease.recalled, lease.vacating) {
            (_, true) => "vacating",
            (Some(by), false) if by == "outbid" => "outbid",
            (Some(_), false) => "recalled",
            (None, false) => "on",
        };
        table.row(vec![
            text(&lease.class),
            figure(show_milli(lease.gpu_milli)),
            money(lease.price_micros),
            money(lease.escrow_micros),
            money(lease.cost_micros),
            text(lease.end.to_string()),
            text(state),
            text(&lease.buyer_path),
            text(&lease.seller_path),
            text(lease.id.to_string()),
        ]);
    }
    table
}

pub fn leases(context: &Context, leases: &[LeaseView]) -> Result<(), Failure> {
    context.out.list(
        leases,
        |lease| lease.id.to_string(),
        "no leases; `tenure market buy` makes one",
        lease_table,
    )
}

/// What came of a bid: leases at once, and what waits.
pub fn placed(context: &Context, placed: &PlacedView) -> Result<(), Failure> {
    if let Some(bid) = &placed.bid {
        context.out.note(format!(
            "{} GPUs wait as bid {}",
            show_milli(bid.left_milli),
            bid.id
        ));
    }
    let name = |placed: &PlacedView| match &placed.bid {
        Some(bid) => bid.id.to_string(),
        None => placed
            .leases
            .first()
            .map_or_else(String::new, |lease| lease.id.to_string()),
    };
    context
        .out
        .one(placed, name, |placed| lease_table(&placed.leases))
}

/// What is bought, offer by offer, with the price of all.
pub fn fills(purchase: &PurchaseView) -> Table {
    let mut table = Table::new(&["CLASS", "GPUS", "PRICE", "COST", "UNTIL", "NOTICE", "RELIABLE"]);
    for fill in &purchase.fills {
        table.row(vec![
            text(&fill.class),
            figure(show_milli(fill.gpu_milli)),
            money(fill.price_micros),
            figure(show_money(fill.cost_micros, &purchase.currency)),
            text(fill.end.to_string()),
            seconds(fill.notice_s),
            figure(show_permille(fill.reliability_permille)),
        ]);
    }
    table.row(vec![
        text("all"),
        figure(show_milli(purchase.gpu_milli)),
        text(""),
        figure(show_money(purchase.cost_micros, &purchase.currency)),
        text(""),
        text(""),
        text(""),
    ]);
    table
}

pub fn purchase(context: &Context, purchase: &PurchaseView) -> Result<(), Failure> {
    let name = |purchase: &PurchaseView| {
        let leases = purchase.fills.iter().filter_map(|fill| fill.lease);
        let names: Vec<String> = leases.map(|lease| lease.to_string()).collect();
        names.join("\n")
    };
    context.out.one(purchase, name, fills)
}

/// The depth of each class, dearest ask first, so that the two best prices meet in the middle.
pub fn book(context: &Context, classes: &[BookView]) -> Result<(), Failure> {
    context.out.list(
        classes,
        |book| book.class.clone(),
        "nothing is offered or wanted",
        |classes| {
            let mut table = Table::new(&["CLASS", "SIDE", "PRICE", "GPUS", "ORDERS"]);
            for book in classes {
                let asks = book.asks.iter().rev().map(|level| ("ask", level));
                for (side, level) in asks.chain(book.bids.iter().map(|level| ("bid", level))) {
                    table.row(vec![
                        text(&book.class),
                        text(side),
                        money(level.price_micros),
                        figure(show_milli(level.gpu_milli)),
                        figure(level.orders),
                    ]);
                }
            }
            table
        },
    )
}

pub fn autos(context: &Context, autos: &[AutoOfferView]) -> Result<(), Failure> {
    context.out.list(
        autos,
        |auto| format!("{}/{}", auto.seller, auto.class),
        "no standing orders; `tenure market auto set` makes one",
        |autos| {
            let mut table = Table::new(&[
                "CLASS", "FLOOR", "RESERVE", "IDLE", "UNTIL", "OFFER", "OF", "FORECAST",
            ]);
            for auto in autos {
                let offer = auto
                    .offer
                    .map_or_else(|| "-".to_owned(), |offer| offer.to_string());
                table.row(vec![
                    text(&auto.class),
                    money(auto.floor_micros),
                    figure(show_milli(auto.reserve_milli)),
                    figure(auto.idle_milli.map_or_else(|| "-".to_owned(), show_milli)),
                    when(auto.idle_until, "-"),
                    text(offer),
                    text(&auto.seller_path),
                    text(auto.forecast.as_deref().unwrap_or("nothing is seen to lie idle")),
                ]);
            }
            table
        },
    )
}

pub fn index(context: &Context, hours: &[PriceHourView]) -> Result<(), Failure> {
    context.out.list(
        hours,
        |hour| format!("{} {}", hour.class, hour.hour),
        "nothing was traded in the last week",
        |hours| {
            let mut table = Table::new(&["CLASS", "HOUR", "TRADES", "SOLD", "MEAN", "LOW", "HIGH", "LAST"]);
            for hour in hours {
                table.row(vec![
                    text(&hour.class),
                    text(hour.hour.to_string()),
                    figure(hour.trades),
                    figure(show_gpu_ms(hour.gpu_ms)),
                    money(hour.mean_micros),
                    money(hour.low_micros),
                    money(hour.high_micros),
                    money(hour.last_micros),
                ]);
            }
            table
        },
    )
}
