//! What the kernel shows of a graphics device below its directory: amdgpu, i915 and xe.
//!
//! A file that is missing, unreadable or nonsense is a gauge that is absent. Names and units are those of the
//! kernel's documentation: hwmon in millidegrees, microwatts, microjoules and hertz; amdgpu's memory in bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tenure_api::channel::reading::{Gauges, Throttle};

/// No file read here is longer.
const FILE_BYTES_MAX: u64 = 4096;

/// Reads everything below `dir`, a device's own directory.
pub fn read(dir: &Path) -> Gauges {
    let hwmon = entries(&dir.join("hwmon"));
    let sensor = |names: &[&str]| {
        hwmon
            .iter()
            .flat_map(|sensors| names.iter().map(|name| sensors.join(name)))
            .find_map(|path| number::<i64>(&path))
    };
    let positive = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let percent = |name: &str| {
        let percent = number::<u16>(&dir.join(name)).filter(|&percent| percent <= 100);
        percent.map(|percent| percent * 10)
    };
    let mhz = |hertz: Option<i64>| hertz.and_then(|hertz| u32::try_from(hertz / 1_000_000).ok());
    let (ecc_corrected, ecc_uncorrected) = errors(&dir.join("ras"));
    Gauges {
        busy_permille: percent("gpu_busy_percent"),
        used_vram_mib: number::<u64>(&dir.join("mem_info_vram_used")).map(|bytes| bytes.div_ceil(1 << 20)),
        temperature_c: sensor(&["temp1_input", "temp2_input"])
            .and_then(|milli| i16::try_from(milli / 1000).ok()),
        power_mw: positive(sensor(&["power1_average", "power1_input"])).map(|micro| micro / 1000),
        energy_mj: positive(sensor(&["energy1_input"])).map(|micro| micro / 1000),
        ecc_corrected,
        ecc_uncorrected,
        throttled_by: throttles(dir),
        // Of amdgpu: its first clock is the compute dies', its second the memory's.
        sm_clock_mhz: mhz(sensor(&["freq1_input"])),
        memory_clock_mhz: mhz(sensor(&["freq2_input"])),
        memory_temperature_c: sensor(&["temp3_input"]).and_then(|milli| i16::try_from(milli / 1000).ok()),
        memory_busy_permille: percent("mem_busy_percent"),
        pcie_replays: number::<u64>(&dir.join("pcie_replay_count")),
        ..Gauges::default()
    }
}

/// amdgpu's `ras/*_err_count`, of every block: `ue: N` and `ce: N`, one a line.
fn errors(dir: &Path) -> (Option<u64>, Option<u64>) {
    let (mut corrected, mut uncorrected) = (None::<u64>, None::<u64>);
    for path in entries(dir) {
        let counts = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with("_err_count"));
        let Some(text) = counts.then(|| text(&path)).flatten() else {
            continue;
        };
        for line in text.lines() {
            let Some((kind, count)) = line.split_once(':') else {
                continue;
            };
            let Ok(count) = count.trim().parse::<u64>() else {
                continue;
            };
            let sum = match kind.trim() {
                "ce" => &mut corrected,
                "ue" => &mut uncorrected,
                _ => continue,
            };
            *sum = Some(sum.unwrap_or(0).saturating_add(count));
        }
    }
    (corrected, uncorrected)
}

/// i915's and xe's `throttle_reason_*`, or xe's `throttle/reason_*`: 1 where it holds the clocks of a tile down.
fn throttles(dir: &Path) -> Option<BTreeSet<Throttle>> {
    let mut reasons = None;
    for card in entries(&dir.join("drm")) {
        for tile in entries(&card.join("gt")) {
            read_reasons(&tile, "throttle_reason_", &mut reasons);
        }
    }
    for tile in entries(dir).iter().filter(|path| named(path, "tile")) {
        for gt in entries(tile).iter().filter(|path| named(path, "gt")) {
            read_reasons(&gt.join("freq0/throttle"), "reason_", &mut reasons);
        }
    }
    reasons
}

fn read_reasons(dir: &Path, prefix: &str, reasons: &mut Option<BTreeSet<Throttle>>) {
    for path in entries(dir) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some(reason) = name.strip_prefix(prefix) else {
            continue;
        };
        let Some(holds) = number::<u8>(&path) else {
            continue;
        };
        let reasons = reasons.get_or_insert_default();
        if holds != 0 {
            match reason {
                // Says that one of the others holds.
                "status" => {}
                "pl1" | "pl2" | "pl4" => drop(reasons.insert(Throttle::Power)),
                "thermal" | "prochot" | "ratl" | "vr_thermalert" => drop(reasons.insert(Throttle::Thermal)),
                _ => drop(reasons.insert(Throttle::Other)),
            }
        }
    }
}

fn named(path: &Path, prefix: &str) -> bool {
    path.file_name()
        .and_then(|name| name.to_str()?.strip_prefix(prefix))
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a directory holds, in the order of names.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.trim().parse().ok()
}
