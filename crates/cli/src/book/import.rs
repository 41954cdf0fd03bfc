//! `tenure book import`: each event of an iCalendar file becomes a booking. All are quoted before any is made; what is
//! booked already is left alone, so that a file can be read again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use tenure_api::client::Client;
use tenure_api::ical::{self, Read};
use tenure_api::v1::booking::{BookingView, EditBooking, MakeBooking, QuoteView, WhichWindows};
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::money::Micros;

use super::{Sizes, all, list, make, scope_id};
use crate::context::Context;
use crate::input;
use crate::refusal::Failure;

#[derive(Debug, Args)]
pub struct Import {
    /// The file; - for stdin
    file: PathBuf,
    /// The GPU class
    #[arg(long)]
    class: String,
    #[command(flatten)]
    size: Sizes,
    /// The zone of events that name none, or one the tz database does not know
    #[arg(long)]
    zone: Option<String>,
    /// Whose they are: a tenant, subscriber or user; yours unless said
    #[arg(long = "for", value_name = "SCOPE")]
    scope: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A booking to make, and its occurrences that are not as the others are.
struct Wanted {
    body: MakeBooking,
    apart: Vec<Read>,
}

impl Import {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let document = input::read_text(&self.file)?;
        let wrong = |why: String| Failure::usage(format!("{}: {why}", document.name));
        let events = ical::read(&document.text).map_err(|error| wrong(error.to_string()))?;
        let scope = scope_id(client, self.scope.clone()).await?;
        let known = all(client, scope.clone(), Some(self.class.clone())).await?;
        let mut wanted: Vec<(Wanted, QuoteView)> = Vec::new();
        let mut again: Vec<(BookingView, Vec<Read>)> = Vec::new();
        for mut one in self.wanted(events, scope).map_err(wrong)? {
            if let Some(booking) = known_as(&known, &one.body) {
                context.out.note(format!("{} is booked already", one.body.name));
                // An import that was broken off may have left them where the series has them.
                let apart = one.apart.into_iter().filter(|one| is_elsewhere(booking, one));
                let apart: Vec<Read> = apart.collect();
                if !apart.is_empty() {
                    again.push((booking.clone(), apart));
                }
                continue;
            }
            let quote = client.quote_booking(&one.body).await?;
            one.body.shown_micros = Some(quote.price_micros);
            wanted.push((one, quote));
        }
        if wanted.is_empty() && again.is_empty() {
            context.out.note("nothing to book");
            return Ok(());
        }
        let windows: usize = wanted.iter().map(|(_, quote)| quote.windows.len()).sum();
        let price: i64 = wanted
            .iter()
            .map(|(_, quote)| quote.price_micros)
            .fold(0, i64::saturating_add);
        let moved: usize = again.iter().map(|(_, apart)| apart.len()).sum();
        let mut asked = Vec::new();
        if let Some((_, first)) = wanted.first() {
            asked.push(format!(
                "hold {windows} windows of {} bookings for {} {}",
                wanted.len(),
                Micros(price),
                first.currency
            ));
        }
        if moved > 0 {
            asked.push(format!(
                "move {moved} windows that are held to where the file has them"
            ));
        }
        input::confirm(&format!("Shall it {}?", asked.join(", and ")), self.yes)?;
        let mut made = Vec::new();
        for (one, quote) in wanted {
            let booking = make(context, client, one.body, &quote, true).await?;
            made.push(set_apart(client, booking, one.apart).await?);
        }
        for (booking, apart) in again {
            made.push(set_apart(client, booking, apart).await?);
        }
        list(context, &made)
    }

    /// What the file asks for, series by series.
    fn wanted(&self, events: Vec<Read>, scope: Option<String>) -> Result<Vec<Wanted>, String> {
        let size = self
            .size
            .size()
            .ok_or("say how much with --gpus, --nodes or --slices")?;
        let mut apart: BTreeMap<String, Vec<Read>> = BTreeMap::new();
        let mut series = Vec::new();
        for event in events
            .into_iter()
            .filter(|event| !event.cancelled || event.of.is_some())
        {
            match event.of {
                Some(_) => apart.entry(event.uid.clone()).or_default().push(event),
                None => series.push(event),
            }
        }
        let mut all = Vec::new();
        for (number, event) in series.into_iter().enumerate() {
            let known = event.zone.clone().filter(|zone| Zone::bundled(zone).is_ok());
            let zone = known.or_else(|| self.zone.clone()).ok_or_else(|| match &event.zone {
                Some(zone) => format!("event {} is in {zone:?}, which the tz database does not know; say a zone with --zone", number + 1),
                None => format!("event {} names no zone; say one with --zone", number + 1),
            })?;
            let mut except = event.except;
            let (gone, apart): (Vec<Read>, Vec<Read>) = apart
                .remove(&event.uid)
                .unwrap_or_default()
                .into_iter()
                .partition(|one| one.cancelled);
            if apart.iter().chain(&gone).any(|one| one.zone != event.zone) {
                return Err(format!("event {} has an occurrence in another zone", number + 1));
            }
            except.extend(gone.into_iter().filter_map(|one| one.of));
            let body = MakeBooking {
                scope: scope.clone(),
                name: name_of(&event.summary, number),
                class: self.class.clone(),
                size,
                region: None,
                zone,
                start: event.start,
                end: event.end,
                rule: event.rule,
                dates: event.dates,
                except,
                shown_micros: None,
            };
            all.push(Wanted { body, apart });
        }
        match apart.into_keys().next() {
            Some(uid) => Err(format!(
                "an occurrence of {uid:?} is set apart, and the event itself is not there"
            )),
            None => Ok(all),
        }
    }
}

fn known_as<'a>(known: &'a [BookingView], body: &MakeBooking) -> Option<&'a BookingView> {
    known.iter().find(|booking| {
        (&booking.name, &booking.start, &booking.end, &booking.zone)
            == (&body.name, &body.start, &body.end, &body.zone)
    })
}

/// Whether a window is held, and at another time than the file has it.
fn is_elsewhere(booking: &BookingView, one: &Read) -> bool {
    let window = booking
        .windows
        .iter()
        .find(|window| Some(&window.of) == one.of.as_ref());
    let zone = Zone::bundled(&booking.zone).ok();
    let (Some(window), Some(zone)) = (window, zone) else {
        return false;
    };
    let moment = |text: &str| {
        Wall::parse(text)
            .ok()
            .and_then(|wall| zone.moment_or_later(wall.0))
    };
    let times = (moment(&one.start), moment(&one.end));
    times != (Some(window.start.0), Some(window.end.0))
}

/// Edits the occurrences that are at another time than the rest.
async fn set_apart(client: &Client, booking: BookingView, apart: Vec<Read>) -> Result<BookingView, Failure> {
    let mut booking = booking;
    for one in apart {
        let body = EditBooking {
            which: WhichWindows::One,
            of: one.of,
            start: Some(one.start),
            end: Some(one.end),
            size: None,
            rule: None,
        };
        booking = client.edit_booking(&booking.id.to_string(), &body).await?;
    }
    Ok(booking)
}

/// A name as bookings have them, of what a calendar calls an event.
fn name_of(summary: &str, number: usize) -> String {
    let letters = summary.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
        _ => '-',
    });
    let name: String = letters.take(40).collect();
    let name = name.trim_matches('-');
    match tenure_domain::name::check(name, "/name") {
        Ok(()) => name.to_owned(),
        Err(_) => format!("event-{}", number + 1),
    }
}
