//! The page of devices in dcgm-exporter's words, for devices of every vendor: its dashboards and alerts work as they are.
//!
//! One row a device, of what its driver measures as a whole; one a slice, of what its tenant uses of it; one a hardware
//! part. Where a job has a device to itself they are one row. What has no fresh reading has no sample. Names and labels
//! are those of dcgm-exporter's default counters; they break OpenMetrics' rules, so the form is Prometheus 0.0.4.

use std::collections::HashMap;
use std::fmt::Write as _;

use tenure_api::channel::reading::{DeviceReading, Gauges, PartReading, SliceUse};
use tenure_domain::State;
use tenure_domain::id::{AllocationId, NodeId, UserId};
use tenure_domain::schedule::allocation::{Allocation, Slice};
use tenure_domain::schedule::fleet::{Gpu, Node};
use tenure_domain::schedule::hardware::Hardware;
use tenure_domain::tenancy::scope::ScopeId;

use super::sight::Sight;
use super::text::write_label;
use crate::reading::Held;

macro_rules! families {
    ($($field:ident $name:literal $kind:literal $help:literal;)*) => {
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types)]
        enum Field { $($field,)* }
        const FAMILIES: &[(&str, &str, &str)] = &[$(($name, $kind, $help),)*];
    };
}

families! {
    SmClock "DCGM_FI_DEV_SM_CLOCK" "gauge" "SM clock frequency (in MHz).";
    MemClock "DCGM_FI_DEV_MEM_CLOCK" "gauge" "Memory clock frequency (in MHz).";
    MemoryTemp "DCGM_FI_DEV_MEMORY_TEMP" "gauge" "Memory temperature (in C).";
    GpuTemp "DCGM_FI_DEV_GPU_TEMP" "gauge" "GPU temperature (in C).";
    Power "DCGM_FI_DEV_POWER_USAGE" "gauge" "Power draw (in W).";
    Energy "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" "counter" "Total energy consumption since boot (in mJ).";
    Replays "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" "counter" "Total number of PCIe retries.";
    GpuUtil "DCGM_FI_DEV_GPU_UTIL" "gauge" "GPU utilization (in %).";
    MemCopyUtil "DCGM_FI_DEV_MEM_COPY_UTIL" "gauge" "Memory utilization (in %).";
    EncUtil "DCGM_FI_DEV_ENC_UTIL" "gauge" "Encoder utilization (in %).";
    DecUtil "DCGM_FI_DEV_DEC_UTIL" "gauge" "Decoder utilization (in %).";
    FbFree "DCGM_FI_DEV_FB_FREE" "gauge" "Framebuffer memory free (in MiB).";
    FbUsed "DCGM_FI_DEV_FB_USED" "gauge" "Framebuffer memory used (in MiB).";
    FbReserved "DCGM_FI_DEV_FB_RESERVED" "gauge" "Framebuffer memory reserved (in MiB).";
    EccCorrected "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL" "counter" "Total number of single-bit volatile ECC errors.";
    EccUncorrected "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" "counter" "Total number of double-bit volatile ECC errors.";
    RowsUncorrectable "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS" "counter" "Number of remapped rows for uncorrectable errors";
    RowsCorrectable "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS" "counter" "Number of remapped rows for correctable errors";
    RemapFailure "DCGM_FI_DEV_ROW_REMAP_FAILURE" "gauge" "Whether remapping of rows has failed";
    GraphicsActive "DCGM_FI_PROF_GR_ENGINE_ACTIVE" "gauge" "Ratio of time the graphics engine is active.";
    TensorActive "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" "gauge" "Ratio of cycles the tensor (HMMA) pipe is active.";
    DramActive "DCGM_FI_PROF_DRAM_ACTIVE" "gauge" "Ratio of cycles the device memory interface is active sending or receiving data.";
    PcieTx "DCGM_FI_PROF_PCIE_TX_BYTES" "gauge" "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in bytes per second.";
    PcieRx "DCGM_FI_PROF_PCIE_RX_BYTES" "gauge" "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes per second.";
}

/// A page under way: a piece of text for each family, since those stand together.
pub(crate) struct Dcgm {
    rows: Vec<String>,
    sight: Sight,
    namespaces: HashMap<UserId, String>,
}

impl Dcgm {
    pub fn new(sight: Sight) -> Dcgm {
        Dcgm {
            rows: vec![String::new(); FAMILIES.len()],
            sight,
            namespaces: HashMap::new(),
        }
    }

    /// The nodes with something to show.
    pub fn nodes(&self, state: &State) -> Vec<NodeId> {
        if self.sight.fleet {
            return state.fleet.nodes().map(|node| node.id).collect();
        }
        let roots = self.sight.roots(state);
        let jobs = roots.into_iter().flat_map(|root| state.jobs_within(root));
        let allocations = jobs
            .flat_map(|job| job.allocations())
            .filter_map(|id| state.fleet.allocation(id));
        let mut nodes: Vec<NodeId> = allocations.map(|allocation| allocation.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Takes in what is to be seen of a node's devices.
    pub fn add(&mut self, state: &State, held: &Held<'_>, node: &Node) {
        for (index, gpu) in in_order(node).into_iter().enumerate() {
            if let Some(reading) = held.fresh(node.id, &gpu.facts.uuid) {
                self.device(state, node, (index, gpu), reading);
            }
        }
    }

    fn device(&mut self, state: &State, node: &Node, (index, gpu): (usize, &Gpu), reading: &DeviceReading) {
        let labels = Labels::of(node, index, gpu);
        let slices = gpu.holders.iter().filter_map(|&id| slice_of(state, gpu, id));
        let slices: Vec<(&Allocation, &Slice)> = slices.collect();
        let alone = match slices[..] {
            [(holder, slice)] if slice.compute_permille == 1000 && slice.part.is_none() => Some(holder),
            _ => None,
        };
        let holder = alone.and_then(|holder| self.holder(state, holder));
        if self.sight.fleet || holder.is_some() {
            let row = labels.row(None, holder.as_deref());
            self.gauges(&row, gpu, &reading.gauges);
            if self.sight.fleet {
                self.since_boot(&row, &reading.gauges);
            }
        }
        if alone.is_some() {
            return;
        }
        for read in &reading.slices {
            let found = slices.iter().find(|(holder, _)| holder.id == read.allocation);
            if let Some((holder, _)) = found
                && let Some(holder) = self.holder(state, holder)
            {
                self.slice(&labels.row(None, Some(&holder)), &read.use_now);
            }
        }
        for part in &reading.parts {
            let found = slices.iter().find(|(_, slice)| {
                let choice = slice.part.as_ref();
                choice.is_some_and(|choice| choice.placement == part.placement)
            });
            let holder = found.and_then(|(holder, _)| self.holder(state, holder));
            if self.sight.fleet || holder.is_some() {
                self.part(&labels.row(Some(part), holder.as_deref()), part);
            }
        }
    }

    /// Who holds a slice, as labels; nothing of whom the caller may not see.
    fn holder(&mut self, state: &State, allocation: &Allocation) -> Option<String> {
        let job = state.jobs.get(&allocation.job)?;
        if !self.sight.owner(state, job.owner) {
            return None;
        }
        let namespace = self.namespaces.entry(job.owner).or_insert_with(|| {
            let owner = state.tree.get(ScopeId::User(job.owner));
            let above = owner.and_then(|owner| owner.parent);
            above.map_or_else(String::new, |above| state.tree.title(above))
        });
        let mut labels = String::new();
        labels.push(',');
        write_label(&mut labels, "namespace", namespace);
        // Names may be used twice.
        let mut pod = job.id.to_string();
        if job.is_gang() {
            let _ = write!(pod, "-{}", allocation.member);
        }
        labels.push(',');
        write_label(&mut labels, "pod", &pod);
        labels.push(',');
        write_label(&mut labels, "container", &job.spec.name);
        Some(labels)
    }

    fn put(&mut self, field: Field, row: &str, value: impl std::fmt::Display) {
        let text = &mut self.rows[field as usize];
        let _ = writeln!(text, "{}{row} {value}", FAMILIES[field as usize].0);
    }

    fn put_if(&mut self, field: Field, row: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(field, row, value);
        }
    }

    /// What a device does now.
    fn gauges(&mut self, row: &str, gpu: &Gpu, gauges: &Gauges) {
        self.put_if(Field::SmClock, row, gauges.sm_clock_mhz);
        self.put_if(Field::MemClock, row, gauges.memory_clock_mhz);
        self.put_if(Field::MemoryTemp, row, gauges.memory_temperature_c);
        self.put_if(Field::GpuTemp, row, gauges.temperature_c);
        let watts = gauges.power_mw.map(|milli| milli as f64 / 1000.0);
        self.put_if(Field::Power, row, watts);
        self.put_if(Field::GpuUtil, row, gauges.busy_permille.map(percent));
        self.put_if(Field::MemCopyUtil, row, gauges.memory_busy_permille.map(percent));
        self.put_if(Field::EncUtil, row, gauges.encoder_permille.map(percent));
        self.put_if(Field::DecUtil, row, gauges.decoder_permille.map(percent));
        if let Some(used) = gauges.used_vram_mib {
            // What the driver keeps for itself is in it, and stands by itself there.
            let reserved = gauges.reserved_vram_mib.unwrap_or(0);
            self.put(Field::FbFree, row, gpu.facts.vram_mib.saturating_sub(used));
            self.put(Field::FbUsed, row, used.saturating_sub(reserved));
        }
        self.put_if(Field::FbReserved, row, gauges.reserved_vram_mib);
        self.put_if(Field::RemapFailure, row, gauges.remap_failed.map(u8::from));
        self.put_if(
            Field::GraphicsActive,
            row,
            gauges.graphics_active_permille.map(ratio),
        );
        self.put_if(Field::TensorActive, row, gauges.tensor_active_permille.map(ratio));
        self.put_if(Field::DramActive, row, gauges.memory_active_permille.map(ratio));
        self.put_if(Field::PcieTx, row, gauges.pcie_sent_bytes_s);
        self.put_if(Field::PcieRx, row, gauges.pcie_received_bytes_s);
    }

    /// What a device did before its present holder, too.
    fn since_boot(&mut self, row: &str, gauges: &Gauges) {
        self.put_if(Field::Energy, row, gauges.energy_mj);
        self.put_if(Field::Replays, row, gauges.pcie_replays);
        self.put_if(Field::EccCorrected, row, gauges.ecc_corrected);
        self.put_if(Field::EccUncorrected, row, gauges.ecc_uncorrected);
        self.put_if(Field::RowsUncorrectable, row, gauges.remapped_uncorrectable);
        self.put_if(Field::RowsCorrectable, row, gauges.remapped_correctable);
    }

    fn slice(&mut self, row: &str, used: &SliceUse) {
        self.put_if(Field::GpuUtil, row, used.busy_permille.map(percent));
        let free = used.limit_vram_mib.saturating_sub(used.used_vram_mib);
        self.put(Field::FbFree, row, free);
        self.put(Field::FbUsed, row, used.used_vram_mib);
    }

    fn part(&mut self, row: &str, part: &PartReading) {
        if let (Some(used), Some(all)) = (part.used_vram_mib, part.vram_mib) {
            self.put(Field::FbFree, row, all.saturating_sub(used));
        }
        self.put_if(Field::FbUsed, row, part.used_vram_mib);
        self.put_if(
            Field::GraphicsActive,
            row,
            part.graphics_active_permille.map(ratio),
        );
        self.put_if(Field::TensorActive, row, part.tensor_active_permille.map(ratio));
        self.put_if(Field::DramActive, row, part.memory_active_permille.map(ratio));
    }

    pub fn end(self) -> String {
        let mut page = String::with_capacity(self.rows.iter().map(|rows| rows.len() + 256).sum());
        for ((name, kind, help), rows) in FAMILIES.iter().zip(&self.rows) {
            if !rows.is_empty() {
                let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
                page.push_str(rows);
            }
        }
        page
    }
}

fn percent(permille: u16) -> f64 {
    f64::from(permille) / 10.0
}

fn ratio(permille: u16) -> f64 {
    f64::from(permille) / 1000.0
}

fn pci(gpu: &Gpu) -> Option<&str> {
    gpu.facts.hardware.as_deref()?.pci.as_deref()
}

/// A node's devices as their bus has them, which is how drivers number them.
fn in_order(node: &Node) -> Vec<&Gpu> {
    let mut gpus: Vec<&Gpu> = node.gpus.iter().filter(|gpu| gpu.present).collect();
    gpus.sort_by_key(|gpu| (pci(gpu), gpu.id));
    gpus
}

fn slice_of<'a>(state: &'a State, gpu: &Gpu, id: AllocationId) -> Option<(&'a Allocation, &'a Slice)> {
    let allocation = state.fleet.allocation(id)?;
    let slice = allocation.slices.iter().find(|slice| slice.gpu == gpu.id)?;
    Some((allocation, slice))
}

/// A device's labels, in two parts: those of a hardware part stand between.
struct Labels {
    device: String,
    host: String,
}

impl Labels {
    fn of(node: &Node, index: usize, gpu: &Gpu) -> Labels {
        let facts = &gpu.facts;
        let mut device = String::with_capacity(200);
        device.push('{');
        let number = index.to_string();
        write_label(&mut device, "gpu", &number);
        device.push(',');
        write_label(&mut device, "UUID", &facts.uuid);
        device.push(',');
        write_label(
            &mut device,
            "pci_bus_id",
            &pci(gpu).map_or_else(String::new, bus_id),
        );
        device.push(',');
        let kind: String = facts.vendor.to_lowercase().replace(char::is_whitespace, "");
        write_label(&mut device, "device", &format!("{kind}{number}"));
        device.push(',');
        write_label(&mut device, "modelName", &facts.model);
        let mut host = String::with_capacity(100);
        for name in ["Hostname", "hostname"] {
            host.push(',');
            write_label(&mut host, name, &node.name);
        }
        if let Some(version) = facts.hardware.as_deref().and_then(driver_version) {
            host.push(',');
            write_label(&mut host, "DCGM_FI_DRIVER_VERSION", version);
        }
        Labels { device, host }
    }

    fn row(&self, part: Option<&PartReading>, holder: Option<&str>) -> String {
        let mut row = self.device.clone();
        if let Some(part) = part {
            row.push(',');
            write_label(&mut row, "GPU_I_PROFILE", &part.profile);
            row.push(',');
            write_label(&mut row, "GPU_I_ID", &part.instance.to_string());
        }
        row.push_str(&self.host);
        row.push_str(holder.unwrap_or_default());
        row.push('}');
        row
    }
}

/// The driver's name stands before its version here.
fn driver_version(hardware: &Hardware) -> Option<&str> {
    hardware.driver.as_deref()?.split_whitespace().last()
}

/// `0000:c1:00.0` as NVML writes it: `00000000:C1:00.0`.
fn bus_id(pci: &str) -> String {
    match pci.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}").to_uppercase(),
        None => pci.to_owned(),
    }
}

#[cfg(test)]
#[path = "../../../sim/src/shared.rs"]
#[expect(dead_code, reason = "it knows of traces, too")]
mod shared;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_written_as_nvml_writes_it() {
        assert_eq!(bus_id("0000:c1:00.0"), "00000000:C1:00.0");
        assert_eq!(bus_id("odd"), "odd");
    }

    /// Every name is one that dcgm-exporter has, with its kind and in its words.
    #[test]
    fn names_and_words_are_dcgm_exporters() {
        let Some(path) = shared::contract("dcgm-default-counters.csv") else {
            return;
        };
        let counters = std::fs::read_to_string(path).expect("it is there");
        let lines = counters.lines().filter_map(|line| {
            let mut fields = line.trim_start_matches(['#', ' ']).splitn(3, ',').map(str::trim);
            Some((fields.next()?, fields.next()?, fields.next()?))
        });
        let known: Vec<_> = lines.collect();
        for family in FAMILIES {
            assert!(known.contains(family), "{family:?}");
        }
    }
}
