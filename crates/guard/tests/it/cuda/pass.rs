//! What is not hooked reaches the driver as it was: many arguments, floating ones, before anything else was called.

use std::ptr::null_mut;

use super::cu::{Cu, Handle};
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::cu;

/// Part: the very first call has eight arguments, the second two of them floating.
pub fn through() {
    let cu = Cu::load();
    let mut seen = [0u64; 7];
    let code = cu!(cu, "cuLinkAddData_v2", 1 << 40 => u64, 2 => u32, 3 << 41 => u64, 4 => usize, 5 << 42 => u64,
        6 => u32, 7 << 43 => u64, &mut seen => *mut [u64; 7]);
    assert_eq!(code, 0);
    assert_eq!(seen, [1 << 40, 2, 3 << 41, 4, 5 << 42, 6, 7 << 43]);
    let (mut least, mut most) = (0f32, 0f32);
    let code = cu!(cu, "cuTexRefSetMipmapLevelClamp", null_mut() => Handle, 1.5 => f32, -2.25 => f32);
    assert_eq!(code, 0);
    let code = cu!(cu, "cuTexRefGetMipmapLevelClamp", &mut least => *mut f32, &mut most => *mut f32,
        null_mut() => Handle);
    assert_eq!((code, least, most), (0, 1.5, -2.25));
    // A function the driver lacks says so; the driver's own tables are not answered for it.
    assert_eq!(
        cu!(cu, "cuMulticastUnbind", 0 => u64, 0 => i32, 0 => usize, 0 => usize),
        500
    );
    let mut table = null_mut();
    assert_eq!(
        cu!(cu, "cuGetExportTable", &mut table => *mut Handle, [0u8; 16].as_ptr() => *const u8),
        500
    );
    assert!(table.is_null());
}

/// Part: floating arguments in the very first call of all, which fills the table.
pub fn first_floating() {
    let cu = Cu::load();
    assert_eq!(
        cu!(cu, "cuTexRefSetMipmapLevelClamp", null_mut() => Handle, 0.125 => f32, 8.5 => f32),
        0
    );
    let (mut least, mut most) = (0f32, 0f32);
    let code = cu!(cu, "cuTexRefGetMipmapLevelClamp", &mut least => *mut f32, &mut most => *mut f32,
        null_mut() => Handle);
    assert_eq!((code, least, most), (0, 0.125, 8.5));
}

/// Part: a kernel's results, launched in each form, captured and replayed.
pub fn results() {
    let cu = Cu::open();
    let add = cu.kernel(c"add");
    let count = 1000u32;
    let bytes = count as usize * 4;
    let [a, b, to] = [(); 3].map(|()| cu.alloc(bytes).unwrap());
    let floats = |of: fn(u32) -> f32| {
        (0..count)
            .flat_map(|at| of(at).to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    cu.write(a, &floats(|at| at as f32));
    cu.write(b, &floats(|at| at as f32 * 0.5));
    let expected = floats(|at| at as f32 * 1.5);
    let parameters = [
        (&raw const a).cast(),
        (&raw const b).cast(),
        (&raw const to).cast(),
        (&raw const count).cast(),
    ];
    let list = parameters.as_ptr();
    let stream = cu.stream();
    let check = |what: &str, code: i32| {
        assert_eq!(code, 0, "{what}");
        assert_eq!(cu!(cu, "cuCtxSynchronize"), 0);
        assert_eq!(cu!(cu, "cuStreamSynchronize_ptsz", null_mut() => Handle), 0);
        assert!(cu.read(to, bytes) == expected, "{what}");
        cu.write(to, &vec![0; bytes]);
    };
    check("plain", cu.launch(add, stream, &parameters));
    check("in the default stream", cu.launch(add, null_mut(), &parameters));
    let code = cu!(cu, "cuLaunchKernel_ptsz", add => Handle, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32,
        1 => u32, 0 => u32, null_mut() => Handle, list => *const *const std::ffi::c_void, null_mut() => Handle);
    check("in the thread's stream", code);
    let code = cu!(cu, "cuLaunchCooperativeKernel", add => Handle, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32,
        1 => u32, 0 => u32, stream => Handle, list => *const *const std::ffi::c_void);
    check("cooperative", code);
    let config: [u64; 7] = [1 | 1 << 32, 1 | 32 << 32, 1 | 1 << 32, 0, stream as u64, 0, 0];
    let code = cu!(cu, "cuLaunchKernelEx", config.as_ptr() => *const u64, add => Handle, list => *const *const std::ffi::c_void,
        null_mut() => Handle);
    check("by configuration", code);
    assert_eq!(cu!(cu, "cuStreamBeginCapture_v2", stream => Handle, 2 => u32), 0);
    assert_eq!(cu.launch(add, stream, &parameters), 0);
    let (mut graph, mut ready) = (null_mut(), null_mut());
    assert_eq!(
        cu!(cu, "cuStreamEndCapture", stream => Handle, &mut graph => *mut Handle),
        0
    );
    let code = cu!(cu, "cuGraphInstantiateWithFlags", &mut ready => *mut Handle, graph => Handle, 0 => u64);
    assert_eq!(code, 0);
    check(
        "as a graph",
        cu!(cu, "cuGraphLaunch", ready => Handle, stream => Handle),
    );
}

#[test]
fn what_is_not_hooked_passes_untouched() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    desk.run("cuda-through");
    desk.run("cuda-first-floating");
}

#[test]
fn kernels_launched_in_every_form_give_their_results_and_are_counted() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    desk.run("cuda-results");
    let launches = desk.bench.counter(1, tenure_limits::Counter::Launches);
    assert_eq!(launches, 6, "the captured launch is counted when its graph is");
}
