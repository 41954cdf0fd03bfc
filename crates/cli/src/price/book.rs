//! Price books: what a level asks of the one below it. A tenant's are its own people's to see and to set.

use std::path::PathBuf;

use clap::Args;
use tenure_api::client::Client;
use tenure_api::v1::price_book::{PriceBookView, SetPriceBook};
use tenure_api::v1::time::Moment;
use tenure_domain::ledger::book::{Book, KindPrice};
use tenure_domain::ledger::price::ClassPrice;
use tenure_domain::ledger::sheet::Sheet;
use tenure_domain::tenancy::scope::ScopeId;

use super::class_price;
use crate::context::Context;
use crate::moment::parse_until;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::resolve::{self, all};
use crate::table::{Table, figure, text};
use crate::{input, spec_file, units};

#[derive(Debug, Args)]
pub struct Books {
    /// Who sells: platform, or a tenant; your own level unless said
    seller: Option<String>,
}

#[derive(Debug, Args)]
pub struct SetBook {
    /// Who sells: platform, or a tenant
    seller: String,
    /// For one tenant or subscriber; for all of the seller's unless said
    #[arg(long = "for", value_name = "SCOPE")]
    buyer: Option<String>,
    /// From when on; now unless said
    #[arg(long, value_parser = parse_until, value_name = "WHEN")]
    from: Option<Moment>,
    #[command(flatten)]
    terms: Terms,
}

/// What the book says; what is not said is as the seller pays it.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Terms {
    /// The whole book from a YAML file, with times of day, tiers and kinds; - for stdin
    #[arg(short, long, conflicts_with_all = ["markup", "class", "sku", "spot", "booking", "minimum", "fee"])]
    file: Option<PathBuf>,
    /// On everything: 1.2 is a fifth more than the seller pays
    #[arg(long, value_parser = factor, value_name = "FACTOR")]
    markup: Option<u32>,
    /// For a GPU of a class and hour, and for a GiB of its memory on top
    #[arg(long, value_parser = class_price, value_name = "CLASS=MONEY[,MONEY]")]
    class: Vec<(String, ClassPrice)>,
    /// For an hour of a SKU, all in
    #[arg(long, value_parser = sku_price, value_name = "SKU=MONEY")]
    sku: Vec<(String, i64)>,
    /// On work of the lowest priority
    #[arg(long, value_parser = factor, value_name = "FACTOR")]
    spot: Option<u32>,
    /// On booked windows
    #[arg(long, value_parser = factor, value_name = "FACTOR")]
    booking: Option<u32>,
    /// What a job that ran costs at least
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    minimum: Option<i64>,
    /// The platform's part of what tenants ask of their subscribers, such as 5%
    #[arg(long, value_parser = share, value_name = "SHARE")]
    fee: Option<u16>,
}

fn factor(text: &str) -> Result<u32, String> {
    let milli = units::milli(text)?;
    u32::try_from(milli).map_err(|_| format!("'{text}' is more than a factor can be"))
}

fn share(text: &str) -> Result<u16, String> {
    units::permille(text).map_err(|_| format!("'{text}' is not a share; write it like 5% or 0.05"))
}

fn sku_price(text: &str) -> Result<(String, i64), String> {
    let (sku, price) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not SKU=MONEY, such as small=0.40"))?;
    Ok((sku.to_owned(), units::micros(price)?))
}

impl Terms {
    fn book(self, seller: ScopeId) -> Result<Book, Failure> {
        if let Some(file) = &self.file {
            let document = input::read_text(file)?;
            let book: Book = spec_file::read_one(&document)?;
            book.check(seller)
                .map_err(|refusal| spec_file::at_field(&document, 0, refusal))?;
            return Ok(book);
        }
        let plain = Book::default();
        let book = Book {
            markup_permille: self.markup.unwrap_or(plain.markup_permille),
            classes: self
                .class
                .into_iter()
                .map(|(class, price)| (class.into(), price))
                .collect(),
            skus: self
                .sku
                .into_iter()
                .map(|(sku, price)| (sku.into(), price))
                .collect(),
            spot_permille: self.spot.unwrap_or(plain.spot_permille),
            booking_permille: self.booking.unwrap_or(plain.booking_permille),
            minimum_micros: self.minimum.unwrap_or(0),
            fee_permille: self.fee.map_or(0, u32::from),
            ..plain
        };
        book.check(seller)?;
        Ok(book)
    }
}

impl Books {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let seller = match self.seller {
            Some(seller) => resolve::scope(&client, &seller).await?.id,
            None => own_level(&client).await?,
        };
        let seller = seller.to_string();
        let books = all(async |cursor| client.price_books(&seller, cursor.as_deref()).await).await?;
        show(context, &books)
    }
}

/// The tenant of whoever asks, or the platform.
async fn own_level(client: &Client) -> Result<ScopeId, Failure> {
    let me = client.whoami().await?.user;
    match me.path.split_once('/') {
        Some((tenant, _)) if me.parent != Some(ScopeId::Platform) => {
            Ok(resolve::scope(client, tenant).await?.id)
        }
        _ => Ok(ScopeId::Platform),
    }
}

impl SetBook {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let seller = resolve::scope(&client, &self.seller).await?.id;
        let buyer = match &self.buyer {
            Some(buyer) => Some(resolve::scope(&client, buyer).await?.id.to_string()),
            None => None,
        };
        let body = SetPriceBook {
            buyer,
            from: self.from,
            book: self.terms.book(seller)?,
        };
        let set = client.set_price_book(&seller.to_string(), &body).await?;
        show(context, &[set])
    }
}

fn show(context: &Context, books: &[PriceBookView]) -> Result<(), Failure> {
    context.out.list(
        books,
        |book| book.seller.clone(),
        "no price books",
        |books| {
            let mut table = Table::new(&["SELLER", "FOR", "FROM", "HOLDS", "SAYS"]);
            for view in books {
                let holds = if view.current {
                    text("now").paint(Paint::Good)
                } else if view.from.0 > crate::moment::now() {
                    text("later")
                } else {
                    text("before").paint(Paint::Dim)
                };
                table.row(vec![
                    text(&view.seller_path),
                    text(view.buyer_path.as_deref().unwrap_or("all")),
                    text(view.from.to_string()),
                    holds,
                    text(said(&view.book)),
                ]);
            }
            table
        },
    )
}

fn times(permille: u32) -> String {
    format!("× {}", units::show_milli(permille.into()))
}

/// A book in a line.
fn said(book: &Book) -> String {
    let money = |micros: i64| units::show_money(micros, "");
    let mut words = vec![format!("all {}", times(book.markup_permille))];
    words.extend(
        book.classes
            .iter()
            .map(|(class, price)| format!("{class} {}", money(price.gpu_hour_micros))),
    );
    words.extend(
        book.skus
            .iter()
            .map(|(sku, price)| format!("{sku} {}", money(*price))),
    );
    words.extend(
        book.isolation
            .iter()
            .map(|(level, permille)| format!("{} {}", level.as_str(), times(*permille))),
    );
    words.extend(book.kinds.iter().map(|(kind, price)| match price {
        KindPrice::SecondPermille(permille) => format!("{} {}", kind.as_str(), times(*permille)),
        KindPrice::FrameMicros(micros) => format!("{} {} a frame", kind.as_str(), money(*micros)),
    }));
    words.extend(
        book.windows
            .iter()
            .map(|window| format!("{}–{} {}", window.from, window.to, times(window.permille))),
    );
    words.extend(
        book.tiers
            .iter()
            .map(|tier| format!("from {} GPU-h {}", tier.from_gpu_hours, times(tier.permille))),
    );
    words.extend((book.spot_permille != 1000).then(|| format!("spot {}", times(book.spot_permille))));
    words.extend((book.booking_permille != 1000).then(|| format!("booked {}", times(book.booking_permille))));
    words.extend((book.minimum_micros > 0).then(|| format!("at least {} a job", money(book.minimum_micros))));
    words.extend((book.fee_permille > 0).then(|| format!("fee {}", units::show_permille(book.fee_permille))));
    words.join(", ")
}

/// What a scope pays.
pub fn sheet(context: &Context, sheet: &Sheet) -> Result<(), Failure> {
    context.out.one(
        sheet,
        |sheet| sheet.currency.to_string(),
        |sheet| {
            let money = |micros: i64| figure(units::show_money(micros, &sheet.currency.to_string()));
            let mut table = Table::new(&["FOR AN HOUR OF", "PRICE"]);
            super::list(&mut table, &sheet.clone().prices());
            for (sku, price) in &sheet.skus {
                table.row(vec![text(format!("{sku}, all in")), money(*price)]);
            }
            let rest = Book {
                isolation: sheet.isolation.clone(),
                kinds: sheet.kinds.clone(),
                windows: sheet.windows.clone(),
                tiers: sheet.tiers.clone(),
                spot_permille: sheet.spot_permille,
                minimum_micros: sheet.minimum_micros,
                ..Book::default()
            };
            if rest != Book::default() {
                table.row(vec![text(said(&rest)), text("")]);
            }
            table
        },
    )
}
