//! What a job does and why, in a sentence, and its way there: from when to when it did what.

use tenure_api::v1::job::{JobPhase, JobView, Why};
use tenure_api::v1::time::Moment;
use tenure_domain::Time;
use tenure_domain::workload::job::Outcome;

use super::super::html::{Html, escape};
use super::super::memo::{Span, Trodden};
use super::super::show;

/// Why it waits, why it is where it is, or how it ended. Moments in it are told where the reader is.
pub(super) fn sentence(job: &JobView, why: &Why, trodden: &Trodden, currency: &str) -> Html {
    let text = match &job.outcome {
        Some(Outcome::NotStarted { why, .. }) => format!("It could not be started: {why}"),
        Some(Outcome::Failed {
            exit_code: Some(code),
            ..
        }) => format!("It ended by itself with exit code {code}."),
        Some(Outcome::Failed {
            signal: Some(signal), ..
        }) => format!("It was ended by signal {signal}."),
        Some(Outcome::Succeeded) => "It ended by itself and succeeded.".into(),
        Some(Outcome::Cancelled) => "It was stopped by somebody entitled to.".into(),
        Some(Outcome::TimedOut) => "It ran as long as it may, and was ended.".into(),
        Some(Outcome::OverLimit) => {
            "It used more than it was given, and was ended; its log says of what.".into()
        }
        Some(Outcome::GaveUp { attempts }) => {
            format!("Faults that were not its own used up its {attempts} attempts.")
        }
        Some(other) => format!("It ended: {}.", show::words(other.as_str())),
        None if why.waiting.is_some() => why.sentence.clone(),
        None => return present(job, trodden, currency),
    };
    show::name(&text)
}

/// What it does, since when, where, at what price and until when at most.
fn present(job: &JobView, trodden: &Trodden, currency: &str) -> Html {
    let mut said = format!("It is {}", show::words(job.phase.as_str()));
    let runs = job.phase == JobPhase::Running;
    // Not since its first start, where it gave way or was paused since.
    let ran: Vec<&Span> = trodden.spans.iter().filter(|span| span.what == "Ran").collect();
    let since = ran.last().map(|span| Time(span.from)).filter(|_| runs);
    if let Some(since) = since {
        said.push_str(&format!(" since {}", show::time(&Moment(since))));
    }
    if let Some(allocation) = &job.allocation {
        let node = show::name(&allocation.node_name);
        let place = match job.members.len() {
            0 | 1 => node.to_string(),
            members => format!("{members} nodes, the first of them {node}"),
        };
        let price = show::money(allocation.hourly_micros, currency);
        said.push_str(&format!(" on {place}, at {} an hour", escape(&price)));
    }
    let limit_ms = job.spec.run_time_s.saturating_mul(1000);
    let end = match (since, ran.len()) {
        (Some(since), 1) => Some(since.plus_ms(limit_ms)),
        (Some(_), _) => Some(crate::controller::now().plus_ms(limit_ms.saturating_sub(job.ran_ms))),
        (None, _) => None,
    };
    if let Some(end) = end.filter(|_| job.allocation.is_some()) {
        said.push_str(&format!(", until {} at most", show::time(&Moment(end))));
    }
    Html::made(said + ".")
}

/// Its way, by its own events: from when to when it did what, in milliseconds since 1970.
pub(super) fn spans(trodden: &Trodden) -> Vec<(&'static str, i64, i64, Html, Html)> {
    let moment = |ms: i64| show::time(&Moment(Time(ms)));
    let row = |span: &Span| (span.what, span.from, span.to, moment(span.from), moment(span.to));
    trodden.spans.iter().map(row).collect()
}

/// What is to be said of it where it is not the whole way.
pub(super) fn said(trodden: &Trodden) -> Option<String> {
    match (trodden.so_far, trodden.cut) {
        (Some(seq), _) => Some(format!(
            "As far as event {}; the newer ones are being looked through.",
            show::count(seq)
        )),
        (None, true) => Some("What it did before that is in the journal.".into()),
        (None, false) => None,
    }
}
