//! Offering capacity of one's own: once, or whenever it is idle; when it stands, to whom, and behind which walls.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Map, Value, json};
use tenure_api::v1::scope::ScopeView;
use tenure_domain::booking::zone::{Wall, Zone};

use super::super::Console;
use super::super::desk::piece;
use super::super::fault::{Fault, Page, go};
use super::super::form::{Fields, Posted, wrong};
use super::super::session::Session;
use super::{milli, own_nodes, show_exchange};

pub(in crate::console) async fn sell(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let class = fields.text("class").to_owned();
    match sold(&session, &fields).await {
        Ok(()) => Ok(go(&format!("/console/exchange?class={}", piece(&class)))),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => show_exchange(&session, Some(&class), fields, Some(*problem)).await,
    }
}

async fn sold(session: &Session, fields: &Fields) -> Result<(), Fault> {
    let seller = session.tenant().ok_or_else(Fault::not_found)?;
    let mut ask = terms(fields)?;
    if let Some(buyers) = buyers(session, fields).await? {
        ask.insert("buyers".into(), json!(buyers));
    }
    let class = fields.text("class");
    if fields.is_on("auto") {
        let path = format!("/v1/market/auto-offers/{seller}/{}", piece(class));
        standing(fields, &mut ask)?;
        let _: Value = session.desk.put(&path, &ask).await?;
        return Ok(());
    }
    let node = match fields.some("source").filter(|source| *source != "quota") {
        Some(node) => {
            let all = own_nodes(session, seller, class);
            let found = all.into_iter().find(|(id, _, _)| id == node);
            let found =
                found.ok_or_else(|| wrong("source", "this is no node of your own with this class"))?;
            Some((found.0, found.2))
        }
        None => None,
    };
    once(fields, &mut ask, node)?;
    let _: Value = session.desk.post("/v1/market/offers", &ask).await?;
    Ok(())
}

/// What both sorts of offers say.
fn terms(fields: &Fields) -> Result<Map<String, Value>, Fault> {
    let mut ask = Map::new();
    ask.insert("min_lease_s".into(), json!(milli(fields, "least", 3600)?));
    ask.insert("max_lease_s".into(), json!(milli(fields, "most", 3600)?));
    let notice: u64 = fields.number("notice")?.unwrap_or(10);
    ask.insert("notice_s".into(), json!(notice.saturating_mul(60)));
    if let Some(isolation) = fields.some("isolation") {
        ask.insert("isolation".into(), json!(isolation));
    }
    Ok(ask)
}

/// A standing order.
fn standing(fields: &Fields, ask: &mut Map<String, Value>) -> Result<(), Fault> {
    let said_once = |name: &'static str, what: &str| match fields.is_on(name) {
        true => Err(wrong(
            name,
            format!("{what} is of an offer made once; a standing order has none"),
        )),
        false => Ok(()),
    };
    said_once("region", "a region")?;
    if fields.some("when").is_some_and(|when| when != "always") {
        return Err(wrong(
            "when",
            "a standing order stands whenever the forecast says idle",
        ));
    }
    ask.insert("floor_micros".into(), json!(milli(fields, "price", 1_000_000)?));
    if fields.is_on("reserve") {
        ask.insert("reserve_milli".into(), json!(milli(fields, "reserve", 1000)?));
    }
    Ok(())
}

/// An offer made once: of idle quota, or of a node with all it has.
fn once(fields: &Fields, ask: &mut Map<String, Value>, node: Option<(String, u64)>) -> Result<(), Fault> {
    if fields.is_on("reserve") {
        return Err(wrong(
            "reserve",
            "only a standing order keeps some back; offer fewer GPUs instead",
        ));
    }
    ask.insert("class".into(), json!(fields.text("class")));
    ask.insert("price_micros".into(), json!(milli(fields, "price", 1_000_000)?));
    let gpu_milli = match node {
        Some((node, all)) => {
            ask.insert("source".into(), json!({ "from": "nodes", "nodes": [node] }));
            all
        }
        None => milli(fields, "gpus", 1000)?,
    };
    ask.insert("gpu_milli".into(), json!(gpu_milli));
    if let Some(region) = fields.some("region") {
        ask.insert("region".into(), json!(region));
    }
    ask.insert("windows".into(), windows(fields)?);
    Ok(())
}

/// When it stands: always, once from one moment to another, or every day between two times of it.
fn windows(fields: &Fields) -> Result<Value, Fault> {
    let zone = fields.some("zone").unwrap_or("UTC");
    match fields.some("when").unwrap_or("always") {
        "always" => Ok(json!({ "when": "always" })),
        "once" => {
            let known = Zone::bundled(zone).map_err(|_| {
                wrong(
                    "zone",
                    "there is no such zone; they are named as Europe/Berlin is",
                )
            })?;
            let moment = |name: &'static str| {
                let text = fields.some(name).ok_or_else(|| wrong(name, "a time is wanted"))?;
                let wall = Wall::parse(text).map_err(|why| wrong(name, why))?;
                let moment = known.moment(wall.0);
                let moment = moment.ok_or_else(|| wrong(name, "the clocks there never show this time"))?;
                Ok::<_, Fault>(moment.rfc3339())
            };
            Ok(json!({ "when": "once", "start": moment("from")?, "end": moment("until")? }))
        }
        "daily" => {
            let minute = |name: &'static str| {
                let text = fields
                    .some(name)
                    .ok_or_else(|| wrong(name, "a time of day is wanted"))?;
                minute_of(text).ok_or_else(|| wrong(name, "a time of day is written 09:00"))
            };
            let (from, until) = (minute("daily_from")?, minute("daily_until")?);
            Ok(json!({ "when": "daily", "from_minute": from, "until_minute": until, "zone": zone }))
        }
        _ => Err(wrong("when", "not one of always, once, daily")),
    }
}

/// `09:30` as a minute of the day.
fn minute_of(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// The only tenants it is for, by their ids or by names the reader may look up; none where it is for anybody.
async fn buyers(session: &Session, fields: &Fields) -> Result<Option<Vec<String>>, Fault> {
    let mut buyers = Vec::new();
    for text in fields.text("buyers").split(',').map(str::trim) {
        if text.is_empty() {
            continue;
        }
        if text.starts_with("ten_") {
            buyers.push(text.to_owned());
            continue;
        }
        let path = format!("/v1/scopes?path={}", piece(text));
        let found = session.desk.get::<ScopeView>(&path).await;
        let found =
            found.map_err(|_| wrong("buyers", "a tenant is named by its id, which it can tell you"))?;
        buyers.push(found.id.to_string());
    }
    Ok((!buyers.is_empty()).then_some(buyers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&'static str, &'static str)]) -> Fields {
        let mut all = vec![
            ("class", "H100"),
            ("price", "1.5"),
            ("least", "1"),
            ("most", "24"),
        ];
        if !pairs.iter().any(|(name, _)| *name == "gpus") {
            all.push(("gpus", "2"));
        }
        all.extend(pairs);
        Fields::of(&all)
    }

    fn offer(pairs: &[(&'static str, &'static str)]) -> Result<Value, Fault> {
        let fields = form(pairs);
        let mut ask = terms(&fields)?;
        once(&fields, &mut ask, None)?;
        Ok(ask.into())
    }

    #[test]
    fn an_offer_stands_when_its_form_says() {
        let always = offer(&[("isolation", "exclusive")]).unwrap();
        assert_eq!(
            always,
            json!({
                "class": "H100", "gpu_milli": 2000, "price_micros": 1_500_000, "min_lease_s": 3600,
                "max_lease_s": 86_400, "notice_s": 600, "isolation": "exclusive", "windows": { "when": "always" },
            })
        );
        let times = [
            ("when", "once"),
            ("from", "2026-12-24T18:00"),
            ("until", "2026-12-27T06:30"),
            ("zone", "Europe/Berlin"),
        ];
        let once = offer(&times).unwrap();
        assert_eq!(
            once["windows"],
            json!({ "when": "once", "start": "2026-12-24T17:00:00Z", "end": "2026-12-27T05:30:00Z" })
        );
        let nightly = [
            ("when", "daily"),
            ("daily_from", "20:00"),
            ("daily_until", "06:30"),
            ("zone", "Europe/Berlin"),
        ];
        let nightly = offer(&nightly).unwrap();
        assert_eq!(
            nightly["windows"],
            json!({ "when": "daily", "from_minute": 1200, "until_minute": 390, "zone": "Europe/Berlin" })
        );
    }

    #[test]
    fn what_an_offer_cannot_be_is_said() {
        for bad in [
            &[("when", "once")][..],
            &[("when", "once"), ("from", "x"), ("until", "2026-12-27T06:30")],
            &[
                ("when", "daily"),
                ("daily_from", "24:00"),
                ("daily_until", "06:30"),
            ],
            &[("when", "sometimes")],
            &[
                ("when", "once"),
                ("from", "2026-03-29T02:30"),
                ("until", "2026-03-30T02:30"),
                ("zone", "Europe/Berlin"),
            ],
            &[("reserve", "1")],
        ] {
            assert!(offer(bad).is_err(), "{bad:?}");
        }
        let fields = form(&[("auto", "1"), ("reserve", "0.5"), ("when", "always")]);
        let mut ask = terms(&fields).unwrap();
        standing(&fields, &mut ask).unwrap();
        assert_eq!(
            (&ask["floor_micros"], &ask["reserve_milli"]),
            (&json!(1_500_000), &json!(500))
        );
        for bad in [("region", "north"), ("when", "daily")] {
            let fields = form(&[bad]);
            assert!(standing(&fields, &mut Map::new()).is_err(), "{bad:?}");
        }
    }
}
