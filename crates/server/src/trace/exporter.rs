//! Going along: from what is published to spans in the queue, and where that began.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::id::JobId;
use tenure_domain::schedule::why::why;
use tenure_domain::workload::job::DoneJob;
use tenure_domain::{Event, Time};
use tenure_journal::{JournalError, JournalHandle};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::life::{self, After, Lives};
use super::queue::{Item, Queue};
use super::sender::Sender;
use super::span::Span;
use super::{Observed, Traces};
use crate::controller::{self, Controller, now};
use crate::view::Published;

/// Events told of again after a crash, at most.
const MAX_AGAIN: u64 = 20_000;
const PAGE: usize = 1000;
/// How often it is written down how far spans were taken, and asked what jobs wait for.
const TICK: Duration = Duration::from_secs(1);
/// Jobs asked in one tick: each is looked for a place.
const ASKED_AT_ONCE: usize = 4;
/// The mark's id among those beside the journal.
const MARK: &str = "traces";

/// Goes along with the journal while this server leads.
pub struct Exporter {
    traces: Arc<Traces>,
    controller: Controller,
    lives: Lives,
    queue: Arc<Queue>,
    news: broadcast::Receiver<Arc<[Published]>>,
    heard: mpsc::Receiver<Observed>,
    /// The last event that was looked at.
    seen: u64,
    /// What was last written down.
    marked: u64,
}

impl Exporter {
    /// Takes in what lives, and tells again what may not have been taken; to be called before anything new is decided.
    /// None where nothing is to be told, or it is told already.
    pub async fn begin(controller: &Controller) -> Result<Option<Exporter>, JournalError> {
        let Some(traces) = controller.traces().cloned() else {
            return Ok(None);
        };
        let heard = traces.heard.lock().expect("short and without panics").take();
        let Some(heard) = heard else { return Ok(None) };
        let news = controller.view().listen();
        let head = controller.view().seq();
        let mark = controller.reader().mark(MARK).await?;
        let mark = mark.and_then(|mark| mark.parse().ok()).unwrap_or(head);
        let mut exporter = Exporter {
            lives: Lives::new(traces.ids.clone(), traces.options.look),
            queue: Arc::new(Queue::new(traces.options.max_bytes)),
            traces,
            controller: controller.clone(),
            news,
            heard,
            seen: mark.clamp(head.saturating_sub(MAX_AGAIN), head),
            marked: mark,
        };
        exporter.tell_again(head).await?;
        exporter.queue.seen(head);
        let state = controller.view().read();
        for job in state.jobs.values() {
            if !exporter.lives.knows(job.id) {
                exporter.lives.adopt(&state, job);
            }
        }
        drop(state);
        Ok(Some(exporter))
    }

    /// What happened since spans were last taken, of jobs that lived before as far as that can be told.
    async fn tell_again(&mut self, head: u64) -> Result<(), JournalError> {
        let events = self.read(head).await?;
        let mut lost: HashMap<JobId, u32> = HashMap::new();
        let mut from_before = Vec::new();
        for (_, _, event) in &events {
            match event {
                Event::JobSubmitted { job, .. } | Event::TaskSubmitted { job, .. } => {
                    lost.entry(*job).or_default();
                }
                event => {
                    let Some(job) = life::subject(event) else { continue };
                    if !lost.contains_key(&job) {
                        from_before.push(job);
                    }
                    *lost.entry(job).or_default() += u32::from(matches!(event, Event::JobRequeued { .. }));
                }
            }
        }
        for id in from_before {
            let lost = lost.get(&id).copied().unwrap_or(0);
            let is_live = {
                let state = self.controller.view().read();
                let job = state.jobs.get(&id);
                job.map(|job| self.lives.adopt_from_after(&state, After::Live(job), lost))
                    .is_some()
            };
            if !is_live && let Some(job) = self.ended(id).await? {
                let state = self.controller.view().read();
                self.lives.adopt_from_after(&state, After::Done(&job), lost);
            }
        }
        for (seq, at, event) in events {
            self.take(seq, at, &event);
        }
        Ok(())
    }

    async fn ended(&self, job: JobId) -> Result<Option<DoneJob>, JournalError> {
        for kind in ["job", "task"] {
            if let Some(row) = self
                .controller
                .reader()
                .history_get(kind, &job.to_string())
                .await?
            {
                return Ok(serde_json::from_str(&row.body).ok());
            }
        }
        Ok(None)
    }

    /// Events after the last one seen, up to one. What this program does not understand is of no job it tells of.
    async fn read(&self, head: u64) -> Result<Vec<(u64, Time, Event)>, JournalError> {
        let mut events = Vec::new();
        let mut next = self.seen + 1;
        while next <= head {
            let lines = self.controller.reader().read(next, PAGE).await?;
            let Some(last) = lines.last() else { break };
            next = last.seq + 1;
            let known = lines.iter().take_while(|line| line.seq <= head);
            events.extend(known.filter_map(|line| {
                let event = controller::event(line).ok()?;
                Some((line.seq, Time(line.at_ms), event))
            }));
        }
        Ok(events)
    }

    fn take(&mut self, seq: u64, at: Time, event: &Event) {
        let mut told = Vec::new();
        {
            let state = self.controller.view().read();
            self.lives.take(&state, at, event, &mut told);
        }
        for span in told {
            self.put(&span, Some(seq));
        }
        self.seen = seq;
    }

    fn put(&self, span: &Span, seq: Option<u64>) {
        let json = span.json().into();
        let dropped = self.queue.push(Item { json, seq });
        self.controller.metrics().traces.dropped(dropped);
    }

    fn took(&mut self, batch: &[Published]) {
        for published in batch {
            if published.seq > self.seen {
                self.take(published.seq, published.at, &published.event);
            }
        }
        self.queue.seen(self.seen);
    }

    /// Some batches were missed; they are in the journal.
    async fn catch_up(&mut self) {
        let head = self.controller.view().seq();
        match self.read(head).await {
            Ok(events) => events
                .iter()
                .for_each(|(seq, at, event)| self.take(*seq, *at, event)),
            Err(error) => tracing::warn!(%error, "some jobs are not told of in traces"),
        }
        self.seen = self.seen.max(head);
        self.queue.seen(self.seen);
    }

    /// Everything published so far.
    async fn drain(&mut self) {
        loop {
            match self.news.try_recv() {
                Ok(batch) => self.took(&batch),
                Err(TryRecvError::Lagged(_)) => self.catch_up().await,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn hear(&mut self, observed: Observed) {
        match observed {
            Observed::Span(span) => self.put(&span, None),
            Observed::Asked { job, began_ns } => self.lives.asked(job, began_ns),
        }
    }

    /// Until told to stop, after the last event; then what is left goes out, as far as there is patience.
    pub async fn run(mut self, journal: JournalHandle, stop: CancellationToken) {
        let ending = CancellationToken::new();
        let sender = Sender::new(
            self.queue.clone(),
            &self.traces.options,
            self.controller.metrics().clone(),
        );
        // Ends with this, however that ends.
        let mut sending = JoinSet::new();
        sending.spawn(sender.run(ending.clone()));
        let mut tick =
            tokio::time::interval(TICK.min(self.traces.options.look.max(Duration::from_millis(10))));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                batch = self.news.recv() => match batch {
                    Ok(batch) => self.took(&batch),
                    Err(RecvError::Lagged(_)) => self.catch_up().await,
                    Err(RecvError::Closed) => break,
                },
                observed = self.heard.recv() => if let Some(observed) = observed {
                    // What was seen of a job was seen after it was published.
                    self.drain().await;
                    self.hear(observed);
                },
                _ = tick.tick() => {
                    self.ask();
                    self.keep_mark(&journal).await;
                }
            }
        }
        self.drain().await;
        while let Ok(observed) = self.heard.try_recv() {
            self.hear(observed);
        }
        ending.cancel();
        let _ = sending.join_next().await;
        self.keep_mark(&journal).await;
        // Who leads again tells on.
        *self.traces.heard.lock().expect("short and without panics") = Some(self.heard);
    }

    /// Asks some of those that wait what for.
    fn ask(&mut self) {
        let at = Instant::now();
        for _ in 0..ASKED_AT_ONCE {
            let Some(job) = self.lives.next_to_ask(at) else {
                return;
            };
            let now = now();
            let reason = why(&self.controller.view().read(), job, now);
            if let Some(reason) = reason {
                self.lives.waits_for(job, now, &reason);
            }
        }
    }

    async fn keep_mark(&mut self, journal: &JournalHandle) {
        let mark = self.queue.mark();
        if mark == self.marked {
            return;
        }
        let row = (MARK.to_owned(), mark.to_string());
        match journal.keep_marks(&[row], &[]).await {
            Ok(()) => self.marked = mark,
            Err(error) => tracing::debug!(%error, "how far traces have come was not written down yet"),
        }
    }
}
