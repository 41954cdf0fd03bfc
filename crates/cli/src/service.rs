//! Services: the flags that make a job one, `tenure scale` and `tenure services`.

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::job::JobView;
use tenure_api::v1::service::{ServiceQuery, ServiceView};
use tenure_domain::workload::service::{Replicas, Service};

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::{job, resolve, units};

/// What a job says that answers requests.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "What it serves")]
pub struct ServiceArgs {
    /// It answers HTTP, by so many replicas as requests need: MIN..MAX, where 0.. starts with the first request.
    /// Each listens where the variable PORT says, or {port} in its command
    #[arg(long, value_name = "MIN..MAX", value_parser = replicas)]
    service: Option<Replicas>,
    /// Where its only replica listens, if it cannot be told
    #[arg(long, value_name = "PORT", requires = "service", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Requests a replica works on at once
    #[arg(long, value_name = "N", requires = "service")]
    in_flight: Option<u32>,
    /// A path that a replica answers well once it is ready
    #[arg(long, value_name = "PATH", requires = "service")]
    ready: Option<String>,
    /// How long a replica may take until it is ready
    #[arg(long, value_name = "TIME", requires = "service", value_parser = units::seconds)]
    ready_within: Option<u64>,
    /// Give replicas back when fewer would have done for so long
    #[arg(long, value_name = "TIME", requires = "service", value_parser = units::seconds)]
    idle: Option<u64>,
    /// How long a request waits for a replica
    #[arg(long, value_name = "TIME", requires = "service", value_parser = units::seconds)]
    wait: Option<u64>,
}

impl ServiceArgs {
    pub fn service(&self) -> Option<Service> {
        let seconds = |said: Option<u64>, usual: u32| {
            said.map_or(usual, |seconds| u32::try_from(seconds).unwrap_or(u32::MAX))
        };
        let usual = Service::default();
        Some(Service {
            port: self.port,
            replicas: self.service?,
            in_flight: self.in_flight.unwrap_or(usual.in_flight),
            ready: self.ready.clone(),
            ready_s: seconds(self.ready_within, usual.ready_s),
            idle_s: seconds(self.idle, usual.idle_s),
            wait_s: seconds(self.wait, usual.wait_s),
            silence_s: usual.silence_s,
        })
    }
}

/// `0..4`, or `2` for always two.
fn replicas(text: &str) -> Result<Replicas, String> {
    let wrong = || format!("'{text}' is not MIN..MAX, such as 0..4, or one number");
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (min, max) = match text.split_once("..") {
        Some((min, max)) => (number(min)?, number(max)?),
        None => (number(text)?, number(text)?),
    };
    let replicas = Replicas { min, max };
    replicas
        .check("")
        .map_err(|refusal| refusal.sentence.into_owned())?;
    Ok(replicas)
}

#[derive(Debug, ClapArgs)]
pub struct ScaleArgs {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// Between how many replicas, such as 0..4; one number for always so many
    #[arg(value_name = "MIN..MAX", value_parser = replicas)]
    replicas: Replicas,
}

pub async fn scale(context: &Context, args: ScaleArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let id = resolve::job::job(&client, &args.job).await?;
    let scaled = client.scale_job(&id.to_string(), &args.replicas).await?;
    job::print_one(context, &scaled)
}

#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    /// Only services of this scope and below
    #[arg(long)]
    scope: Option<String>,
}

pub async fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let scope = match &args.scope {
        Some(scope) => Some(resolve::scope(&client, scope).await?.id.to_string()),
        None => None,
    };
    let services = resolve::all(async |cursor| {
        let query = ServiceQuery {
            scope: scope.clone(),
            limit: Some(1000),
            cursor,
        };
        client.services(&query).await
    })
    .await?;
    let empty = "no services; `tenure run --service 0..4 -- …` makes one";
    context
        .out
        .list(&services, |job| job.id.to_string(), empty, table)
}

fn table(services: &[JobView]) -> Table {
    let mut table = Table::new(&[
        "SERVICE",
        "NAME",
        "OWNER",
        "READY",
        "WANTED",
        "OF",
        "IN FLIGHT",
        "WAITING",
        "REQUESTS",
        "LOST",
        "P99 WAIT",
    ]);
    for job in services {
        let Some(service) = job.service.as_deref() else {
            continue;
        };
        let ready = figure(service.ready);
        table.row(vec![
            text(job.id.to_string()),
            text(&job.spec.name),
            text(&job.owner_path),
            if service.ready > 0 {
                ready.paint(Paint::Good)
            } else {
                ready
            },
            figure(service.wanted),
            text(between(service.replicas)),
            figure(service.in_flight),
            figure(service.waiting),
            figure(service.requests),
            figure(service.lost),
            figure(service.waited_p99_ms.map_or_else(|| "–".to_owned(), milliseconds)),
        ]);
    }
    table
}

fn between(replicas: Replicas) -> String {
    format!("{}..{}", replicas.min, replicas.max)
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

/// What `tenure show` says of a service.
pub fn fields(table: &mut Table, service: &ServiceView) {
    table.field("endpoint", service.endpoint.as_str());
    table.field(
        "replicas",
        format!(
            "{} ready of {} wanted, between {}",
            service.ready,
            service.wanted,
            between(service.replicas)
        ),
    );
    table.field_if("waits for", service.waits_for.clone());
    table.field(
        "requests",
        format!(
            "{}: {} answered, {} in flight, {} waiting, {} with an error of a replica, {} lost, {} sent back",
            service.requests,
            service.answered,
            service.in_flight,
            service.waiting,
            service.failed,
            service.lost,
            service.turned_away
        ),
    );
    let spans = |p50: Option<f64>, p99: Option<f64>| {
        let (p50, p99) = (p50?, p99?);
        Some(format!(
            "{} in half of all, {} in 99 %",
            milliseconds(p50),
            milliseconds(p99)
        ))
    };
    table.field_if("waited", spans(service.waited_p50_ms, service.waited_p99_ms));
    table.field_if("took", spans(service.took_p50_ms, service.took_p99_ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_a_range_or_a_number() {
        assert_eq!(replicas("0..4"), Ok(Replicas { min: 0, max: 4 }));
        assert_eq!(replicas("3"), Ok(Replicas { min: 3, max: 3 }));
        for bad in ["", "..", "4..", "-1..2", "4..2", "0", "0..0", "1..1000", "a..b"] {
            assert!(replicas(bad).is_err(), "{bad}");
        }
    }
}
