//! Requests sent when they are due, whatever became of those before them, and what came of each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;

use super::trace::Ask;

/// What an answer ends with when it is whole.
const LAST: &[u8] = b"[DONE]\n\n";

/// How one request went.
#[derive(Debug)]
pub struct Answered {
    /// Since it was due.
    pub first_byte: Duration,
    pub whole: Duration,
    pub complaint: Option<String>,
}

pub struct Replay {
    pub answers: Vec<Answered>,
    pub took: Duration,
}

impl Replay {
    /// Replays the requests at their own pace and waits for the last answer.
    pub async fn run(url: &str, token: &str, asks: &[Ask]) -> anyhow::Result<Replay> {
        let http = reqwest::Client::builder().build()?;
        let begun = Instant::now();
        let mut under_way = Vec::with_capacity(asks.len());
        for ask in asks {
            let due = begun + ask.after;
            tokio::time::sleep_until(due.into()).await;
            let url = format!("{url}?context={}&generated={}", ask.context, ask.generated);
            let request = http.post(url).bearer_auth(token);
            under_way.push(tokio::spawn(answered(request, due)));
        }
        let mut answers = Vec::with_capacity(asks.len());
        for one in under_way {
            answers.push(one.await?);
        }
        Ok(Replay {
            answers,
            took: begun.elapsed(),
        })
    }

    pub fn lost(&self) -> usize {
        self.answers
            .iter()
            .filter(|answer| answer.complaint.is_some())
            .count()
    }

    pub fn complaints(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self
            .answers
            .iter()
            .filter_map(|answer| answer.complaint.as_ref())
            .collect();
        all.into_iter().take(10).cloned().collect()
    }

    pub fn first_byte(&self) -> Vec<Duration> {
        sorted(self.answers.iter().map(|answer| answer.first_byte))
    }

    pub fn whole(&self) -> Vec<Duration> {
        sorted(self.answers.iter().map(|answer| answer.whole))
    }
}

fn sorted(spans: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut all: Vec<Duration> = spans.collect();
    all.sort();
    all
}

async fn answered(request: reqwest::RequestBuilder, due: Instant) -> Answered {
    let mut first_byte = None;
    let complaint = read(request, due, &mut first_byte).await.err();
    let whole = due.elapsed();
    Answered {
        first_byte: first_byte.unwrap_or(whole),
        whole,
        complaint,
    }
}

async fn read(
    request: reqwest::RequestBuilder,
    due: Instant,
    first_byte: &mut Option<Duration>,
) -> Result<(), String> {
    let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
    let status = answer.status();
    let mut pieces = answer.bytes_stream();
    let mut end = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| format!("{error:?}"))?;
        first_byte.get_or_insert_with(|| due.elapsed());
        end.extend_from_slice(&piece);
        if status.is_success() {
            let past = end.len().saturating_sub(LAST.len());
            end.drain(..past);
        }
    }
    match status.is_success() {
        true if end == LAST => Ok(()),
        true => Err("the answer was cut off".to_owned()),
        false => Err(format!("{status}: {}", String::from_utf8_lossy(&end))),
    }
}
