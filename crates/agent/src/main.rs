//! `tenure-agent`: the node side of Tenure.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tenure_agent::channel::ChannelConfig;
use tenure_agent::discover::setting::Setting;
use tenure_agent::image::ImageConfig;
use tenure_agent::image::tool::ImageCommand;
use tenure_agent::isolate::broker::Broker;
use tenure_agent::node::NodeConfig;
use tenure_agent::run::RunConfig;
use tenure_api::token::JoinTicket;

#[derive(Parser)]
#[command(
    name = "tenure-agent",
    version,
    about = "Runs jobs on this machine for a Tenure server"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run jobs for a server
    Run(Box<Run>),
    /// Say what isolation and which devices this machine gives
    Doctor,
    /// Take what an agent made out of this machine: end what runs, remove networks, rules and cgroups; its directory stays
    Leave {
        /// The agent's own directory
        #[arg(long, env = "TENURE_AGENT_STATE_DIR", default_value = "/var/lib/tenure-agent")]
        state_dir: PathBuf,
    },
    /// Look after the container images of this machine
    Image {
        /// The agent's own directory
        #[arg(
            long,
            env = "TENURE_AGENT_STATE_DIR",
            default_value = "/var/lib/tenure-agent",
            global = true
        )]
        state_dir: PathBuf,
        #[command(flatten)]
        settings: Box<ImageSettings>,
        #[command(subcommand)]
        what: ImageCommand,
    },
}

#[derive(clap::Args)]
struct ImageSettings {
    /// A registry at an address that is not public, as HOST or HOST:PORT, and each host it leads to; without TLS where
    /// it is this very machine
    #[arg(long = "private-registry", value_name = "HOST", global = true)]
    private_registries: Vec<String>,
    /// The same, spoken with without TLS
    #[arg(long = "insecure-registry", value_name = "HOST", global = true)]
    insecure_registries: Vec<String>,
    /// Above this many bytes of images, those not used for longest are removed
    #[arg(long, default_value_t = ImageConfig::default().kept_bytes, value_name = "BYTES", global = true)]
    images_kept_bytes: u64,
    /// The most bytes one image may have, unpacked
    #[arg(long, default_value_t = ImageConfig::default().image_bytes_max, value_name = "BYTES", global = true)]
    image_bytes_max: u64,
}

impl ImageSettings {
    fn config(self) -> ImageConfig {
        ImageConfig {
            private_registries: self.private_registries,
            insecure_registries: self.insecure_registries,
            kept_bytes: self.images_kept_bytes,
            image_bytes_max: self.image_bytes_max,
            ..ImageConfig::default()
        }
    }
}

#[derive(clap::Args)]
struct Run {
    /// Where the server listens for agents, as HOST:PORT
    #[arg(long, env = "TENURE_AGENT_SERVER")]
    server: String,
    /// The agent's own directory
    #[arg(long, env = "TENURE_AGENT_STATE_DIR", default_value = "/var/lib/tenure-agent")]
    state_dir: PathBuf,
    /// A file with the join token; only needed the first time
    #[arg(long)]
    join_token_file: Option<PathBuf>,
    /// What the node is called; the host's name if not given
    #[arg(long)]
    name: Option<String>,
    /// First of the user ids set apart for tenants
    #[arg(long, default_value_t = tenure_agent::isolate::user::FIRST_USER_ID)]
    first_user_id: u32,
    /// The most of each output stream of a job that is kept, in bytes
    #[arg(long, default_value_t = 64 << 20)]
    log_bytes_max: u64,
    /// How long logs of released jobs are kept, in seconds
    #[arg(long, default_value_t = 24 * 3600)]
    logs_kept_s: u64,
    /// How many sandboxes are kept ready for jobs to come
    #[arg(long, default_value_t = 4)]
    warm_seats: usize,
    /// A directory of this machine that every job is shown, read-only unless it ends with :rw
    #[arg(long = "host-dir", value_name = "DIR[:rw]")]
    host_dirs: Vec<tenure_agent::isolate::root::HostDir>,
    /// The guard library; found beside this program if not given
    #[arg(long)]
    guard: Option<PathBuf>,
    /// Where NVIDIA's libraries lie; looked for in the usual places if not given
    #[arg(long, value_name = "DIR")]
    driver_dir: Option<PathBuf>,
    /// How long one kernel of a shared slice may run, in seconds
    #[arg(long, default_value_t = 30)]
    kernel_limit_s: u64,
    /// Device memory a driver takes for each process beside what the process asks for, in MiB; a job that holds more
    /// than its slice and this is ended
    #[arg(long, default_value_t = 640)]
    context_mib: u64,
    /// Space set apart for volumes, in bytes; half of what is free here if not said, none for 0
    #[arg(long, value_name = "BYTES")]
    volume_space: Option<u64>,
    /// Let the jobs of one tenant share an NVIDIA GPU under MPS; the control program, if it is not found by its name
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, default_missing_value = tenure_agent::isolate::mps::PROGRAM)]
    mps: Option<PathBuf>,
    #[command(flatten)]
    images: ImageSettings,
    /// How old a key may become before it is changed, in seconds
    #[arg(long, default_value_t = 30 * 24 * 3600)]
    rotate_after_s: u64,
}

fn main() -> ExitCode {
    // The thin parent of a job starts here, thousands of times: before anything is parsed or set up.
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    let internal = match first.as_ref().and_then(|first| first.to_str()) {
        Some("exec") => Some(tenure_agent::exec::main()),
        Some("discover") => {
            let rest = arguments.by_ref().map(|text| text.to_string_lossy().into_owned());
            Some(tenure_agent::discover::main(rest))
        }
        Some("driver") => {
            let request = arguments.next().unwrap_or_default();
            Some(tenure_agent::driver::main(&request.to_string_lossy()))
        }
        Some("measure-nvidia") => Some(tenure_agent::telemetry::nvidia::main()),
        Some("probe-guard") => {
            let library = arguments.next().unwrap_or_default();
            Some(tenure_agent::isolate::guard::probe(library.as_ref()))
        }
        Some("probe-namespaces") => {
            let wanted = arguments.next().unwrap_or_default();
            Some(tenure_agent::isolate::namespace::Namespaces::probe(
                &wanted.to_string_lossy(),
            ))
        }
        _ => None,
    };
    if let Some(code) = internal {
        return ExitCode::from(code as u8);
    }
    match Cli::parse().command {
        Command::Doctor => ExitCode::from(tenure_agent::doctor::main() as u8),
        Command::Run(run) => ended(run_agent(*run)),
        Command::Leave { state_dir } => ended(tenure_agent::leave::main(&state_dir)),
        Command::Image {
            state_dir,
            settings,
            what,
        } => ended(tenure_agent::image::tool::main(
            &state_dir,
            settings.config(),
            what,
        )),
    }
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure-agent: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_agent(run: Run) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG").unwrap_or_else(|_| "info".into());
    let colours =
        std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .init();
    let ticket = match &run.join_token_file {
        Some(file) => Some(
            std::fs::read_to_string(file)
                .with_context(|| format!("read the join token from {}", file.display()))?,
        ),
        None => std::env::var("TENURE_JOIN_TOKEN").ok(),
    };
    let ticket = ticket
        .map(|text| JoinTicket::read(&text))
        .transpose()
        .context("the join token is not valid")?;
    let name = match run.name {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("read the host's name")?
            .trim()
            .to_owned(),
    };
    let config = RunConfig {
        state_dir: run.state_dir,
        name,
        ticket,
        discover: Setting::from_environment(),
        node: NodeConfig {
            first_user_id: run.first_user_id,
            log_bytes_max: run.log_bytes_max,
            logs_kept: Duration::from_secs(run.logs_kept_s),
            warm_seats: run.warm_seats,
            host_dirs: run.host_dirs,
            guard: guard(run.guard)?,
            fronts: tenure_agent::isolate::front::on_this_host(run.driver_dir.as_deref()),
            broker: Broker::beside_this_program()
                .inspect_err(|why| tracing::warn!("no device is fenced: {why}"))
                .ok(),
            kernel_limit: Duration::from_secs(run.kernel_limit_s),
            context_bytes: run.context_mib << 20,
            images: run.images.config(),
            volume_space: run.volume_space,
            mps: run.mps,
            ..NodeConfig::default()
        },
        channel: ChannelConfig {
            server: run.server,
            rotate_after: Duration::from_secs(run.rotate_after_s),
            ..ChannelConfig::default()
        },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(tenure_agent::run::run(config));
    runtime.shutdown_background();
    result
}

/// The guard library: where it was said to be, or beside this program. Where it cannot be relied on, no device is
/// shared.
fn guard(said: Option<PathBuf>) -> anyhow::Result<Option<PathBuf>> {
    use tenure_agent::isolate::guard;
    let Some(path) = said else {
        return Ok(guard::beside_this_program()
            .inspect_err(|why| tracing::warn!("no device is shared: {why}"))
            .ok());
    };
    let path =
        std::fs::canonicalize(&path).with_context(|| format!("find the guard library {}", path.display()))?;
    guard::check(&path)
        .map_err(|why| anyhow::anyhow!("{} is not the guard library: {why}", path.display()))?;
    Ok(Some(path))
}
