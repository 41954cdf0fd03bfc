//! What if somebody submitted a job: asked of the API as `tenure run --plan` asks it, for a user of the place, so that
//! quotas, policies, rules and the fleet all have their say. Nothing is submitted.

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_api::problem::Problem;
use tenure_api::v1::job::Plan;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::super::html::{Html, escape, inert};
use super::super::session::Session;
use super::super::show;
use super::super::words;

/// Users one may ask for, of a place.
const USERS: usize = 200;

/// A job nobody submitted, as the tester's form says it.
#[derive(Deserialize, Default)]
pub(in crate::console) struct WhatIf {
    /// Whose it would be, where the place is not a user's.
    pub user: Option<String>,
    pub kind: Option<String>,
    pub gpus: Option<String>,
    pub vram: Option<String>,
    pub share: Option<String>,
    pub class: Option<String>,
    pub region: Option<String>,
    pub memory: Option<String>,
    pub hours: Option<String>,
    pub priority: Option<String>,
    pub isolation: Option<String>,
}

impl WhatIf {
    pub fn is(&self, of: &Option<String>, value: &str) -> bool {
        of.as_deref() == Some(value)
    }

    pub fn text<'a>(&self, of: &'a Option<String>) -> &'a str {
        of.as_deref().unwrap_or_default()
    }

    /// The job, in the API's words; or which field is no number.
    fn spec(&self) -> Result<Value, (&'static str, &'static str)> {
        let mut spec = json!({
            "name": "what-if",
            "kind": self.kind,
            "command": ["true"],
            "priority": some(&self.priority).unwrap_or("normal"),
            "run_time_s": scaled("Hours at most", &self.hours, 3600.0)?.unwrap_or(3600),
            "demand": { "gpus": scaled("GPUs", &self.gpus, 1.0)?.unwrap_or(0) },
        });
        let amounts = [
            ("vram_mib", scaled("GPU memory of each", &self.vram, 1024.0)?),
            ("compute_permille", scaled("Share of each", &self.share, 10.0)?),
            ("memory_mib", scaled("Memory", &self.memory, 1024.0)?),
        ];
        for (name, amount) in amounts {
            if let Some(amount) = amount {
                spec["demand"][name] = json!(amount);
            }
        }
        for (name, text) in [
            ("class", &self.class),
            ("region", &self.region),
            ("isolation", &self.isolation),
        ] {
            if let Some(text) = some(text) {
                spec["demand"][name] = json!(text);
            }
        }
        Ok(spec)
    }
}

fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

fn scaled(
    field: &'static str,
    text: &Option<String>,
    scale: f64,
) -> Result<Option<u64>, (&'static str, &'static str)> {
    let Some(text) = some(text) else { return Ok(None) };
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && (0.0..1e9).contains(number));
    let number = number.ok_or((field, "this is not a number such as 2 or 0.5"))?;
    Ok(Some((number * scale).round() as u64))
}

/// Users at a place and below, for whom the reader may ask: ids and names.
pub(super) fn users(session: &Session, place: ScopeId) -> Vec<(String, String)> {
    let state = session.console.shared.app.controller.view().read();
    let below = state.tree.subtree(place).into_iter();
    let users = below.filter(|scope| matches!(scope, ScopeId::User(_)));
    let asked = users.filter(|scope| session.caller.may(&state, Action::JobSubmit, *scope).is_ok());
    let named = asked.map(|scope| (scope.to_string(), inert(&state.tree.title(scope))));
    named.take(USERS).collect()
}

/// Whether the job would be taken, and if not, by what.
pub(super) async fn answer(session: &Session, owner: &str, asked: &WhatIf) -> (bool, Html) {
    let spec = match asked.spec() {
        Ok(spec) => spec,
        Err((field, why)) => return (false, Html::made(format!("{}: {}", escape(field), escape(why)))),
    };
    let plan = session
        .desk
        .post::<_, Plan>("/v1/jobs/plan", &json!({ "owner": owner, "spec": spec }))
        .await;
    match plan {
        Ok(plan) => (true, Html::made(planned(&plan))),
        Err(problem) => (false, Html::made(refused(&problem))),
    }
}

fn planned(plan: &Plan) -> String {
    match &plan.waiting {
        Some(waiting) => {
            let hint = waiting
                .hint
                .as_deref()
                .map(|hint| format!("<br>{}", words::hint(hint)));
            let sentence = escape(&waiting.sentence);
            format!(
                "It would be taken, and wait: {sentence}{}",
                hint.unwrap_or_default()
            )
        }
        None => {
            let price = show::money(plan.hourly_micros, &plan.currency);
            let place = plan
                .node_name
                .as_deref()
                .map(|node| format!(" on {}", show::name(node)));
            let walls = plan.isolation.map(|level| format!(", {}", level.as_str()));
            format!(
                "It would be taken and start{}{}, at {} an hour",
                place.unwrap_or_default(),
                walls.unwrap_or_default(),
                escape(&price)
            )
        }
    }
}

fn refused(problem: &Problem) -> String {
    let hint = problem
        .hint
        .as_deref()
        .map(|hint| format!("<br>{}", words::hint(hint)));
    format!(
        "It would be refused: {} <code>{}</code>{}",
        escape(&problem.detail),
        escape(&problem.code),
        hint.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_said_in_the_words_of_the_api() {
        let said = |text: &str| Some(text.to_owned());
        let asked = WhatIf {
            kind: said("batch"),
            gpus: said("2"),
            vram: said("1.5"),
            region: said(" north "),
            memory: said("4"),
            isolation: said("fenced"),
            hours: said(""),
            ..WhatIf::default()
        };
        let spec = asked.spec().unwrap();
        assert_eq!(
            spec["demand"],
            json!({ "gpus": 2, "vram_mib": 1536, "memory_mib": 4096, "region": "north", "isolation": "fenced" })
        );
        assert_eq!(
            (&spec["run_time_s"], &spec["priority"]),
            (&json!(3600), &json!("normal"))
        );
        let wrong = WhatIf {
            gpus: said("many"),
            ..WhatIf::default()
        };
        assert_eq!(wrong.spec().unwrap_err().0, "GPUs");
    }
}
