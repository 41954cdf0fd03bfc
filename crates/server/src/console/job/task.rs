//! The tasks of a job: how far they are, when all is likely to be done, and a page of them.

use tenure_api::v1::job::JobView;
use tenure_api::v1::page::Page as List;

use super::super::desk::piece;
use super::super::html::{Html, inert};
use super::super::session::Session;
use super::super::show;
use super::state;

/// Tasks on a page.
const TASKS: u32 = 50;

pub(super) struct Task {
    pub id: String,
    pub pieces: Html,
    pub state: Html,
    pub ran: String,
    pub cost: String,
}

pub(super) struct Tasks {
    pub bar: Html,
    pub figure: String,
    pub eta: Option<Html>,
    pub rest: String,
    pub list: Vec<Task>,
    pub next: Option<String>,
    /// Not the first page.
    pub later: bool,
}

impl Tasks {
    pub async fn of(session: &Session, job: &JobView, path: &str, cursor: Option<&str>) -> Option<Tasks> {
        let currency = &session.currency();
        let view = job.tasks.as_ref()?;
        let from = cursor.map(|cursor| format!("&cursor={}", piece(cursor)));
        let asked = format!("{path}/tasks?limit={TASKS}{}", from.unwrap_or_default());
        let found = session.desk.get::<List<JobView>>(&asked).await;
        let (list, next) = found.map_or((Vec::new(), None), |found| (found.items, found.next));
        let mut rest = vec![format!(
            "{} running, {} waiting",
            show::count(view.running),
            show::count(view.waiting)
        )];
        if view.failed > 0 {
            let which = view.failed_pieces.as_deref().map(inert).unwrap_or_default();
            rest.push(format!("{} failed ({which})", show::count(view.failed)));
        }
        rest.extend(view.each_ms.map(|ms| format!("{} each", show::span(ms))));
        rest.extend(
            view.each_micros
                .map(|micros| format!("{} each", show::money(micros, currency))),
        );
        rest.push(format!(
            "{} tasks so far, {} at once",
            show::count(view.made.into()),
            view.parallel
        ));
        Some(Tasks {
            eta: view.eta.map(|eta| {
                Html::made(format!(
                    "Likely done {}, {}",
                    show::time(&eta.at),
                    eta.basis.words()
                ))
            }),
            next: next.as_deref().map(piece),
            later: cursor.is_some(),
            bar: show::bar(view.done, view.total),
            figure: format!(
                "{} of {} {}s done",
                show::count(view.done),
                show::count(view.total),
                view.piece
            ),
            rest: rest.join(" · "),
            list: list
                .iter()
                .map(|task| Task {
                    id: task.id.to_string(),
                    pieces: task
                        .task
                        .as_ref()
                        .map_or_else(show::none, |part| show::name(&part.pieces)),
                    state: state(task),
                    ran: show::span(task.ran_ms),
                    cost: show::money(task.charged_micros, currency),
                })
                .collect(),
        })
    }
}
