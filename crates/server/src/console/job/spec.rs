//! From a form to the job it describes, in the API's own words. What was not filled in is not said, so that the server
//! derives it. What is wrong with it is for the API to say, but for what is no number at all.

use serde_json::{Map, Value, json};
use tenure_domain::workload::spec::JobSpec;

use super::super::fault::Fault;
use super::super::form::{Fields, wrong};

/// The job that a form describes.
pub(super) fn of_form(fields: &Fields) -> Result<Value, Fault> {
    let kind = fields.some("kind").unwrap_or("batch");
    let mut spec = Map::new();
    spec.insert("name".into(), json!(fields.some("name").unwrap_or(kind)));
    spec.insert("kind".into(), json!(kind));
    put(&mut spec, "priority", fields.some("priority"));
    put(&mut spec, "image", fields.some("image"));
    put(&mut spec, "sku", fields.some("sku"));
    if let Some(script) = fields.some("command") {
        let script = script.replace("\r\n", "\n");
        spec.insert("command".into(), json!(["sh", "-c", script]));
    }
    let minutes: Option<u64> = fields.number("minutes")?;
    put(
        &mut spec,
        "run_time_s",
        minutes.map(|minutes| minutes.saturating_mul(60)),
    );
    if fields.is_on("restartable") {
        spec.insert("restartable".into(), json!(true));
    }
    put(&mut spec, "booking", fields.some("booking"));
    put(&mut spec, "labels", labels(fields)?);
    put(&mut spec, "volumes", volumes(fields)?);
    put(&mut spec, "service", service(fields, kind)?);
    let demand = demand(fields)?;
    if !demand.is_empty() {
        spec.insert("demand".into(), demand.into());
    }
    if let Some(workload) = workload(fields, kind)? {
        spec.insert("workload".into(), workload);
    }
    let cut = cut(fields, kind)?;
    if !cut.is_empty() {
        spec.insert("tasks".into(), cut.into());
    }
    Ok(spec.into())
}

fn put<T: serde::Serialize>(map: &mut Map<String, Value>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(name.into(), json!(value));
    }
}

fn demand(fields: &Fields) -> Result<Map<String, Value>, Fault> {
    let mut demand = Map::new();
    put(&mut demand, "gpus", fields.number::<u32>("gpus")?);
    put(&mut demand, "nodes", fields.number::<u32>("nodes")?);
    put(&mut demand, "compute_permille", thousandths(fields, "share", 10)?);
    put(&mut demand, "vram_mib", mib(fields, "vram")?);
    put(&mut demand, "class", fields.some("class"));
    put(&mut demand, "region", fields.some("region"));
    put(&mut demand, "cpu_milli", thousandths(fields, "cpu", 1000)?);
    put(&mut demand, "memory_mib", mib(fields, "memory")?);
    put(&mut demand, "isolation", fields.some("isolation"));
    Ok(demand)
}

fn workload(fields: &Fields, kind: &str) -> Result<Option<Value>, Fault> {
    let mut it = Map::new();
    match kind {
        "inference" => {
            put(&mut it, "model", fields.some("model"));
            put(&mut it, "dtype", fields.some("dtype"));
            put(&mut it, "context", fields.number::<u32>("context")?);
            put(&mut it, "sequences", fields.number::<u32>("sequences")?);
            put(&mut it, "split", split(fields)?);
        }
        "fine_tune" | "training" => {
            put(&mut it, "model", fields.some("train_model"));
            put(
                &mut it,
                "method",
                fields.some("method").filter(|_| kind == "fine_tune"),
            );
            put(&mut it, "precision", fields.some("precision"));
            put(&mut it, "optimizer", fields.some("optimizer"));
            put(&mut it, "sequence", fields.number::<u32>("sequence")?);
            put(&mut it, "batch", fields.number::<u32>("batch")?);
            let has_adapters = kind == "fine_tune" && fields.some("method") != Some("full");
            put(
                &mut it,
                "rank",
                fields.number::<u32>("rank")?.filter(|_| has_adapters),
            );
            put(&mut it, "split", split(fields)?);
        }
        "rendering" => {
            put(&mut it, "frames", fields.some("frames"));
            put(&mut it, "each_ms", thousandths(fields, "each", 1000)?);
            put(&mut it, "vram_mib", mib(fields, "frame_vram")?);
        }
        "video" => {
            let minutes: Option<u64> = fields.number("clip")?;
            let mut segments = Map::new();
            put(
                &mut segments,
                "duration_s",
                minutes.map(|minutes| minutes.saturating_mul(60)),
            );
            put(&mut segments, "segment_s", fields.number::<u64>("segment")?);
            if !segments.is_empty() {
                it.insert("segments".into(), segments.into());
            }
            put(&mut it, "each_ms", thousandths(fields, "each_segment", 1000)?);
            put(&mut it, "vram_mib", mib(fields, "segment_vram")?);
        }
        _ => {}
    }
    // A kind alone, with nothing said of it, is a job like any other of that kind.
    Ok((!it.is_empty()).then(|| json!({ kind: it })))
}

/// How a model is split over GPUs; none where nothing is said of it.
fn split(fields: &Fields) -> Result<Option<Value>, Fault> {
    let mut split = Map::new();
    for way in ["data", "tensor", "pipeline"] {
        put(&mut split, way, fields.number::<u32>(way)?);
    }
    Ok((!split.is_empty()).then(|| split.into()))
}

/// What a service says of itself; none for what is no service.
fn service(fields: &Fields, kind: &str) -> Result<Option<Value>, Fault> {
    if !fields.is_on("service") || !matches!(kind, "batch" | "inference") {
        return Ok(None);
    }
    let least: Option<u32> = fields.number("replicas_min")?;
    let most: Option<u32> = fields.number("replicas_max")?;
    let mut service = Map::new();
    if least.is_some() || most.is_some() {
        let min = least.unwrap_or(1_u32.min(most.unwrap_or(1)));
        let replicas = json!({ "min": min, "max": most.unwrap_or(min.max(1)) });
        service.insert("replicas".into(), replicas);
    }
    put(&mut service, "port", fields.number::<u16>("port")?);
    put(&mut service, "in_flight", fields.number::<u32>("in_flight")?);
    put(&mut service, "ready", fields.some("ready"));
    Ok(Some(service.into()))
}

/// `team=vision, run=7` as labels.
fn labels(fields: &Fields) -> Result<Option<Value>, Fault> {
    let mut labels = Map::new();
    for label in listed(fields, "labels") {
        let (name, value) = label
            .split_once('=')
            .ok_or_else(|| wrong("labels", "a label is a name and a value, such as team=vision"))?;
        let before = labels.insert(name.trim().to_owned(), json!(value.trim()));
        if before.is_some() {
            return Err(wrong(
                "labels",
                format!("{} is there twice", super::super::html::inert(name)),
            ));
        }
    }
    Ok((!labels.is_empty()).then(|| labels.into()))
}

/// `data, models:ro` as volumes.
fn volumes(fields: &Fields) -> Result<Option<Value>, Fault> {
    let mut volumes = Vec::new();
    for volume in listed(fields, "volumes") {
        volumes.push(match volume.split_once(':') {
            None => json!({ "name": volume }),
            Some((name, "rw")) => json!({ "name": name }),
            Some((name, "ro")) => json!({ "name": name, "read_only": true }),
            Some(_) => {
                return Err(wrong(
                    "volumes",
                    "after a volume's name stands :ro, :rw or nothing",
                ));
            }
        });
    }
    Ok((!volumes.is_empty()).then(|| volumes.into()))
}

/// What stands between commas, without the space around it.
fn listed<'a>(fields: &'a Fields, name: &str) -> impl Iterator<Item = &'a str> {
    let parts = fields.text(name).split(',').map(str::trim);
    parts.filter(|part| !part.is_empty())
}

fn cut(fields: &Fields, kind: &str) -> Result<Map<String, Value>, Fault> {
    let mut cut = Map::new();
    if matches!(kind, "rendering" | "video") {
        put(&mut cut, "parallel", fields.number::<u32>("parallel")?);
        put(&mut cut, "per_task", fields.number::<u64>("per_task")?);
    }
    Ok(cut)
}

/// `1.5` with a scale of a thousand is 1500; exact, or refused.
fn thousandths(fields: &Fields, name: &str, scale: u64) -> Result<Option<u64>, Fault> {
    scaled(fields, name, scale)
}

/// Gibibytes as mebibytes.
fn mib(fields: &Fields, name: &str) -> Result<Option<u64>, Fault> {
    scaled(fields, name, 1024)
}

fn scaled(fields: &Fields, name: &str, scale: u64) -> Result<Option<u64>, Fault> {
    let Some(text) = fields.some(name) else {
        return Ok(None);
    };
    let no_number = || wrong(name, "this is not a number such as 2 or 0.5");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return Err(no_number());
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| no_number())?
    };
    let part_value: u64 = if part.is_empty() {
        0
    } else {
        part.parse().map_err(|_| no_number())?
    };
    let least = 10_u64.pow(part.len() as u32);
    Ok(Some(
        whole.saturating_mul(scale) + part_value.saturating_mul(scale) / least,
    ))
}

/// The jobs of a file in YAML, each a document.
pub(super) fn of_yaml(text: &str) -> Result<Vec<JobSpec>, Fault> {
    let options =
        serde_saphyr::options! { with_snippet: false, strict_booleans: true, reject_unsupported_tags: true };
    let jobs: Result<Vec<JobSpec>, _> = serde_saphyr::from_multiple_with_options(text, options);
    let jobs = jobs.map_err(|error| {
        let said = error.to_string();
        wrong(
            "yaml",
            said.lines().next().unwrap_or("this is not a job").to_owned(),
        )
    })?;
    match jobs.is_empty() {
        true => Err(wrong("yaml", "there is no job in it")),
        false => Ok(jobs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&str, &str)]) -> Fields {
        Fields::of(pairs)
    }

    #[test]
    fn what_is_not_filled_in_is_not_said() {
        let spec = of_form(&form(&[
            ("kind", "inference"),
            ("model", "13B"),
            ("context", ""),
            ("vram", " "),
        ]))
        .unwrap();
        assert_eq!(
            spec,
            json!({ "name": "inference", "kind": "inference", "workload": { "inference": { "model": "13B" } } })
        );
    }

    #[test]
    fn amounts_are_exact_and_words_are_refused() {
        let spec = of_form(&form(&[
            ("name", "x"),
            ("command", "echo a\r\necho b"),
            ("gpus", "1"),
            ("share", "12.5"),
            ("vram", "1.5"),
            ("cpu", ".25"),
            ("minutes", "90"),
        ]))
        .unwrap();
        assert_eq!(
            spec["demand"],
            json!({ "gpus": 1, "compute_permille": 125, "vram_mib": 1536, "cpu_milli": 250 })
        );
        assert_eq!(
            (&spec["run_time_s"], &spec["command"]),
            (&json!(5400), &json!(["sh", "-c", "echo a\necho b"]))
        );
        for bad in ["x", "-1", "1e3", "1.2.3", ".", "9999999999999"] {
            assert!(of_form(&form(&[("vram", bad)])).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_service_a_split_and_what_it_is_given_are_said() {
        let spec = of_form(&form(&[
            ("kind", "inference"),
            ("model", "13B"),
            ("tensor", "2"),
            ("pipeline", ""),
            ("service", "1"),
            ("replicas_max", "3"),
            ("ready", "/health"),
            ("booking", "bkg_6gz54gssw0000"),
            ("labels", "team=vision, run = 7"),
            ("volumes", "data, models:ro"),
            ("region", "north"),
            ("nodes", "2"),
        ]))
        .unwrap();
        assert_eq!(
            spec["workload"]["inference"],
            json!({ "model": "13B", "split": { "tensor": 2 } })
        );
        assert_eq!(
            spec["service"],
            json!({ "replicas": { "min": 1, "max": 3 }, "ready": "/health" })
        );
        assert_eq!(spec["labels"], json!({ "team": "vision", "run": "7" }));
        assert_eq!(
            spec["volumes"],
            json!([{ "name": "data" }, { "name": "models", "read_only": true }])
        );
        assert_eq!(
            (&spec["booking"], &spec["demand"]),
            (
                &json!("bkg_6gz54gssw0000"),
                &json!({ "nodes": 2, "region": "north" })
            )
        );
        let read: JobSpec = serde_json::from_value({
            let mut spec = spec.clone();
            spec["command"] = json!(["true"]);
            spec
        })
        .expect("what the form says is a job");
        assert_eq!(read.service.unwrap().replicas.max, 3);
        for (field, text) in [
            ("labels", "alone"),
            ("labels", "a=1,a=2"),
            ("volumes", "data:w"),
            ("tensor", "x"),
        ] {
            let fields = form(&[("kind", "inference"), ("model", "13B"), (field, text)]);
            assert!(of_form(&fields).is_err(), "{field} {text}");
        }
    }

    #[test]
    fn a_rank_is_of_adapters_alone() {
        let ask = |kind: &'static str, method: &'static str| {
            let fields = [
                ("kind", kind),
                ("train_model", "7B"),
                ("method", method),
                ("rank", "16"),
            ];
            of_form(&form(&fields)).unwrap()["workload"][kind]["rank"].clone()
        };
        assert_eq!(ask("fine_tune", "lora"), json!(16));
        assert_eq!(ask("fine_tune", "qlora"), json!(16));
        assert!(ask("fine_tune", "full").is_null() && ask("training", "lora").is_null());
    }

    #[test]
    fn a_file_is_read_strictly() {
        assert_eq!(
            of_yaml("name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n")
                .unwrap()
                .len(),
            2
        );
        assert!(of_yaml("name: a\nnope: 1\n").is_err() && of_yaml("").is_err());
    }
}
