//! `tenure market`: the exchange, where idle quota and nodes of one tenant are another's for a while.

mod order;
mod show;

use clap::Subcommand;
use tenure_api::client::Client;
use tenure_api::v1::market::{ClassQuery, OfferQuery, SetAutoOffer, TradeQuery};
use tenure_domain::workload::spec::Isolation;

use crate::book::scope_id;
use crate::context::Context;
use crate::refusal::Failure;
use crate::{input, resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find offers, class by class, the cheapest first
    Offers {
        /// Only of this GPU class
        #[arg(long)]
        class: Option<String>,
        /// Only in this region
        #[arg(long)]
        region: Option<String>,
        /// No dearer than this, for a GPU by the hour
        #[arg(long, value_parser = units::micros, value_name = "MONEY")]
        max_price: Option<i64>,
        /// With at least this much left, such as 2 or 0.5
        #[arg(long, value_parser = units::milli, value_name = "GPUS")]
        gpus: Option<u64>,
        /// Those this scope makes, whatever is left of them
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Offer quota that lies idle, or nodes of your own
    Offer(Box<order::Offer>),
    /// Withdraw an offer; what is leased of it runs on
    Withdraw { offer: String },
    /// Wait for offers at a price
    Bid(Box<order::Bid>),
    /// List bids that wait
    Bids {
        /// Of this scope and below; your tenant unless said
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
        /// Only of this GPU class
        #[arg(long)]
        class: Option<String>,
    },
    /// Cancel a bid that waits
    Cancel { bid: String },
    /// Buy the best offers there are now, or nothing
    Buy(Box<order::Buy>),
    /// List leases bought and sold
    Leases {
        /// Of this scope and below; your tenant unless said
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
        /// Only of this GPU class
        #[arg(long)]
        class: Option<String>,
    },
    /// Want back what you let: it ends after its notice
    Recall { lease: String },
    /// Give back what you leased; its minimum is paid all the same
    Leave {
        lease: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// What is offered and wanted at each price
    Book {
        /// Only of this GPU class
        #[arg(long)]
        class: Option<String>,
    },
    /// Standing orders: what the forecast says lies idle is offered
    #[command(subcommand)]
    Auto(Auto),
    /// What was traded at which price, hour by hour
    Index {
        /// Only of this GPU class
        #[arg(long)]
        class: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Auto {
    /// List standing orders, with what their forecast says
    List {
        /// Of this scope and below; your tenant unless said
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Offer what lies idle of a class, above a floor price
    Set {
        class: String,
        /// The tenant that sells
        #[arg(long = "for", value_name = "TENANT")]
        scope: String,
        /// At least this, for a GPU by the hour
        #[arg(long, value_parser = units::micros, value_name = "MONEY")]
        floor: i64,
        /// Kept free of offers
        #[arg(long, value_parser = units::milli, default_value = "0", value_name = "GPUS")]
        reserve: u64,
        #[command(flatten)]
        lengths: order::Lengths,
    },
    /// Remove a standing order, and withdraw its offer
    Remove {
        class: String,
        /// The tenant that sells
        #[arg(long = "for", value_name = "TENANT")]
        scope: String,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Offers {
                class,
                region,
                max_price,
                gpus,
                scope,
            } => {
                let query = OfferQuery {
                    scope: scope_id(&client, scope).await?,
                    class,
                    region,
                    max_price_micros: max_price,
                    min_gpu_milli: gpus,
                    limit: Some(1000),
                    ..OfferQuery::default()
                };
                let found = resolve::all(async |cursor| {
                    let query = OfferQuery {
                        cursor,
                        ..query.clone()
                    };
                    client.offers(&query).await
                });
                show::offers(context, &found.await?)
            }
            Command::Offer(offer) => offer.run(context, &client).await,
            Command::Withdraw { offer } => {
                client.withdraw_offer(&offer).await?;
                context.out.note(format!("withdrew {offer}"));
                Ok(())
            }
            Command::Bid(bid) => bid.run(context, &client).await,
            Command::Bids { scope, class } => {
                let query = trade(&client, scope, class).await?;
                let found = resolve::all(async |cursor| {
                    let query = TradeQuery {
                        cursor,
                        ..query.clone()
                    };
                    client.bids(&query).await
                });
                show::bids(context, &found.await?)
            }
            Command::Cancel { bid } => {
                client.cancel_bid(&bid).await?;
                context.out.note(format!("cancelled {bid}"));
                Ok(())
            }
            Command::Buy(buy) => buy.run(context, &client).await,
            Command::Leases { scope, class } => {
                let query = trade(&client, scope, class).await?;
                let found = resolve::all(async |cursor| {
                    let query = TradeQuery {
                        cursor,
                        ..query.clone()
                    };
                    client.leases(&query).await
                });
                show::leases(context, &found.await?)
            }
            Command::Recall { lease } => {
                let recalled = client.recall_lease(&lease).await?;
                context.out.note(format!("it ends at {}", recalled.end));
                show::leases(context, &[recalled])
            }
            Command::Leave { lease, yes } => {
                input::confirm(&format!("Give {lease} back? What runs on it has to leave."), yes)?;
                client.return_lease(&lease).await?;
                context.out.note(format!("gave {lease} back"));
                Ok(())
            }
            Command::Book { class } => {
                let book = client.market_book(&ClassQuery { class }).await?;
                show::book(context, &book.items)
            }
            Command::Auto(auto) => auto.run(context, &client).await,
            Command::Index { class } => {
                let hours = client.price_index(&ClassQuery { class }).await?;
                show::index(context, &hours.items)
            }
        }
    }
}

async fn trade(client: &Client, scope: Option<String>, class: Option<String>) -> Result<TradeQuery, Failure> {
    Ok(TradeQuery {
        scope: scope_id(client, scope).await?,
        class,
        limit: Some(1000),
        cursor: None,
    })
}

impl Auto {
    async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        match self {
            Auto::List { scope } => {
                let query = trade(client, scope, None).await?;
                let found = resolve::all(async |cursor| {
                    let query = TradeQuery {
                        cursor,
                        ..query.clone()
                    };
                    client.auto_offers(&query).await
                });
                show::autos(context, &found.await?)
            }
            Auto::Set {
                class,
                scope,
                floor,
                reserve,
                lengths,
            } => {
                let seller = resolve::scope(client, &scope).await?.id.to_string();
                let body = SetAutoOffer {
                    floor_micros: floor,
                    reserve_milli: reserve,
                    min_lease_s: lengths.min,
                    max_lease_s: lengths.max,
                    notice_s: lengths.notice,
                    buyers: None,
                    isolation: Isolation::Fenced,
                };
                let set = client.set_auto_offer(&seller, &class, &body).await?;
                show::autos(context, &[set])
            }
            Auto::Remove { class, scope } => {
                let seller = resolve::scope(client, &scope).await?.id.to_string();
                client.remove_auto_offer(&seller, &class).await?;
                context
                    .out
                    .note(format!("{class} is no longer offered by itself"));
                Ok(())
            }
        }
    }
}
