//! `tenure up`: a server here, with an agent for this machine beside it. Only arguments; the rest is `server`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::context::Context;
use crate::profile;
use crate::refusal::Failure;
use crate::units;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Where everything is kept
    #[arg(long, value_name = "DIR", env = "TENURE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Where the API and the console listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Where agents of nodes connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7071")]
    agent_listen: SocketAddr,
    /// Keep the journal in this PostgreSQL database; name it in TENURE_DATABASE where its URL holds a password
    #[arg(long, value_name = "URL", env = "TENURE_DATABASE", hide_env_values = true)]
    database: Option<String>,
    /// Certificate chain, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let users log in through this OpenID Connect issuer
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// As this client
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Set up a small platform to look around in
    #[arg(long)]
    demo: bool,
    /// Start no agent on this machine
    #[arg(long)]
    no_agent: bool,
    /// How long a node may be silent before its work is given up
    #[arg(long, value_parser = lease_term, value_name = "TIME", default_value = "60s")]
    lease_term: u64,
    /// Requests a second each tenant may make
    #[arg(long, value_name = "N", default_value = "1000")]
    rate: u32,
    /// Serve other machines without encryption
    #[arg(long)]
    allow_remote_plaintext: bool,
    /// Let webhooks be sent to this host though its address is not public; may be given again
    #[arg(long = "private-webhook", value_name = "HOST[:PORT]")]
    private_webhooks: Vec<String>,
    /// Tell of every job as a trace to the OpenTelemetry collector here (OTLP over HTTP); the variables that OpenTelemetry
    /// knows, as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS, say so too, and more
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,
}

fn lease_term(text: &str) -> Result<u64, String> {
    match units::seconds(text)? {
        0 => Err("a node must be allowed to be silent for a second at least".into()),
        term => Ok(term),
    }
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let data_dir = args.data_dir.clone().or_else(profile::data_dir).ok_or_else(|| {
        Failure::usage("there is no place for the data: neither XDG_DATA_HOME nor HOME is set")
            .hint("name one with --data-dir")
    })?;
    start_log(args.log_json);
    serve(context, args, data_dir).await
}

/// The server's log, on stderr; `TENURE_LOG` says how much.
fn start_log(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG").unwrap_or_else(|_| "info".into());
    let colour = crate::output::colours(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    // Only a second start in one process fails, and there is none.
    let _ = if json {
        log.json().try_init()
    } else {
        log.with_target(false).try_init()
    };
}

#[cfg(feature = "server")]
async fn serve(context: &Context, args: Args, data_dir: PathBuf) -> Result<(), Failure> {
    use tenure_server::trace::TraceOptions;
    use tenure_server::up::{UpError, UpOptions, up};
    let traces = TraceOptions::read(args.otlp.as_deref(), |name| {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    });
    let options = UpOptions {
        data_dir,
        listen: args.listen,
        agent_listen: args.agent_listen,
        database: args.database,
        tls: args.tls_cert.zip(args.tls_key),
        oidc_issuer: args.oidc_issuer,
        oidc_client_id: args.oidc_client_id,
        demo: args.demo,
        no_agent: args.no_agent,
        lease_term_s: args.lease_term,
        rate_per_tenant: args.rate,
        allow_remote_plaintext: args.allow_remote_plaintext,
        private_webhooks: args.private_webhooks,
        traces: traces.map_err(Failure::usage)?,
        quiet: context.out.quiet,
    };
    up(options).await.map_err(|error: UpError| match &error {
        // It was up.
        UpError::Lost(_) => Failure::Local(chain(&error)),
        _ => Failure::usage(chain(&error)),
    })
}

/// What failed, and why, down to the root.
#[cfg(feature = "server")]
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

#[cfg(not(feature = "server"))]
async fn serve(context: &Context, args: Args, data_dir: PathBuf) -> Result<(), Failure> {
    let _ = (
        context,
        args.listen,
        args.agent_listen,
        args.database,
        args.tls_cert.zip(args.tls_key),
        args.oidc_issuer,
    );
    let _ = (
        args.oidc_client_id,
        args.demo,
        args.no_agent,
        args.lease_term,
        args.rate,
        args.allow_remote_plaintext,
        args.private_webhooks,
        args.otlp,
    );
    Err(Failure::Local(format!(
        "this build has no server to start in {}",
        data_dir.display()
    )))
}
