//! `tenure book`: capacity held for windows in time.

mod import;
mod show;
mod terms;

use clap::{Args, Subcommand};
use tenure_api::client::Client;
use tenure_api::v1::booking::{
    BookingQuery, BookingView, CalendarQuery, CalendarWindow, CancelBooking, EditBooking, ExtendBooking,
    FeedQuery, MakeBooking, QuoteView, TransferBooking, WhichWindows,
};
use tenure_domain::booking::record::Size;
use tenure_domain::id::BookingId;
use tenure_domain::money::Micros;

use crate::context::Context;
use crate::refusal::Failure;
use crate::run::fresh_key;
use crate::{input, resolve, units};

pub(crate) use show::list;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Book GPUs for one window, for several, or again and again
    #[command(
        visible_alias = "new",
        after_help = "Examples:\n  \
        tenure book make train --class H100 --gpus 4 --from 2026-03-16T09:00 --to 2026-03-16T17:00 --zone Europe/Berlin\n  \
        tenure book make standup --class H100 --gpus 1 --from 2026-03-16T09:00 --to 2026-03-16T10:00 --zone Europe/Berlin --rule 'FREQ=WEEKLY;BYDAY=MO'\n  \
        tenure run --booking bkg_… --gpus 4 -- ./train.sh"
    )]
    Make(Make),
    /// List bookings, or the windows of the next seven days
    #[command(visible_alias = "ls")]
    List {
        /// Those of this scope and below instead
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
        #[arg(long)]
        class: Option<String>,
        /// The windows of the next seven days, in order
        #[arg(long)]
        week: bool,
    },
    /// Show a booking and its windows
    Show { booking: String },
    /// Change one window, a window and all that follow, or all
    Edit {
        booking: String,
        /// The window, by the wall time it begins at
        #[arg(long, value_name = "WALL")]
        of: Option<String>,
        /// That window and all that follow, rather than it alone
        #[arg(long, requires = "of")]
        rest: bool,
        #[arg(long, value_name = "WALL")]
        from: Option<String>,
        #[arg(long, value_name = "WALL")]
        to: Option<String>,
        #[command(flatten)]
        size: Sizes,
        #[arg(long, value_name = "RRULE")]
        rule: Option<String>,
    },
    /// Make a window longer, where nobody else booked what follows
    Extend {
        booking: String,
        /// The window, by the wall time it begins at; the first one unless said
        #[arg(long, value_name = "WALL")]
        of: Option<String>,
        /// By how much
        #[arg(long, value_parser = units::seconds, value_name = "TIME")]
        by: u64,
    },
    /// Give a booking to another tenant, subscriber or user, who pays from then on
    Transfer {
        booking: String,
        #[arg(long, value_name = "SCOPE")]
        to: String,
    },
    /// Cancel one window, a window and all that follow, or all; the terms say what is due
    Cancel {
        booking: String,
        #[arg(long, value_name = "WALL")]
        of: Option<String>,
        #[arg(long, requires = "of")]
        rest: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Print the windows as an iCalendar file
    #[command(
        after_help = "Calendar programs subscribe to /v1/calendar.ics on the server, with any name and an API key as the password."
    )]
    Calendar {
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
        #[arg(long)]
        class: Option<String>,
    },
    /// Book each event of an iCalendar file
    Import(import::Import),
    /// Show or set the operator's terms: how far ahead, lead and grace, what is due for cancelling and for not coming
    #[command(subcommand)]
    Terms(terms::Command),
}

/// How much, in one of three units.
#[derive(Debug, Args)]
pub struct Sizes {
    /// Whole GPUs of one node
    #[arg(long, conflicts_with_all = ["nodes", "slices"])]
    gpus: Option<u32>,
    /// GPUs wherever they are
    #[arg(long, requires = "gpus")]
    spread: bool,
    /// Whole nodes
    #[arg(long, conflicts_with = "slices")]
    nodes: Option<u32>,
    /// Slices of GPUs, with --share and --vram of each
    #[arg(long, requires_all = ["share", "vram"])]
    slices: Option<u32>,
    /// How much of a GPU's compute each slice has, such as 25%
    #[arg(long, value_parser = units::permille, value_name = "SHARE")]
    share: Option<u16>,
    #[arg(long, value_parser = units::mib, value_name = "SIZE")]
    vram: Option<u64>,
}

impl Sizes {
    fn size(&self) -> Option<Size> {
        let gpus = self.gpus.map(|count| Size::Gpus {
            count,
            spread: self.spread,
        });
        let slices = self.slices.map(|count| Size::Slices {
            count,
            compute_permille: self.share.unwrap_or(1000),
            vram_mib: self.vram.unwrap_or(0),
        });
        gpus.or(slices).or(self.nodes.map(|count| Size::Nodes { count }))
    }

    fn needed(&self) -> Result<Size, Failure> {
        let missing =
            || Failure::usage("say how much: --gpus N, --nodes N or --slices N --share SHARE --vram SIZE");
        self.size().ok_or_else(missing)
    }
}

#[derive(Debug, Args)]
pub struct Make {
    name: String,
    /// The GPU class
    #[arg(long)]
    class: String,
    #[command(flatten)]
    size: Sizes,
    #[arg(long)]
    region: Option<String>,
    /// When the first window begins, by the clock on the wall: 2026-03-16T09:00
    #[arg(long, value_name = "WALL")]
    from: String,
    /// When it ends
    #[arg(long, value_name = "WALL")]
    to: String,
    /// The clock's time zone
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// When it happens again, as an RFC 5545 rule
    #[arg(long, value_name = "RRULE")]
    rule: Option<String>,
    /// More starts
    #[arg(long = "date", value_name = "WALL")]
    dates: Vec<String>,
    /// Starts that are left out
    #[arg(long, value_name = "WALL")]
    except: Vec<String>,
    /// Whose it is: a tenant, subscriber or user; yours unless said
    #[arg(long = "for", value_name = "SCOPE")]
    scope: Option<String>,
    /// Show the windows and the price, and hold nothing
    #[arg(long)]
    plan: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn scope_id(client: &Client, scope: Option<String>) -> Result<Option<String>, Failure> {
    match scope {
        Some(scope) => Ok(Some(resolve::scope(client, &scope).await?.id.to_string())),
        None => Ok(None),
    }
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Make(make) => make.run(context, &client).await,
            Command::List { scope, class, week } => {
                let scope = scope_id(&client, scope).await?;
                if week {
                    return show::week(context, &soon(&client, scope, class).await?);
                }
                list(context, &all(&client, scope, class).await?)
            }
            Command::Show { booking } => show::one(context, &find(&client, &booking).await?),
            Command::Edit {
                booking,
                of,
                rest,
                from,
                to,
                size,
                rule,
            } => {
                let booking = find(&client, &booking).await?;
                let body = EditBooking {
                    which: which(of.is_some(), rest),
                    of,
                    start: from,
                    end: to,
                    size: size.size(),
                    rule,
                };
                show::one(
                    context,
                    &client.edit_booking(&booking.id.to_string(), &body).await?,
                )
            }
            Command::Extend { booking, of, by } => {
                let booking = find(&client, &booking).await?;
                let first = booking.windows.first().map(|window| window.of.clone());
                let of = of
                    .or(first)
                    .ok_or_else(|| Failure::not_found("it has no window to extend"))?;
                let body = ExtendBooking { of, more_s: by };
                show::one(
                    context,
                    &client.extend_booking(&booking.id.to_string(), &body).await?,
                )
            }
            Command::Transfer { booking, to } => {
                let booking = find(&client, &booking).await?;
                let to = resolve::scope(&client, &to).await?.id.to_string();
                let body = TransferBooking { to };
                show::one(
                    context,
                    &client.transfer_booking(&booking.id.to_string(), &body).await?,
                )
            }
            Command::Cancel {
                booking,
                of,
                rest,
                yes,
            } => {
                let booking = find(&client, &booking).await?;
                let which = which(of.is_some(), rest);
                let what = match which {
                    WhichWindows::One => "this window",
                    WhichWindows::Rest => "this window and all that follow",
                    WhichWindows::All => "all windows",
                };
                input::confirm(&format!("Cancel {what} of {}?", booking.name), yes)?;
                let body = CancelBooking { which, of };
                client.cancel_booking(&booking.id.to_string(), &body).await?;
                context.out.note(format!("cancelled {what} of {}", booking.name));
                Ok(())
            }
            Command::Calendar { scope, class } => {
                let scope = scope_id(&client, scope).await?;
                let text = client.calendar_feed(&FeedQuery { scope, class }).await?;
                context.out.text(&text)
            }
            Command::Import(import) => import.run(context, &client).await,
            Command::Terms(command) => command.run(context, &client).await,
        }
    }
}

fn which(of: bool, rest: bool) -> WhichWindows {
    match (of, rest) {
        (false, _) => WhichWindows::All,
        (true, false) => WhichWindows::One,
        (true, true) => WhichWindows::Rest,
    }
}

impl Make {
    /// Whether it is for whole nodes.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.size.size(), Some(Size::Nodes { .. }))
    }

    pub(crate) async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let body = MakeBooking {
            scope: scope_id(client, self.scope).await?,
            name: self.name,
            class: self.class,
            size: self.size.needed()?,
            region: self.region,
            zone: self.zone,
            start: self.from,
            end: self.to,
            rule: self.rule,
            dates: self.dates,
            except: self.except,
            shown_micros: None,
        };
        let quote = client.quote_booking(&body).await?;
        if self.plan {
            return show::windows(context, &quote);
        }
        let made = make(context, client, body, &quote, self.yes).await?;
        list(context, &[made])
    }
}

/// Holds what was quoted, once it is agreed to.
async fn make(
    context: &Context,
    client: &Client,
    body: MakeBooking,
    quote: &QuoteView,
    yes: bool,
) -> Result<BookingView, Failure> {
    let asked = format!(
        "Hold {} window{} for {} {}?",
        quote.windows.len(),
        if quote.windows.len() == 1 { "" } else { "s" },
        Micros(quote.price_micros),
        quote.currency
    );
    input::confirm(&asked, yes)?;
    let body = MakeBooking {
        shown_micros: Some(quote.price_micros),
        ..body
    };
    let made = client.make_booking(&body, Some(&fresh_key()?)).await?;
    context.out.note(format!(
        "held; a job runs in it with `tenure run --booking {} …`",
        made.id
    ));
    Ok(made)
}

/// The windows of the next seven days.
async fn soon(
    client: &Client,
    scope: Option<String>,
    class: Option<String>,
) -> Result<Vec<CalendarWindow>, Failure> {
    resolve::all(async |cursor| {
        let query = CalendarQuery {
            scope: scope.clone(),
            class: class.clone(),
            limit: Some(1000),
            cursor,
            ..CalendarQuery::default()
        };
        client.calendar(&query).await
    })
    .await
}

pub(crate) async fn all(
    client: &Client,
    scope: Option<String>,
    class: Option<String>,
) -> Result<Vec<BookingView>, Failure> {
    resolve::all(async |cursor| {
        let query = BookingQuery {
            scope: scope.clone(),
            class: class.clone(),
            limit: Some(100),
            cursor,
        };
        client.bookings(&query).await
    })
    .await
}

/// A booking by id, or by name among those the user's jobs may use.
pub(crate) async fn find(client: &Client, name: &str) -> Result<BookingView, Failure> {
    if let Ok(id) = name.parse::<BookingId>() {
        return Ok(client.booking(&id.to_string()).await?);
    }
    let mut named = all(client, None, None)
        .await?
        .into_iter()
        .filter(|booking| booking.name == name);
    match (named.next(), named.next()) {
        (Some(booking), None) => Ok(booking),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "several bookings are named {name}; say its id"
        ))),
        (None, _) => Err(
            Failure::not_found(format!("there is no booking {name} that your jobs may use"))
                .hint("`tenure book list` shows them"),
        ),
    }
}
