//! Collecting: every stream of every allocation is read from its node, from where it was read to, until its end was read
//! or can never be had.
//!
//! A node keeps what it was not asked for, so a server that is away, slow or out of room loses nothing as long as the node
//! keeps it. Which streams there are follows from the journal, from a place in it that is remembered, so none is missed.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::channel::LogStream;
use tenure_domain::Event;
use tenure_domain::id::JobId;
use tenure_domain::schedule::allocation::Allocation;
use tenure_engine::Engine;
use tenure_journal::{JournalError, LogStore};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::about;
use super::desk::Desk;
use super::pace::{Pace, Rates};
use super::read::{Came, More, read};
use super::track::{Track, Tracked};
use crate::controller::{Controller, event, now};

/// The place in the journal up to which streams are noted.
const MARK: &str = "followed";
/// Events read at once after an absence.
const EVENTS: usize = 5_000;
/// After this long an ended allocation of a node that does not answer is given up: the node itself keeps logs for a day.
const GIVEN_UP: Duration = Duration::from_secs(25 * 3600);
const SLOWEST: u32 = 8;

/// How collecting works.
#[derive(Debug, Clone)]
pub struct CollectorOptions {
    /// How often a stream that says something is asked; one that does not is asked up to eight times as rarely.
    pub every: Duration,
    /// Questions under way at once, and asked in a second.
    pub at_once: usize,
    pub questions_per_s: u32,
    /// Bytes of one question.
    pub chunk_bytes: u32,
    /// Bytes a second of one job, one tenant and all together.
    pub job_bytes_per_s: u64,
    pub tenant_bytes_per_s: u64,
    pub platform_bytes_per_s: u64,
    /// How often what is to be erased is looked for.
    pub sweep: Duration,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        CollectorOptions {
            every: Duration::from_secs(2),
            at_once: 32,
            questions_per_s: 250,
            chunk_bytes: 64 * 1024,
            job_bytes_per_s: 1 << 20,
            tenant_bytes_per_s: 4 << 20,
            platform_bytes_per_s: 32 << 20,
            sweep: Duration::from_secs(10),
        }
    }
}

/// Collects, and erases what is too old or too much, as long as this server leads.
pub struct Collector {
    controller: Controller,
    engine: Arc<dyn Engine>,
    store: LogStore,
    options: CollectorOptions,
    desk: Desk,
    track: Track,
    pace: Pace,
    reads: JoinSet<(Tracked, Came)>,
    /// The last event whose streams are noted.
    followed: u64,
    marked: u64,
}

impl Collector {
    pub fn new(
        controller: Controller,
        engine: Arc<dyn Engine>,
        store: LogStore,
        options: CollectorOptions,
    ) -> Collector {
        let rates = Rates {
            job: options.job_bytes_per_s.max(1),
            tenant: options.tenant_bytes_per_s.max(1),
            platform: options.platform_bytes_per_s.max(1),
        };
        Collector {
            desk: Desk::open(store.clone()),
            pace: Pace::new(rates, Instant::now()),
            controller,
            engine,
            store,
            options,
            track: Track::default(),
            reads: JoinSet::new(),
            followed: 0,
            marked: 0,
        }
    }

    /// Runs until the server stops leading. A database that is away is waited for.
    pub async fn run(mut self) {
        // Ends with this.
        let mut sweeping = JoinSet::new();
        sweeping.spawn(sweep_again(
            self.controller.clone(),
            self.store.clone(),
            self.options.sweep,
        ));
        while self.controller.is_leading() {
            if let Err(error) = self.collect().await {
                tracing::warn!(%error, "logs are not collected now; trying again");
                self.reads.abort_all();
                while self.reads.join_next().await.is_some() {}
                self.track = Track::default();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }

    async fn collect(&mut self) -> Result<(), JournalError> {
        let mut news = self.controller.view().listen();
        self.begin().await?;
        let mut pulse = interval(Duration::from_secs(1));
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.controller.is_leading() {
            while self.reads.len() < self.options.at_once
                && let Some(tracked) = self.track.take(Instant::now())
            {
                self.ask(tracked);
            }
            let due = self
                .track
                .next_due()
                .filter(|_| self.reads.len() < self.options.at_once);
            let due_at = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                batch = news.recv() => match batch {
                    Ok(batch) => {
                        if let (Some(first), Some(last)) = (batch.first(), batch.last()) {
                            if first.seq > self.followed + 1 {
                                self.catch_up(first.seq - 1).await?;
                            }
                            let fresh = batch.iter().filter(|published| published.seq > self.followed);
                            let events: Vec<Arc<Event>> = fresh.map(|published| published.event.clone()).collect();
                            self.learnt(events.iter().map(|event| &**event)).await?;
                            self.followed = self.followed.max(last.seq);
                        }
                    }
                    Err(RecvError::Lagged(_)) => self.catch_up(self.controller.view().seq()).await?,
                    Err(RecvError::Closed) => return Ok(()),
                },
                Some(read) = self.reads.join_next() => {
                    if let Ok((tracked, came)) = read {
                        self.came(tracked, came).await?;
                    }
                }
                () = tokio::time::sleep_until(due_at) => {}
                _ = pulse.tick() => {
                    self.pace.forget(Instant::now());
                    self.mark().await?;
                }
            }
        }
        Ok(())
    }

    /// Takes up what an earlier run left, and what began since.
    async fn begin(&mut self) -> Result<(), JournalError> {
        let head = self.controller.view().seq();
        match self.store.mark(MARK).await? {
            Some(mark) => {
                (self.followed, self.marked) = (mark, mark);
                self.load().await?;
                self.catch_up(head).await?;
            }
            // The first time: whatever runs now.
            None => {
                let live: Vec<Allocation> = {
                    let state = self.controller.view().read();
                    state.fleet.allocations().cloned().collect()
                };
                let placed = live
                    .into_iter()
                    .map(|allocation| (allocation.job, vec![allocation]));
                self.note(placed.collect()).await?;
                self.followed = head;
                self.load().await?;
            }
        }
        self.mark().await
    }

    async fn load(&mut self) -> Result<(), JournalError> {
        let mut after = 0;
        loop {
            let sources = self.store.open_sources(after, 1000).await?;
            let Some(last) = sources.last() else { return Ok(()) };
            after = last.id;
            for source in &sources {
                self.add(Tracked::of(source, self.options.every));
            }
        }
    }

    fn add(&mut self, tracked: Option<Tracked>) {
        if let Some(tracked) = tracked {
            self.track.add(tracked, Instant::now());
        }
    }

    /// Reads what was missed of the journal.
    async fn catch_up(&mut self, to: u64) -> Result<(), JournalError> {
        while self.followed < to {
            let lines = self.controller.reader().read(self.followed + 1, EVENTS).await?;
            if lines.is_empty() {
                return Ok(());
            }
            let mut events = Vec::with_capacity(lines.len());
            for line in &lines {
                match event(line) {
                    Ok(event) => events.push(event),
                    Err(error) => tracing::warn!(%error, "an event was passed over"),
                }
            }
            self.learnt(events.iter()).await?;
            self.followed = lines.last().map_or(to, |line| line.seq);
        }
        Ok(())
    }

    /// INVARIANT: what was learnt up to the mark is stored before the mark is.
    async fn mark(&mut self) -> Result<(), JournalError> {
        if self.followed > self.marked {
            self.store.set_mark(MARK, self.followed).await?;
            self.marked = self.followed;
        }
        Ok(())
    }

    /// What was decided: allocations that began, noted all together, and jobs of which an attempt ended.
    async fn learnt(&mut self, events: impl Iterator<Item = &Event>) -> Result<(), JournalError> {
        let mut placed = Vec::new();
        for event in events {
            match event {
                Event::JobPlaced {
                    job,
                    allocation,
                    others,
                } => {
                    let mut all = vec![allocation.clone()];
                    all.extend(others.iter().cloned());
                    placed.push((*job, all));
                }
                Event::JobEnded { job, .. }
                | Event::JobRequeued { job, .. }
                | Event::MemberEnded { job, .. } => {
                    self.track.hurry(*job, Instant::now());
                }
                _ => {}
            }
        }
        self.note(placed).await
    }

    async fn note(&mut self, placed: Vec<(JobId, Vec<Allocation>)>) -> Result<(), JournalError> {
        let view = self.controller.view().clone();
        let mut sources = Vec::new();
        for (job, allocations) in placed {
            sources.extend(about::streams(&view, self.controller.reader(), job, &allocations).await?);
        }
        for source in self.store.add_sources(sources).await? {
            self.add(Tracked::of(&source, self.options.every));
        }
        Ok(())
    }

    fn ask(&mut self, tracked: Tracked) {
        let (engine, desk) = (self.engine.clone(), self.desk.clone());
        let chunk_bytes = self.options.chunk_bytes;
        let job_bytes_max = {
            let state = self.controller.view().read();
            let tenant = tracked.tenant.parse().ok();
            state.logs_of(tenant).job_mib << 20
        };
        self.reads.spawn(async move {
            let came = read(&*engine, &desk, &tracked, chunk_bytes, job_bytes_max).await;
            (tracked, came)
        });
    }

    async fn came(&mut self, asked: Tracked, came: Came) -> Result<(), JournalError> {
        let now = Instant::now();
        let (is_live, has_node) = {
            let state = self.controller.view().read();
            (
                state.fleet.allocation(asked.allocation).is_some(),
                state.fleet.node(asked.node).is_some(),
            )
        };
        let slow =
            Duration::from_secs_f64(self.track.len() as f64 / f64::from(self.options.questions_per_s.max(1)));
        let every = self.options.every.max(slow);
        let Some(tracked) = self.track.get_mut(asked.id) else {
            self.track.drop(asked.id, asked.node, now);
            return Ok(());
        };
        tracked.ended = match (is_live, tracked.ended) {
            (true, _) => None,
            (false, ended) => Some(ended.unwrap_or(now)),
        };
        let rarely = (tracked.wait * 2).clamp(every, every * SLOWEST);
        let given_up = tracked.ended.is_some_and(|ended| ended.elapsed() > GIVEN_UP) || !has_node;
        let wait = match came {
            Came::Kept {
                more: More::Never, ..
            }
            | Came::NotWanted => {
                self.track.drop(asked.id, asked.node, now);
                return Ok(());
            }
            Came::Behind => return self.look_again(&asked).await,
            Came::Refused if !is_live => return self.give_up(&asked).await,
            Came::Later if given_up => return self.give_up(&asked).await,
            Came::Kept { bytes, more } => {
                (tracked.next, tracked.held) = (asked.next + bytes, None);
                tracked.wait = if bytes > 0 { every } else { rarely };
                let wait = match more {
                    More::Now => Duration::ZERO,
                    _ => tracked.wait,
                };
                wait.max(self.pace.took(&asked.tenant, &asked.job.to_string(), bytes, now))
            }
            Came::Begun => {
                tracked.held.get_or_insert(now);
                tracked.wait = every;
                every
            }
            Came::Later | Came::Refused => {
                tracked.wait = rarely;
                rarely
            }
        };
        self.track.give_back(asked.id, asked.node, now + wait, now);
        Ok(())
    }

    async fn look_again(&mut self, asked: &Tracked) -> Result<(), JournalError> {
        let stream = match asked.stream {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        };
        let source = self.store.source(&asked.allocation.to_string(), stream).await?;
        let now = Instant::now();
        match (
            source.filter(|source| source.is_open),
            self.track.get_mut(asked.id),
        ) {
            (Some(source), Some(tracked)) => {
                tracked.next = source.next;
                let due = now + self.options.every;
                self.track.give_back(asked.id, asked.node, due, now);
            }
            _ => self.track.drop(asked.id, asked.node, now),
        }
        Ok(())
    }

    async fn give_up(&mut self, asked: &Tracked) -> Result<(), JournalError> {
        tracing::info!(job = %asked.job, allocation = %asked.allocation, next = asked.next, "the rest of a log cannot be had");
        self.store.close_sources(&[asked.id]).await?;
        self.track.drop(asked.id, asked.node, Instant::now());
        Ok(())
    }
}

async fn sweep_again(controller: Controller, store: LogStore, every: Duration) {
    let mut ticks = interval(every.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = super::sweep(controller.view(), &store, now()).await {
            tracing::warn!(%error, "old logs could not be erased now");
        }
    }
}
