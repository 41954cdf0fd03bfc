//! Language models by their shapes: a catalogue of known ones, and a shape drawn between known ones for a size alone.
//!
//! A shape is what memory follows from: parameters, layers, heads and widths. The figures are those their makers
//! published. Absent: bytes (`inference`, `train`).

mod catalogue;

use std::borrow::Cow;

use crate::refusal::Refusal;

pub use catalogue::CATALOGUE;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Two vectors for each of so many heads.
    Heads(u32),
    /// One compressed vector and one for positions, shared by all heads.
    Latent { rank: u32, rope: u32 },
}

/// What memory follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub params: u64,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub cache: Cache,
    /// Width between the matrices of a layer's feed-forward part; none where experts have many.
    pub ffn: Option<u32>,
    /// How many matrices that part has.
    pub ffn_matrices: u32,
    pub vocabulary: u32,
}

impl Shape {
    /// Values kept of one token in one layer, on each of `tensor` GPUs that share it.
    pub fn cached_values(&self, tensor: u32) -> u128 {
        match self.cache {
            Cache::Heads(heads) => 2 * u128::from(heads.div_ceil(tensor)) * u128::from(self.head_dim),
            // One vector for all heads: each GPU needs the whole.
            Cache::Latent { rank, rope } => u128::from(rank) + u128::from(rope),
        }
    }

    /// Parameters that adapters of this rank beside every matrix have; experts are left alone.
    pub fn adapter_params(&self, rank: u32) -> u128 {
        let (hidden, query) = (
            u128::from(self.hidden),
            u128::from(self.heads) * u128::from(self.head_dim),
        );
        let cached = match self.cache {
            Cache::Heads(heads) => 2 * (hidden + u128::from(heads) * u128::from(self.head_dim)),
            Cache::Latent { rank, rope } => hidden + u128::from(rank) + u128::from(rope),
        };
        let attention = 2 * (hidden + query) + cached;
        let ffn = self.ffn.map_or(0, |ffn| {
            u128::from(self.ffn_matrices) * (hidden + u128::from(ffn))
        });
        u128::from(self.layers) * u128::from(rank) * (attention + ffn)
    }
}

/// A model of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    /// The size people call it by, in billions of parameters.
    pub billions: u32,
    pub shape: Shape,
}

/// A model as a workload names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: Cow<'static, str>,
    pub billions: u32,
    pub shape: Shape,
    /// A size alone: the shape lies between those of known models.
    pub drawn: bool,
}

/// The model meant: one of the catalogue, whatever its maker's name and tuning, or a size such as `13B`.
pub fn find(text: &str, field: &'static str) -> Result<Model, Refusal> {
    crate::name::check_text(text, 200, field)?;
    if let Some(params) = size(text) {
        return drawn(text, params, field);
    }
    // By its own name first: admission asks again and again.
    if let Some(known) = CATALOGUE.iter().find(|known| known.name == text) {
        return Ok(of_known(known));
    }
    let key = key(text);
    let known = CATALOGUE.iter().find(|known| self::key(known.name) == key);
    known.map(of_known).ok_or_else(|| unknown(text, &key, field))
}

fn of_known(known: &Known) -> Model {
    Model {
        name: known.name.into(),
        billions: known.billions,
        shape: known.shape,
        drawn: false,
    }
}

/// Endings that say how a model was tuned or packed, not how large it is.
const TUNINGS: [&str; 20] = [
    "-instruct",
    "-chat",
    "-hf",
    "-it",
    "-base",
    "-mono",
    "-multi",
    "-nl",
    "-alpha",
    "-beta",
    "-v0.1",
    "-v0.2",
    "-v0.3",
    "-awq",
    "-gptq",
    "-gguf",
    "-fp8",
    "-int4",
    "-4k",
    "-128k",
];

fn key(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let own = text.rsplit('/').next().unwrap_or_default();
    let mut own = own.strip_prefix("meta-").unwrap_or(own);
    while let Some(shorter) = TUNINGS.iter().find_map(|tuning| own.strip_suffix(tuning)) {
        own = shorter;
    }
    let key: String = own.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect();
    match key.as_str() {
        "llama38b" => "llama3.18b".into(),
        "llama370b" | "llama3.370b" => "llama3.170b".into(),
        "zephyr7b" => "mistral7b".into(),
        "deepseekr1" => "deepseekv3".into(),
        "phi3mini" => "phi33.8b".into(),
        "phi3medium" => "phi314b".into(),
        "phi4" => "phi414b".into(),
        "phi2" => "phi22.7b".into(),
        key => key
            .strip_prefix("qwen2")
            .filter(|rest| !rest.starts_with('.'))
            .map_or_else(|| key.to_owned(), |size| format!("qwen2.5{size}")),
    }
}

fn unknown(text: &str, key: &str, field: &'static str) -> Refusal {
    let family: String = key.chars().take_while(char::is_ascii_alphabetic).collect();
    let kin = CATALOGUE.iter().map(|known| known.name);
    let kin: Vec<&str> = kin
        .filter(|name| !family.is_empty() && self::key(name).starts_with(&family))
        .collect();
    let known = if kin.is_empty() {
        "`tenure fit --list` shows what is known".to_owned()
    } else {
        format!("known are {}", kin.join(", "))
    };
    Refusal::invalid(field, format!("no model named {text} is known"))
        .hint(format!("{known}; or give its size, such as 13B"))
}

/// Parameters, from `13B`, `1.5b` or `350M`; none for what is not written as a size.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let factor: u64 = match unit {
        "m" | "M" => 1_000_000,
        "b" | "B" => 1_000_000_000,
        "t" | "T" => 1_000_000_000_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !digits(whole, 6) || !digits(part, 3) {
        return None;
    }
    let thousandths: u64 = format!("{whole}{part:0<3}").parse().ok()?;
    thousandths.checked_mul(factor / 1000)
}

/// Parameters, layers, width, and whether heads share keys and values: dense models, smallest first.
const DRAWN: [(u64, u32, u32, bool); 10] = [
    (125_000_000, 12, 768, false),
    (350_000_000, 24, 1024, false),
    (1_300_000_000, 24, 2048, false),
    (2_700_000_000, 32, 2560, false),
    (6_738_415_616, 32, 4096, false),
    (13_015_864_320, 40, 5120, false),
    (16_032_155_648, 34, 6144, false),
    (33_743_970_304, 48, 8192, true),
    (68_976_648_192, 80, 8192, true),
    (405_853_388_800, 126, 16384, true),
];
const HEAD: u32 = 128;
const SHARED_HEADS: u32 = 8;
const MIN_PARAMS: u64 = 1_000_000;
const MAX_PARAMS: u64 = 10_000_000_000_000;

/// A shape straight between the two known ones next in size. Below 34B every head has keys and values of its own: a
/// size alone does not say otherwise, and too much is better told than too little.
fn drawn(text: &str, params: u64, field: &'static str) -> Result<Model, Refusal> {
    if !(MIN_PARAMS..=MAX_PARAMS).contains(&params) {
        return Err(Refusal::invalid(
            field,
            "a model has between 1M and 10T parameters",
        ));
    }
    let above = DRAWN
        .iter()
        .position(|known| params < known.0)
        .unwrap_or(DRAWN.len());
    let (low, high) = (above.saturating_sub(1), above.min(DRAWN.len() - 1));
    let (low, high) = (DRAWN[low], DRAWN[high]);
    let between = |from: u32, to: u32| {
        if low.0 == high.0 {
            return from;
        }
        let (from, to) = (i128::from(from), i128::from(to));
        let (gone, whole) = (i128::from(params - low.0), i128::from(high.0 - low.0));
        let twice = 2 * (to - from) * gone;
        // INVARIANT: between two 32-bit figures.
        (from + (twice + whole * twice.signum()) / (2 * whole)) as u32
    };
    let heads = (between(low.2, high.2) + HEAD / 2) / HEAD;
    let hidden = heads * HEAD;
    Ok(Model {
        name: text.to_ascii_uppercase().into(),
        billions: u32::try_from((params + 500_000_000) / 1_000_000_000)
            .unwrap_or(u32::MAX)
            .max(1),
        shape: Shape {
            params,
            layers: between(low.1, high.1),
            hidden,
            heads,
            head_dim: HEAD,
            cache: Cache::Heads(if low.3 { SHARED_HEADS } else { heads }),
            ffn: Some(hidden * 8 / 3),
            ffn_matrices: 3,
            vocabulary: 32_000,
        },
        drawn: true,
    })
}

#[cfg(test)]
mod tests;
