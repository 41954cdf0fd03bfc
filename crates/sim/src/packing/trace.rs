//! Traces of the published protocol: nodes, pods, and in what order pods arrive.
//!
//! Times in the files are not used, as in the published runs: nobody departs and nobody retries.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::seeded::Seeded;

/// A machine: all of its GPUs are of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub gpus: usize,
    /// Its bit among the models of the fleet.
    pub model: u64,
}

/// What a pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ask {
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub gpus: u16,
    /// Of each GPU.
    pub gpu_milli: u16,
    /// Bits of the models it takes; all for any.
    pub models: u64,
}

impl Ask {
    pub fn total_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }

    /// A part of one GPU.
    pub fn is_share(&self) -> bool {
        self.gpus == 1 && self.gpu_milli < 1000
    }
}

/// The machines of a file.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    pub machines: Vec<Machine>,
    models: Vec<String>,
}

impl Fleet {
    pub fn gpu_milli(&self) -> u64 {
        self.machines
            .iter()
            .map(|machine| machine.gpus as u64 * 1000)
            .sum()
    }

    /// The model that is a bit's.
    pub fn model(&self, bit: u64) -> Option<&str> {
        let which = usize::try_from(bit.trailing_zeros()).ok()?;
        self.models.get(which).map(String::as_str)
    }

    /// Bits of these models, `|` between them; of models nobody has, none.
    fn bits(&self, named: &str) -> u64 {
        if named.is_empty() {
            return u64::MAX;
        }
        let known = |name: &str| self.models.iter().position(|model| model == name);
        named
            .split('|')
            .filter_map(known)
            .fold(0, |bits, which| bits | 1 << which)
    }

    pub fn push(&mut self, cpu_milli: u32, memory_mib: u32, gpus: usize, model: &str) {
        let known = self.models.iter().position(|known| known == model);
        let which = known.unwrap_or_else(|| {
            self.models.push(model.to_owned());
            self.models.len() - 1
        });
        self.machines.push(Machine {
            cpu_milli,
            memory_mib,
            gpus,
            model: 1 << which,
        });
    }
}

/// A file that is not what it should be.
#[derive(Debug)]
pub enum TraceError {
    Read(io::Error),
    Column(&'static str),
    Line(usize),
}

impl fmt::Display for TraceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Read(why) => write!(out, "trace not read: {why}"),
            TraceError::Column(name) => write!(out, "the trace has no column {name}"),
            TraceError::Line(number) => write!(out, "line {number} of the trace is not understood"),
        }
    }
}

impl std::error::Error for TraceError {}

struct Table {
    columns: HashMap<String, usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn parse(text: &str) -> Table {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let head = lines.next().unwrap_or_default();
        let columns = head
            .split(',')
            .enumerate()
            .map(|(at, name)| (name.trim().to_owned(), at));
        Table {
            columns: columns.collect(),
            rows: lines
                .map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect())
                .collect(),
        }
    }

    fn column(&self, name: &'static str) -> Result<usize, TraceError> {
        self.columns.get(name).copied().ok_or(TraceError::Column(name))
    }
}

fn cell<T: std::str::FromStr>(row: &[String], column: usize, line: usize) -> Result<T, TraceError> {
    let text = row.get(column).ok_or(TraceError::Line(line))?;
    text.parse().map_err(|_| TraceError::Line(line))
}

pub fn machines(text: &str) -> Result<Fleet, TraceError> {
    let table = Table::parse(text);
    let (cpu, memory) = (table.column("cpu_milli")?, table.column("memory_mib")?);
    let (gpus, model) = (table.column("gpu")?, table.column("model")?);
    let mut fleet = Fleet::default();
    for (at, row) in table.rows.iter().enumerate() {
        let line = at + 2;
        let count: usize = cell(row, gpus, line)?;
        if count > 0 {
            let model: String = cell(row, model, line)?;
            fleet.push(cell(row, cpu, line)?, cell(row, memory, line)?, count, &model);
        }
    }
    Ok(fleet)
}

/// The pods of a file, by name.
pub fn pods(text: &str, fleet: &Fleet) -> Result<Vec<Ask>, TraceError> {
    let table = Table::parse(text);
    let name = table.column("name")?;
    let (cpu, memory) = (table.column("cpu_milli")?, table.column("memory_mib")?);
    let (gpus, milli) = (table.column("num_gpu")?, table.column("gpu_milli")?);
    let spec = table.column("gpu_spec").ok();
    let mut named = Vec::new();
    for (at, row) in table.rows.iter().enumerate() {
        let line = at + 2;
        let models = spec.and_then(|spec| row.get(spec)).map_or("", String::as_str);
        let gpus: u16 = cell(row, gpus, line)?;
        let ask = Ask {
            cpu_milli: cell(row, cpu, line)?,
            memory_mib: cell(row, memory, line)?,
            gpus,
            gpu_milli: if gpus == 0 { 0 } else { cell(row, milli, line)? },
            models: if gpus == 0 { u64::MAX } else { fleet.bits(models) },
        };
        named.push((cell::<String>(row, name, line)?, ask));
    }
    named.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(named.into_iter().map(|(_, ask)| ask).collect())
}

pub fn read(path: &Path) -> Result<String, TraceError> {
    fs::read_to_string(path).map_err(TraceError::Read)
}

/// The pods in the order of one seed, with more drawn from them until 130 % of the fleet's GPUs are asked for.
pub fn arrivals(pods: &[Ask], fleet_milli: u64, seed: u64) -> Vec<Ask> {
    let mut random = Seeded::new(seed);
    let mut order = pods.to_vec();
    random.shuffle(&mut order);
    let until = fleet_milli * 13 / 10;
    let mut asked: u64 = order.iter().map(Ask::total_milli).sum();
    while !pods.is_empty() && pods.iter().any(|pod| pod.gpus > 0) {
        let next = pods[random.below(pods.len())];
        // As published: the test counts one GPU of the next pod, whatever it asks for.
        if asked + u64::from(next.gpu_milli) > until {
            break;
        }
        asked += next.total_milli();
        order.push(next);
    }
    order
}
