//! `tenure completions`, and what a shell is offered for a job or a GPU.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Args as ClapArgs, CommandFactory, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::aot::{Shell, generate};
use tenure_api::client::Client;
use tenure_api::v1::gpu::{DeviceView, GpuQuery};
use tenure_api::v1::job::{JobQuery, JobView};
use tenure_api::v1::volume::{VolumeQuery, VolumeView};
use tenure_domain::workload::model::{CATALOGUE, Known};

use crate::args::Cli;
use crate::context::{Context, Globals};
use crate::output::Form;
use crate::refusal::Failure;
use crate::safe::safe;
use crate::units;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "For completions that also know your jobs, let the shell ask the program itself:\n  \
                        bash: source <(COMPLETE=bash tenure)\n  \
                        zsh:  source <(COMPLETE=zsh tenure)\n  \
                        fish: COMPLETE=fish tenure | source"
)]
pub struct Args {
    #[arg(value_enum)]
    shell: ShellArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

pub fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
        ShellArg::Elvish => Shell::Elvish,
        ShellArg::Powershell => Shell::PowerShell,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "tenure", &mut script);
    context.out.text(&String::from_utf8_lossy(&script))
}

/// The user's live jobs.
pub fn complete_jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    offered(current, live_jobs())
}

/// The devices the user may see.
pub fn complete_gpus(current: &OsStr) -> Vec<CompletionCandidate> {
    offered(current, gpus())
}

/// The volumes the user's jobs may name.
pub fn complete_volumes(current: &OsStr) -> Vec<CompletionCandidate> {
    offered(current, volumes())
}

/// The models known by name.
pub fn complete_models(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().to_ascii_lowercase();
    let fits = CATALOGUE.iter().filter(|known| known.name.starts_with(&current));
    let offer = |known: &Known| {
        let size = format!("{} parameters", units::grouped(known.shape.params));
        CompletionCandidate::new(known.name).help(Some(size.into()))
    };
    fits.map(offer).collect()
}

/// Ids that begin, or whose names begin, as what was typed. A shell waits for this at every key, so it gives up soon and
/// quietly.
fn offered(
    current: &OsStr,
    asked: impl Future<Output = Option<Vec<(String, String)>>>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().into_owned();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(800), asked).await });
    let known = answer.ok().flatten().unwrap_or_default();
    let fits = |(id, name): &(String, String)| id.starts_with(&current) || name.starts_with(&current);
    let offer = |(id, name): (String, String)| {
        CompletionCandidate::new(id).help(Some(safe(&name).into_owned().into()))
    };
    known.into_iter().filter(fits).map(offer).collect()
}

fn client() -> Option<Client> {
    let globals = Globals {
        output: Form::Table,
        server: None,
        profile: None,
        ca_file: None,
        quiet: true,
    };
    Context::new(globals).ok()?.client().ok()
}

async fn live_jobs() -> Option<Vec<(String, String)>> {
    let query = JobQuery {
        limit: Some(100),
        ..JobQuery::default()
    };
    let page = client()?.jobs(&query).await.ok()?;
    let named = |job: JobView| (job.id.to_string(), job.spec.name);
    Some(page.items.into_iter().map(named).collect())
}

async fn volumes() -> Option<Vec<(String, String)>> {
    let query = VolumeQuery {
        limit: Some(100),
        ..VolumeQuery::default()
    };
    let page = client()?.volumes(&query).await.ok()?;
    let named = |volume: VolumeView| (volume.name, volume.scope_path);
    Some(page.items.into_iter().map(named).collect())
}

async fn gpus() -> Option<Vec<(String, String)>> {
    let query = GpuQuery {
        limit: Some(100),
        ..GpuQuery::default()
    };
    let page = client()?.gpus(&query).await.ok()?;
    let named = |device: DeviceView| {
        let name = format!("{} on {}", device.gpu.class, device.node_name);
        (device.gpu.id.to_string(), name)
    };
    Some(page.items.into_iter().map(named).collect())
}
