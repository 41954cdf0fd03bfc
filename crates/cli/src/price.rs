//! `tenure price`: the price list, and price books (`price/book.rs`). Setting the list changes what is named and keeps the
//! rest.

mod book;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tenure_domain::ledger::price::{ClassPrice, Prices};

use crate::context::Context;
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::{input, resolve, spec_file, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the price list, or what a scope pays by it and all books
    Show { scope: Option<String> },
    /// Change the price list; what runs keeps the price it was admitted at
    Set(SetArgs),
    /// List the price books by which a level sells to the one below
    Books(book::Books),
    /// Say what a level asks of the one below from some moment on; what runs keeps its price
    SetBook(Box<book::SetBook>),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// The whole list from a YAML file; - for stdin
    #[arg(short, long, conflicts_with_all = ["cpu", "memory", "class", "other", "remove_class"])]
    file: Option<PathBuf>,
    /// For a core and hour
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    cpu: Option<i64>,
    /// For a GiB of host memory and hour
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    memory: Option<i64>,
    /// For a GPU of a class and hour, and for a GiB of its memory on top
    #[arg(long, value_parser = class_price, value_name = "CLASS=MONEY[,MONEY]")]
    class: Vec<(String, ClassPrice)>,
    /// For a GPU of any other class
    #[arg(long, value_parser = gpu_price, value_name = "MONEY[,MONEY]")]
    other: Option<ClassPrice>,
    /// Drop a class from the list
    #[arg(long, value_name = "CLASS")]
    remove_class: Vec<String>,
}

fn gpu_price(text: &str) -> Result<ClassPrice, String> {
    let (gpu, vram) = text.split_once(',').unwrap_or((text, "0"));
    Ok(ClassPrice {
        gpu_hour_micros: units::micros(gpu)?,
        vram_gib_hour_micros: units::micros(vram)?,
    })
}

fn class_price(text: &str) -> Result<(String, ClassPrice), String> {
    let (class, price) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not CLASS=MONEY, such as H100=2.50"))?;
    Ok((class.to_owned(), gpu_price(price)?))
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Show { scope: None } => show(context, &context.client()?.prices().await?),
            Command::Show { scope: Some(scope) } => {
                let client = context.client()?;
                let scope = resolve::scope(&client, &scope).await?.id.to_string();
                book::sheet(context, &client.scope_prices(&scope).await?)
            }
            Command::Books(books) => books.run(context).await,
            Command::SetBook(book) => book.run(context).await,
            Command::Set(SetArgs { file: Some(file), .. }) => {
                let document = input::read_text(&file)?;
                let prices: Prices = spec_file::read_one(&document)?;
                prices
                    .check()
                    .map_err(|refusal| spec_file::at_field(&document, 0, refusal))?;
                show(context, &context.client()?.set_prices(&prices).await?)
            }
            Command::Set(args) => {
                let client = context.client()?;
                let mut prices = client.prices().await?;
                prices.cpu_hour_micros = args.cpu.unwrap_or(prices.cpu_hour_micros);
                prices.memory_gib_hour_micros = args.memory.unwrap_or(prices.memory_gib_hour_micros);
                prices.other = args.other.unwrap_or(prices.other);
                prices
                    .classes
                    .retain(|class, _| !args.remove_class.iter().any(|gone| **gone == **class));
                prices
                    .classes
                    .extend(args.class.into_iter().map(|(class, price)| (class.into(), price)));
                prices.check()?;
                show(context, &client.set_prices(&prices).await?)
            }
        }
    }
}

fn show(context: &Context, prices: &Prices) -> Result<(), Failure> {
    context.out.one(
        prices,
        |prices| prices.currency.to_string(),
        |prices| {
            let mut table = Table::new(&["FOR AN HOUR OF", "PRICE"]);
            list(&mut table, prices);
            table
        },
    )
}

fn list(table: &mut Table, prices: &Prices) {
    let currency = prices.currency.to_string();
    let money = |micros: i64| figure(units::show_money(micros, &currency));
    table.row(vec![text("a CPU core"), money(prices.cpu_hour_micros)]);
    table.row(vec![
        text("a GiB of memory"),
        money(prices.memory_gib_hour_micros),
    ]);
    let other = ("any other".to_owned(), prices.other);
    for (class, price) in prices
        .classes
        .iter()
        .map(|(class, price)| (class.to_string(), *price))
        .chain([other])
    {
        table.row(vec![text(format!("{class} GPU")), money(price.gpu_hour_micros)]);
        if price.vram_gib_hour_micros != 0 {
            table.row(vec![
                text(format!("{class} GPU, each GiB of VRAM")),
                money(price.vram_gib_hour_micros),
            ]);
        }
    }
}
