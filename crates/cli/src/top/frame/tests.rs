//! What the screen looks like.

use serde_json::{Value, json};

use super::*;
use crate::output::{Form, Output};

fn slice(owner: Option<&str>, job: &str, vram: u64, share: u16, used: Option<(u64, u16)>) -> Value {
    let mut slice = json!({ "vram_mib": vram, "compute_permille": share });
    if let Some(owner) = owner {
        slice["holder"] = json!({
            "allocation": "alc_0000000000001", "job": "job_0000000000001", "job_name": job,
            "owner_path": owner, "isolation": "guarded", "isolation_why": "by the guard",
        });
    }
    if let Some((used, busy)) = used {
        slice["used"] = json!({
            "used_vram_mib": used, "peak_vram_mib": used, "limit_vram_mib": vram, "processes": 1,
            "busy_permille": busy, "throttled_permille": 120, "refusals": 0, "denials": 0,
        });
    }
    slice
}

fn device(id: &str, node: &str, slices: Vec<Value>) -> DeviceView {
    let given: u64 = slices
        .iter()
        .map(|slice| slice["vram_mib"].as_u64().unwrap())
        .sum();
    let value = json!({
        "node": "nod_0000000000001", "node_name": node,
        "gpu": {
            "id": id, "uuid": "GPU-1", "vendor": "maker", "model": "model", "class": "H100",
            "vram_mib": 8192, "used_vram_mib": given, "used_permille": 800, "slices": slices.len(),
            "isolation": {}, "present": true,
        },
        "slices": slices,
        "read": "2026-01-01T00:00:00Z",
        "gauges": { "busy_permille": 620, "used_vram_mib": 2148, "temperature_c": 61, "power_mw": 215_000 },
    });
    serde_json::from_value(value).unwrap()
}

fn house() -> Vec<DeviceView> {
    let shared = vec![
        slice(Some("acme/research/ada"), "train", 2048, 300, Some((2000, 290))),
        slice(
            Some("globex/labs/cleo"),
            "a-render-with-a-long-name",
            4096,
            500,
            Some((148, 500)),
        ),
        slice(None, "", 1024, 100, None),
    ];
    vec![
        device("gpu_0000000000002", "beta", vec![]),
        device("gpu_0000000000001", "alpha", shared),
    ]
}

fn shown(devices: &[DeviceView], order: Order, filter: &str, width: u16) -> String {
    let wanted = Wanted {
        order,
        filter: filter.into(),
    };
    let now = Time(1_767_225_660_000);
    let frame = of(devices, &wanted, width, now);
    let mut out = Output::new(Form::Table, true);
    out.colour = false;
    frame
        .head
        .iter()
        .chain(&frame.body)
        .map(|line| line.plain(&out))
        .collect()
}

#[test]
fn eighty_columns() {
    let text = shown(&house(), Order::Name, "", 80);
    assert_eq!(
        text,
        "\
2 GPUs, 3 slices   vram 4.1G used, 7G given of 16G   busy 62 %
gpu_0000000000001  H100 on alpha   busy 62 %   used 2G of 8G   61 °C   215 W
  vram [aaaaaaabbbbbbbbbbbbbbbccc····]  compute [aaaaaaaaabbbbbbbbbbbbbbccc···]
  a acme/research/ada train    ██████████░ 1.9G/2G       ██████████░ 29/30 %
  b globex/labs/cleo a-rende…  █░░░░░░░░░░ 148M/4G       ███████████ 50/50 %
  c in use                     1G vram, 10 % compute

gpu_0000000000002  H100 on beta   busy 62 %   used 2G of 8G   61 °C   215 W
  vram [·····························]  compute [·····························]

"
    );
}

#[test]
fn no_line_is_wider_than_the_screen() {
    for width in [60, 80, 100, 132, 400] {
        for line in shown(&house(), Order::Vram, "", width)
            .lines()
            .filter(|line| line.starts_with(' '))
        {
            let length = line.chars().count();
            assert!(length <= usize::from(width), "{length} of {width}: {line}");
        }
    }
    // Narrower than can be arranged is no reason to fall over.
    for width in 0..60 {
        shown(&house(), Order::Compute, "", width);
    }
}

#[test]
fn wide_screens_tell_what_is_held_back() {
    assert!(!shown(&house(), Order::Name, "", 80).contains("held 12 %"));
    assert!(shown(&house(), Order::Name, "", 120).contains("held 12 %"));
}

#[test]
fn orders_put_the_most_first() {
    let first = |order| {
        let text = shown(&house(), order, "", 80);
        let line = text
            .lines()
            .find(|line| line.starts_with("  a ") || line.starts_with("  b "));
        line.unwrap().chars().nth(2).unwrap()
    };
    assert_eq!(first(Order::Vram), 'a');
    assert_eq!(first(Order::Compute), 'b');
}

#[test]
fn filters_choose_devices_or_slices() {
    let by_holder = shown(&house(), Order::Name, "CLEO", 80);
    assert!(
        by_holder.contains("  b globex") && !by_holder.contains("  a acme") && !by_holder.contains("beta")
    );
    let by_node = shown(&house(), Order::Name, "alpha", 80);
    assert!(by_node.contains("  a acme") && by_node.contains("  c in use"));
    assert!(shown(&house(), Order::Name, "nowhere", 80).contains("nothing fits the filter"));
    assert!(shown(&[], Order::Name, "", 80).contains("no GPU that you may see"));
}

#[test]
fn what_is_old_is_not_shown_as_now() {
    let mut devices = house();
    devices[1].stale = true;
    let text = shown(&devices, Order::Name, "alpha", 80);
    assert!(text.contains("last read too long ago, 1 min ago"), "{text}");
    assert!(
        !text.contains("busy") && !text.contains('█') && !text.contains("°C"),
        "{text}"
    );
}

#[test]
fn names_from_elsewhere_do_nothing_to_the_terminal() {
    let mut devices = house();
    if let Some(holder) = &mut devices[1].slices[0].holder {
        holder.job_name = "\u{1b}[31m\u{202e}".into();
    }
    assert!(!shown(&devices, Order::Name, "", 120).contains(['\u{1b}', '\u{202e}']));
}
