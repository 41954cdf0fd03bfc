//! Submitting a job: by its kind in a form, or by a file. What it needs and costs is shown while one writes, asked of the
//! API as `tenure fit` and `tenure run --plan` ask it.

use askama::Template;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tenure_api::problem::Problem;
use tenure_api::v1::booking::BookingView;
use tenure_api::v1::fit::FitView;
use tenure_api::v1::job::{JobView, Plan};
use tenure_api::v1::page::Page as List;
use tenure_api::v1::volume::VolumeView;
use tenure_domain::ledger::price::Prices;
use tenure_domain::workload::spec::{Demand, Sku};

use super::super::Console;
use super::super::fault::{Fault, Page, go, page};
use super::super::form::{Fields, Posted};
use super::super::frame::Frame;
use super::super::html::{Html, inert};
use super::super::session::Session;
use super::super::show;
use super::spec::{of_form, of_yaml};
use crate::keyring::random;

/// Kinds, with what they are for.
const KINDS: &[(&str, &str, &str)] = &[
    ("batch", "Batch", "any program"),
    ("inference", "Inference", "answers of a model"),
    ("fine_tune", "Fine-tune", "adapters or all weights"),
    ("training", "Training", "from scratch"),
    ("rendering", "Rendering", "frames of a scene"),
    ("video", "Video", "a clip in segments"),
];

const SAMPLE: &str = "name: hello\ncommand: [sh, -c, \"echo hello from $(hostname)\"]\ndemand:\n  cpu_milli: 500\n  memory_mib: 256\n";

#[derive(Template)]
#[template(path = "job/new.html")]
struct New {
    frame: Frame,
    yaml: bool,
    repeat: String,
    fields: Fields,
    kinds: &'static [(&'static str, &'static str, &'static str)],
    skus: Vec<String>,
    classes: Vec<String>,
    /// Those its windows may be used of, by id and name.
    bookings: Vec<(String, String)>,
    /// Names of volumes, as text.
    volumes: String,
    preview_html: Html,
}

impl New {
    fn v(&self, name: &str) -> &str {
        self.fields.raw(name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.fields.text(name) == value
    }

    fn file(&self) -> &str {
        self.fields.some("yaml").unwrap_or(SAMPLE)
    }
}

/// What a job would need and cost.
#[derive(Template, Default)]
#[template(path = "job/preview.html")]
struct Preview {
    problem: Option<Problem>,
    hourly: String,
    held: String,
    starts: Option<Html>,
    hint: Option<String>,
    facts: Vec<(&'static str, String)>,
    terms: Vec<(String, String)>,
    basis: String,
    notes: Vec<String>,
    classes: Vec<Fits>,
    skus: Vec<(Html, String)>,
    jobs: usize,
}

struct Fits {
    class: Html,
    slice: String,
    whole: String,
    free: String,
    why_not: Option<String>,
}

#[derive(Deserialize)]
pub(in crate::console) struct Asked {
    r#as: Option<String>,
    kind: Option<String>,
}

pub(in crate::console) async fn form(session: Session, Query(asked): Query<Asked>) -> Page {
    let kind = asked
        .kind
        .as_deref()
        .filter(|kind| KINDS.iter().any(|(of, _, _)| of == kind));
    let fields = Fields::of(&[("kind", kind.unwrap_or("batch")), ("priority", "normal")]);
    show_form(
        &session,
        asked.r#as.as_deref() == Some("yaml"),
        fields,
        Preview::default(),
    )
    .await
}

async fn show_form(session: &Session, yaml: bool, mut fields: Fields, preview: Preview) -> Page {
    let frame = Frame::of(session, "jobs").await?;
    let skus: List<Sku> = session.desk.get("/v1/skus?limit=1000").await?;
    let prices = session.desk.get::<Prices>("/v1/prices").await.ok();
    let bookings = session
        .desk
        .get::<List<BookingView>>("/v1/bookings?limit=100")
        .await;
    let volumes = session
        .desk
        .get::<List<VolumeView>>("/v1/volumes?limit=100")
        .await;
    let bytes: [u8; 16] = random();
    fields.forget("csrf");
    page(&New {
        frame,
        yaml,
        repeat: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        kinds: KINDS,
        skus: skus.items.into_iter().map(|sku| sku.name).collect(),
        classes: prices
            .map(|prices| prices.classes.keys().map(|class| class.to_string()).collect())
            .unwrap_or_default(),
        bookings: bookings
            .map_or_else(|_| Vec::new(), |found| found.items)
            .iter()
            .map(|it| {
                (
                    it.id.to_string(),
                    format!("{}, {}", inert(&it.name), inert(&it.class)),
                )
            })
            .collect(),
        volumes: volumes
            .map_or_else(|_| Vec::new(), |found| found.items)
            .iter()
            .map(|volume| inert(&volume.name))
            .collect::<Vec<_>>()
            .join(", "),
        fields,
        preview_html: Html::made(preview.render().unwrap_or_default()),
    })
}

fn specs(fields: &Fields) -> Result<Vec<Value>, Fault> {
    match fields.is_on("as_yaml") {
        true => of_yaml(fields.raw("yaml")).map(|jobs| jobs.iter().map(|job| json!(job)).collect()),
        false => of_form(fields).map(|spec| vec![spec]),
    }
}

/// What the form's job would need and cost, as a part of a page.
pub(in crate::console) async fn preview(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    page(&look(&posted.session, &posted.fields).await)
}

async fn look(session: &Session, fields: &Fields) -> Preview {
    match specs(fields) {
        Ok(specs) => look_at(session, &specs).await.unwrap_or_else(Preview::wrong),
        Err(fault) => Preview::wrong(fault.problem()),
    }
}

async fn look_at(session: &Session, specs: &[Value]) -> Result<Preview, Problem> {
    let spec = &specs[0];
    let mut preview = Preview {
        jobs: specs.len(),
        ..Preview::default()
    };
    if !spec["workload"].is_null() {
        let demand = match &spec["demand"] {
            Value::Null => json!({}),
            demand => demand.clone(),
        };
        let ask = json!({ "name": spec["name"], "workload": spec["workload"], "demand": demand });
        let fit: FitView = session
            .desk
            .post("/v1/fit", &ask)
            .await
            .map_err(|problem| *problem)?;
        preview.fits(&fit);
    }
    let mut asked = spec.clone();
    // A price can be told before there is a program.
    if asked["command"].as_array().is_none_or(Vec::is_empty) && asked["image"].is_null() {
        asked["command"] = json!(["true"]);
    }
    // What it needs is worth knowing even where it would be refused.
    match session
        .desk
        .post::<_, Plan>("/v1/jobs/plan", &json!({ "spec": asked }))
        .await
    {
        Ok(plan) => preview.planned(&plan),
        Err(problem) => preview.problem = Some(*problem),
    }
    Ok(preview)
}

impl Preview {
    fn wrong(problem: Problem) -> Preview {
        Preview {
            problem: Some(problem),
            ..Preview::default()
        }
    }

    fn planned(&mut self, plan: &Plan) {
        self.hourly = show::money(plan.hourly_micros, &plan.currency);
        self.held = show::money(plan.hold_micros, &plan.currency);
        self.starts = Some(match (&plan.waiting, &plan.node_name) {
            (Some(waiting), _) => show::name(&format!("It would wait: {}", waiting.sentence)),
            (None, Some(node)) => show::name(&format!("It would start now on {node}")),
            (None, None) => show::name("It would be taken"),
        });
        self.hint = plan
            .waiting
            .as_ref()
            .and_then(|waiting| waiting.hint.as_deref().map(inert));
        if let Some(filled) = &plan.filled {
            self.facts.extend(asks(&filled.demand));
            self.facts.push(("At most", show::span(filled.run_time_s * 1000)));
        }
        self.facts.extend(
            plan.isolation
                .map(|isolation| ("Isolation", isolation.as_str().to_owned())),
        );
        if let Some(tasks) = &plan.tasks {
            let each = match tasks.per_task {
                1 => "one a task".into(),
                several => format!("{} a task", show::count(several)),
            };
            self.facts.push((
                "Tasks",
                format!(
                    "{} {}s, {each}, {} at once",
                    show::count(tasks.total),
                    tasks.piece,
                    tasks.parallel
                ),
            ));
            self.facts.extend(
                tasks
                    .expected_micros
                    .map(|micros| ("All of it", show::money(micros, &plan.currency))),
            );
        }
    }

    fn fits(&mut self, view: &FitView) {
        let fit = &view.fit;
        let estimate = &fit.derivation.estimate;
        self.basis = format!("{}, by {}", inert(&estimate.title), fit.derivation.basis.words());
        self.terms = estimate
            .terms
            .iter()
            .map(|term| (term.name.as_str().to_owned(), show::mib(term.bytes >> 20)))
            .collect();
        self.notes = estimate
            .notes
            .iter()
            .chain(&fit.instead)
            .chain(&fit.derivation.differs)
            .map(|note| inert(note))
            .collect();
        let price = |micros: i64| show::money(micros, &view.currency);
        self.classes = fit
            .classes
            .iter()
            .map(|class| Fits {
                class: show::name(&class.class),
                slice: class.slice.map_or("–".into(), |slice| {
                    format!(
                        "{} · {}",
                        show::permille(slice.compute_permille.into()),
                        price(slice.hourly_micros)
                    )
                }),
                whole: class.whole.map_or("–".into(), |whole| price(whole.hourly_micros)),
                free: format!(
                    "{} of {}",
                    show::count(class.free.into()),
                    show::count(class.gpus.into())
                ),
                why_not: class.why_not.as_deref().map(inert),
            })
            .collect();
        self.skus = fit
            .skus
            .iter()
            .map(|sku| (show::name(&sku.name), price(sku.hourly_micros)))
            .collect();
    }
}

fn asks(demand: &Demand) -> Vec<(&'static str, String)> {
    let mut asks = Vec::new();
    if demand.nodes > 1 {
        asks.push(("Members", demand.nodes.to_string()));
    }
    if demand.gpus > 0 {
        let vram = if demand.vram_mib == 0 {
            String::new()
        } else {
            format!(" with {}", show::mib(demand.vram_mib))
        };
        asks.push((
            "GPUs",
            format!(
                "{} × {}{vram}",
                demand.gpus,
                show::permille(demand.compute_permille.into())
            ),
        ));
    }
    asks.push((
        "CPU and memory",
        format!(
            "{} cores, {}",
            show::milli(demand.cpu_milli.into()),
            show::mib(demand.memory_mib)
        ),
    ));
    asks
}

pub(in crate::console) async fn submit(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let yaml = fields.is_on("as_yaml");
    if fields.is_on("price") {
        let preview = look(&session, &fields).await;
        return show_form(&session, yaml, fields, preview).await;
    }
    match send(&session, &fields).await {
        Ok(jobs) => Ok(go(&match jobs.as_slice() {
            [job] => format!("/console/jobs/{}", job.id),
            _ => "/console/jobs".into(),
        })),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => show_form(&session, yaml, fields, Preview::wrong(*problem)).await,
    }
}

async fn send(session: &Session, fields: &Fields) -> Result<Vec<JobView>, Fault> {
    let repeat = fields.text("repeat");
    let mut jobs = Vec::new();
    for (number, spec) in specs(fields)?.into_iter().enumerate() {
        let once = format!("console-{repeat}-{number}");
        jobs.push(
            session
                .desk
                .create("/v1/jobs", &json!({ "spec": spec }), &once)
                .await?,
        );
    }
    Ok(jobs)
}
