//! Writes inputs to begin fuzzing with, one directory a target: `seeds DIR`. Made by the encoders, so they follow the
//! messages as these change, and none is kept in the repository.

use std::path::Path;

use tenure_broker::trial::stream;

fn write(dir: &Path, target: &str, all: impl IntoIterator<Item = Vec<u8>>) -> std::io::Result<()> {
    let dir = dir.join(target);
    std::fs::create_dir_all(&dir)?;
    for (number, seed) in all.into_iter().enumerate() {
        std::fs::write(dir.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

/// Frames sent and read in turns, some of them across the ring's end.
fn ring() -> Vec<Vec<u8>> {
    let send = |bytes: u16, slot: u8| [&[4][..], &bytes.to_le_bytes(), &[slot]].concat();
    let turns = (0..20u8).flat_map(|slot| [send(60_000, slot), vec![5, 8, slot], vec![6, slot, 7]].concat());
    let behind = (0..20).flat_map(|_| send(40, 200)).chain([5; 20]);
    vec![turns.collect(), behind.collect()]
}

fn main() -> std::io::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "seeds".into());
    let dir = Path::new(&dir);
    write(dir, "decode", stream::each_call())?;
    write(dir, "ring", ring())?;
    let sessions = stream::sessions();
    write(
        dir,
        "worker",
        sessions.iter().map(|calls| stream::of_calls(calls)),
    )
}
