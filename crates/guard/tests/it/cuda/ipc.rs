//! Memory of one process opened in another, of another slice: whoever opens it pays for it, whatever becomes of its
//! maker.

use super::cu::{Cu, OUT_OF_MEMORY};
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::cu;
use crate::worker::{Worker, heard, own, say};

const BYTES: usize = 8 * MIB as usize;

/// Part: makes a block and says by what it can be opened.
pub fn export() {
    let cu = Cu::open();
    let at = cu.alloc(BYTES).unwrap();
    cu.write(at, &[9; BYTES]);
    let mut shared = [0u64; 8];
    assert_eq!(
        cu!(cu, "cuIpcGetMemHandle", shared.as_mut_ptr() => *mut u64, at => u64),
        0
    );
    say("shared", shared.map(|word| word.to_string()).join(","));
    heard("end");
}

/// Part: opens it, as often as there is room.
pub fn open() {
    let cu = Cu::open();
    let words: Vec<u64> = std::env::var("SHARED")
        .unwrap()
        .split(',')
        .map(|word| word.parse().unwrap())
        .collect();
    let shared: [u64; 8] = words.try_into().unwrap();
    let mut opened = 0;
    let open = |at: &mut u64| cu!(cu, "cuIpcOpenMemHandle_v2", at => *mut u64, shared => [u64; 8], 1 => u32);
    assert_eq!(open(&mut opened), 0);
    assert_eq!(cu.read(opened, 4096), vec![9; 4096]);
    let mut again = 0;
    assert_eq!(open(&mut again), OUT_OF_MEMORY, "a second time there is no room");
    say("opened", "");
    heard("go");
    assert_eq!(
        cu.read(opened, 4096),
        vec![9; 4096],
        "its maker is gone, it is not"
    );
    say("still", "");
    heard("end");
}

#[test]
fn what_another_process_made_is_charged_to_whoever_opens_it() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 64 * MIB, 500), spec(2, 12 * MIB, 500)]);
    let mut maker = Worker::start(desk.command(1, own()), "cuda-export", &[]);
    let shared = maker.line("shared").unwrap();
    assert_eq!((desk.used(1), desk.used(2)), (8 * MIB, 0));
    let mut opener = Worker::start(desk.command(2, own()), "cuda-open", &[("SHARED", shared)]);
    if opener.line("opened").is_none() {
        panic!("{}", opener.end().1);
    }
    assert_eq!((desk.used(1), desk.used(2)), (8 * MIB, 8 * MIB));
    maker.signal("-KILL");
    drop(maker);
    desk.bench.device.reap();
    assert_eq!((desk.used(1), desk.used(2)), (0, 8 * MIB));
    opener.tell("go");
    opener.line("still").unwrap();
}
