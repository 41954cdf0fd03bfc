//! A processor that serves as a device runs kernels as code of the process that owns the driver. Behind a worker, what such
//! a kernel can reach is that worker: the page on which all slices of the device lie among it. What it does there must not
//! be laid at a neighbour's door.

use std::time::Duration;

use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;

use super::{SLICE, was_ended};
use crate::bench::{eventually, has_ended, is_running};
use crate::fence::{fenced, python};
use crate::slice::{SPIN, bench, order, reader, slice};

/// Finds the page among what its process has mapped, and gives a neighbour's slice all of the device.
const SCRIBBLE: &str = r#"
import numpy, os, time, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, r'''
long ask(long number, long a, long b, long c) {
    long got;
    __asm__ volatile("syscall" : "=a"(got) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return got;
}
ulong hex(const char *text) {
    ulong value = 0;
    for (;; text++) {
        if (*text >= '0' && *text <= '9') value = value * 16 + (*text - '0');
        else if (*text >= 'a' && *text <= 'f') value = value * 16 + (*text - 'a' + 10);
        else return value;
    }
}
kernel void scribble(global long *said, ulong neighbour) {
    char path[] = "/proc/self/maps", line[256], one;
    long file = ask(2, (long)path, 0, 0);
    said[0] = file;
    said[1] = 0;
    int length = 0;
    while (ask(0, file, (long)&one, 1) == 1) {
        if (one != '\n') {
            if (length < 255) line[length++] = one;
            continue;
        }
        bool page = length > 6 && line[length - 6] == 'p' && line[length - 5] == 'a' && line[length - 4] == 'g' &&
            line[length - 3] == 'e' && line[length - 2] == '-' && line[length - 1] == '0';
        int dash = 0, space = 0;
        while (dash < length && line[dash] != '-') dash++;
        while (space < length && line[space] != ' ') space++;
        line[length] = 0;
        length = 0;
        if (!page || line[space + 2] != 'w') continue;
        global volatile ulong *at = (global volatile ulong *)hex(line);
        global volatile ulong *end = (global volatile ulong *)hex(line + dash + 1);
        for (; at + 2 < end; at++)
            if (*at == neighbour) { at[2] = 1ul << 40; said[1]++; break; }
    }
    ask(3, file, 0, 0);
}''').build()
said = numpy.zeros(2, numpy.int64)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=16)
kernel = cl.Kernel(program, 'scribble')
for _ in range(40):
    kernel(queue, (1,), None, buffer, numpy.uint64(os.environ['NEIGHBOUR']))
    cl.enqueue_copy(queue, said, buffer)
    time.sleep(0.05)
print('wrote', said, flush=True)
time.sleep(60)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_writes_on_the_page_ends_no_neighbour() {
    let bench = bench().await;
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    let program = |source: &str, tenant: &str, level| {
        let mut order = fenced(order(&bench, SLICE, &[&python(), "-c", source]));
        order.devices = vec![slice(&bench, SLICE, 500)];
        order.tenant = tenant.into();
        order.isolation = level;
        order
    };
    let neighbour = program(SPIN, "ten_a", Isolation::Guarded);
    let mut scribbler = program(SCRIBBLE, "ten_b", Isolation::Fenced);
    let ids = [neighbour.allocation, scribbler.allocation];
    scribbler.env.push(("NEIGHBOUR".into(), ids[0].0.to_string()));
    bench.start(neighbour).await;
    watcher.state(ids[0], is_running).await;
    bench.start(scribbler).await;
    watcher.state(ids[1], is_running).await;
    let file = |id: tenure_domain::id::AllocationId, name: &str| {
        let dir = bench.state_dir().join("allocations").join(id.to_string());
        std::fs::read_to_string(dir.join(name)).unwrap_or_default()
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(300);
    while !file(ids[1], "stdout").contains("wrote") {
        let why = file(ids[1], "stderr");
        assert!(why.is_empty() && std::time::Instant::now() < deadline, "{why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = file(ids[1], "stdout");
    assert!(said.trim_end().ends_with(" 1]"), "it reached the page: {said}");
    let reader = reader(&bench);
    let limit = || {
        let snapshot = reader.snapshot().unwrap();
        snapshot.slice(ids[0].0).map(|slice| slice.limit_bytes)
    };
    eventually("what was given stands there again", || {
        limit() == Some(SLICE << 20)
    })
    .await;
    eventually("it is written down", || {
        bench.agent_log().contains("were tampered with")
    })
    .await;
    // Who is ended for such a thing is ended within a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stopped = bench.hub().stop(bench.node, ids[0], StopReason::Cancelled, 0);
    stopped.await.unwrap();
    let state = watcher.state(ids[0], has_ended).await;
    assert!(
        !was_ended(&state),
        "the neighbour did nothing: {state:?} {}",
        file(ids[0], "stderr")
    );
    let stopped = bench.hub().stop(bench.node, ids[1], StopReason::Cancelled, 0);
    stopped.await.unwrap();
    watcher.state(ids[1], has_ended).await;
}
