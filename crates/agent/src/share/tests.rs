//! Pages that guarded jobs write on: what was given stays what it was, and comes back.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tenure_api::channel::Order;
use tenure_domain::id::JobId;
use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::tenancy::policy::Network;

use super::*;
use crate::discover;

const UUID: &str = "opencl-1";
const MIB: u64 = 1 << 20;

pub(crate) struct Bench {
    pub root: tempfile::TempDir,
    pub found: Found,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(place(self.root.path()).unwrap());
    }
}

impl Bench {
    /// A device of 1000 MiB.
    pub fn new() -> Bench {
        let facts = GpuFacts {
            uuid: UUID.into(),
            vendor: String::new(),
            model: String::new(),
            class: "CPU".into(),
            vram_mib: 1000,
            isolation: BTreeMap::new(),
            hardware: None,
        };
        let found = Found {
            devices: vec![discover::Device {
                facts,
                opencl: Some(OpenClName {
                    platform: "one".into(),
                    index: 0,
                }),
                files: vec![],
                memory_wall: None,
                flaw: None,
            }],
            ..Found::default()
        };
        Bench {
            root: tempfile::tempdir().unwrap(),
            found,
        }
    }

    pub fn open(&self) -> Shares {
        Shares::open(self.root.path(), Duration::from_secs(1), true).unwrap()
    }

    /// Gives it 100 MiB and 300 per mille.
    pub fn admit(&self, shares: &Shares, id: u64) {
        let id = AllocationId(id);
        fs::create_dir_all(self.root.path().join("allocations").join(id.to_string())).unwrap();
        assert_eq!(shares.admit(&order(id), &self.found).unwrap().len(), 1);
    }

    fn page(&self) -> PathBuf {
        let dir = place(self.root.path()).unwrap();
        fs::read_dir(dir).unwrap().next().unwrap().unwrap().path()
    }

    /// Writes on the place of a slice, as any job with a slice there can: its limit is 16 bytes on, its weight 24.
    pub fn scribble(&self, id: u64, at: u64, bytes: &[u8]) {
        let page = fs::read(self.page()).unwrap();
        let places = page.chunks_exact(8).position(|word| word == id.to_le_bytes());
        let file = File::options().write(true).open(self.page()).unwrap();
        file.write_all_at(bytes, places.unwrap() as u64 * 8 + at).unwrap();
    }
}

pub(crate) fn order(id: AllocationId) -> Order {
    Order {
        allocation: id,
        job: JobId(1),
        name: "job".into(),
        tenant: "acme".into(),
        attempt: 1,
        command: vec!["true".into()],
        env: vec![],
        secrets: vec![],
        workdir: None,
        image: None,
        volumes: vec![],
        devices: vec![wanted(100)],
        cpu_milli: 1,
        memory_mib: 1,
        isolation: Level::Guarded,
        network: Network::default(),
        run_time_s: 1,
        grace_s: 1,
        stdin: false,
        tty: false,
    }
}

fn wanted(vram_mib: u64) -> DeviceSlice {
    DeviceSlice {
        uuid: UUID.into(),
        vram_mib,
        compute_permille: 300,
        capped: false,
        part: None,
    }
}

/// What the page says: limit in MiB, and weight.
fn said(shares: &Shares, id: u64) -> Option<(u64, u32)> {
    let pages = shares.read();
    let slice = pages.first()?.snapshot.slice(id)?;
    Some((slice.limit_bytes / MIB, slice.weight_per_mille))
}

fn given(shares: &Shares, id: u64) -> (u64, u32) {
    let all = shares.given();
    let one = all.iter().find(|one| one.allocation.0 == id).unwrap();
    (one.limit_bytes / MIB, one.weight_per_mille)
}

fn seen(shares: &Shares) -> Vec<(u64, Tampering)> {
    let all = shares.inspect().into_iter();
    all.flat_map(|(id, kinds)| kinds.into_iter().map(move |kind| (id.0, kind)))
        .collect()
}

#[test]
fn any_uuid_is_a_file_name() {
    for uuid in [
        "GPU-1234",
        "opencl-ab-pocl-cpu-0",
        "../../etc/passwd",
        "",
        "ü/\u{0}",
    ] {
        assert!(name(uuid).bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(unname(&name(uuid)).as_deref(), Some(uuid));
    }
}

#[test]
fn limits_that_a_job_wrote_are_written_right_again() {
    let bench = Bench::new();
    let shares = bench.open();
    bench.admit(&shares, 7_001);
    bench.admit(&shares, 7_002);
    assert_eq!(seen(&shares), []);
    bench.scribble(7_001, 16, &u64::MAX.to_le_bytes());
    bench.scribble(7_002, 24, &1000u32.to_le_bytes());
    assert_eq!(
        said(&shares, 7_002),
        Some((100, 1000)),
        "the page is theirs to write on"
    );
    assert_eq!(
        (given(&shares, 7_001), given(&shares, 7_002)),
        ((100, 300), (100, 300))
    );
    let both = [7_001, 7_002].map(|id| (id, Tampering::LimitsChanged));
    assert_eq!(seen(&shares), both);
    assert_eq!(
        (said(&shares, 7_001), said(&shares, 7_002)),
        (Some((100, 300)), Some((100, 300)))
    );
    for _ in 0..3 {
        assert_eq!(seen(&shares), [], "what the agent wrote itself is no job's doing");
    }
    // A slice that was wiped out is there again.
    bench.scribble(7_002, 0, &[0; 8]);
    assert_eq!(seen(&shares), [(7_002, Tampering::PlaceGone)]);
    assert_eq!(said(&shares, 7_002), Some((100, 300)));
}

#[test]
fn an_agent_started_anew_believes_what_was_written_down() {
    let bench = Bench::new();
    let shares = bench.open();
    bench.admit(&shares, 7_001);
    bench.admit(&shares, 7_002);
    shares.set_aside(AllocationId(7_002));
    drop(shares);
    bench.scribble(7_001, 16, &(1u64 << 40).to_le_bytes());
    bench.scribble(7_002, 16, &(1u64 << 40).to_le_bytes());
    let shares = bench.open();
    assert_eq!(
        (given(&shares, 7_001), given(&shares, 7_002)),
        ((100, 300), (0, 300))
    );
    assert_eq!(seen(&shares).len(), 2);
    assert_eq!(
        (said(&shares, 7_001), said(&shares, 7_002)),
        (Some((100, 300)), Some((0, 300)))
    );
    // What ended is nobody's any more, here and in the next agent.
    shares.clear(|id| id.0 == 7_001);
    assert_eq!(shares.given().len(), 1);
    drop(shares);
    assert_eq!(bench.open().given().len(), 1);
}

#[test]
fn a_resize_that_fails_puts_back_what_was_given() {
    let bench = Bench::new();
    let shares = bench.open();
    bench.admit(&shares, 7_001);
    bench.scribble(7_001, 16, &(1u64 << 40).to_le_bytes());
    let stranger = DeviceSlice {
        uuid: "another".into(),
        ..wanted(50)
    };
    let refused = shares.try_resize(AllocationId(7_001), &[wanted(50), stranger]);
    assert!(refused.is_err());
    assert_eq!(said(&shares, 7_001), Some((100, 300)));
}

#[test]
fn a_page_that_is_cut_or_grown_is_taken_for_damage_and_comes_back() {
    let bench = Bench::new();
    let shares = bench.open();
    bench.admit(&shares, 7_001);
    let length = fs::metadata(bench.page()).unwrap().len();
    for wrong in [length + (1 << 20), 0, 100] {
        let file = File::options().write(true).open(bench.page()).unwrap();
        file.set_len(wrong).unwrap();
        shares.take_tampering(AllocationId(7_001));
        assert_eq!(seen(&shares), [(7_001, Tampering::PageDamaged)], "{wrong}");
        assert_eq!(fs::metadata(bench.page()).unwrap().len(), length);
        shares.inspect();
        assert_eq!(said(&shares, 7_001), Some((100, 300)));
    }
}

#[test]
fn a_device_has_one_page_while_jobs_are_on_it() {
    let bench = Bench::new();
    let shares = bench.open();
    bench.admit(&shares, 7_001);
    drop(shares);
    let inode = |bench: &Bench| fs::metadata(bench.page()).unwrap().ino();
    let before = inode(&bench);
    // Whoever is on it wrote over what it says of itself.
    let file = File::options().write(true).open(bench.page()).unwrap();
    file.write_all_at(&[0xff; 16], 0).unwrap();
    let shares = bench.open();
    assert_eq!(inode(&bench), before);
    bench.admit(&shares, 7_002);
    drop(shares);
    // One of an agent with another layout is not read; nothing more is given there until those on it have ended.
    let written = bench
        .root
        .path()
        .join("allocations")
        .join(AllocationId(7_001).to_string())
        .join("slices.json");
    let older = fs::read_to_string(&written).unwrap();
    let version = format!("\"version\":{}", tenure_limits::VERSION);
    fs::write(&written, older.replace(&version, "\"version\":1")).unwrap();
    file.write_all_at(&1u32.to_le_bytes(), 8).unwrap();
    let shares = bench.open();
    assert_eq!(inode(&bench), before);
    assert!(shares.admit(&order(AllocationId(7_003)), &bench.found).is_err());
    shares.clear(|_| false);
    bench.admit(&shares, 7_003);
    assert_ne!(inode(&bench), before);
}
