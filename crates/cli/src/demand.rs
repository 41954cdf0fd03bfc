//! What a job needs, from flags and back into words. Shared by `run` and `sku define`.

use clap::{Args, ValueEnum};
use tenure_domain::workload::spec::{Demand, Isolation};

use crate::refusal::Failure;
use crate::units;

#[derive(Debug, Clone, Default, Args)]
pub struct DemandArgs {
    /// Members, each on a node with all of this; they start and end together
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    nodes: Option<u32>,
    /// GPUs: a number of whole ones, or a part of one, such as 0.5
    #[arg(long, value_parser = units::milli, value_name = "N")]
    gpus: Option<u64>,
    /// Device memory on each GPU
    #[arg(long, value_parser = units::mib, value_name = "SIZE")]
    vram: Option<u64>,
    /// Share of each GPU's compute: 30% or 0.3
    #[arg(long, value_parser = units::permille, value_name = "SHARE")]
    compute: Option<u16>,
    /// Only GPUs of this class
    #[arg(long)]
    class: Option<String>,
    /// Only GPUs of this model, as `tenure gpu list` shows it
    #[arg(long)]
    model: Option<String>,
    /// Only nodes of this region
    #[arg(long)]
    region: Option<String>,
    /// CPU cores
    #[arg(long, value_parser = units::cpu_milli, value_name = "N")]
    cpu: Option<u32>,
    /// Host memory
    #[arg(long, value_parser = units::mib, value_name = "SIZE")]
    memory: Option<u64>,
    /// The weakest isolation to accept
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
    /// Never more compute than its share, even while the rest of the GPU is idle
    #[arg(long)]
    capped: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum IsolationArg {
    Guarded,
    Fenced,
    Partition,
    Exclusive,
}

impl DemandArgs {
    pub fn demand(&self) -> Result<Demand, Failure> {
        self.filled(true)
    }

    /// The same where a SKU or a workload says how many GPUs: asking for a class is then not asking for one of it.
    pub fn open(&self) -> Result<Demand, Failure> {
        self.filled(false)
    }

    fn filled(&self, implies: bool) -> Result<Demand, Failure> {
        let defaults = Demand::default();
        let (gpus, share) = self.gpus_and_share(implies)?;
        Ok(Demand {
            nodes: self.nodes.unwrap_or(defaults.nodes),
            gpus,
            compute_permille: self.compute.or(share).unwrap_or(defaults.compute_permille),
            vram_mib: self.vram.unwrap_or(defaults.vram_mib),
            class: self.class.clone().map(Into::into),
            model: self.model.clone().map(Into::into),
            region: self.region.clone().map(Into::into),
            cpu_milli: self.cpu.unwrap_or(defaults.cpu_milli),
            memory_mib: self.memory.unwrap_or(defaults.memory_mib),
            isolation: self.isolation.map_or(defaults.isolation, |level| match level {
                IsolationArg::Guarded => Isolation::Guarded,
                IsolationArg::Fenced => Isolation::Fenced,
                IsolationArg::Partition => Isolation::Partition,
                IsolationArg::Exclusive => Isolation::Exclusive,
            }),
            capped: self.capped,
        })
    }

    /// How many slices, and the share of each where `--gpus` said one. Asking for a GPU's memory, compute, class or
    /// model is asking for a GPU.
    fn gpus_and_share(&self, implies: bool) -> Result<(u32, Option<u16>), Failure> {
        let implied = implies && self.asks_for_gpu();
        match self.gpus {
            None => Ok((u32::from(implied), None)),
            Some(milli) if milli % 1000 == 0 => u32::try_from(milli / 1000)
                .map(|gpus| (gpus, None))
                .map_err(|_| Failure::usage("more GPUs than any machine has")),
            Some(milli @ ..1000) if self.compute.is_none() => Ok((1, Some(milli as u16))),
            Some(..1000) => Err(Failure::usage(
                "--gpus with a part of a GPU and --compute both say the share",
            )
            .hint("give one of them")),
            Some(milli) => Err(Failure::usage(format!(
                "{} GPUs: a slice is a part of one GPU",
                units::show_milli(milli)
            ))
            .hint("give a whole number, a part below 1, or a number of GPUs and --compute for each")),
        }
    }
}

impl DemandArgs {
    fn asks_for_gpu(&self) -> bool {
        self.vram.is_some_and(|vram| vram > 0)
            || self.compute.is_some()
            || self.class.is_some()
            || self.model.is_some()
    }
}

/// A demand in a line: `2 × 50 % of an H100, 20 GiB VRAM each, 4 CPU, 16 GiB`.
pub fn said(demand: &Demand) -> String {
    let mut parts = Vec::new();
    if demand.gpus > 0 {
        let class = demand.model.as_deref().or(demand.class.as_deref());
        let class = class.unwrap_or("GPU");
        let count = demand.gpus;
        parts.push(match demand.compute_permille {
            1000 => format!("{count} × {class}"),
            share => format!("{count} × {} of {class}", units::show_permille(share.into())),
        });
        if demand.capped {
            parts.push("never more".to_owned());
        }
        if demand.vram_mib > 0 {
            let each = if count > 1 { " each" } else { "" };
            parts.push(format!("{} VRAM{each}", units::show_mib(demand.vram_mib)));
        }
    }
    parts.push(format!("{} CPU", units::show_milli(demand.cpu_milli.into())));
    parts.push(units::show_mib(demand.memory_mib));
    if let Some(region) = &demand.region {
        parts.push(format!("in {region}"));
    }
    let one = parts.join(", ");
    match demand.nodes {
        1 => one,
        members => format!("{members} members, each {one}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_gpu_is_one_slice() {
        let args = DemandArgs {
            gpus: Some(500),
            vram: Some(8192),
            ..DemandArgs::default()
        };
        let demand = args.demand().unwrap();
        assert_eq!(
            (demand.gpus, demand.compute_permille, demand.vram_mib),
            (1, 500, 8192)
        );
        assert_eq!(said(&demand), "1 × 50 % of GPU, 8 GiB VRAM, 1 CPU, 512 MiB");
        let args = DemandArgs { capped: true, ..args };
        let demand = args.demand().unwrap();
        assert!(demand.capped && said(&demand).starts_with("1 × 50 % of GPU, never more, "));
    }

    #[test]
    fn members_each_have_all_of_it() {
        let args = DemandArgs {
            nodes: Some(4),
            gpus: Some(8000),
            ..DemandArgs::default()
        };
        let demand = args.demand().unwrap();
        assert_eq!((demand.nodes, demand.gpus), (4, 8));
        assert_eq!(said(&demand), "4 members, each 8 × GPU, 1 CPU, 512 MiB");
    }

    #[test]
    fn whole_gpus_and_implied_ones() {
        let demand = |args: DemandArgs| args.demand().unwrap();
        assert_eq!(
            demand(DemandArgs {
                gpus: Some(2000),
                ..DemandArgs::default()
            })
            .gpus,
            2
        );
        assert_eq!(
            demand(DemandArgs {
                vram: Some(1),
                ..DemandArgs::default()
            })
            .gpus,
            1
        );
        assert_eq!(demand(DemandArgs::default()), Demand::default());
    }

    #[test]
    fn what_no_gpu_can_be_is_refused() {
        assert!(
            DemandArgs {
                gpus: Some(1500),
                ..DemandArgs::default()
            }
            .demand()
            .is_err()
        );
        assert!(
            DemandArgs {
                gpus: Some(500),
                compute: Some(300),
                ..DemandArgs::default()
            }
            .demand()
            .is_err()
        );
    }
}
