//! Where money went: what lay idle of slices, and costs by workload and label, from the metered interval on.

use tenure_domain::command::Ran;
use tenure_domain::id::JobId;
use tenure_domain::ledger::analysis::{Analysis, By, Group};
use tenure_domain::ledger::bill::{self, BillRow, Eye};
use tenure_domain::money::Micros;
use tenure_domain::workload::Workload;
use tenure_domain::workload::inference::Inference;
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::spec::{Demand, JobSpec};
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Wish};

use super::{House, house};
use crate::world::{plain_prices, slice, spec, whole};

type Rows = Vec<(String, BillRow)>;

impl House {
    fn starts(&mut self, spec: JobSpec) -> JobId {
        let job = self.world.submit(self.ada, spec).expect("taken");
        let running = tenure_domain::command::Observation::Running;
        self.world.observe(job, running).expect("it runs");
        job
    }

    /// What its node says of it after so long.
    fn says(&mut self, job: JobId, ran_ms: u64, usage: Usage, rows: &mut Rows) {
        let (allocation, node) = self.world.allocation(job).expect("placed");
        let usage = Some(usage);
        let ran = vec![Ran {
            allocation,
            ran_ms,
            usage,
        }];
        let before = self.world.state.clone();
        let events = self
            .world
            .act(Actor::Node(node), Wish::Meter { node, ran })
            .expect("taken");
        let of = events
            .iter()
            .flat_map(|event| bill::rows(&before, self.world.now, event));
        for placed in of {
            let path = &placed.path;
            rows.extend(placed.rows.into_iter().map(|row| (path.clone(), row)));
        }
    }
}

fn put_together(by: &str, rows: &Rows) -> Vec<Group> {
    let mut analysis = Analysis::new(by.parse().expect("a word"), Eye::Tenant);
    rows.iter().for_each(|(path, row)| analysis.add(row, path));
    analysis.groups()
}

fn used(busy_ms: u64, waited_ms: u64) -> Usage {
    Usage {
        busy_ms,
        waited_ms,
        ..Usage::default()
    }
}

#[test]
fn a_slice_always_busy_at_its_share_wastes_nothing() {
    let mut house = house(plain_prices());
    let rows = &mut Vec::new();
    let named = |name: &str, demand: Demand| spec(name, demand, 3600);
    let jobs = [
        (
            house.starts(named("saturated", slice(300, 8000))),
            used(30_000, 70_000),
            0,
        ),
        (
            house.starts(named("half", slice(300, 8000))),
            used(15_000, 0),
            500,
        ),
        (
            house.starts(named("turns", slice(300, 8000))),
            used(15_000, 35_000),
            500,
        ),
        (house.starts(named("nothing", slice(300, 8000))), used(0, 0), 1000),
        (house.starts(named("whole", whole(1))), used(25_000, 0), 750),
    ];
    house.world.pass_s(100);
    for (job, used, _) in &jobs {
        house.says(*job, 100_000, *used, rows);
    }
    let groups = put_together("job", rows);
    assert_eq!(groups.len(), jobs.len());
    for (job, _, permille) in jobs {
        let group = groups
            .iter()
            .find(|group| group.group == job.to_string())
            .expect("its group");
        let name = group.name.as_deref().expect("its name");
        assert!(group.cost_micros > 0, "{name}");
        let expected = group.cost_micros * permille / 1000;
        assert!((group.waste_micros - expected).abs() <= 1, "{name}: {group:?}");
    }
    let total: i64 = groups.iter().map(|group| group.waste_micros).sum();
    let by_class = put_together("class", rows);
    assert_eq!(
        by_class.iter().map(|group| group.waste_micros).sum::<i64>(),
        total
    );
}

#[test]
fn costs_are_put_together_by_label_and_workload() {
    let mut house = house(plain_prices());
    let rows = &mut Vec::new();
    let rendering = |scene: Option<&str>| {
        Workload::Rendering(Rendering {
            scene: scene.map(Into::into),
            ..serde_json::from_str(r#"{"frames":"1-10"}"#).expect("a rendering")
        })
    };
    let inference = |model: &str| -> Workload {
        let of: Inference =
            serde_json::from_value(serde_json::json!({ "model": model })).expect("an inference");
        Workload::Inference(of)
    };
    let of = |name: &str, workload: Option<Workload>, labels: &[(&str, &str)]| JobSpec {
        labels: labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        kind: workload.as_ref().map(Workload::kind).unwrap_or_default(),
        workload: workload.map(Box::new),
        tasks: Some(serde_json::from_str(r#"{"whole":true}"#).expect("a cut")),
        ..spec(name, whole(1), 3600)
    };
    let plain = |mut spec: JobSpec| {
        if spec.workload.as_ref().and_then(|of| of.pieces()).is_none() {
            spec.tasks = None;
        }
        spec
    };
    let film = ("project", "film");
    let specs = [
        of("a", Some(rendering(Some("castle"))), &[film, ("team", "vfx")]),
        of("b", Some(rendering(Some("castle"))), &[("project", "trailer")]),
        of("lake", Some(rendering(None)), &[film]),
        of(
            "chat",
            Some(inference("meta-llama/Llama-3.1-8B-Instruct")),
            &[film],
        ),
        of("chat", Some(inference("llama-3.1-8b")), &[]),
        of("shell", None, &[]),
    ];
    let jobs: Vec<JobId> = specs.into_iter().map(|spec| house.starts(plain(spec))).collect();
    house.world.pass_s(3600);
    for (n, job) in jobs.iter().enumerate() {
        house.says(*job, 600_000 * (n as u64 + 1), used(1, 0), rows);
    }
    // A whole GPU for so many tens of minutes.
    let tens = |n: i64| 1_000_000 * n / 6;
    let sums = |by: &str| -> Vec<(String, i64)> {
        let mut sums: Vec<_> = put_together(by, rows)
            .into_iter()
            .map(|group| (group.group, group.cost_micros))
            .collect();
        sums.sort();
        sums
    };
    // What is less than a micro is collected with a later charge, whosever that is.
    let is = |by: &str, all: &[(&str, i64)]| {
        let sums = sums(by);
        let alike = sums
            .iter()
            .zip(all)
            .all(|((group, cost), (named, expected))| group == named && (cost - expected).abs() <= 6);
        assert!(alike && sums.len() == all.len(), "{by}: {sums:?} for {all:?}");
    };
    let each: i64 = (1..=6).map(tens).sum();
    is(
        "label:project",
        &[
            ("", tens(5) + tens(6)),
            ("film", tens(1) + tens(3) + tens(4)),
            ("trailer", tens(2)),
        ],
    );
    is("label:team", &[("", each - tens(1)), ("vfx", tens(1))]);
    is("label:nobody", &[("", each)]);
    is(
        "workload",
        &[
            ("", tens(6)),
            ("inference llama-3.1-8b", tens(4) + tens(5)),
            ("rendering castle", tens(1) + tens(2)),
            ("rendering lake", tens(3)),
        ],
    );
    let mut analysis = Analysis::new(By::Kind, Eye::Tenant);
    rows.iter().for_each(|(path, row)| analysis.add(row, path));
    let keys: Vec<&str> = analysis.keys.iter().map(String::as_str).collect();
    assert_eq!(keys, ["project", "team"]);
}

/// A row as it was written before rows had labels and workloads.
const OLD: &str = r#"{"event":7,"at":1772442660000,"what":"usage","owner":"usr_0000000041800","name":"train","interval":{"allocation":"alc_0000000000002","job":"job_0000000000003","node":"nod_0000000000004","from_ms":0,"to_ms":1000,"class":"H100","kind":"batch","isolation":"guarded","slices":1,"gpu_milli":300,"vram_mib":100,"gpu_ms":300,"used":{"busy_ms":150,"throttled_ms":0,"waited_ms":0,"launches":1,"refusals":0,"denials":0,"peak_vram_mib":1}},"money":83}"#;

#[test]
fn rows_without_labels_are_as_they_always_were() {
    let row: BillRow = serde_json::from_str(OLD).expect("it is read");
    let interval = row.interval.as_ref().expect("an interval");
    assert_eq!((row.about(), row.corrects_until), (None, None));
    assert_eq!(interval.waste(Micros(100)), Some(Micros(50)));
    assert_eq!(
        serde_json::to_string(&row).expect("it is written"),
        OLD,
        "and nothing is added"
    );
}
