//! Power cuts under the real store code: what was acknowledged is there when power comes back.

use std::path::Path;
use std::time::Instant;

use tenure_journal::{Hash, Journal, JournalError, Location, Options, VerifyOptions};

use crate::place::{Chance, batch, block_on};
use crate::power_vfs::{Disk, Fault, NAME, World, unmount};

#[derive(Default)]
struct Tally {
    cuts: usize,
    /// Of these, while opening or recovering.
    opening: usize,
    acked: usize,
    lost: usize,
    broken: usize,
}

fn options(normal: bool) -> Options {
    Options {
        vfs: Some(NAME.into()),
        synchronous_normal: normal,
        checkpoint_pages: 30,
        // All chance comes from the seed.
        checkpoints_beside: false,
        readers_max: 1,
        ..Options::default()
    }
}

/// One journal through `cuts` power cuts. All its chance comes from `seed`.
async fn live(base: &Path, seed: u64, cuts: usize, normal: bool) -> Tally {
    let mut chance = Chance(seed);
    let mut tally = Tally::default();
    let mut disk = Disk::new();
    let mut acked: Option<(u64, Hash)> = None;
    for life in 0..cuts {
        let mut files: Vec<String> = disk
            .iter()
            .map(|(name, bytes)| format!("{name} {}", bytes.len()))
            .collect();
        files.sort();
        let again =
            format!("TENURE_POWER_SEED={seed} TENURE_POWER_CUTS={LIVES}, life {life}, disk {files:?}");
        let dir = base.join(format!("{seed}-{life}"));
        std::fs::create_dir(&dir).unwrap();
        let name = dir.to_str().unwrap().to_owned();
        let world = World::new(disk, chance.next());
        world.mount(&name);
        let early = chance.one_in(4);
        if early {
            world.light(chance.below(40) as u32);
        }
        match Journal::open_leader(&Location::Sqlite(dir.clone()), "test", options(normal)).await {
            Ok(mut journal) => {
                let checked = match world.is_dark() {
                    true => Ok(()),
                    false => check(&journal, acked, life % 5 == 0).await,
                };
                match checked {
                    Ok(()) => {}
                    Err(why) if world.is_dark() => drop(why),
                    Err(Loss::Acked(why)) => {
                        tally.lost += 1;
                        assert!(normal, "{again}: {why}");
                        acked = None;
                    }
                    Err(Loss::Broken(why)) => {
                        tally.broken += 1;
                        assert!(normal, "{again}: {why}");
                        acked = None;
                    }
                }
                if !early {
                    world.light(chance.below(80) as u32);
                }
                for _ in 0..20 {
                    let size = 1 + chance.below(6) as u64 * chance.below(6) as u64;
                    match journal.append(batch(0..size)).await {
                        Ok(done) => {
                            acked = Some((done.last_seq, done.hash));
                            tally.acked += 1;
                        }
                        Err(_) => break,
                    }
                }
            }
            Err(error) => {
                tally.opening += 1;
                assert!(world.is_dark(), "{again}: the journal does not open: {error:?}");
            }
        }
        disk = world.cut();
        tally.cuts += 1;
        unmount(&name);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    tally
}

enum Loss {
    Acked(String),
    Broken(String),
}

async fn check(journal: &Journal, acked: Option<(u64, Hash)>, whole: bool) -> Result<(), Loss> {
    if let Some((seq, hash)) = acked {
        let head = journal.head();
        if head.seq < seq {
            return Err(Loss::Acked(format!(
                "event {seq} was acknowledged, the journal ends at {}",
                head.seq
            )));
        }
        let found = journal
            .event_hash(seq)
            .await
            .map_err(|error| Loss::Broken(error.to_string()))?;
        if found != Some(hash) {
            return Err(Loss::Acked(format!("event {seq} is another now")));
        }
    }
    if whole {
        let report = journal
            .verify(VerifyOptions::default())
            .await
            .map_err(|error| Loss::Broken(error.to_string()))?;
        if !report.is_sound() {
            return Err(Loss::Broken(format!("{report:?}")));
        }
    }
    Ok(())
}

/// Lives of one journal before the next is begun.
const LIVES: usize = 25;

/// Many journals, two at a time, as there are seldom fewer cores.
fn run(cuts: usize, normal: bool) -> Tally {
    let base = tempfile::tempdir().unwrap();
    let first: u64 = std::env::var("TENURE_POWER_SEED").map_or(1, |seed| seed.parse().unwrap());
    let journals = cuts.div_ceil(LIVES);
    let worker = |own: usize| {
        let base = base.path().to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let mut sum = Tally::default();
            for journal in (0..journals).filter(|journal| journal % 2 == own) {
                let lives = LIVES.min(cuts - journal * LIVES);
                sum.add(runtime.block_on(live(&base, first + journal as u64, lives, normal)));
            }
            sum
        })
    };
    let mut sum = Tally::default();
    for worker in [worker(0), worker(1)] {
        sum.add(
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        );
    }
    sum
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.cuts += other.cuts;
        self.opening += other.opening;
        self.acked += other.acked;
        self.lost += other.lost;
        self.broken += other.broken;
    }
}

#[test]
fn no_power_cut_loses_an_acknowledged_event() {
    let cuts = std::env::var("TENURE_POWER_CUTS").map_or(2_000, |count| count.parse().unwrap());
    let start = Instant::now();
    let tally = run(cuts, false);
    println!(
        "{} cuts ({} while opening), {} acknowledged batches, {} lost, {} broken, {:?}",
        tally.cuts,
        tally.opening,
        tally.acked,
        tally.lost,
        tally.broken,
        start.elapsed()
    );
    assert_eq!((tally.cuts, tally.lost, tally.broken), (cuts, 0, 0));
    assert!(
        tally.opening > cuts / 100 && tally.acked > cuts,
        "the cuts fell at the wrong times"
    );
}

/// The harness can see a loss: without a sync at each commit there are many.
#[test]
fn with_synchronous_normal_power_cuts_do_lose_events() {
    let tally = run(400, true);
    println!(
        "{} cuts, {} acknowledged, {} losses",
        tally.cuts, tally.acked, tally.lost
    );
    assert!(
        tally.lost > 40,
        "only {} losses seen in {} cuts",
        tally.lost,
        tally.cuts
    );
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(Disk::new(), 1);
        world.mount(dir.path().to_str().unwrap());
        let location = Location::Sqlite(dir.path().to_owned());
        let mut journal = Journal::open_leader(&location, "test", options(false))
            .await
            .unwrap();
        journal.append(batch(1..4)).await.unwrap();
        for _ in 0..3 {
            world.fault(Some(Fault::DiskFull));
            let error = journal.append(batch(4..400)).await.unwrap_err();
            assert!(matches!(error, JournalError::Full), "{error:?}");
            assert_eq!(
                journal.read(1, 10_000).await.unwrap().len() as u64,
                journal.head().seq
            );
            world.fault(None);
            journal.append(batch(4..6)).await.unwrap();
        }
        assert_eq!(journal.head().seq, 9);
        let disk = world.cut();
        drop(journal);
        let world = World::new(disk, 2);
        world.mount(dir.path().to_str().unwrap());
        let journal = Journal::open_leader(&location, "test", options(false))
            .await
            .unwrap();
        assert_eq!(journal.verify(VerifyOptions::default()).await.unwrap().events, 9);
    });
}

#[test]
fn a_failed_sync_is_uncertain_and_nothing_is_accepted_after() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(Disk::new(), 1);
        world.mount(dir.path().to_str().unwrap());
        let location = Location::Sqlite(dir.path().to_owned());
        let mut journal = Journal::open_leader(&location, "test", options(false))
            .await
            .unwrap();
        journal.append(batch(1..4)).await.unwrap();
        world.fault(Some(Fault::SyncFails));
        assert_eq!(
            journal.append(batch(4..5)).await.unwrap_err().code(),
            "journal_uncertain"
        );
        world.fault(None);
        assert_eq!(
            journal.append(batch(4..5)).await.unwrap_err().code(),
            "journal_uncertain"
        );
        // It stays readable: the events acknowledged are there.
        assert!(journal.read(1, 10).await.unwrap().len() >= 3);
    });
}
