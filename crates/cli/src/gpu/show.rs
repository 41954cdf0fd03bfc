//! One device in full: what it is, how it is, and its slices to scale.

use tenure_api::v1::gpu::{DeviceView, Gauges, SliceView};

use super::known;
use crate::context::Context;
use crate::moment::{full, now};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::{scale, units};

const CELLS: usize = 48;

/// `215.4 W`.
pub fn watts(power_mw: u64) -> String {
    format!("{}.{} W", power_mw / 1000, power_mw % 1000 / 100)
}

pub fn show(context: &Context, device: &DeviceView) -> Result<(), Failure> {
    context
        .out
        .one(device, |device| device.gpu.id.to_string(), fields)?;
    if matches!(context.out.form, Form::Table | Form::Wide) && !device.slices.is_empty() {
        context.out.line("")?;
        let table = slices(device, context.out.wide());
        return context.out.text(&table.render(&context.out));
    }
    Ok(())
}

fn fields(device: &DeviceView) -> Table {
    let gpu = &device.gpu;
    let mut table = Table::fields();
    table
        .field("gpu", text(gpu.id.to_string()).paint(Paint::Bold))
        .field("uuid", gpu.uuid.as_str())
        .field("node", device.node_name.as_str())
        .field("model", format!("{} {}", gpu.vendor, gpu.model))
        .field("class", gpu.class.as_str());
    if !gpu.present {
        table.field(
            "present",
            text("no: its node last reported without it").paint(Paint::Bad),
        );
    }
    if let Some(why) = &gpu.quarantine {
        table.field("quarantine", text(why.as_str()).paint(Paint::Bad));
    }
    for (level, why) in &gpu.isolation {
        table.field("isolation", format!("{level}: {why}"));
    }
    let given = |cells: String, said: String| format!("{cells}  {said}");
    let vram = scale::slices(&device.slices, |slice| slice.vram_mib, gpu.vram_mib, CELLS);
    table.field(
        "vram",
        given(
            vram,
            format!(
                "{} of {} given",
                units::show_mib(gpu.used_vram_mib),
                units::show_mib(gpu.vram_mib)
            ),
        ),
    );
    let compute = scale::slices(&device.slices, |slice| slice.compute_permille.into(), 1000, CELLS);
    table.field(
        "compute",
        given(
            compute,
            format!("{} given", units::show_permille(gpu.used_permille)),
        ),
    );
    if let Some(read) = device.read {
        let read = text(full(read, now()));
        table.field(
            "read",
            if device.stale {
                read.paint(Paint::Bad)
            } else {
                read
            },
        );
    }
    table.field_if(
        "",
        device
            .stale
            .then(|| text("too old to say how it is now").paint(Paint::Bad)),
    );
    table.field_if("used", super::used_mib(device).map(units::show_mib));
    table.field_if(
        "busy",
        super::busy_permille(device).map(|busy| units::show_permille(busy.into())),
    );
    if let Some(gauges) = device.gauges.as_ref().filter(|_| !device.stale) {
        measured(&mut table, gauges);
    }
    if let Some(recent) = &device.recent {
        let minutes = recent.busy_permille.len() as u32 * recent.step_s / 60;
        let line = scale::line(&recent.busy_permille);
        if !line.trim().is_empty() {
            table.field("", format!("{}  busy, last {minutes} min", line.trim_start()));
        }
    }
    table
}

fn measured(table: &mut Table, gauges: &Gauges) {
    table.field_if(
        "temperature",
        gauges.temperature_c.map(|celsius| format!("{celsius} °C")),
    );
    table.field_if("power", gauges.power_mw.map(watts));
    table.field_if(
        "energy",
        gauges
            .energy_mj
            .map(|mj| format!("{} kWh since its driver was loaded", kilowatt_hours(mj))),
    );
    if gauges.ecc_corrected.is_some() || gauges.ecc_uncorrected.is_some() {
        let count = |errors: Option<u64>| errors.map_or_else(|| "–".into(), |errors| errors.to_string());
        let said = format!(
            "{} corrected, {} uncorrected",
            count(gauges.ecc_corrected),
            count(gauges.ecc_uncorrected)
        );
        let bad = gauges.ecc_uncorrected.is_some_and(|errors| errors > 0);
        table.field(
            "ecc errors",
            text(said).paint(if bad { Paint::Bad } else { Paint::Plain }),
        );
    }
    if let Some(reasons) = &gauges.throttled_by {
        let words: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
        table.field(
            "throttled by",
            if words.is_empty() {
                text("nothing")
            } else {
                text(words.join(", ")).paint(Paint::Busy)
            },
        );
    }
}

fn kilowatt_hours(mj: u64) -> String {
    let hundredths = mj / 36_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn slices(device: &DeviceView, wide: bool) -> Table {
    let mut head = vec![
        "",
        "HOLDER",
        "JOB",
        "SHARE",
        "BUSY",
        "HELD BACK",
        "VRAM",
        "USED",
        "PEAK",
        "ISOLATION",
    ];
    if wide {
        head.extend(["WAITED", "LAUNCHES/S", "REFUSED", "DENIED", "JOB ID", "WHY"]);
    }
    let mut table = Table::new(&head);
    for (index, slice) in device.slices.iter().enumerate() {
        table.row(row(device, index, slice, wide));
    }
    table
}

fn row(device: &DeviceView, index: usize, slice: &SliceView, wide: bool) -> Vec<crate::table::Text> {
    let used = slice.used.as_ref().filter(|_| !device.stale);
    let percent = |share: Option<u16>| share.map(|share| units::show_permille(share.into()));
    let mib = |mib: Option<u64>| mib.map(units::show_mib);
    let holder = slice.holder.as_ref();
    let mut share = units::show_permille(slice.compute_permille.into());
    if holder.is_some_and(|holder| holder.capped) {
        share += " at most";
    }
    let mut row = vec![
        text(scale::letter(index).to_string()).paint(Paint::Bold),
        holder.map_or_else(
            || text("in use").paint(Paint::Dim),
            |holder| text(&holder.owner_path),
        ),
        text(holder.map_or("", |holder| &holder.job_name)),
        figure(share),
        known(used.and_then(|used| percent(used.busy_permille))),
        known(used.and_then(|used| percent(used.throttled_permille))),
        figure(units::show_mib(slice.vram_mib)),
        known(mib(used.map(|used| used.used_vram_mib))),
        known(mib(used.map(|used| used.peak_vram_mib))),
        text(holder.map_or("", |holder| holder.isolation.as_str())),
    ];
    if wide {
        row.extend([
            known(used.and_then(|used| percent(used.waited_permille))),
            known(
                used.and_then(|used| used.launches_per_s)
                    .map(|launches| launches.to_string()),
            ),
            known(used.map(|used| used.refusals.to_string())),
            known(used.map(|used| used.denials.to_string())),
            text(holder.map_or_else(String::new, |holder| holder.job.to_string())),
            text(holder.map_or("", |holder| &holder.isolation_why)),
        ]);
    }
    row
}
