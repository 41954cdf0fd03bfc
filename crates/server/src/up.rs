//! `tenure up`: one machine, one command. Opens the journal, leads or follows, serves, and starts an agent for
//! this machine beside itself.

mod demo;
mod found;
mod heads;
mod local_agent;
mod platform_key;
mod switch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_domain::Time;
use tenure_engine::local::{Hub, HubConfig};
use tenure_journal::{Journal, JournalError, JournalHandle, JournalReader, Location, LogStore, Options};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controller::{self, Controller, WriterOptions};
use crate::http::{App, HttpOptions, OidcOptions, WebhookOptions};
use crate::keyring::{Keyring, KeyringError};
use crate::log::{Collector, CollectorOptions};
use crate::reading::Readings;
use crate::reconcile::{Enrolment, Reconciler};
use crate::trace::{Exporter, TraceOptions, Traces};
use crate::view::View;

use local_agent::LocalAgent;
use platform_key::PlatformKeys;
pub(crate) use platform_key::SIGNING as SIGNING_KEY;
use switch::Switch;

/// What `tenure up` was asked for.
#[derive(Debug, Clone)]
pub struct UpOptions {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub agent_listen: SocketAddr,
    /// A PostgreSQL URL; absent means SQLite in the data directory.
    pub database: Option<String>,
    /// Certificate chain and key, PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub oidc_issuer: Option<String>,
    pub oidc_client_id: Option<String>,
    /// Sets up the demo platform where the journal is empty.
    pub demo: bool,
    /// Starts no agent on this machine.
    pub no_agent: bool,
    pub lease_term_s: u64,
    /// Requests a second each tenant may make.
    pub rate_per_tenant: u32,
    /// Listens beyond loopback without TLS.
    pub allow_remote_plaintext: bool,
    /// Hosts that webhooks may be sent to though their addresses are not public, with a port or without.
    pub private_webhooks: Vec<String>,
    /// Where jobs are told of in traces.
    pub traces: Option<TraceOptions>,
    /// Prints nothing but errors on the terminal.
    pub quiet: bool,
}

/// Why the server is not up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    #[error("this machine's clock says {0}, which is before this program was made; set it right")]
    Clock(String),
    #[error("the journal cannot be opened")]
    Journal(#[from] JournalError),
    #[error("the journal cannot be folded")]
    Recover(#[from] controller::RecoverError),
    #[error("the platform's keys cannot be used")]
    Keyring(#[from] KeyringError),
    #[error("listening on {0} failed")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error(
        "{0} would be reachable from other machines without TLS; give --tls-cert and --tls-key, or listen on loopback"
    )]
    Plaintext(SocketAddr),
    #[error("the data directory {0} cannot be used")]
    DataDir(PathBuf, #[source] std::io::Error),
    #[error("the certificate or key cannot be used: {0}")]
    Tls(String),
    #[error("the agents' door cannot be opened")]
    Hub(#[from] tenure_engine::local::HubError),
    #[error("the platform's authority cannot be used")]
    Authority(#[from] tenure_engine::local::AuthorityError),
    #[error("setting up the platform failed: {0}")]
    Found(String),
    #[error("starting the agent failed")]
    Agent(#[source] std::io::Error),
    #[error("leadership was lost or a commit failed; start again to recover from the journal")]
    Lost(#[source] JournalError),
}

/// Runs until told to stop.
pub async fn up(options: UpOptions) -> Result<(), UpError> {
    if !options.listen.ip().is_loopback() && options.tls.is_none() && !options.allow_remote_plaintext {
        return Err(UpError::Plaintext(options.listen));
    }
    check_clock(controller::now())?;
    prepare(&options.data_dir)?;
    let keyring = Arc::new(Keyring::open(&options.data_dir.join("master.key"))?);
    let tls = options
        .tls
        .as_ref()
        .map(|(certificate, key)| crate::http::tls_config(certificate, key))
        .transpose()
        .map_err(UpError::Tls)?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| UpError::Listen(options.listen, error))?;
    let stop = CancellationToken::new();
    let interrupted = watch_signals(stop.clone());

    let journal = Opened::open(&options).await?;
    let recovered = controller::recover(journal.reader()).await?;
    let view = Arc::new(View::new(recovered.state, recovered.seq));
    let platform = journal.reader().platform();
    let traces = options.traces.clone();
    let traces = traces.map(|traces| Traces::new(traces, platform, &hostname()));
    let controller = Controller::following(view, journal.reader().clone()).traced(traces);
    let engine = Arc::new(Switch::default());
    let logs = LogStore::open(&location(&options)).await?;
    let house = House {
        options,
        keyring,
        controller,
        engine,
        logs,
        readings: Arc::default(),
        stop,
    };
    let mut serving = house.serve(listener, tls, &journal).await?;
    let led = match journal {
        Opened::Leading(journal) => house.lead(*journal, &mut serving, interrupted).await,
        Opened::Following(reader) => match house.follow_until_lead(&reader).await? {
            Some(journal) => house.lead(journal, &mut serving, interrupted).await,
            None => Ok(()),
        },
    };
    house.stop.cancel();
    serving.ended().await;
    if led.is_ok() && !house.options.quiet {
        eprintln!("stopped; everything acknowledged is in the journal");
    }
    led
}

/// When this version was made, 2026-11-01 UTC: bills and leases written with an earlier clock would be wrong.
const MADE: Time = Time(1_793_491_200_000);

fn check_clock(now: Time) -> Result<(), UpError> {
    if now < MADE {
        return Err(UpError::Clock(written(now)));
    }
    Ok(())
}

fn written(time: Time) -> String {
    jiff::Timestamp::from_millisecond(time.0).map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

fn prepare(dir: &Path) -> Result<(), UpError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| UpError::DataDir(dir.to_owned(), error))
}

/// The journal, in whichever role it could be opened.
enum Opened {
    Leading(Box<Journal>),
    Following(JournalReader),
}

impl Opened {
    /// Leads where nobody does. On PostgreSQL another server may lead: then this one follows it.
    async fn open(options: &UpOptions) -> Result<Opened, UpError> {
        match Journal::open_leader(&location(options), &holder(), Options::default()).await {
            Ok(journal) => Ok(Opened::Leading(Box::new(journal))),
            Err(JournalError::Held { holder }) if options.database.is_some() => {
                tracing::info!(holder, "another server leads; following it");
                Ok(Opened::Following(JournalReader::open(&location(options)).await?))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn reader(&self) -> &JournalReader {
        match self {
            Opened::Leading(journal) => journal,
            Opened::Following(reader) => reader,
        }
    }
}

fn location(options: &UpOptions) -> Location {
    match &options.database {
        Some(url) => Location::Postgres(url.clone(), "tenure".into()),
        None => Location::Sqlite(options.data_dir.clone()),
    }
}

fn holder() -> String {
    format!("{}:{}", hostname(), std::process::id())
}

/// The parts that stand whether this server leads or follows.
struct House {
    options: UpOptions,
    keyring: Arc<Keyring>,
    controller: Controller,
    engine: Arc<Switch>,
    logs: LogStore,
    readings: Arc<Readings>,
    stop: CancellationToken,
}

/// The HTTP server under way.
struct Serving {
    url: String,
    keys: PlatformKeys,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Serving {
    async fn ended(&mut self) {
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl House {
    async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
        journal: &Opened,
    ) -> Result<Serving, UpError> {
        let keys = match journal {
            Opened::Leading(journal) => PlatformKeys::load_or_make(&self.keyring, journal).await?,
            Opened::Following(reader) => PlatformKeys::load(&self.keyring, reader).await?,
        };
        let options = &self.options;
        let app = App {
            controller: self.controller.clone(),
            keyring: self.keyring.clone(),
            engine: self.engine.clone(),
            logs: self.logs.clone(),
            readings: self.readings.clone(),
            signing_key: keys.signing.clone(),
            authority: keys.authority.fingerprint(),
            options: HttpOptions {
                rate_per_tenant: options.rate_per_tenant,
                burst_per_tenant: options.rate_per_tenant.saturating_mul(2),
                oidc: oidc(options),
                webhooks: WebhookOptions {
                    private: options.private_webhooks.clone(),
                    ..WebhookOptions::default()
                },
                ..HttpOptions::default()
            },
        };
        let address = listener
            .local_addr()
            .map_err(|error| UpError::Listen(options.listen, error))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(crate::http::serve(listener, tls, app, self.stop.clone()));
        Ok(Serving {
            url: format!("{scheme}://{address}"),
            keys,
            task: Some(task),
        })
    }

    /// Follows the leader until it is gone; gives the journal in hand, or nothing when told to stop.
    async fn follow_until_lead(&self, reader: &JournalReader) -> Result<Option<Journal>, UpError> {
        let mut tries = tokio::time::interval(Duration::from_secs(1));
        let following = controller::follow(reader, self.controller.view());
        tokio::pin!(following);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ok(None),
                ended = &mut following => ended?,
                _ = tries.tick() => match Journal::open_leader(&location(&self.options), &holder(), Options::default()).await {
                    Ok(journal) => {
                        tracing::warn!(epoch = journal.epoch(), "the leader was silent for a term; this server leads now");
                        // From here on nobody else can commit.
                        controller::catch_up(&journal, self.controller.view()).await?;
                        return Ok(Some(journal));
                    }
                    Err(JournalError::Held { .. }) => {}
                    Err(error) => tracing::warn!(%error, "taking the lead failed; following on"),
                },
            }
        }
    }

    async fn lead(
        &self,
        journal: Journal,
        serving: &mut Serving,
        interrupted: tokio::sync::watch::Receiver<bool>,
    ) -> Result<(), UpError> {
        let (options, controller) = (&self.options, &self.controller);
        let handle = journal.handle();
        let exporter = Exporter::begin(controller).await?;
        let mut writing = controller.lead(journal, WriterOptions::default());
        let all_told = CancellationToken::new();
        let telling = exporter.map(|exporter| tokio::spawn(exporter.run(handle.clone(), all_told.clone())));
        crate::session::end_orphans(controller).await;
        let founded = found::found(controller, &options.data_dir).await?;
        let demo = if options.demo {
            Some(demo::demo(controller, &options.data_dir).await?)
        } else {
            None
        };

        let term = Duration::from_secs(options.lease_term_s.max(1));
        let config = HubConfig {
            listen: options.agent_listen,
            term,
            ..HubConfig::default()
        };
        let registry = Arc::new(Enrolment::new(controller.clone()));
        let hub = Arc::new(Hub::bind(config, serving.keys.authority.clone(), registry).await?);
        let seen = tenure_engine::Engine::subscribe(&*hub);
        let measured = tenure_engine::Engine::subscribe_readings(&*hub);
        self.engine.set(hub.clone());
        let reading = tokio::spawn({
            let readings = self.readings.clone();
            async move { readings.keep(measured).await }
        });
        let reconciling = tokio::spawn(
            Reconciler::new(controller.clone(), hub.clone(), self.keyring.clone(), term).run(seen),
        );
        let collector = Collector::new(
            controller.clone(),
            hub.clone(),
            self.logs.clone(),
            CollectorOptions::default(),
        );
        let collecting = tokio::spawn(collector.run());
        let signing = tokio::spawn(heads::sign(
            handle.clone(),
            serving.keys.signing.clone(),
            options.data_dir.join("heads.jsonl"),
        ));
        let renewing = tokio::spawn(renew(handle));
        let mut agent = None;
        if !options.no_agent {
            let ticket = local_agent::ticket(
                controller,
                serving.keys.authority.fingerprint(),
                &options.data_dir,
            )
            .await?;
            agent =
                Some(LocalAgent::start(hub.address(), ticket, &options.data_dir).map_err(UpError::Agent)?);
        }
        if !options.quiet {
            found::announce(&serving.url, hub.address(), &founded, demo.as_ref());
        }

        let ended = tokio::select! {
            () = self.stop.cancelled() => None,
            ended = &mut writing => Some(ended),
        };
        self.stop.cancel();
        if let Some(agent) = agent {
            agent.stop(*interrupted.borrow()).await;
        }
        if ended.is_none() {
            // What it still has to write down goes through the controller.
            serving.ended().await;
        }
        reconciling.abort();
        reading.abort();
        collecting.abort();
        renewing.abort();
        hub.close();
        controller.close();
        let ended = match ended {
            Some(ended) => ended,
            None => writing.await,
        };
        signing.abort();
        all_told.cancel();
        if let Some(telling) = telling {
            let _ = telling.await;
        }
        let journal = ended.expect("the writer does not panic").map_err(UpError::Lost)?;
        journal.close().await.map_err(UpError::Lost)
    }
}

fn oidc(options: &UpOptions) -> Option<OidcOptions> {
    let (issuer, client_id) = (options.oidc_issuer.clone()?, options.oidc_client_id.clone()?);
    Some(OidcOptions { issuer, client_id })
}

async fn renew(journal: JournalHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(3));
    loop {
        tick.tick().await;
        if let Err(error) = journal.renew().await {
            tracing::warn!(%error, "the lead was not renewed");
        }
    }
}

/// Cancels on Ctrl-C and SIGTERM; says which it was: a person at the terminal wants everything to end, a
/// service manager only this program.
fn watch_signals(stop: CancellationToken) -> tokio::sync::watch::Receiver<bool> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, receiver) = tokio::sync::watch::channel(false);
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return receiver;
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => { sender.send_replace(true); }
            _ = terminate.recv() => {}
        }
        stop.cancel();
        // A second Ctrl-C does not wait.
        interrupt.recv().await;
        std::process::exit(130);
    });
    receiver
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_the_program_was_made_is_refused() {
        assert_eq!(written(MADE), "2026-11-01T00:00:00Z");
        assert!(check_clock(MADE).is_ok());
        let error = check_clock(Time(86_400_000)).unwrap_err();
        assert!(error.to_string().contains("1970-01-02T00:00:00Z"), "{error}");
    }
}
