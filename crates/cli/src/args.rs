//! The command line: every noun and verb, and where each is done.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::context::{Context, Globals};
use crate::job::Change;
use crate::refusal::Failure;
use crate::{
    apply, attach, audit, book, budget, cluster, completion, cost, doctor, event, exec, fit, gpu, invoice,
    job, journal, keeping, login, logs, market, node, policy, port, price, quota, resize, role, rule, run,
    scope, secret, service, share, sku, task, top, up, volume, webhook, whoami,
};

/// Run work on shared GPUs: submit, watch, and see what it costs
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Scopes are given as acme, acme/research, acme/research/ada, platform, or by id.\n\
                  Jobs are given by id, by the end of an id, or by name (your latest of that name).\n\n\
                  Exit codes: 0 done, 1 the job failed, 2 bad usage or input, 3 refused, 4 no capacity,\n\
                  5 unreachable. `run`, `attach` and `exec` pass the program's own code through."
)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command as a job, follow it, and end as it ends
    Run(Box<run::Args>),
    /// Say what a model or a scene needs, which GPUs would do, and what they cost
    Fit(Box<fit::Args>),
    /// Submit the jobs of a file
    Apply(apply::Args),
    /// List jobs
    Ps(job::ListArgs),
    /// Show a job
    Show(job::ShowArgs),
    /// List the tasks of a job of frames or segments, with what each cost
    Tasks(task::Args),
    /// Print what a job wrote
    Logs(logs::Args),
    /// Go to a running job: see what it writes, and type to it where it reads
    Attach(attach::Args),
    /// Run a program inside a running job
    Exec(exec::Args),
    /// Reach a port of a running job, such as a notebook's, from this machine
    Port(port::Args),
    /// Make a running job's slice larger or smaller, without a restart
    Resize(resize::Args),
    /// Say between how many replicas a service has
    Scale(service::ScaleArgs),
    /// List services: jobs that answer requests
    Services(service::ListArgs),
    /// Have running jobs give their GPUs back for a while, without a loss
    Pause(job::JobsArgs),
    /// Have paused jobs go on as soon as there is room
    Resume(job::JobsArgs),
    /// Stop jobs
    Stop(job::JobsArgs),
    /// Say why a job waits, or what became of it
    Why(job::WhyArgs),
    /// What jobs did at their devices' boundary, signed by their nodes
    #[command(subcommand)]
    Audit(audit::Command),
    /// Show what was spent, and on what
    Cost(cost::Args),

    /// Log in to a server
    Login(login::Args),
    /// Forget a login
    Logout(login::LogoutArgs),
    /// Show who you are and what you may do
    Whoami,

    /// Manage tenants
    #[command(subcommand)]
    Tenant(scope::Tenant),
    /// Manage subscribers: a tenant's business units or customers
    #[command(subcommand)]
    Subscriber(scope::Subscriber),
    /// Manage users: people and service accounts
    #[command(subcommand)]
    User(scope::User),
    /// Manage who may do what, and where
    #[command(subcommand)]
    Role(role::Command),
    /// Limits on how much is in use at once
    #[command(subcommand)]
    Quota(quota::Command),
    /// What a scope gets among its siblings: weight, nominal quotas, lending
    #[command(subcommand)]
    Share(share::Command),
    /// How long, and how much of, what jobs wrote is kept
    #[command(subcommand)]
    Keeping(keeping::Command),
    /// Limits on how much is spent per period
    #[command(subcommand)]
    Budget(budget::Command),
    /// What jobs may ask for at all
    #[command(subcommand)]
    Policy(policy::Command),
    /// Operator-written rules that forbid
    #[command(subcommand)]
    Rules(rule::Command),
    /// Secrets for jobs
    #[command(subcommand)]
    Secret(secret::Command),
    /// Space in which jobs keep files between runs
    #[command(subcommand)]
    Volume(volume::Command),
    /// Receivers outside that are told what happens
    #[command(subcommand)]
    Webhook(webhook::Command),
    /// Capacity held for windows in time
    #[command(subcommand)]
    Book(book::Command),
    /// A team's own nodes for the time of a booking
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// The exchange: offer what lies idle, buy what others offer
    #[command(subcommand)]
    Market(market::Command),
    /// The price list, and price books: what each level asks of the one below
    #[command(subcommand)]
    Price(price::Command),
    /// Invoices: counted up, issued, paid, given back, and proven without a server
    #[command(subcommand)]
    Invoice(invoice::Command),
    /// Named sizes
    #[command(subcommand)]
    Sku(sku::Command),

    /// Machines
    #[command(subcommand)]
    Node(node::Command),
    /// Devices of the machines
    #[command(subcommand)]
    Gpu(gpu::Command),
    /// Devices and slices live: memory and compute of each against its limit
    Top(top::Args),
    /// What happened, as it happens
    Events(event::Args),
    /// The journal: check it, prove from it, keep and restore copies
    #[command(subcommand)]
    Journal(journal::Command),

    /// Start a server here
    Up(up::Args),
    /// Look for what is wrong
    Doctor(doctor::Args),
    /// Print shell completions
    Completions(completion::Args),
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let done = match self {
            Command::Run(args) => return run::run(context, *args).await,
            Command::Attach(args) => return attach::run(context, args).await,
            Command::Exec(args) => return exec::run(context, args).await,
            Command::Port(args) => port::run(context, args).await,
            Command::Logs(args) => logs::run(context, args).await,
            Command::Fit(args) => fit::run(context, *args).await,
            Command::Apply(args) => apply::run(context, args).await,
            Command::Ps(args) => job::list(context, args).await,
            Command::Show(args) => job::show(context, args).await,
            Command::Tasks(args) => task::run(context, args).await,
            Command::Resize(args) => resize::run(context, args).await,
            Command::Scale(args) => service::scale(context, args).await,
            Command::Services(args) => service::list(context, args).await,
            Command::Stop(args) => job::change(context, args, Change::Stop).await,
            Command::Pause(args) => job::change(context, args, Change::Pause).await,
            Command::Resume(args) => job::change(context, args, Change::Resume).await,
            Command::Why(args) => job::why(context, args).await,
            Command::Audit(command) => command.run(context).await,
            Command::Cost(args) => cost::run(context, args).await,
            Command::Login(args) => login::run(context, args).await,
            Command::Logout(args) => login::logout(context, args).await,
            Command::Whoami => whoami::run(context).await,
            Command::Tenant(command) => command.run(context).await,
            Command::Subscriber(command) => command.run(context).await,
            Command::User(command) => command.run(context).await,
            Command::Role(command) => command.run(context).await,
            Command::Quota(command) => command.run(context).await,
            Command::Share(command) => command.run(context).await,
            Command::Keeping(command) => command.run(context).await,
            Command::Budget(command) => command.run(context).await,
            Command::Policy(command) => command.run(context).await,
            Command::Rules(command) => command.run(context).await,
            Command::Secret(command) => command.run(context).await,
            Command::Volume(command) => command.run(context).await,
            Command::Webhook(command) => command.run(context).await,
            Command::Book(command) => command.run(context).await,
            Command::Cluster(command) => command.run(context).await,
            Command::Market(command) => command.run(context).await,
            Command::Price(command) => command.run(context).await,
            Command::Invoice(command) => command.run(context).await,
            Command::Sku(command) => command.run(context).await,
            Command::Node(command) => command.run(context).await,
            Command::Gpu(command) => command.run(context).await,
            Command::Top(args) => top::run(context, args).await,
            Command::Events(args) => event::run(context, args).await,
            Command::Journal(command) => command.run(context).await,
            Command::Up(args) => up::run(context, args).await,
            Command::Doctor(args) => doctor::run(context, args).await,
            Command::Completions(args) => completion::run(context, args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
