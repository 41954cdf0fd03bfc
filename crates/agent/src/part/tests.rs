//! Random lives of parts on the double of NVML: whatever is asked, ended, killed or made by others, everything on a
//! device is where NVIDIA's guide allows it, belongs to somebody living or to others, and nothing of others is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tenure_api::channel::DeviceSlice;
use tenure_domain::schedule::hardware::{Part, Partitioning, Placement};
use tenure_domain::schedule::part::pick;
use tenure_domain::tenancy::policy::Network;
use tenure_domain::workload::spec::{Demand, Isolation};

use super::*;
use crate::discover::nvidia::{self, library::InstancePlacement, library::Nvml};
use crate::discover::setting::Setting;
use crate::driver::mig;

const SEQUENCES: u64 = 1000;
const STEPS: u64 = 12;

/// From NVIDIA's MIG user guide: name, where it may begin, memory slices, compute slices, how many.
type Row = (&'static str, &'static [u32], u32, u32, usize);

const FORTY: &[Row] = &[
    ("1g.5gb", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 7),
    ("1g.5gb+me", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 1),
    ("1g.10gb", &[0, 2, 4, 6], 2, 1, 4),
    ("2g.10gb", &[0, 2, 4], 2, 2, 3),
    ("3g.20gb", &[0, 4], 4, 3, 2),
    ("4g.20gb", &[0], 4, 4, 1),
    ("7g.40gb", &[0], 8, 7, 1),
];
const EIGHTY: &[Row] = &[
    ("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 7),
    ("1g.10gb+me", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 1),
    ("1g.20gb", &[0, 2, 4, 6], 2, 1, 4),
    ("2g.20gb", &[0, 2, 4], 2, 2, 3),
    ("3g.40gb", &[0, 4], 4, 3, 2),
    ("4g.40gb", &[0], 4, 4, 1),
    ("7g.80gb", &[0], 8, 7, 1),
];
const THIRTY: &[Row] = &[
    ("1g.6gb", &[0, 1, 2, 3], 1, 1, 4),
    ("1g.6gb+me", &[0, 1, 2, 3], 1, 1, 1),
    ("2g.12gb", &[0, 2], 2, 2, 2),
    ("2g.12gb+me", &[0, 2], 2, 2, 1),
    ("4g.24gb", &[0], 4, 4, 1),
];

/// Model, its device, and what may lie on it.
const FAMILIES: [(&str, &str, &[Row]); 4] = [
    ("A100-40GB", "GPU-forty", FORTY),
    ("A100-80GB", "GPU-eighty", EIGHTY),
    ("H100-80GB", "GPU-hopper", EIGHTY),
    ("A30", "GPU-thirty", THIRTY),
];

/// The driver, in this process, and when to be silent.
struct Double {
    nvml: Arc<Nvml>,
    setting: Setting,
    /// 1: is silent without having made it; 2: having made it.
    silent: Arc<AtomicU8>,
}

impl Driver for Double {
    fn make_part(&self, site: &Site, part: &PartChoice) -> io::Result<Made> {
        let silent = self.silent.swap(0, Ordering::Relaxed);
        let made = match silent {
            1 => Err(String::new()),
            _ => mig::make(&self.nvml, &self.setting, &site.gpu, part),
        };
        if silent > 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        made.map_err(io::Error::other)
    }

    fn remove_part(&self, site: &Site, part: &PartChoice, instance: Option<u32>) -> io::Result<()> {
        mig::remove(&self.nvml, &site.gpu, part, instance).map_err(io::Error::other)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct World {
    root: tempfile::TempDir,
    nvml: Arc<Nvml>,
    setting: Setting,
    silent: Arc<AtomicU8>,
    parts: Parts,
    gpu: &'static str,
    rows: &'static [Row],
    how: Partitioning,
    living: BTreeMap<AllocationId, PartChoice>,
    /// Ended, and a program of theirs is on the device still.
    stuck: BTreeMap<AllocationId, PartChoice>,
    /// What others made, and of which kind.
    foreign: BTreeMap<Placement, &'static str>,
    next: u64,
}

fn double() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("../examples/libnvml_double.so");
    assert!(
        library.exists(),
        "`cargo test` builds the double among the examples"
    );
    library
}

fn order(id: AllocationId, gpu: &str, part: &PartChoice) -> Order {
    Order {
        allocation: id,
        job: tenure_domain::id::JobId(1),
        name: "job".into(),
        tenant: "acme".into(),
        attempt: 1,
        command: vec!["true".into()],
        env: vec![],
        secrets: vec![],
        workdir: None,
        image: None,
        volumes: vec![],
        devices: vec![DeviceSlice {
            uuid: gpu.into(),
            vram_mib: 1,
            compute_permille: 1,
            capped: false,
            part: Some(part.clone()),
        }],
        cpu_milli: 1,
        memory_mib: 1,
        isolation: Isolation::Partition,
        network: Network::default(),
        run_time_s: 1,
        grace_s: 1,
        stdin: false,
        tty: false,
    }
}

impl World {
    fn open(dir: &Path, nvml: &Arc<Nvml>, setting: &Setting, silent: &Arc<AtomicU8>) -> Parts {
        let driver = Double {
            nvml: nvml.clone(),
            setting: setting.clone(),
            silent: silent.clone(),
        };
        Parts::open(dir, Box::new(driver), Duration::ZERO).unwrap()
    }

    fn handle(&self) -> crate::discover::nvidia::library::Handle {
        self.nvml.by_uuid(self.gpu).unwrap()
    }

    /// What the server is told: without our own, with what is stuck and what others made.
    fn told(&self) -> Partitioning {
        let mut how = self.how.clone();
        how.parts = self.foreign.iter().map(foreign_part).collect();
        how.taken = self.stuck.values().cloned().collect();
        how
    }

    fn ask(&mut self, random: &mut Random) {
        let rows = self.rows.len() as u64;
        let like = &self.how.profiles[random.below(rows) as usize];
        let demand = Demand {
            gpus: 1,
            vram_mib: like.memory_mib * (1 + random.below(100)) / 100,
            compute_permille: 1 + random.below(1000) as u16,
            isolation: Isolation::Partition,
            ..Demand::default()
        };
        let how = self.told();
        let parts: Vec<&PartChoice> = self.living.values().collect();
        let Some(chosen) = pick(&how, &parts, &demand) else {
            assert!(
                !self.has_room(&demand),
                "{demand:?} fits beside {:?}",
                self.living
            );
            return;
        };
        assert!(chosen.memory_mib >= demand.vram_mib);
        let (id, part) = (AllocationId(self.next), chosen.choice);
        self.next += 1;
        self.silent.store(
            match random.below(12) {
                silent @ 0..2 => silent as u8 + 1,
                _ => 0,
            },
            Ordering::Relaxed,
        );
        let silent = self.silent.load(Ordering::Relaxed) > 0;
        let made = self.parts.make(&order(id, self.gpu, &part), &Found::default());
        assert_eq!(made.is_err(), silent, "{made:?}");
        if let Ok(made) = made {
            let made = made[0].clone().unwrap();
            assert!(made.uuid.starts_with("MIG-") && made.files.len() == 2, "{made:?}");
            self.living.insert(id, part);
        } else {
            self.parts.clear(|id| self.living.contains_key(&id));
        }
    }

    /// By the guide's table alone.
    fn has_room(&self, demand: &Demand) -> bool {
        let all: u32 = self.rows.iter().map(|row| row.3).max().unwrap();
        let lies: Vec<(u32, u32)> = self.placed().into_iter().map(|at| (at.start, at.size)).collect();
        self.rows.iter().any(|&(name, starts, size, slices, count)| {
            let memory_mib = self.profile(name).memory_mib;
            let enough = memory_mib >= demand.vram_mib
                && (u64::from(slices) * 1000).div_ceil(u64::from(all)) >= u64::from(demand.compute_permille);
            let ours = self.living.values().chain(self.stuck.values());
            let kinds = ours
                .map(|part| part.profile.as_str())
                .chain(self.foreign.values().copied());
            let there = kinds.filter(|kind| *kind == name).count();
            let free = |start: &&u32| {
                lies.iter()
                    .all(|at| at.0 + at.1 <= **start || **start + size <= at.0)
            };
            enough && there < count && starts.iter().find(free).is_some()
        })
    }

    fn profile(&self, name: &str) -> &tenure_domain::schedule::hardware::PartProfile {
        let mut profiles = self.how.profiles.iter();
        profiles.find(|profile| profile.name == name).unwrap()
    }

    fn placed(&self) -> Vec<Placement> {
        let ours = self.living.values().chain(self.stuck.values());
        ours.map(|part| part.placement)
            .chain(self.foreign.keys().copied())
            .collect()
    }

    fn some_living(&self, random: &mut Random) -> Option<AllocationId> {
        let count = self.living.len() as u64;
        (count > 0).then(|| *self.living.keys().nth(random.below(count) as usize).unwrap())
    }

    /// A program stays on an ended job's part; later it goes.
    fn stick(&mut self, random: &mut Random) {
        let Some(id) = self.some_living(random) else {
            return;
        };
        let part = self.living.remove(&id).unwrap();
        let own = self
            .parts
            .inner()
            .own
            .values()
            .find(|own| own.allocation == id)
            .cloned();
        let uuid = own.unwrap().made.unwrap().uuid;
        let programs = serde_json::json!([{"uuid": uuid, "pid": 1, "mib": 1}]);
        std::fs::write(self.root.path().join("processes.json"), programs.to_string()).unwrap();
        self.parts.remove(id);
        self.stuck.insert(id, part);
        self.check();
        // Nobody is given its place meanwhile, whatever is asked.
        self.ask(random);
        self.check();
        std::fs::write(self.root.path().join("processes.json"), "[]").unwrap();
        self.parts.clear(|id| self.living.contains_key(&id));
        self.stuck.clear();
    }

    fn meddle(&mut self, random: &mut Random) {
        let handle = self.handle();
        if let Some((at, _)) = self.foreign.pop_first() {
            let all = self.nvml.all_instances(handle).unwrap();
            let there = all.iter().find(|one| one.placement.start == at.start).unwrap();
            let there = self.nvml.instance_by_id(handle, there.id).unwrap();
            self.nvml.destroy(there).unwrap();
            return;
        }
        let row = &self.rows[random.below(self.rows.len() as u64) as usize];
        let start = row.1[random.below(row.1.len() as u64) as usize];
        let place = InstancePlacement { start, size: row.2 };
        let profile = self.profile(row.0).id;
        if let Ok(made) = self.nvml.create_instance(handle, profile, place) {
            self.nvml.create_compute(made).unwrap();
            self.foreign.insert(Placement { start, size: row.2 }, row.0);
        }
    }

    fn restart(&mut self, random: &mut Random) {
        // What ended while no agent was there.
        if let Some(id) = self.some_living(random) {
            self.living.remove(&id);
        }
        self.parts = World::open(self.root.path(), &self.nvml, &self.setting, &self.silent);
        self.parts.clear(|id| self.living.contains_key(&id));
    }

    /// What the driver says is there is exactly what should be, each where the guide allows it.
    fn check(&self) {
        let there = self.nvml.all_instances(self.handle()).unwrap();
        let mut found: Vec<Placement> = Vec::new();
        for instance in &there {
            let profile = self
                .how
                .profiles
                .iter()
                .find(|profile| profile.id == instance.profile_id);
            let name = &profile.unwrap().name;
            let row = self
                .rows
                .iter()
                .find(|row| row.0 == name)
                .expect("a kind of the guide");
            let at = instance.placement;
            assert!(row.1.contains(&at.start) && row.2 == at.size, "{name} at {at:?}");
            found.push(Placement {
                start: at.start,
                size: at.size,
            });
        }
        for (index, one) in found.iter().enumerate() {
            assert!(
                found[index + 1..].iter().all(|other| !one.overlaps(*other)),
                "{found:?}"
            );
        }
        let mut expected = self.placed();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "leaked, lost or under somebody living");
    }

    fn end(&mut self) {
        let living: Vec<AllocationId> = self.living.keys().copied().collect();
        for id in living {
            self.parts.remove(id);
            self.living.remove(&id);
            self.check();
        }
        if !self.foreign.is_empty() {
            self.meddle(&mut Random(1));
        }
        assert!(self.nvml.all_instances(self.handle()).unwrap().is_empty());
        let left = std::fs::read_dir(self.root.path().join("parts")).unwrap().count();
        assert_eq!(left, 0, "nothing is written down any more");
    }
}

fn foreign_part((&at, kind): (&Placement, &&str)) -> Part {
    Part {
        uuid: format!("MIG-foreign-{}", at.start),
        profile: (*kind).into(),
        memory_mib: 1,
        placement: Some(at),
    }
}

#[test]
fn a_thousand_lives_of_parts_on_each_family() {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let devices: Vec<_> = FAMILIES
        .iter()
        .zip(1..)
        .map(|((model, uuid, _), bus)| serde_json::json!({"model": model, "uuid": uuid, "bus": bus, "mig": true}))
        .collect();
    let profile = serde_json::json!({"driver": "595.71.05", "devices": devices});
    let path = root.path().join("profile.json");
    std::fs::write(&path, profile.to_string()).unwrap();
    std::fs::create_dir_all(root.path().join("proc")).unwrap();
    std::fs::write(
        root.path().join("proc/devices"),
        "Character devices:\n511 nvidia-caps\n",
    )
    .unwrap();
    // SAFETY: no other test of this program reads or writes these variables.
    unsafe {
        std::env::set_var("TENURE_NVML_PROFILE", &path);
        std::env::set_var("TENURE_DEVICE_ROOT", root.path());
    }
    let mut setting = Setting::default();
    (setting.root, setting.nvml_library) = (root.path().to_owned(), double());
    let nvml = Arc::new(Nvml::load(&setting.nvml_library).unwrap());
    let silent = Arc::new(AtomicU8::new(0));
    let found = nvidia::devices(&setting).unwrap();
    let partitioning = |uuid: &str| {
        let device = found
            .devices
            .iter()
            .find(|device| device.facts.uuid == uuid)
            .unwrap();
        let hardware = device.facts.hardware.as_ref().unwrap();
        hardware.partitioning.clone().unwrap()
    };
    let (_, gpu, rows) = FAMILIES[0];
    let mut world = World {
        parts: World::open(root.path(), &nvml, &setting, &silent),
        how: partitioning(gpu),
        root,
        nvml,
        setting,
        silent,
        gpu,
        rows,
        living: BTreeMap::new(),
        stuck: BTreeMap::new(),
        foreign: BTreeMap::new(),
        next: 1,
    };
    for (family, (model, gpu, rows)) in (1..).zip(FAMILIES) {
        world.how = partitioning(gpu);
        (world.gpu, world.rows) = (gpu, rows);
        let mut made = 0;
        for seed in 1..=SEQUENCES {
            let mut random = Random((seed << 8 | family).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let before = world.next;
            for _ in 0..STEPS {
                match random.below(16) {
                    0..9 => world.ask(&mut random),
                    9..13 => {
                        if let Some(id) = world.some_living(&mut random) {
                            world.parts.remove(id);
                            world.living.remove(&id);
                        }
                    }
                    13 => world.restart(&mut random),
                    14 => world.meddle(&mut random),
                    _ => world.stick(&mut random),
                }
                world.check();
            }
            world.end();
            made += world.next - before;
        }
        println!("{model}: {SEQUENCES} sequences, {made} parts asked of the driver");
    }
}
