//! Inference: a language model that answers. Weights, the keys and values of what it is reading and writing, and what
//! it works with meanwhile.

use serde::{Deserialize, Serialize};

use super::dtype::Dtype;
use super::estimate::{Estimate, MIB, Term, TermName, grouped};
use super::model::{self, Cache, Model};
use super::split::Split;
use crate::refusal::Refusal;

pub const MAX_CONTEXT: u32 = 1 << 24;
pub const MAX_SEQUENCES: u32 = 1 << 16;
/// The driver's context and the libraries' workspaces.
const OVERHEAD: u128 = 768 * MIB;
/// Tokens of a prompt that are taken in at a time.
const AT_A_TIME: u128 = 2048;
/// Bytes a layer works with, for each token and unit of width.
const WORKING: u128 = 34;

/// A model, how its numbers are kept, and how much it is asked at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// By name, or by size such as `13B`.
    pub model: String,
    #[serde(default)]
    pub dtype: Dtype,
    /// What keys and values are kept in; 16 bits unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_dtype: Option<Dtype>,
    /// Tokens of each sequence, read and written.
    #[serde(default = "default_context")]
    pub context: u32,
    /// Sequences at once.
    #[serde(default = "one")]
    pub sequences: u32,
    #[serde(default, skip_serializing_if = "Split::is_none")]
    pub split: Split,
}

fn default_context() -> u32 {
    4096
}

fn one() -> u32 {
    1
}

impl Inference {
    /// Of a model, with everything else as it usually is.
    pub fn of(model: impl Into<String>) -> Inference {
        Inference {
            model: model.into(),
            dtype: Dtype::default(),
            kv_dtype: None,
            context: default_context(),
            sequences: 1,
            split: Split::default(),
        }
    }

    pub(super) fn model(&self) -> Result<Model, Refusal> {
        model::find(&self.model, "/workload/inference/model")
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let model = self.model()?;
        if self.context == 0 || self.context > MAX_CONTEXT {
            return Err(Refusal::invalid(
                "/workload/inference/context",
                format!("a context is 1 to {MAX_CONTEXT} tokens"),
            ));
        }
        if self.sequences == 0 || self.sequences > MAX_SEQUENCES {
            return Err(Refusal::invalid(
                "/workload/inference/sequences",
                format!("there are 1 to {MAX_SEQUENCES} sequences at once"),
            ));
        }
        if self.kv_dtype == Some(Dtype::Int2) {
            return Err(Refusal::invalid(
                "/workload/inference/kv_dtype",
                "keys and values are kept in 4 bits at the least",
            ));
        }
        self.split.check(&model.shape, "/workload/inference/split")
    }

    pub(super) fn estimate(&self, model: &Model) -> Estimate {
        let (shape, split) = (&model.shape, &self.split);
        let weights = split.share(self.dtype.bytes(shape.params.into()), shape);
        let kv = self.kv_dtype.unwrap_or(self.dtype.of_cache());
        let layers = split.layers(shape);
        let token = kv.bytes(layers * shape.cached_values(split.tensor));
        let (context, sequences) = (u128::from(self.context), u128::from(self.sequences));
        // Each copy answers its part of the sequences.
        let at_once = sequences.div_ceil(split.data.into());
        let tokens = context * at_once;
        let read = tokens.min(AT_A_TIME);
        let working = (read * WORKING * u128::from(shape.hidden)).div_ceil(split.tensor.into());
        let chances = at_once * u128::from(shape.vocabulary) * 4;
        let terms = vec![
            Term::new(
                TermName::Weights,
                weights,
                format!(
                    "{} parameters × {}{}",
                    grouped(shape.params),
                    self.dtype.words(),
                    split.words()
                ),
            ),
            Term::new(
                TermName::KvCache,
                token * tokens,
                format!(
                    "{} × {} × {} tokens{}",
                    cached(model, split, layers),
                    kv.words(),
                    grouped(context),
                    match at_once {
                        1 => String::new(),
                        at_once => format!(" × {at_once} sequences"),
                    }
                ),
            ),
            Term::new(
                TermName::Activations,
                working + chances,
                format!(
                    "{WORKING} × {} tokens at a time × {} wide, and the chances of {} words",
                    grouped(read),
                    grouped(shape.hidden),
                    grouped(shape.vocabulary)
                ),
            ),
            Term::new(TermName::Overhead, OVERHEAD, "driver context and workspaces"),
        ];
        let mut notes = drawn_note(model);
        if split.tensor > 1 && matches!(shape.cache, Cache::Latent { .. }) {
            notes.push("its cache is one vector for all heads, which every GPU keeps whole".into());
        }
        Estimate {
            title: format!(
                "inference, {} {}, {} tokens{}",
                model.name,
                self.dtype.as_str(),
                grouped(context),
                match self.sequences {
                    1 => String::new(),
                    sequences => format!(" × {sequences} sequences"),
                }
            ),
            terms,
            gpus: u32::try_from(split.gpus()).unwrap_or(u32::MAX),
            together: split.tensor,
            run_ms: None,
            token_bytes: u64::try_from(token).ok(),
            notes,
        }
    }
}

fn cached(model: &Model, split: &Split, layers: u128) -> String {
    match model.shape.cache {
        Cache::Heads(heads) => {
            let heads = heads.div_ceil(split.tensor);
            format!(
                "2 × {layers} layers × {heads} KV heads × {}",
                model.shape.head_dim
            )
        }
        Cache::Latent { rank, rope } => format!("{layers} layers × ({rank} latent + {rope} rotary)"),
    }
}

pub(super) fn drawn_note(model: &Model) -> Vec<String> {
    let shape = &model.shape;
    let note = format!(
        "the shape of a {} model is drawn between known ones ({} layers, {} wide); its name would be exact",
        model.name, shape.layers, shape.hidden
    );
    model.drawn.then_some(note).into_iter().collect()
}
