//! What the specification says, seen by a program: the same lines from the bare driver and through the broker.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::bench::{Bench, Vendor, eventually, spec, turn};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::part::{Part, own, say};

const SOURCE: &str = "
__kernel void add(__global uint *a, uint n) { a[get_global_id(0)] += n; }
__kernel void sum(__global const uint *in, __global uint *out, __local uint *part) {
    uint l = get_local_id(0);
    part[l] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) { uint s = 0; for (uint i = 0; i < get_local_size(0); i++) s += part[i]; out[get_group_id(0)] = s; }
}
__kernel void look(read_only image2d_t image, sampler_t how, __global float4 *out) {
    int x = get_global_id(0), y = get_global_id(1);
    out[y * get_global_size(0) + x] = read_imagef(image, how, (int2)(x, y));
}
__kernel void speak(uint n) { printf(\"kernel says %u\\n\", n + (uint)get_global_id(0)); }
__kernel void wide(__global ulong *out, ulong value, double other, uchar small) { out[0] = value; out[1] = as_ulong(other); out[2] = small; }
";

fn words(count: u32) -> Vec<u32> {
    (0..count).map(|n| n.wrapping_mul(2654435761)).collect()
}

fn bytes(words: &[u32]) -> &[u8] {
    // SAFETY: integers without padding.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 4) }
}

fn digest(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0xcbf29ce484222325u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100000001b3)
    });
    format!("{sum:016x}")
}

struct Bed {
    cl: Cl,
    context: Handle,
    queue: Handle,
    program: Handle,
}

impl Bed {
    fn new() -> Bed {
        let cl = Cl::open().unwrap();
        let context = cl.context();
        let queue = cl.queue(context, 2);
        let (program, code) = build(&cl, context, SOURCE);
        assert_eq!(code, 0);
        Bed {
            cl,
            context,
            queue,
            program,
        }
    }

    fn kernel(&self, name: &str) -> Handle {
        let name = CString::new(name).unwrap();
        let mut code = 0;
        let kernel = call!(self.cl, "clCreateKernel", Handle, self.program => Handle, name.as_ptr() => *const c_char,
            &mut code => *mut i32);
        assert_eq!(code, 0);
        kernel
    }

    fn buffer(&self, content: &[u32]) -> Handle {
        let buffer = self.cl.buffer(self.context, 1, content.len() * 4).unwrap();
        self.cl.write(self.queue, buffer, bytes(content));
        buffer
    }

    fn content(&self, buffer: Handle, words: usize) -> Vec<u8> {
        let mut into = vec![0; words * 4];
        self.cl.read(self.queue, buffer, &mut into);
        into
    }
}

fn build(cl: &Cl, context: Handle, source: &str) -> (Handle, i32) {
    let source = CString::new(source).unwrap();
    let mut code = 0;
    let program = call!(cl, "clCreateProgramWithSource", Handle, context => Handle, 1 => u32,
        &source.as_ptr() => *const *const c_char, null() => *const usize, &mut code => *mut i32);
    assert_eq!(code, 0);
    let code = call!(cl, "clBuildProgram", i32, program => Handle, 0 => u32, null() => *const Handle,
        null() => *const c_char, null_mut() => Handle, null_mut() => Handle);
    (program, code)
}

/// All of it, in one process.
pub fn check_all() {
    let bed = Bed::new();
    kernels(&bed);
    blocks(&bed);
    mapping(&bed);
    events(&bed);
    disorder(&bed);
    images(&bed);
    programs(&bed);
    printing(&bed);
    refusals(&bed);
    threads(&bed);
    say("done", "");
}

fn kernels(bed: &Bed) {
    let cl = &bed.cl;
    let a = bed.buffer(&words(1000));
    let add = bed.kernel("add");
    cl.set_arg(add, 0, &a);
    for n in 1..50u32 {
        cl.set_arg(add, 1, &n);
        assert_eq!(cl.launch(bed.queue, add, 1000, 10, null_mut()), 0);
    }
    say("add", digest(&bed.content(a, 1000)));
    let out = bed.buffer(&[0; 100]);
    let sum = bed.kernel("sum");
    cl.set_arg(sum, 0, &a);
    cl.set_arg(sum, 1, &out);
    let code =
        call!(cl, "clSetKernelArg", i32, sum => Handle, 2 => u32, 40 => usize, null() => *const c_void);
    assert_eq!(code, 0);
    assert_eq!(cl.launch(bed.queue, sum, 1000, 10, null_mut()), 0);
    say("local", digest(&bed.content(out, 100)));
    let wide = bed.kernel("wide");
    cl.set_arg(wide, 0, &out);
    cl.set_arg(wide, 1, &0x7fff_1234_5678_9abcu64);
    cl.set_arg(wide, 2, &-1.25f64);
    cl.set_arg(wide, 3, &7u8);
    assert_eq!(cl.launch(bed.queue, wide, 1, 1, null_mut()), 0);
    say("wide", digest(&bed.content(out, 6)));
    // A part of a buffer, written through the whole.
    let region = [1024usize, 512];
    let mut code = 0;
    let part = call!(cl, "clCreateSubBuffer", Handle, a => Handle, 1 => u64, 0x1220 => u32,
        region.as_ptr().cast() => *const c_void, &mut code => *mut i32);
    assert_eq!(code, 0);
    cl.set_arg(add, 0, &part);
    assert_eq!(cl.launch(bed.queue, add, 128, 1, null_mut()), 0);
    say("part", digest(&bed.content(a, 1000)));
    cl.release(part);
}

fn blocks(bed: &Bed) {
    let cl = &bed.cl;
    let a = bed.buffer(&words(4096));
    let b = bed.buffer(&vec![0; 4096]);
    let (from_at, host_at, region) = ([8usize, 2, 1], [4usize, 1, 0], [24usize, 5, 3]);
    let mut host = vec![0xABu8; 8192];
    for blocking in [1u32, 0] {
        let code = call!(cl, "clEnqueueReadBufferRect", i32, bed.queue => Handle, a => Handle, blocking => u32,
            from_at.as_ptr() => *const usize, host_at.as_ptr() => *const usize, region.as_ptr() => *const usize,
            64 => usize, 1024 => usize, 40 => usize, 400 => usize, host.as_mut_ptr().cast() => *mut c_void,
            0 => u32, null() => *const Handle, null_mut() => *mut Handle);
        assert_eq!(code, 0);
        cl.finish(bed.queue);
        say("read-rect", digest(&host));
    }
    let code = call!(cl, "clEnqueueWriteBufferRect", i32, bed.queue => Handle, b => Handle, 0 => u32,
        from_at.as_ptr() => *const usize, host_at.as_ptr() => *const usize, region.as_ptr() => *const usize,
        64 => usize, 1024 => usize, 40 => usize, 400 => usize, host.as_ptr().cast() => *const c_void,
        0 => u32, null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let code = call!(cl, "clEnqueueCopyBufferRect", i32, bed.queue => Handle, a => Handle, b => Handle,
        from_at.as_ptr() => *const usize, host_at.as_ptr() => *const usize, region.as_ptr() => *const usize,
        64 => usize, 1024 => usize, 128 => usize, 2048 => usize, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let pattern = 0x01020304u32;
    let code = call!(cl, "clEnqueueFillBuffer", i32, bed.queue => Handle, b => Handle,
        (&raw const pattern).cast() => *const c_void, 4 => usize, 12000 => usize, 400 => usize, 0 => u32,
        null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let code = call!(cl, "clEnqueueCopyBuffer", i32, bed.queue => Handle, a => Handle, b => Handle, 4 => usize,
        8000 => usize, 1000 => usize, 0 => u32, null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let code = call!(cl, "clEnqueueMigrateMemObjects", i32, bed.queue => Handle, 1 => u32, &b => *const Handle,
        0 => u64, 0 => u32, null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    say("rects", digest(&bed.content(b, 4096)));
    // Longer than a piece of a long transfer, at odd places.
    let long = words(5 << 20);
    let whole = cl.buffer(bed.context, 1, long.len() * 4 + 64).unwrap();
    let code = call!(cl, "clEnqueueWriteBuffer", i32, bed.queue => Handle, whole => Handle, 0 => u32, 12 => usize,
        long.len() * 4 => usize, long.as_ptr().cast() => *const c_void, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let mut back = vec![0u8; long.len() * 4];
    let code = call!(cl, "clEnqueueReadBuffer", i32, bed.queue => Handle, whole => Handle, 1 => u32, 12 => usize,
        back.len() => usize, back.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    assert_eq!(code, 0);
    say("long", back == bytes(&long));
    cl.release(whole);
}

fn map(bed: &Bed, buffer: Handle, flags: u64, at: usize, size: usize) -> *mut u8 {
    let mut code = 0;
    let address = call!(bed.cl, "clEnqueueMapBuffer", *mut c_void, bed.queue => Handle, buffer => Handle, 1 => u32,
        flags => u64, at => usize, size => usize, 0 => u32, null() => *const Handle, null_mut() => *mut Handle,
        &mut code => *mut i32);
    assert_eq!(code, 0);
    address.cast()
}

fn unmap(bed: &Bed, buffer: Handle, address: *mut u8) -> i32 {
    call!(bed.cl, "clEnqueueUnmapMemObject", i32, bed.queue => Handle, buffer => Handle,
        address.cast() => *mut c_void, 0 => u32, null() => *const Handle, null_mut() => *mut Handle)
}

fn mapping(bed: &Bed) {
    let cl = &bed.cl;
    let a = bed.buffer(&words(1024));
    for flags in [1u64, 2, 3, 4] {
        let seen = map(bed, a, flags, 256, 1024);
        if flags != 4 {
            // SAFETY: mapped for so many bytes.
            say(
                "mapped",
                digest(unsafe { std::slice::from_raw_parts(seen, 1024) }),
            );
        }
        if flags != 1 {
            // SAFETY: as above, for writing.
            unsafe { std::ptr::write_bytes(seen, flags as u8, 1024) };
        }
        assert_eq!(unmap(bed, a, seen), 0);
        say("unmapped", digest(&bed.content(a, 1024)));
    }
    assert_ne!(unmap(bed, a, 8 as *mut u8), 0);
    // The program's own memory, used.
    #[repr(align(4096))]
    struct Page([u32; 1024]);
    let mut host = Box::new(Page([5; 1024]));
    let mut code = 0;
    let used = call!(cl, "clCreateBuffer", Handle, bed.context => Handle, 1 | 1 << 3 => u64, 4096 => usize,
        host.0.as_mut_ptr().cast() => *mut c_void, &mut code => *mut i32);
    assert_eq!(code, 0);
    let add = bed.kernel("add");
    cl.set_arg(add, 0, &used);
    cl.set_arg(add, 1, &3u32);
    assert_eq!(cl.launch(bed.queue, add, 1024, 8, null_mut()), 0);
    let seen = map(bed, used, 3, 400, 800);
    assert_eq!(seen as usize, host.0.as_ptr() as usize + 400);
    // SAFETY: mapped for so many bytes.
    unsafe { seen.write(77) };
    assert_eq!(unmap(bed, used, seen), 0);
    say("used", digest(&bed.content(used, 1024)));
    cl.release(used);
}

static CALLED: AtomicI32 = AtomicI32::new(9);
static SAW: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn called(_event: Handle, status: i32, data: *mut c_void) {
    // SAFETY: the address of a word that the test keeps.
    SAW.store(unsafe { data.cast::<u32>().read_volatile() }, SeqCst);
    CALLED.store(status, SeqCst);
}

fn events(bed: &Bed) {
    let cl = &bed.cl;
    let a = bed.buffer(&words(1024));
    let add = bed.kernel("add");
    cl.set_arg(add, 0, &a);
    cl.set_arg(add, 1, &1u32);
    let mut code = 0;
    let gate = call!(cl, "clCreateUserEvent", Handle, bed.context => Handle, &mut code => *mut i32);
    assert_eq!(code, 0);
    let items = 1024usize;
    let mut done: Handle = null_mut();
    let code = call!(cl, "clEnqueueNDRangeKernel", i32, bed.queue => Handle, add => Handle, 1 => u32,
        null() => *const usize, &items => *const usize, null() => *const usize, 1 => u32, &gate => *const Handle,
        &mut done => *mut Handle);
    assert_eq!(code, 0);
    let mut host = vec![0u32; 1024];
    let mut read: Handle = null_mut();
    let code = call!(cl, "clEnqueueReadBuffer", i32, bed.queue => Handle, a => Handle, 0 => u32, 0 => usize,
        4096 => usize, host.as_mut_ptr().cast() => *mut c_void, 1 => u32, &done => *const Handle,
        &mut read => *mut Handle);
    assert_eq!(code, 0);
    let code = call!(cl, "clSetEventCallback", i32, read => Handle, 0 => i32,
        called => unsafe extern "C" fn(Handle, i32, *mut c_void), host.as_mut_ptr().cast() => *mut c_void);
    assert_eq!(code, 0);
    call!(cl, "clFlush", i32, bed.queue => Handle);
    std::thread::sleep(Duration::from_millis(20));
    let status = |event: Handle| {
        let mut status = 9i32;
        call!(cl, "clGetEventInfo", i32, event => Handle, 0x11D3 => u32, 4 => usize,
            (&raw mut status).cast() => *mut c_void, null_mut() => *mut usize);
        status
    };
    say(
        "waits",
        status(read) > 0 && CALLED.load(SeqCst) == 9 && host.iter().all(|word| *word == 0),
    );
    assert_eq!(
        call!(cl, "clSetUserEventStatus", i32, gate => Handle, 0 => i32),
        0
    );
    eventually("the callback comes", Duration::from_secs(10), || {
        CALLED.load(SeqCst) != 9
    });
    say("called", format!("{} {}", CALLED.load(SeqCst), SAW.load(SeqCst)));
    say("status", status(read));
    say("copied", digest(bytes(&host)));
    let times = [0x1280u32, 0x1281, 0x1282, 0x1283].map(|param| cl.profile(done, param).unwrap());
    say("profile", times.is_sorted());
    // A read seen as ended by what came behind it.
    let mut host = vec![0u32; 1024];
    let code = call!(cl, "clEnqueueReadBuffer", i32, bed.queue => Handle, a => Handle, 0 => u32, 0 => usize,
        4096 => usize, host.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let mut behind: Handle = null_mut();
    let code = call!(cl, "clEnqueueMarkerWithWaitList", i32, bed.queue => Handle, 0 => u32, null() => *const Handle,
        &mut behind => *mut Handle);
    assert_eq!(code, 0);
    cl.wait(behind);
    say("behind", digest(bytes(&host)));
    // What is read and written on without the program's help.
    let b = bed.buffer(&vec![0; 1024]);
    let mut between = vec![0u32; 1024];
    let mut read: Handle = null_mut();
    call!(cl, "clEnqueueReadBuffer", i32, bed.queue => Handle, a => Handle, 0 => u32, 0 => usize, 4096 => usize,
        between.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle, &mut read => *mut Handle);
    call!(cl, "clEnqueueWriteBuffer", i32, bed.queue => Handle, b => Handle, 0 => u32, 0 => usize, 4096 => usize,
        between.as_ptr().cast() => *const c_void, 1 => u32, &read => *const Handle, null_mut() => *mut Handle);
    say("passed-on", digest(&bed.content(b, 1024)));
    // A failed event fails what waits for it.
    let gate = call!(cl, "clCreateUserEvent", Handle, bed.context => Handle, null_mut() => *mut i32);
    let mut after: Handle = null_mut();
    call!(cl, "clEnqueueMarkerWithWaitList", i32, bed.queue => Handle, 1 => u32, &gate => *const Handle,
        &mut after => *mut Handle);
    assert_eq!(
        call!(cl, "clSetUserEventStatus", i32, gate => Handle, -5 => i32),
        0
    );
    let waited = call!(cl, "clWaitForEvents", i32, 1 => u32, &after => *const Handle);
    say("failed", format!("{waited} {}", status(after) < 0));
    for event in [done, read, behind, after, gate] {
        cl.release_event(event);
    }
    let queue = cl.queue(bed.context, 0);
    cl.finish(queue);
}

fn disorder(bed: &Bed) {
    let cl = &bed.cl;
    let queue = cl.queue(bed.context, 1);
    let a = bed.buffer(&vec![0; 256]);
    cl.finish(bed.queue);
    let add = bed.kernel("add");
    cl.set_arg(add, 0, &a);
    let mut last: Handle = null_mut();
    for n in 0..40u32 {
        cl.set_arg(add, 1, &n);
        let items = 256usize;
        let mut next: Handle = null_mut();
        let (count, list) = if last.is_null() {
            (0, null())
        } else {
            (1, &raw const last)
        };
        let code = call!(cl, "clEnqueueNDRangeKernel", i32, queue => Handle, add => Handle, 1 => u32,
            null() => *const usize, &items => *const usize, null() => *const usize, count => u32,
            list => *const Handle, &mut next => *mut Handle);
        assert_eq!(code, 0);
        if !last.is_null() {
            cl.release_event(last);
        }
        last = next;
    }
    call!(cl, "clEnqueueBarrierWithWaitList", i32, queue => Handle, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    let mut host = vec![0u8; 1024];
    cl.read(queue, a, &mut host);
    say("disorder", digest(&host));
    cl.release_event(last);
}

fn images(bed: &Bed) {
    let cl = &bed.cl;
    const SIDE: usize = 16;
    let format = [0x10B5u32, 0x10D2];
    #[repr(C)]
    struct Descriptor {
        kind: u32,
        sides: [usize; 4],
        pitches: [usize; 2],
        mips: u32,
        samples: u32,
        of: Handle,
    }
    let descriptor = Descriptor {
        kind: 0x10F1,
        sides: [SIDE, SIDE, 0, 0],
        pitches: [SIDE * 4 + 16, 0],
        mips: 0,
        samples: 0,
        of: null_mut(),
    };
    let pixels = words(((SIDE * 4 + 16) * SIDE / 4) as u32);
    let mut code = 0;
    let image = call!(cl, "clCreateImage", Handle, bed.context => Handle, 1 | 1 << 5 => u64,
        format.as_ptr() => *const u32, (&raw const descriptor).cast() => *const c_void,
        pixels.as_ptr().cast_mut().cast() => *mut c_void, &mut code => *mut i32);
    assert_eq!(code, 0);
    let (origin, region) = ([2usize, 3, 0], [8usize, 4, 1]);
    let mut host = vec![0xCDu8; 4096];
    let read = |host: &mut Vec<u8>, blocking: u32| {
        let code = call!(cl, "clEnqueueReadImage", i32, bed.queue => Handle, image => Handle, blocking => u32,
            origin.as_ptr() => *const usize, region.as_ptr() => *const usize, 100 => usize, 0 => usize,
            host.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle, null_mut() => *mut Handle);
        assert_eq!(code, 0);
        cl.finish(bed.queue);
        digest(host)
    };
    say("image", read(&mut host, 1));
    let code = call!(cl, "clEnqueueWriteImage", i32, bed.queue => Handle, image => Handle, 1 => u32,
        origin.as_ptr() => *const usize, region.as_ptr() => *const usize, 48 => usize, 0 => usize,
        pixels.as_ptr().cast() => *const c_void, 0 => u32, null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    say("image-written", read(&mut host, 0));
    let color = [0.5f32, 0.25, 1.0, 0.0];
    let corner = ([0usize; 3], [4usize, 4, 1]);
    let code = call!(cl, "clEnqueueFillImage", i32, bed.queue => Handle, image => Handle,
        color.as_ptr().cast() => *const c_void, corner.0.as_ptr() => *const usize, corner.1.as_ptr() => *const usize,
        0 => u32, null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let b = bed.buffer(&vec![0; 1024]);
    let code = call!(cl, "clEnqueueCopyImageToBuffer", i32, bed.queue => Handle, image => Handle, b => Handle,
        corner.0.as_ptr() => *const usize, region.as_ptr() => *const usize, 64 => usize, 0 => u32,
        null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    let code = call!(cl, "clEnqueueCopyBufferToImage", i32, bed.queue => Handle, b => Handle, image => Handle,
        32 => usize, origin.as_ptr() => *const usize, region.as_ptr() => *const usize, 0 => u32,
        null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    say("image-buffer", digest(&bed.content(b, 1024)));
    let sampler = call!(cl, "clCreateSampler", Handle, bed.context => Handle, 0 => u32, 0x1132 => u32, 0x1140 => u32,
        &mut code.clone() => *mut i32);
    let look = bed.kernel("look");
    let out = bed.buffer(&vec![0; SIDE * SIDE * 4]);
    cl.set_arg(look, 0, &image);
    cl.set_arg(look, 1, &sampler);
    cl.set_arg(look, 2, &out);
    let global = [SIDE, SIDE];
    let code = call!(cl, "clEnqueueNDRangeKernel", i32, bed.queue => Handle, look => Handle, 2 => u32,
        null() => *const usize, global.as_ptr() => *const usize, null() => *const usize, 0 => u32,
        null() => *const Handle, null_mut() => *mut Handle);
    assert_eq!(code, 0);
    say("sampled", digest(&bed.content(out, SIDE * SIDE * 4)));
    let (mut row, mut slice, mut code) = (0usize, 0usize, 0);
    let seen = call!(cl, "clEnqueueMapImage", *mut c_void, bed.queue => Handle, image => Handle, 1 => u32, 3 => u64,
        origin.as_ptr() => *const usize, region.as_ptr() => *const usize, &mut row => *mut usize,
        &mut slice => *mut usize, 0 => u32, null() => *const Handle, null_mut() => *mut Handle,
        &mut code => *mut i32);
    assert_eq!(code, 0);
    for line in 0..region[1] {
        // SAFETY: mapped rows of so many bytes.
        unsafe { std::ptr::write_bytes(seen.cast::<u8>().add(line * row), line as u8, region[0] * 4) };
    }
    assert_eq!(unmap(bed, image, seen.cast()), 0);
    say("image-mapped", read(&mut host, 1));
    let mut count = 0u32;
    let code = call!(cl, "clGetSupportedImageFormats", i32, bed.context => Handle, 1 => u64, 0x10F1 => u32,
        0 => u32, null_mut() => *mut c_void, &mut count => *mut u32);
    say("formats", format!("{code} {count}"));
    cl.release(image);
}

fn text_of(bed: &Bed, name: &str, object: Handle, device: Handle, param: u32) -> String {
    let mut size = 0;
    let mut text = vec![0u8; 1 << 20];
    let code = match device.is_null() {
        true => call!(bed.cl, name, i32, object => Handle, param => u32, text.len() => usize,
            text.as_mut_ptr().cast() => *mut c_void, &mut size => *mut usize),
        false => {
            call!(bed.cl, name, i32, object => Handle, device => Handle, param => u32, text.len() => usize,
            text.as_mut_ptr().cast() => *mut c_void, &mut size => *mut usize)
        }
    };
    text.truncate(size);
    format!("{code} {}", digest(&text))
}

fn programs(bed: &Bed) {
    let cl = &bed.cl;
    say(
        "source",
        text_of(bed, "clGetProgramInfo", bed.program, null_mut(), 0x1164),
    );
    say(
        "names",
        text_of(bed, "clGetProgramInfo", bed.program, null_mut(), 0x1168),
    );
    say(
        "options",
        text_of(bed, "clGetProgramBuildInfo", bed.program, cl.device, 0x1182),
    );
    let kernel = bed.kernel("sum");
    say(
        "name",
        text_of(bed, "clGetKernelInfo", kernel, null_mut(), 0x1190),
    );
    say(
        "arguments",
        text_of(bed, "clGetKernelInfo", kernel, null_mut(), 0x1191),
    );
    say(
        "group",
        text_of(bed, "clGetKernelWorkGroupInfo", kernel, cl.device, 0x11B1),
    );
    let (broken, code) = build(cl, bed.context, "__kernel void f() { this is no program }");
    let mut size = 0usize;
    call!(cl, "clGetProgramBuildInfo", i32, broken => Handle, cl.device => Handle, 0x1183 => u32, 0 => usize,
        null_mut() => *mut c_void, &mut size => *mut usize);
    say("broken", format!("{code} {}", size > 20));
    // The binary of a program does what the program does.
    let mut size = 0usize;
    call!(cl, "clGetProgramInfo", i32, bed.program => Handle, 0x1165 => u32, 8 => usize,
        (&raw mut size).cast() => *mut c_void, null_mut() => *mut usize);
    let mut binary = vec![0u8; size];
    let mut place = binary.as_mut_ptr();
    let code = call!(cl, "clGetProgramInfo", i32, bed.program => Handle, 0x1166 => u32, 8 => usize,
        (&raw mut place).cast() => *mut c_void, null_mut() => *mut usize);
    assert_eq!(code, 0);
    let (mut state, mut code) = (9, 9);
    let again = call!(cl, "clCreateProgramWithBinary", Handle, bed.context => Handle, 1 => u32,
        &cl.device => *const Handle, &size => *const usize, &binary.as_ptr() => *const *const u8,
        &mut state => *mut i32, &mut code => *mut i32);
    assert_eq!((state, code), (0, 0));
    let code = call!(cl, "clBuildProgram", i32, again => Handle, 0 => u32, null() => *const Handle,
        null() => *const c_char, null_mut() => Handle, null_mut() => Handle);
    assert_eq!(code, 0);
    let mut kernels = [null_mut(); 16];
    let mut count = 0;
    let code = call!(cl, "clCreateKernelsInProgram", i32, again => Handle, 16 => u32,
        kernels.as_mut_ptr() => *mut Handle, &mut count => *mut u32);
    say("binary", format!("{code} {count}"));
    let name = CString::new("wide").unwrap();
    let mut code = 0;
    let wide = call!(cl, "clCreateKernel", Handle, again => Handle, name.as_ptr() => *const c_char,
        &mut code => *mut i32);
    let out = bed.buffer(&[0; 8]);
    cl.set_arg(wide, 0, &out);
    cl.set_arg(wide, 1, &12345678901u64.rotate_left(40));
    cl.set_arg(wide, 2, &2.5f64);
    cl.set_arg(wide, 3, &9u8);
    assert_eq!(cl.launch(bed.queue, wide, 1, 1, null_mut()), 0);
    say("binary-ran", digest(&bed.content(out, 6)));
    // Compiled with a header, then linked.
    let text = |text: &str| {
        let text = CString::new(text).unwrap();
        call!(cl, "clCreateProgramWithSource", Handle, bed.context => Handle, 1 => u32,
            &text.as_ptr() => *const *const c_char, null() => *const usize, null_mut() => *mut i32)
    };
    let header = text("#define N 41\n");
    let main = text("#include \"n.h\"\n__kernel void f(__global uint *a) { a[0] = N + 1; }\n");
    let name = CString::new("n.h").unwrap();
    let code = call!(cl, "clCompileProgram", i32, main => Handle, 0 => u32, null() => *const Handle,
        null() => *const c_char, 1 => u32, &header => *const Handle, &name.as_ptr() => *const *const c_char,
        null_mut() => Handle, null_mut() => Handle);
    assert_eq!(code, 0);
    let mut code = 0;
    let linked = call!(cl, "clLinkProgram", Handle, bed.context => Handle, 0 => u32, null() => *const Handle,
        null() => *const c_char, 1 => u32, &main => *const Handle, null_mut() => Handle, null_mut() => Handle,
        &mut code => *mut i32);
    assert_eq!(code, 0);
    let name = CString::new("f").unwrap();
    let kernel = call!(cl, "clCreateKernel", Handle, linked => Handle, name.as_ptr() => *const c_char,
        &mut code => *mut i32);
    assert_eq!(code, 0);
    cl.set_arg(kernel, 0, &out);
    assert_eq!(cl.launch(bed.queue, kernel, 1, 1, null_mut()), 0);
    say("linked", digest(&bed.content(out, 1)));
}

fn printing(bed: &Bed) {
    let speak = bed.kernel("speak");
    bed.cl.set_arg(speak, 0, &41u32);
    assert_eq!(bed.cl.launch(bed.queue, speak, 1, 1, null_mut()), 0);
    bed.cl.finish(bed.queue);
}

/// Codes where the specification leaves no choice.
fn refusals(bed: &Bed) {
    let cl = &bed.cl;
    let a = bed.buffer(&words(16));
    let add = bed.kernel("add");
    let launch = |sides: u32, global: &[usize; 3], local: *const usize| {
        call!(cl, "clEnqueueNDRangeKernel", i32, bed.queue => Handle, add => Handle, sides => u32,
            null() => *const usize, global.as_ptr() => *const usize, local => *const usize, 0 => u32,
            null() => *const Handle, null_mut() => *mut Handle)
    };
    say("unset", launch(1, &[16, 1, 1], null()));
    cl.set_arg(add, 0, &a);
    cl.set_arg(add, 1, &1u32);
    say("sides", launch(4, &[16, 1, 1], null()));
    say("group-size", launch(1, &[1 << 20, 1, 1], &(1usize << 20)));
    let argue = |place: u32, size: usize| {
        call!(cl, "clSetKernelArg", i32, add => Handle, place => u32, size => usize,
            (&raw const a).cast() => *const c_void)
    };
    say("place", argue(7, 8));
    say("size", argue(0, 3));
    let mut host = [0u8; 128];
    let read = |at: usize, size: usize, to: *mut u8| {
        call!(cl, "clEnqueueReadBuffer", i32, bed.queue => Handle, a => Handle, 1 => u32, at => usize, size => usize,
            to.cast() => *mut c_void, 0 => u32, null() => *const Handle, null_mut() => *mut Handle)
    };
    say("beyond", read(60, 8, host.as_mut_ptr()));
    say("nowhere", read(0, 8, null_mut()));
    say("empty", format!("{:?}", cl.buffer(bed.context, 1, 0)));
    say("flags", format!("{:?}", cl.buffer(bed.context, 1 | 2, 64)));
    let name = CString::new("absent").unwrap();
    let mut code = 0;
    call!(cl, "clCreateKernel", Handle, bed.program => Handle, name.as_ptr() => *const c_char, &mut code => *mut i32);
    say("absent", code);
    say("context", call!(cl, "clRetainContext", i32, null_mut() => Handle));
}

/// Several threads, each with its own queue and kernel, while one waits for what another does.
fn threads(bed: &Bed) {
    struct Shared<'a>(&'a Bed, Handle);
    // SAFETY: OpenCL's functions may be called from any thread.
    unsafe impl Sync for Shared<'_> {}
    let gate = call!(bed.cl, "clCreateUserEvent", Handle, bed.context => Handle, null_mut() => *mut i32);
    let shared = &Shared(bed, gate);
    let mut sums: Vec<String> = std::thread::scope(|scope| {
        let work = |n: u32| {
            let bed = shared.0;
            let queue = bed.cl.queue(bed.context, 0);
            let a = bed.buffer(&vec![n; 4096]);
            bed.cl.finish(bed.queue);
            let add = bed.kernel("add");
            bed.cl.set_arg(add, 0, &a);
            bed.cl.set_arg(add, 1, &n);
            let mut host = vec![0u8; 4096 * 4];
            for _ in 0..100 {
                assert_eq!(bed.cl.launch(queue, add, 4096, 16, null_mut()), 0);
                bed.cl.read(queue, a, &mut host);
            }
            digest(&host)
        };
        let waiter = scope.spawn(move || {
            assert_eq!(
                call!(shared.0.cl, "clWaitForEvents", i32, 1 => u32, &shared.1 => *const Handle),
                0
            );
        });
        let all: Vec<_> = (1..5).map(|n| scope.spawn(move || work(n))).collect();
        let sums = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(
            call!(shared.0.cl, "clSetUserEventStatus", i32, shared.1 => Handle, 0 => i32),
            0
        );
        waiter.join().unwrap();
        sums
    });
    sums.sort();
    say("threads", sums.join(" "));
}

/// All lines a part says, and what its kernels printed.
pub fn lines(part: std::process::Command) -> Vec<String> {
    let mut part = Part::start(part, "semantics", &[]);
    let mut lines = Vec::new();
    while let Some(line) = part.any_line() {
        if line.contains('@') || line.contains("kernel says") {
            lines.push(line);
        }
    }
    let (code, said) = part.end();
    assert_eq!(code, Some(0), "{said}");
    // Some drivers print only when the process ends.
    lines.sort_by_key(|line| line.contains("kernel says"));
    lines
}

fn same(vendor: Vendor) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 512)]);
    let served = bench.serve(1);
    let bare = lines(bench.bare(own()));
    let brokered = lines(bench.command(&served, own()));
    assert!(bare.len() > 50, "{bare:?}");
    for (bare, brokered) in bare.iter().zip(&brokered) {
        assert_eq!(brokered, bare);
    }
    assert_eq!(brokered.len(), bare.len());
    assert!(brokered.iter().any(|line| line.contains("kernel says 41")));
    eventually("nothing is left on the device", Duration::from_secs(10), || {
        bench.reading(1).used_bytes == 0
    });
}

#[test]
fn a_program_sees_what_it_would_on_the_bare_driver() {
    same(Vendor::Pocl);
}

#[test]
fn a_program_sees_what_it_would_on_bare_intel() {
    same(Vendor::Intel);
}
