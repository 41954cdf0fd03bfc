//! What `top` shows, as lines of painted pieces. Pure: devices, order, filter and width in, lines out.

use clap::ValueEnum;
use tenure_api::v1::gpu::{DeviceView, SliceView};
use tenure_domain::Time;

use crate::output::{Output, Paint};
use crate::safe::safe;
use crate::{gpu, scale, units};

/// Below this lines are cut rather than arranged.
const NARROWEST: usize = 60;
const LONGEST_GAUGE: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Name,
    Vram,
    Compute,
}

/// What the user asked to see.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub order: Order,
    pub filter: String,
}

/// Pieces of a line, each in its colour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(pub Vec<(String, Paint)>);

impl Line {
    fn add(mut self, text: impl Into<String>, paint: Paint) -> Line {
        self.0.push((text.into(), paint));
        self
    }

    fn say(self, text: impl Into<String>) -> Line {
        self.add(text, Paint::Plain)
    }

    /// As text with a line end, in the output's colours.
    pub fn plain(&self, out: &Output) -> String {
        let last = self.0.len().saturating_sub(1);
        let pieces = self.0.iter().enumerate().map(|(index, (text, paint))| {
            out.paint(*paint, if index == last { text.trim_end() } else { text })
        });
        pieces.chain(["\n".to_owned()]).collect()
    }
}

/// All that is shown: totals that stay, and rows that scroll.
pub struct Frame {
    pub head: Vec<Line>,
    pub body: Vec<Line>,
}

pub fn of(devices: &[DeviceView], wanted: &Wanted, width: u16, now: Time) -> Frame {
    let width = usize::from(width).max(NARROWEST);
    let mut shown: Vec<(&DeviceView, Vec<(usize, &SliceView)>)> = devices
        .iter()
        .filter_map(|device| chosen(device, &wanted.filter))
        .collect();
    sort(&mut shown, wanted.order);
    let mut body = Vec::new();
    for (device, slices) in &shown {
        body.extend(device_lines(device, width, now));
        body.extend(
            slices
                .iter()
                .map(|(index, slice)| slice_line(device, *index, slice, width)),
        );
        body.push(Line::default());
    }
    if shown.is_empty() {
        let said = if devices.is_empty() {
            "no GPU that you may see"
        } else {
            "nothing fits the filter"
        };
        body.push(Line::default().add(said, Paint::Dim));
    }
    Frame {
        head: vec![totals(shown.iter().map(|(device, _)| *device))],
        body,
    }
}

/// The device with all slices if it fits the filter itself, else with those that do.
fn chosen<'a>(device: &'a DeviceView, filter: &str) -> Option<(&'a DeviceView, Vec<(usize, &'a SliceView)>)> {
    let filter = filter.to_lowercase();
    let fits = |text: &str| text.to_lowercase().contains(&filter);
    let gpu = &device.gpu;
    let whole = fits(&device.node_name)
        || fits(&gpu.class)
        || fits(&gpu.model)
        || fits(&gpu.uuid)
        || fits(&gpu.id.to_string());
    let slices = device.slices.iter().enumerate().filter(|(_, slice)| {
        whole
            || slice
                .holder
                .as_ref()
                .is_some_and(|holder| fits(&holder.owner_path) || fits(&holder.job_name))
    });
    let slices: Vec<(usize, &SliceView)> = slices.collect();
    (whole || !slices.is_empty()).then_some((device, slices))
}

fn sort(shown: &mut [(&DeviceView, Vec<(usize, &SliceView)>)], order: Order) {
    fn used(slice: &SliceView) -> (u64, u16) {
        let used = slice.used.as_ref();
        (
            used.map_or(0, |used| used.used_vram_mib),
            used.and_then(|used| used.busy_permille).unwrap_or(0),
        )
    }
    for (_, slices) in shown.iter_mut() {
        match order {
            Order::Name => {}
            Order::Vram => slices.sort_by_key(|(_, slice)| std::cmp::Reverse(used(slice).0)),
            Order::Compute => slices.sort_by_key(|(_, slice)| std::cmp::Reverse(used(slice).1)),
        }
    }
    match order {
        Order::Name => {
            shown.sort_by(|(a, _), (b, _)| (&a.node_name, a.gpu.id).cmp(&(&b.node_name, b.gpu.id)));
        }
        Order::Vram => shown.sort_by_key(|(device, _)| std::cmp::Reverse(gpu::used_mib(device))),
        Order::Compute => shown.sort_by_key(|(device, _)| std::cmp::Reverse(gpu::busy_permille(device))),
    }
}

fn totals<'a>(devices: impl Iterator<Item = &'a DeviceView>) -> Line {
    let (mut gpus, mut slices, mut vram, mut given) = (0u64, 0, 0u64, 0u64);
    let (mut used, mut busy) = (None::<u64>, None::<(u64, u64)>);
    for device in devices {
        gpus += 1;
        slices += device.slices.len();
        vram += device.gpu.vram_mib;
        given += device.gpu.used_vram_mib;
        if let Some(mib) = gpu::used_mib(device) {
            used = Some(used.unwrap_or(0) + mib);
        }
        if let Some(share) = gpu::busy_permille(device) {
            let (sum, count) = busy.unwrap_or((0, 0));
            busy = Some((sum + u64::from(share), count + 1));
        }
    }
    let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut line = Line::default()
        .add(plural(gpus, "GPU"), Paint::Bold)
        .say(format!(", {}", plural(slices as u64, "slice")))
        .add("   vram ", Paint::Dim);
    if let Some(used) = used {
        line = line.say(format!("{} used, ", short(used)));
    }
    line = line.say(format!("{} given of {}", short(given), short(vram)));
    if let Some((sum, count)) = busy {
        line = line
            .add("   busy ", Paint::Dim)
            .say(format!("{} %", (sum / count).div_ceil(10)));
    }
    line
}

/// Name and gauges of a device, and its slices to scale, by memory and by compute.
fn device_lines(device: &DeviceView, width: usize, now: Time) -> [Line; 2] {
    let gpu = &device.gpu;
    let paint = if gpu.present { Paint::Bold } else { Paint::Bad };
    let mut line = Line::default().add(gpu.id.to_string(), paint).say(format!(
        "  {} on {}",
        safe(&gpu.class),
        safe(&device.node_name)
    ));
    if device.stale {
        let ago = device
            .read
            .map_or_else(String::new, |read| format!(", {}", crate::moment::ago(read, now)));
        line = line.add(format!("   last read too long ago{ago}"), Paint::Bad);
    }
    if let Some(busy) = gpu::busy_permille(device) {
        line = line
            .add("   busy ", Paint::Dim)
            .add(format!("{} %", busy.div_ceil(10)), fullness(busy.into(), 1000));
    }
    if let Some(used) = gpu::used_mib(device) {
        line = line
            .add("   used ", Paint::Dim)
            .say(format!("{} of {}", short(used), short(gpu.vram_mib)));
    }
    if let Some(celsius) = gpu::temperature(device) {
        line = line.say(format!("   {celsius} °C"));
    }
    if let Some(mw) = gpu::power_mw(device) {
        line = line.say(format!("   {} W", mw / 1000));
    }
    let cells = (width - 22) / 2;
    let vram = scale::slices(&device.slices, |slice| slice.vram_mib, gpu.vram_mib, cells);
    let compute = scale::slices(&device.slices, |slice| slice.compute_permille.into(), 1000, cells);
    let bars = Line::default()
        .add("  vram [", Paint::Dim)
        .say(vram)
        .add("]  compute [", Paint::Dim)
        .say(compute)
        .add("]", Paint::Dim);
    [line, bars]
}

/// Who holds the slice, its memory against its limit, its compute against its share.
fn slice_line(device: &DeviceView, index: usize, slice: &SliceView, width: usize) -> Line {
    const MEMORY: usize = 12;
    const COMPUTE: usize = 11;
    const HELD: usize = 10;
    let held_shown = width >= 100;
    let fixed = 4 + 2 + 1 + MEMORY + 2 + 1 + COMPUTE + if held_shown { HELD } else { 0 };
    let cells = ((width - fixed) / 4).clamp(6, LONGEST_GAUGE);
    let title = width - fixed - 2 * cells;
    let name = match &slice.holder {
        Some(holder) => format!("{} {}", safe(&holder.owner_path), safe(&holder.job_name)),
        None => "in use".to_owned(),
    };
    let line = Line::default()
        .add(format!("  {} ", scale::letter(index)), Paint::Bold)
        .add(
            fitted(&name, title),
            if slice.holder.is_some() {
                Paint::Plain
            } else {
                Paint::Dim
            },
        );
    let Some(used) = slice.used.as_ref().filter(|_| !device.stale) else {
        let size = format!(
            "  {} vram, {} compute",
            short(slice.vram_mib),
            units::show_permille(slice.compute_permille.into())
        );
        return line.add(size, Paint::Dim);
    };
    let limit = used.limit_vram_mib.max(1);
    let memory = format!(
        " {:<MEMORY$}",
        format!("{}/{}", short(used.used_vram_mib), short(limit))
    );
    let line = line
        .add(
            format!("  {}", scale::gauge(used.used_vram_mib, limit, cells)),
            fullness(used.used_vram_mib, limit),
        )
        .say(memory);
    let share = u64::from(slice.compute_permille);
    let Some(busy) = used.busy_permille else {
        return line.add(
            format!("  {} given", units::show_permille(share as u32)),
            Paint::Dim,
        );
    };
    let compute = format!(
        " {:<COMPUTE$}",
        format!("{}/{} %", busy.div_ceil(10), share.div_ceil(10))
    );
    let line = line
        .add(
            format!("  {}", scale::gauge(busy.into(), share, cells)),
            fullness(busy.into(), share),
        )
        .say(compute);
    match used.throttled_permille.filter(|&held| held_shown && held > 0) {
        Some(held) => line.add(format!("held {} %", held.div_ceil(10)), Paint::Busy),
        None => line,
    }
}

fn fullness(used: u64, limit: u64) -> Paint {
    match used {
        _ if used >= limit => Paint::Busy,
        _ => Paint::Good,
    }
}

/// `1.5G`, `120M`: memory in few characters.
fn short(mib: u64) -> String {
    let tenths = |unit: u64, letter: char| match mib / unit {
        whole @ 0..100 => {
            let tenth = mib % unit * 10 / unit;
            if tenth == 0 {
                format!("{whole}{letter}")
            } else {
                format!("{whole}.{tenth}{letter}")
            }
        }
        whole => format!("{whole}{letter}"),
    };
    match mib {
        0..1024 => format!("{mib}M"),
        1024..1_048_576 => tenths(1024, 'G'),
        _ => tenths(1_048_576, 'T'),
    }
}

/// As wide as said: cut with a sign that it was, or filled up.
fn fitted(text: &str, cells: usize) -> String {
    let length = text.chars().count();
    if length <= cells {
        return format!("{text:<cells$}");
    }
    let kept: String = text.chars().take(cells.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests;
