//! What a user asks for: the command, its surroundings, what it needs and for how long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Workload;
use super::image::ImageName;
use super::label;
use super::service::{self, Service};
use super::task::Task;
use super::task::cut::{self, Cut};
use crate::id::BookingId;
use crate::kind::Counted;
use crate::meter::{Amounts, Meter, Of, Resource};
use crate::name;
use crate::refusal::Refusal;
use crate::storage::volume::{self, VolumeUse};

pub use crate::kind::Kind;

pub const MAX_COMMAND_BYTES: usize = 128 * 1024;
pub const MAX_ENV_BYTES: usize = 128 * 1024;
pub const MAX_RUN_TIME_S: u64 = 366 * 24 * 3600;
pub const DEFAULT_RUN_TIME_S: u64 = 3600;
pub const MAX_GPUS: u32 = 4096;
/// INVARIANT: each member's allocation takes an id of the one block that placing the job has.
pub const MAX_NODES: u32 = 1024;
/// The longest a job may take to end once it is told to.
pub const MAX_GRACE_S: u32 = 3600;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:tt,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }
        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text,)* } }
        }
    };
}

choice! {
    /// Which jobs go first.
    #[derive(Default)]
    Priority { Low "low", #[default] Normal "normal", High "high", Urgent "urgent", }
}

choice! {
    /// How strongly a job is walled off, weakest first.
    Isolation { Guarded "guarded", Fenced "fenced", Partition "partition", Exclusive "exclusive", }
}

/// What a job needs while it runs. Per-GPU figures are for each of its GPUs, and all of them for each of its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// How many members, each on a node with all that follows; several may share a node. They are placed all or none.
    #[serde(skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// How many GPUs, or slices of GPUs, on the member's node. Zero for a job that needs none.
    pub gpus: u32,
    /// Thousandths of each GPU's compute; 1000 is the whole.
    pub compute_permille: u16,
    /// Device memory of each slice; zero on a whole GPU means all of it.
    pub vram_mib: u64,
    /// Only GPUs of this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub class: Option<Box<str>>,
    /// Only GPUs of this model, in the vendor's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub model: Option<Box<str>>,
    /// Only nodes of this region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub region: Option<Box<str>>,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    /// The weakest isolation the job accepts.
    pub isolation: Isolation,
    /// Never more compute than its share, even while the rest of the GPU is idle.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
}

impl Default for Demand {
    fn default() -> Self {
        Demand {
            nodes: 1,
            gpus: 0,
            compute_permille: 1000,
            vram_mib: 0,
            class: None,
            model: None,
            region: None,
            cpu_milli: 1000,
            memory_mib: 512,
            isolation: Isolation::Guarded,
            capped: false,
        }
    }
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Demand {
    /// GPUs of all members.
    pub fn gpus_total(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus)
    }

    /// Whether GPUs of this class and model are what is asked for.
    pub fn takes(&self, class: &str, model: &str) -> bool {
        self.class.as_deref().is_none_or(|wanted| wanted == class)
            && self.model.as_deref().is_none_or(|wanted| wanted == model)
    }

    /// VRAM of all members.
    pub fn vram_total_mib(&self) -> u64 {
        self.vram_mib.saturating_mul(self.gpus_total())
    }

    /// Compute of all members.
    pub fn gpu_milli(&self) -> u64 {
        self.gpus_total() * u64::from(self.compute_permille)
    }

    /// Refuses what no machine could be asked for.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.check_open()?;
        self.check_whole()
    }

    /// What has to hold together once nothing is left to be filled in.
    fn check_whole(&self) -> Result<(), Refusal> {
        if self.gpus > 0 && self.compute_permille < 1000 && self.vram_mib == 0 {
            return Err(Refusal::invalid(
                "/demand/vram_mib",
                "a slice needs its VRAM said; only a whole GPU comes with all of it",
            ));
        }
        if self.gpus == 0 && self.class.is_some() {
            return Err(Refusal::invalid(
                "/demand/class",
                "a GPU class without a GPU; ask for at least one",
            ));
        }
        if self.gpus == 0 && self.model.is_some() {
            return Err(Refusal::invalid(
                "/demand/model",
                "a GPU model without a GPU; ask for at least one",
            ));
        }
        if self.gpus == 0 && self.vram_mib > 0 {
            return Err(Refusal::invalid(
                "/demand/vram_mib",
                "VRAM without a GPU; ask for at least one",
            ));
        }
        Ok(())
    }

    /// The same for one that a SKU or a workload has yet to fill in.
    fn check_open(&self) -> Result<(), Refusal> {
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return Err(Refusal::invalid(
                "/demand/nodes",
                format!("a job has 1 to {MAX_NODES} members"),
            ));
        }
        if self.gpus > MAX_GPUS {
            return Err(Refusal::invalid(
                "/demand/gpus",
                format!("a job has at most {MAX_GPUS} GPUs"),
            ));
        }
        if self.compute_permille == 0 || self.compute_permille > 1000 {
            return Err(Refusal::invalid(
                "/demand/compute_permille",
                "a share is 1 to 1000 thousandths of a GPU",
            ));
        }
        if self.isolation == Isolation::Exclusive && self.gpus > 0 && self.compute_permille < 1000 {
            return Err(Refusal::invalid(
                "/demand/isolation",
                "only a whole GPU is exclusive; ask for 1000 thousandths",
            ));
        }
        if self.vram_mib > 1 << 40 || self.memory_mib > 1 << 40 {
            return Err(Refusal::invalid("/demand", "more memory than any machine has"));
        }
        if self.cpu_milli == 0 {
            return Err(Refusal::invalid(
                "/demand/cpu_milli",
                "a job needs some CPU, at least 1 thousandth of a core",
            ));
        }
        if self.memory_mib == 0 {
            return Err(Refusal::invalid(
                "/demand/memory_mib",
                "a job needs some memory, at least 1 MiB",
            ));
        }
        if let Some(class) = &self.class {
            name::check(class, "/demand/class")?;
        }
        if let Some(model) = &self.model {
            name::check_text(model, 200, "/demand/model")?;
        }
        if let Some(region) = &self.region {
            name::check(region, "/demand/region")?;
        }
        Ok(())
    }
}

/// A job as its user wrote it, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    pub name: String,
    /// Words of its user's about it, by which its log is found; nothing is decided by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub kind: Kind,
    /// What it is, in its user's terms; what `demand` leaves out is derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Box<Workload>>,
    #[serde(default)]
    pub priority: Priority,
    /// The program and its arguments, not a shell line. Empty, with an image, runs what the image says.
    #[serde(default)]
    pub command: Vec<String>,
    /// The container image whose files the job sees, as `[host[:port]/]path[:tag][@sha256:…]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The user's secret that holds `user:password` for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_secret: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variables filled from the user's secrets, by secret name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Volumes of the user, its subscriber or its tenant, the nearest of each name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeUse>,
    /// Working directory inside the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// A named size; fills what `demand` leaves out and is counted by quotas per SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(default)]
    pub demand: Demand,
    /// Reads what people send it with `attach`, rather than nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Reads and writes a terminal; its output is one stream then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// Ended after this long; also what is held of the budget.
    #[serde(default = "default_run_time_s")]
    pub run_time_s: u64,
    /// Seconds between the signal to end and the end.
    #[serde(default = "default_grace_s")]
    pub grace_s: u32,
    /// How often the job may be started again after a fault that was not its own.
    #[serde(default = "default_max_attempts")]
    pub max_attempts: u32,
    /// It saves its state when it is told to end, and may be started anew elsewhere so that another job fits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restartable: bool,
    /// It runs in windows of this booking, on what is held there, and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub booking: Option<BookingId>,
    /// When it ends for want of device memory, it is queued again with half as much more, as long as it has attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grow: bool,
    /// It answers requests, by as many replicas as they need. Its demand, run time, grace and attempts are each replica's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<Service>>,
    /// How its frames or segments are shared out; such a job is done in tasks unless it says otherwise. Its run time, grace
    /// and attempts are each task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Cut>,
    /// Which part of another job it is. Tenure says so, and nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<Task>>,
}

fn default_run_time_s() -> u64 {
    DEFAULT_RUN_TIME_S
}

fn default_grace_s() -> u32 {
    10
}

fn default_max_attempts() -> u32 {
    3
}

/// In which a job finds the trace it belongs to.
pub const TRACE_PARENT: &str = "TRACEPARENT";

/// Variables that would let a job, or its image, choose its own devices or slip code in front of its libraries.
pub fn is_reserved_variable(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "LD_",
        "VK_",
        "ONEAPI_",
        "TENURE_",
        "CUDA_",
        "NVIDIA_",
        "ROCR_",
        "HIP_",
        "ZE_",
        "OCL_ICD_",
        "OPENCL_",
        "GPU_DEVICE_",
        "GLIBC_TUNABLES",
    ];
    // Which trace a job belongs to is said with its submission.
    name == TRACE_PARENT || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn check_variable(name: &str, field: &'static str) -> Result<(), Refusal> {
    let fine = !name.is_empty()
        && name.len() <= 255
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.as_bytes()[0].is_ascii_digit();
    if !fine {
        return Err(Refusal::invalid(
            field,
            "a variable name is ASCII letters, digits and '_', not starting with a digit",
        ));
    }
    if is_reserved_variable(name) {
        return Err(Refusal::invalid(
            field,
            format!("{name} is set by Tenure, or would bypass it, and cannot be given"),
        ));
    }
    Ok(())
}

impl JobSpec {
    /// A job of which nothing is said but what it is: for asking, not for running.
    pub fn of_workload(name: &str, workload: Workload) -> JobSpec {
        JobSpec {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            kind: Kind::default(),
            workload: Some(Box::new(workload)),
            priority: Priority::default(),
            command: vec!["-".into()],
            image: None,
            image_secret: None,
            env: BTreeMap::new(),
            secrets: BTreeMap::new(),
            volumes: Vec::new(),
            workdir: None,
            sku: None,
            demand: Demand::default(),
            stdin: false,
            tty: false,
            run_time_s: default_run_time_s(),
            grace_s: default_grace_s(),
            max_attempts: default_max_attempts(),
            restartable: false,
            booking: None,
            grow: false,
            service: None,
            tasks: None,
            task: None,
        }
    }

    /// Refuses what can never be run, naming the field.
    pub fn check(&self) -> Result<(), Refusal> {
        name::check(&self.name, "/name")?;
        label::check(&self.labels)?;
        self.check_image()?;
        match self.command.first() {
            None if self.image.is_none() => {
                return Err(Refusal::invalid("/command", "a job needs a command"));
            }
            Some(program) if program.is_empty() => {
                return Err(Refusal::invalid("/command", "a command begins with a program"));
            }
            _ => {}
        }
        if self.command.iter().map(|part| part.len() + 1).sum::<usize>() > MAX_COMMAND_BYTES {
            return Err(Refusal::invalid(
                "/command",
                format!("the command is longer than {MAX_COMMAND_BYTES} bytes; put a script in a volume"),
            ));
        }
        if self.command.iter().any(|part| part.contains('\0')) {
            return Err(Refusal::invalid("/command", "the command has a NUL byte"));
        }
        if self
            .env
            .iter()
            .chain(&self.secrets)
            .map(|(k, v)| k.len() + v.len() + 2)
            .sum::<usize>()
            > MAX_ENV_BYTES
        {
            return Err(Refusal::invalid(
                "/env",
                format!("the environment is larger than {MAX_ENV_BYTES} bytes"),
            ));
        }
        for (variable, value) in &self.env {
            check_variable(variable, "/env")?;
            if value.contains('\0') {
                return Err(Refusal::invalid("/env", format!("{variable} has a NUL byte")));
            }
        }
        for (variable, secret) in &self.secrets {
            check_variable(variable, "/secrets")?;
            name::check(secret, "/secrets")?;
            if self.env.contains_key(variable) {
                return Err(Refusal::invalid(
                    "/secrets",
                    format!("{variable} is given both as env and as secret"),
                ));
            }
        }
        if let Some(workdir) = &self.workdir {
            let plain = workdir.starts_with('/')
                && !workdir.split('/').any(|part| part == "..")
                && !workdir.contains(char::is_control);
            if !plain || workdir.len() > 4096 {
                return Err(Refusal::invalid(
                    "/workdir",
                    "a working directory is an absolute path without '..'",
                ));
            }
        }
        volume::check_uses(&self.volumes)?;
        if let Some(sku) = &self.sku {
            name::check(sku, "/sku")?;
        }
        if self.run_time_s == 0 || self.run_time_s > MAX_RUN_TIME_S {
            return Err(Refusal::invalid(
                "/run_time_s",
                format!("a run time is 1 to {MAX_RUN_TIME_S} seconds"),
            ));
        }
        if self.grace_s > MAX_GRACE_S {
            return Err(Refusal::invalid(
                "/grace_s",
                format!("a grace period is at most {MAX_GRACE_S} seconds"),
            ));
        }
        if self.max_attempts == 0 || self.max_attempts > 100 {
            return Err(Refusal::invalid("/max_attempts", "a job is tried 1 to 100 times"));
        }
        self.check_workload()?;
        cut::check(self)?;
        service::check(self)?;
        match (&self.sku, &self.workload) {
            (None, None) => self.demand.check(),
            _ => self.demand.check_open(),
        }
    }

    fn check_workload(&self) -> Result<(), Refusal> {
        if let Some(workload) = &self.workload {
            workload.check()?;
            // A job that says nothing of its kind is of its workload's.
            if self.kind != workload.kind() && self.kind != Kind::Batch {
                return Err(Refusal::invalid(
                    "/kind",
                    format!(
                        "the kind is {}, and the workload is {}",
                        self.kind.as_str(),
                        workload.kind().as_str()
                    ),
                )
                .hint("leave the kind out"));
            }
        }
        let fixed = match (self.grow, &self.sku) {
            (false, _) => None,
            (true, Some(_)) => Some("a job of a SKU has its size, and does not grow"),
            (true, None) if self.demand.nodes > 1 => {
                Some("members of a gang are of one size, and do not grow")
            }
            (true, None) => None,
        };
        fixed.map_or(Ok(()), |why| Err(Refusal::invalid("/grow", why)))
    }

    fn check_image(&self) -> Result<(), Refusal> {
        if let Some(image) = &self.image {
            image
                .parse::<ImageName>()
                .map_err(|why| Refusal::invalid("/image", why.0))?;
        }
        match &self.image_secret {
            Some(_) if self.image.is_none() => Err(Refusal::invalid(
                "/image_secret",
                "a secret for an image without an image",
            )),
            Some(secret) => name::check(secret, "/image_secret"),
            None => Ok(()),
        }
    }

    /// What all members use of each meter while the job is admitted, on GPUs of this class and with this much VRAM in all
    /// (a whole GPU comes with all of its memory, asked for or not).
    pub fn amounts(&self, class: Option<&str>, vram_mib: u64) -> Amounts {
        let demand = &self.demand;
        let plain = [
            (Resource::GpuMilli, demand.gpu_milli()),
            (Resource::Slices, demand.gpus_total()),
            (Resource::VramMib, vram_mib),
            (
                Resource::CpuMilli,
                u64::from(demand.nodes) * u64::from(demand.cpu_milli),
            ),
            (
                Resource::MemoryMib,
                demand.memory_mib.saturating_mul(demand.nodes.into()),
            ),
            // A job of tasks is one job, however many it has.
            (Resource::Jobs, u64::from(self.task.is_none())),
        ];
        self.metered(class, plain.into_iter())
    }

    /// What a job of tasks uses itself: it is one job, of its kind and its SKU, and of the class it names.
    pub fn amounts_of_tasks(&self) -> Amounts {
        self.metered(self.demand.class.as_deref(), [(Resource::Jobs, 1)].into_iter())
    }

    fn metered(&self, class: Option<&str>, plain: impl Iterator<Item = (Resource, u64)>) -> Amounts {
        let ofs = self.counted_as(class);
        let counted = plain.filter(|(_, amount)| *amount > 0);
        let rows = counted.flat_map(|(resource, amount)| {
            let ofs = ofs.iter().filter(move |of| of.counts(resource));
            let meters = ofs.cloned().map(move |of| Meter { resource, of });
            meters.map(move |meter| (meter, amount))
        });
        rows.collect()
    }

    /// The groups a job counts in: everything, its GPU class, its SKU, its kind.
    pub fn counted_as(&self, class: Option<&str>) -> Vec<Of> {
        let mut ofs = Vec::with_capacity(3);
        ofs.push(Of::All);
        ofs.extend(class.map(|class| Of::Class(class.into())));
        ofs.extend(self.sku.as_deref().map(|sku| Of::Sku(sku.into())));
        ofs.extend(self.counted_kinds().map(Of::Kind));
        ofs
    }

    fn counted_kinds(&self) -> impl Iterator<Item = Counted> {
        let billions = self.workload.as_deref().and_then(Workload::billions);
        Counted::groups(self.kind, billions)
    }

    /// Frames that are held for it; none of most jobs, and none of a task, whose job holds them.
    pub fn frames(&self) -> u64 {
        if self.task.is_some() {
            return 0;
        }
        self.workload.as_deref().map_or(0, Workload::frames)
    }
}

/// A named demand size that an operator defines; one name may have a size for each GPU class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Sku {
    pub name: String,
    pub demand: Demand,
}

impl Sku {
    /// What it is kept by: its name, and the class it is for where it is for one.
    pub fn key(&self) -> String {
        match &self.demand.class {
            None => self.name.clone(),
            Some(class) => Sku::key_for(&self.name, class),
        }
    }

    pub fn key_for(name: &str, class: &str) -> String {
        format!("{name}@{class}")
    }

    pub fn check(&self) -> Result<(), Refusal> {
        name::check(&self.name, "/name")?;
        self.demand.check()
    }
}
