//! Every way to memory: what it charges, that it comes clean, that it goes back; and what the program is told.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use tenure_limits::Process;

use super::cu::{Cu, Handle, NOT_SUPPORTED, OUT_OF_MEMORY};
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::cu;
use crate::worker::setting;

/// This process's slice, seen from beside the front. The seat takes no bytes.
struct Ledger(Process);

impl Ledger {
    fn join() -> Ledger {
        let page = std::env::var_os("TENURE_GUARD_PAGE").unwrap();
        Ledger(Process::join(page.as_ref(), setting("TENURE_GUARD_SLICE")).unwrap())
    }

    #[track_caller]
    fn holds(&self, bytes: u64, what: &str) {
        assert_eq!(self.0.used_bytes(), bytes, "{what}");
    }
}

const LOCATION: [u32; 4] = [1, 0, 1, 0];

/// Part: every kind of memory, one after the other, against the ledger.
pub fn paths() {
    let ledger = Ledger::join();
    let cu = Cu::open();
    ledger.holds(0, "a context that costs nothing");
    linear(&cu, &ledger);
    pools(&cu, &ledger);
    by_handle(&cu, &ledger);
    arrays(&cu, &ledger);
    external(&cu, &ledger);
    denied(&cu, &ledger);
    gone_with_its_context(&cu, &ledger);
}

fn clean(cu: &Cu, at: u64, bytes: usize) {
    assert!(cu.read(at, bytes).iter().all(|byte| *byte == 0), "not zeroed");
}

fn linear(cu: &Cu, ledger: &Ledger) {
    let at = cu.alloc(1000).unwrap();
    ledger.holds(1024, "a small block takes a grain");
    clean(cu, at, 1000);
    cu.free(at);
    ledger.holds(0, "freed");
    let (mut at, mut pitch) = (0, 0);
    let code = cu!(cu, "cuMemAllocPitch_v2", &mut at => *mut u64, &mut pitch => *mut usize, 100 => usize,
        10 => usize, 4 => u32);
    assert_eq!(code, 0);
    ledger.holds(pitch as u64 * 10, "rows with what pads them");
    clean(cu, at, pitch * 10);
    cu.free(at);
    assert_eq!(
        cu!(cu, "cuMemAllocManaged", &mut at => *mut u64, 4096 => usize, 1 => u32),
        0
    );
    ledger.holds(4096, "managed");
    clean(cu, at, 4096);
    cu.free(at);
    ledger.holds(0, "all of it freed");
    assert_eq!(
        cu!(cu, "cuMemFree_v2", 0x1234 => u64),
        1,
        "what is not there is not freed"
    );
    let limit = ledger.0.limit_bytes() as usize;
    assert_eq!(cu.alloc(limit + 1), Err(OUT_OF_MEMORY));
    let all = cu.alloc(limit).unwrap();
    assert_eq!(cu.info(), (0, limit));
    assert_eq!(cu.alloc(1), Err(OUT_OF_MEMORY));
    cu.free(all);
    assert_eq!(cu.info(), (limit, limit));
    // The driver's own refusal costs nothing: there is less on the device than in the slice.
    assert_eq!(cu.alloc(0), Err(1));
    ledger.holds(0, "what the driver refused");
}

fn pools(cu: &Cu, ledger: &Ledger) {
    let stream = cu.stream();
    let mut at = 0;
    assert_eq!(
        cu!(cu, "cuMemAllocAsync", &mut at => *mut u64, 3 * MIB as usize => usize, stream => Handle),
        0
    );
    ledger.holds(4 * MIB, "what the pool took, not what was asked");
    cu.wait(stream);
    clean(cu, at, 3 * MIB as usize);
    assert_eq!(cu!(cu, "cuMemFreeAsync", at => u64, stream => Handle), 0);
    cu.wait(stream);
    ledger.holds(0, "given back when something waited");

    let (mut pool, mut threshold) = (null_mut(), 64 * MIB);
    let code = cu!(cu, "cuMemPoolCreate", &mut pool => *mut Handle, LOCATION.as_ptr() => *const u32);
    assert_eq!(code, 0);
    let set = |threshold: &mut u64| {
        let value = (&raw mut *threshold).cast();
        cu!(cu, "cuMemPoolSetAttribute", pool => Handle, 4 => u32, value => *mut c_void)
    };
    assert_eq!(set(&mut threshold), 0);
    let from = |at: &mut u64, mib: u64| {
        cu!(cu, "cuMemAllocFromPoolAsync", at => *mut u64, (mib * MIB) as usize => usize, pool => Handle,
            stream => Handle)
    };
    assert_eq!(from(&mut at, 8), 0);
    ledger.holds(8 * MIB, "from a pool of its own");
    cu.free(at);
    cu.wait(stream);
    ledger.holds(8 * MIB, "kept by the pool, and charged");
    assert_eq!(from(&mut at, 6), 0);
    ledger.holds(8 * MIB, "out of what it kept");
    clean(cu, at, 6 * MIB as usize);
    let limit = ledger.0.limit_bytes();
    assert_eq!(cu!(cu, "cuMemFreeAsync", at => u64, stream => Handle), 0);
    cu.wait(stream);
    let all = cu
        .alloc(limit as usize)
        .expect("what a pool keeps unused goes back before anybody is refused");
    cu.free(all);
    assert_eq!(
        from(&mut at, limit / MIB + 2),
        OUT_OF_MEMORY,
        "a pool does not get past the slice"
    );
    ledger.holds(0, "the pool has nothing");
    assert_eq!(from(&mut at, 4), 0);
    assert_eq!(cu!(cu, "cuMemPoolTrimTo", pool => Handle, 0 => usize), 0);
    ledger.holds(4 * MIB, "trimmed, it has what is out");
    assert_eq!(cu!(cu, "cuMemPoolDestroy", pool => Handle), 0);
    ledger.holds(4 * MIB, "let go, it has what is out");
    assert_eq!(cu!(cu, "cuMemFreeAsync", at => u64, stream => Handle), 0);
    cu.wait(stream);
    ledger.holds(0, "the last of it freed");

    let code =
        cu!(cu, "cuMemAllocAsync_ptsz", &mut at => *mut u64, 2 * MIB as usize => usize, null_mut() => Handle);
    assert_eq!(code, 0);
    ledger.holds(2 * MIB, "in the thread's own stream");
    assert_eq!(cu!(cu, "cuMemFreeAsync_ptsz", at => u64, null_mut() => Handle), 0);
    assert_eq!(cu!(cu, "cuStreamSynchronize_ptsz", null_mut() => Handle), 0);
    ledger.holds(0, "freed there");
    // What is only taken down for later takes nothing now, and is not offered.
    assert_eq!(cu!(cu, "cuStreamBeginCapture_v2", stream => Handle, 2 => u32), 0);
    assert_eq!(
        cu!(cu, "cuMemAllocAsync", &mut at => *mut u64, 4096 => usize, stream => Handle),
        900
    );
    let mut graph = null_mut();
    assert_eq!(
        cu!(cu, "cuStreamEndCapture", stream => Handle, &mut graph => *mut Handle),
        0
    );
}

fn by_handle(cu: &Cu, ledger: &Ledger) {
    let bytes = 4 * MIB as usize;
    let (mut handle, mut at) = (0u64, 0u64);
    let create = |handle: &mut u64, bytes: usize| cu!(cu, "cuMemCreate", handle => *mut u64, bytes => usize, LOCATION.as_ptr() => *const u32, 0 => u64);
    assert_eq!(create(&mut handle, bytes), 0);
    ledger.holds(4 * MIB, "by handle");
    let code = cu!(cu, "cuMemAddressReserve", &mut at => *mut u64, 2 * bytes => usize, 0 => usize, 0 => u64, 0 => u64);
    assert_eq!(code, 0);
    let map = |at: u64, handle: u64| cu!(cu, "cuMemMap", at => u64, bytes => usize, 0 => usize, handle => u64, 0 => u64);
    assert_eq!(map(at, handle), 0);
    assert_eq!(map(at + bytes as u64, handle), 0);
    clean(cu, at, bytes);
    assert_eq!(cu!(cu, "cuMemRelease", handle => u64), 0);
    ledger.holds(4 * MIB, "mapped, it lives without its handle");
    let mut again = 0;
    assert_eq!(
        cu!(cu, "cuMemRetainAllocationHandle", &mut again => *mut u64, at + 1 => u64),
        0
    );
    assert_eq!(cu!(cu, "cuMemUnmap", at => u64, 2 * bytes => usize), 0);
    ledger.holds(4 * MIB, "held by the handle that was taken again");
    assert_eq!(cu!(cu, "cuMemRelease", again => u64), 0);
    ledger.holds(0, "nothing has it");
    assert_eq!(
        create(&mut handle, ledger.0.limit_bytes() as usize + bytes),
        OUT_OF_MEMORY
    );
    ledger.holds(0, "refused");
}

fn arrays(cu: &Cu, ledger: &Ledger) {
    let mut array = null_mut();
    // Width, height, format (float) and two channels.
    let flat: [u64; 3] = [64, 16, 0x20 | 2 << 32];
    assert_eq!(
        cu!(cu, "cuArrayCreate_v2", &mut array => *mut Handle, flat.as_ptr() => *const u64),
        0
    );
    ledger.holds(64 * 16 * 8, "an array");
    let mut found = vec![0xEEu8; 64 * 16 * 8];
    read_array(cu, array, &mut found, [512, 16, 1]);
    assert!(found.iter().all(|byte| *byte == 0), "not zeroed");
    assert_eq!(cu!(cu, "cuArrayDestroy", array => Handle), 0);
    ledger.holds(0, "destroyed");
    let deep: [u64; 5] = [8, 8, 8, 0x20 | 1 << 32, 0];
    assert_eq!(
        cu!(cu, "cuArray3DCreate_v2", &mut array => *mut Handle, deep.as_ptr() => *const u64),
        0
    );
    ledger.holds(2048, "an array with depth");
    let mut found = vec![0xEEu8; 2048];
    read_array(cu, array, &mut found, [32, 8, 8]);
    assert!(found.iter().all(|byte| *byte == 0), "not zeroed");
    assert_eq!(cu!(cu, "cuArrayDestroy", array => Handle), 0);
    let create = |array: &mut Handle| cu!(cu, "cuMipmappedArrayCreate", array => *mut Handle, deep.as_ptr() => *const u64, 4 => u32);
    assert_eq!(create(&mut array), 0);
    ledger.holds(
        ((512 + 64 + 8 + 1) * 4_u64).next_multiple_of(512),
        "all levels, in grains",
    );
    let mut level = null_mut();
    let code = cu!(cu, "cuMipmappedArrayGetLevel", &mut level => *mut Handle, array => Handle, 1 => u32);
    assert_eq!(code, 0);
    let mut found = vec![0xEEu8; 256];
    read_array(cu, level, &mut found, [16, 4, 4]);
    assert!(found.iter().all(|byte| *byte == 0), "not zeroed");
    assert_eq!(cu!(cu, "cuMipmappedArrayDestroy", array => Handle), 0);
    ledger.holds(0, "destroyed with all its levels");
}

/// Reads a whole array of rows of `sides[0]` bytes.
fn read_array(cu: &Cu, array: Handle, to: &mut [u8], sides: [usize; 3]) {
    // `CUDA_MEMCPY3D`: 25 words of eight bytes.
    let mut copy = [0usize; 25];
    (copy[4], copy[7]) = (3, array as usize);
    (copy[15], copy[16], copy[20], copy[21]) = (1, to.as_mut_ptr() as usize, sides[0], sides[1]);
    copy[22..].copy_from_slice(&sides);
    assert_eq!(cu!(cu, "cuMemcpy3D_v2", copy.as_ptr() => *const usize), 0);
}

fn external(cu: &Cu, ledger: &Ledger) {
    let at = cu.alloc(8192).unwrap();
    cu.write(at, &[7; 8192]);
    let mut shared = [0u64; 8];
    assert_eq!(
        cu!(cu, "cuIpcGetMemHandle", shared.as_mut_ptr() => *mut u64, at => u64),
        0
    );
    let mut opened = 0;
    let open =
        |opened: &mut u64| cu!(cu, "cuIpcOpenMemHandle_v2", opened => *mut u64, shared => [u64; 8], 1 => u32);
    assert_eq!(open(&mut opened), 0);
    ledger.holds(2 * 8192, "opened, it is charged to whoever opened it");
    assert_eq!(cu.read(opened, 8192), vec![7; 8192], "and is what it was");
    let rest = cu.alloc(ledger.0.limit_bytes() as usize - 2 * 8192).unwrap();
    let mut more = 0;
    assert_eq!(open(&mut more), OUT_OF_MEMORY, "in a full slice it is not opened");
    cu.free(rest);
    assert_eq!(cu!(cu, "cuIpcCloseMemHandle", opened => u64), 0);
    ledger.holds(8192, "closed");
    cu.free(at);
    ledger.holds(0, "freed");
}

fn denied(cu: &Cu, ledger: &Ledger) {
    let mut handle = 0u64;
    let code = cu!(cu, "cuMemImportFromShareableHandle", &mut handle => *mut u64, 3 => usize, 1 => u32);
    assert_eq!(code, NOT_SUPPORTED);
    let mut file = 0;
    let code = cu!(cu, "cuMemExportToShareableHandle", &mut file => *mut i32, 1 => u64, 1 => u32, 0 => u64);
    assert_eq!(code, NOT_SUPPORTED);
    let code = cu!(cu, "cuGraphAddMemAllocNode", null_mut() => Handle, null_mut() => Handle, null() => *const Handle,
        0 => usize, null_mut() => Handle);
    assert_eq!(code, NOT_SUPPORTED);
    ledger.holds(0, "nothing came of it");
}

fn gone_with_its_context(cu: &Cu, ledger: &Ledger) {
    let mut context = null_mut();
    let code =
        cu!(cu, "cuCtxCreate_v4", &mut context => *mut Handle, null_mut() => Handle, 0 => u32, 0 => i32);
    assert_eq!(code, 0);
    cu.alloc(4096).unwrap();
    let flat: [u64; 3] = [64, 1, 0x20 | 1 << 32];
    let mut array = null_mut();
    assert_eq!(
        cu!(cu, "cuArrayCreate_v2", &mut array => *mut Handle, flat.as_ptr() => *const u64),
        0
    );
    ledger.holds(4096 + 512, "in a context of its own");
    assert_eq!(cu!(cu, "cuCtxDestroy_v2", context => Handle), 0);
    ledger.holds(0, "gone with it");
    cu.alloc(4096).unwrap();
    assert_eq!(cu!(cu, "cuDevicePrimaryCtxReset_v2", 0 => i32), 0);
    ledger.holds(0, "reset");
}

#[test]
fn every_way_to_memory_charges_and_credits_exactly() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    desk.run("cuda-paths");
    assert_eq!(desk.bench.device.audit_bytes(1).unwrap(), 0);
}
