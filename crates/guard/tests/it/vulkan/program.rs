//! Programs nobody here wrote, unchanged: vulkaninfo, and wgpu from PyPI.

use std::process::Command;

use tenure_limits::Counter;

use super::desk::Desk;
use crate::bench::{MIB, devices_dir, spec};

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/setup-devices installs it"));
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn vulkaninfo_shows_the_slice_and_its_budget() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 512 * MIB, 500)]);
    let text = run(&mut desk.command(1, "vulkaninfo"));
    let heap = text.split("memoryHeaps[0]").nth(1).expect(&text);
    let value = |name: &str| {
        let line = heap
            .lines()
            .find(|line| line.trim_start().starts_with(name))
            .expect(heap);
        line.split('=')
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(value("size"), (512 * MIB).to_string());
    assert_eq!(value("budget"), (512 * MIB).to_string());
    assert_eq!(value("usage"), "0");
    // Not switched on, the layer is not there.
    let text = run(&mut desk.bare("vulkaninfo"));
    let heap = text.split("memoryHeaps[0]").nth(1).expect(&text);
    assert!(!heap.contains(&format!("= {} ", 512 * MIB)), "{heap}");
}

const WGPU: &str = "
import wgpu, numpy
adapter = wgpu.gpu.request_adapter_sync(power_preference='high-performance')
print('on', adapter.info['device'])
device = adapter.request_device_sync()
shader = device.create_shader_module(code='''
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) { data[at.x] = data[at.x] * 3u + at.x; }
''')
usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
buffer = device.create_buffer_with_data(data=numpy.arange(4096, dtype=numpy.uint32), usage=usage)
pipeline = device.create_compute_pipeline(layout='auto', compute={'module': shader, 'entry_point': 'main'})
group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0),
    entries=[{'binding': 0, 'resource': {'buffer': buffer, 'offset': 0, 'size': buffer.size}}])
for _ in range(2):
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline); work.set_bind_group(0, group); work.dispatch_workgroups(64); work.end()
    device.queue.submit([encoder.finish()])
found = numpy.frombuffer(device.queue.read_buffer(buffer), dtype=numpy.uint32)
print('right', bool((found == numpy.arange(4096) * 13).all()))
held = []
try:
    for _ in range(100): held.append(device.create_buffer(size=50 << 20, usage=usage))
    print('never full')
except Exception as error:
    print('full after', len(held), type(error).__name__, error)
";

#[test]
fn wgpu_computes_through_the_layer_and_gets_its_own_error() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 512 * MIB, 500)]);
    let mut python = desk.command(1, devices_dir().join("venv/bin/python"));
    let text = run(python.env("WGPU_BACKEND_TYPE", "Vulkan").args(["-c", WGPU]));
    for expected in ["on llvmpipe", "right True", "full after", "memory"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let full: u64 = text
        .split("full after ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap();
    // wgpu takes memory by the block, so that it is full earlier than the last byte.
    assert!((5..=10).contains(&full), "{text}");
    assert!(desk.bench.reading(1).peak_bytes <= 512 * MIB);
    assert!(desk.bench.counter(1, Counter::Launches) >= 2);
}
