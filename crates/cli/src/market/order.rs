//! Orders to the exchange: an offer, a bid, a purchase.

use clap::Args;
use tenure_api::client::Client;
use tenure_api::v1::market::{Buy as BuyBody, MakeOffer, OfferWindows, PlaceBid};
use tenure_api::v1::time::Moment;
use tenure_domain::id::NodeId;
use tenure_domain::market::offer::Source;
use tenure_domain::workload::spec::Isolation;

use super::show;
use crate::book::scope_id;
use crate::context::Context;
use crate::refusal::Failure;
use crate::run::fresh_key;
use crate::{input, moment, units};

/// How long leases last, and how soon they may be wanted back.
#[derive(Debug, Args)]
pub struct Lengths {
    /// The shortest lease
    #[arg(long, value_parser = units::seconds, default_value = "1h", value_name = "TIME")]
    pub min: u64,
    /// The longest lease
    #[arg(long, value_parser = units::seconds, default_value = "24h", value_name = "TIME")]
    pub max: u64,
    /// How long before it is wanted back that is said
    #[arg(long, value_parser = units::seconds, default_value = "10m", value_name = "TIME")]
    pub notice: u64,
}

#[derive(Debug, Args)]
pub struct Offer {
    /// The GPU class
    #[arg(long)]
    class: String,
    /// How much, such as 4 or 0.5; of nodes, all they have
    #[arg(long, value_parser = units::milli)]
    gpus: u64,
    /// For a GPU by the hour
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    price: i64,
    #[command(flatten)]
    lengths: Lengths,
    /// Nodes of your own, by id, each let whole; idle quota unless said
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Where the nodes stand
    #[arg(long, requires = "nodes")]
    region: Option<String>,
    /// From when it stands, with --to; always unless said
    #[arg(long, value_parser = moment::parse_until, value_name = "WHEN", requires = "to")]
    from: Option<Moment>,
    /// Until when it stands
    #[arg(long, value_parser = moment::parse_until, value_name = "WHEN", requires = "from")]
    to: Option<Moment>,
    /// The tenant that sells; yours unless said
    #[arg(long = "for", value_name = "TENANT")]
    scope: Option<String>,
}

impl Offer {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let source = match self.nodes.is_empty() {
            true => Source::Quota,
            false => Source::Nodes {
                nodes: self
                    .nodes
                    .iter()
                    .map(|name| node(name))
                    .collect::<Result<_, _>>()?,
            },
        };
        let windows = match (self.from, self.to) {
            (Some(start), Some(end)) => OfferWindows::Once { start, end },
            _ => OfferWindows::Always,
        };
        let body = MakeOffer {
            scope: scope_id(client, self.scope).await?,
            class: self.class,
            source,
            gpu_milli: self.gpus,
            region: self.region,
            windows,
            price_micros: self.price,
            min_lease_s: self.lengths.min,
            max_lease_s: self.lengths.max,
            notice_s: self.lengths.notice,
            buyers: None,
            isolation: Isolation::Fenced,
        };
        let made = client.make_offer(&body, Some(&fresh_key()?)).await?;
        show::offers(context, &[made])
    }
}

fn node(name: &str) -> Result<NodeId, Failure> {
    name.parse().map_err(|_| {
        Failure::usage(format!("'{name}' is not the id of a node")).hint("`tenure node list` shows them")
    })
}

#[derive(Debug, Args)]
pub struct Bid {
    /// The GPU class
    #[arg(long)]
    class: String,
    /// How much, such as 4 or 0.5
    #[arg(long, value_parser = units::milli)]
    gpus: u64,
    /// How long each lease is to last
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    time: u64,
    /// At most, for a GPU by the hour; what is paid is what was asked
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    price: i64,
    /// How long it waits
    #[arg(long, value_parser = moment::parse_until, default_value = "24h", value_name = "WHEN")]
    expires: Moment,
    /// What it gets is another's who bids more, after the offer's notice
    #[arg(long)]
    spot: bool,
    /// Only in this region
    #[arg(long)]
    region: Option<String>,
    /// Whose quota grows; your tenant's unless said
    #[arg(long = "for", value_name = "SCOPE")]
    scope: Option<String>,
}

impl Bid {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let body = PlaceBid {
            scope: scope_id(client, self.scope).await?,
            class: self.class,
            gpu_milli: self.gpus,
            duration_s: self.time,
            price_micros: self.price,
            spot: self.spot,
            expires: self.expires,
            region: self.region,
            min_isolation: None,
            min_reliability_permille: 0,
        };
        let placed = client.place_bid(&body, Some(&fresh_key()?)).await?;
        show::placed(context, &placed)
    }
}

#[derive(Debug, Args)]
pub struct Buy {
    /// The GPU class
    #[arg(long)]
    class: String,
    /// How much, such as 4 or 0.5
    #[arg(long, value_parser = units::milli)]
    gpus: u64,
    /// For how long
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    time: u64,
    /// No dearer than this, for a GPU by the hour
    #[arg(long, value_parser = units::micros, value_name = "MONEY")]
    max_price: Option<i64>,
    /// Less than wanted will do
    #[arg(long)]
    partial: bool,
    /// Only in this region
    #[arg(long)]
    region: Option<String>,
    /// Whose quota grows; your tenant's unless said
    #[arg(long = "for", value_name = "SCOPE")]
    scope: Option<String>,
    /// Show what would be bought and its price, and buy nothing
    #[arg(long)]
    plan: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Buy {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let body = BuyBody {
            scope: scope_id(client, self.scope).await?,
            class: self.class,
            gpu_milli: self.gpus,
            duration_s: self.time,
            price_micros: self.max_price,
            partial: self.partial,
            region: self.region,
            min_isolation: None,
            min_reliability_permille: 0,
            dry_run: true,
        };
        let plan = client.buy(&body, None).await?;
        if self.plan {
            return show::purchase(context, &plan);
        }
        context.out.say(&show::fills(&plan).render(&context.out));
        let asked = format!(
            "Lease {} GPUs for {}?",
            units::show_milli(plan.gpu_milli),
            units::show_money(plan.cost_micros, &plan.currency)
        );
        input::confirm(&asked, self.yes)?;
        // Nothing dearer than what was shown is bought.
        let dearest = plan.fills.iter().map(|fill| fill.price_micros).max();
        let body = BuyBody {
            price_micros: dearest.or(body.price_micros),
            dry_run: false,
            ..body
        };
        let bought = client.buy(&body, Some(&fresh_key()?)).await?;
        show::purchase(context, &bought)
    }
}
