//! Training and fine-tuning of language models: all weights, or adapters beside weights that stay as they are.
//!
//! Bytes for each parameter are those of the usual loops: mixed precision keeps 16-bit weights and gradients beside
//! 32-bit copies and moments. Activations are those of arXiv 2205.05198.

use serde::{Deserialize, Serialize};

use super::dtype::Dtype;
use super::estimate::{Estimate, MIB, Term, TermName, grouped};
use super::inference::drawn_note;
use super::model::{self, Model};
use super::split::Split;
use crate::refusal::Refusal;

const MAX_SEQUENCE: u32 = 1 << 24;
const MAX_BATCH: u32 = 1 << 16;
const MAX_RANK: u32 = 1 << 14;
/// The driver's context, the libraries' workspaces and buffers of messages between GPUs.
const OVERHEAD: u128 = 1024 * MIB;

macro_rules! word {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }
        impl $name {
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text,)* } }
        }
    };
}

word! {
    /// What is trained.
    Method {
        /// All weights.
        #[default] Full "full",
        /// Adapters beside weights of 16 bits.
        Lora "lora",
        /// Adapters beside quantised weights.
        Qlora "qlora",
    }
}

word! {
    /// How weights and what is kept of them are counted.
    Precision {
        /// 16-bit weights and gradients, 32-bit copies and moments.
        #[default] Mixed "mixed",
        /// Everything in 16 bits.
        Bf16 "bf16",
        /// Everything in 32 bits.
        Fp32 "fp32",
    }
}

word! {
    /// What it keeps for each trained parameter.
    Optimizer {
        /// Two moments.
        #[default] Adamw "adamw",
        /// Two moments of 8 bits.
        Adam8bit "adam8bit",
        /// Moments of rows and columns alone.
        Adafactor "adafactor",
        /// One moment.
        Lion "lion",
        /// One moment.
        SgdMomentum "sgd_momentum",
        /// None.
        Sgd "sgd",
    }
}

word! {
    /// What is computed again on the way back rather than kept.
    Recompute {
        None "none",
        /// Attention, as fused attention does by itself.
        Selective "selective",
        /// Every layer, from what came into it.
        #[default] Full "full",
    }
}

/// A model, and how it is trained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// By name, or by size such as `13B`.
    pub model: String,
    #[serde(default)]
    pub method: Method,
    #[serde(default)]
    pub precision: Precision,
    /// Of the weights that stay as they are; 4 bits for `qlora`, 16 for `lora`, unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Gradients are kept in 32 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fp32_gradients: bool,
    /// Tokens of each sample.
    #[serde(default = "default_sequence")]
    pub sequence: u32,
    /// Samples on each GPU at a time.
    #[serde(default = "one")]
    pub batch: u32,
    #[serde(default)]
    pub recompute: Recompute,
    /// Of adapters.
    #[serde(default = "default_rank")]
    pub rank: u32,
    /// What copies share out among them: 1 optimizer, 2 and gradients, 3 and weights.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zero: u8,
    #[serde(default, skip_serializing_if = "Split::is_none")]
    pub split: Split,
}

fn default_sequence() -> u32 {
    2048
}

fn default_rank() -> u32 {
    8
}

fn one() -> u32 {
    1
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Train {
    /// Of a model, with everything else as it usually is.
    pub fn of(model: impl Into<String>, method: Method) -> Train {
        Train {
            model: model.into(),
            method,
            precision: Precision::default(),
            dtype: None,
            optimizer: Optimizer::default(),
            fp32_gradients: false,
            sequence: default_sequence(),
            batch: 1,
            recompute: Recompute::default(),
            rank: default_rank(),
            zero: 0,
            split: Split::default(),
        }
    }

    pub(super) fn model(&self) -> Result<Model, Refusal> {
        model::find(&self.model, "/workload/model")
    }

    /// `at` is where in the job this stands, such as `/workload/training`.
    pub(super) fn check(&self, at: &str) -> Result<(), Refusal> {
        let field = |name: &str| format!("{at}/{name}");
        let model = self.model().map_err(|refusal| refusal.field(field("model")))?;
        if self.sequence == 0 || self.sequence > MAX_SEQUENCE {
            return Err(Refusal::invalid(
                field("sequence"),
                format!("a sample is 1 to {MAX_SEQUENCE} tokens"),
            ));
        }
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Err(Refusal::invalid(
                field("batch"),
                format!("a batch is 1 to {MAX_BATCH} samples"),
            ));
        }
        if self.rank == 0 || self.rank > MAX_RANK {
            return Err(Refusal::invalid(
                field("rank"),
                format!("adapters have a rank of 1 to {MAX_RANK}"),
            ));
        }
        if self.zero > 3 {
            return Err(Refusal::invalid(field("zero"), "stages are 0 to 3"));
        }
        match (self.method, self.dtype) {
            (Method::Full, Some(_)) => {
                return Err(Refusal::invalid(
                    field("dtype"),
                    "all weights are trained, and `precision` says how they are kept",
                ));
            }
            (Method::Lora, Some(dtype)) if dtype.is_quantised() => {
                return Err(Refusal::invalid(
                    field("dtype"),
                    format!("adapters beside {} weights are `qlora`", dtype.as_str()),
                ));
            }
            (Method::Qlora, Some(dtype)) if !dtype.is_quantised() => {
                return Err(Refusal::invalid(
                    field("dtype"),
                    format!("adapters beside {} weights are `lora`", dtype.as_str()),
                ));
            }
            _ => {}
        }
        self.split.check(&model.shape, &field("split"))
    }

    fn weights_dtype(&self) -> Dtype {
        match (self.method, self.precision) {
            (Method::Full, Precision::Fp32) => Dtype::Fp32,
            (Method::Full, _) => Dtype::Bf16,
            (Method::Lora, _) => self.dtype.unwrap_or(Dtype::Bf16),
            (Method::Qlora, _) => self.dtype.unwrap_or(Dtype::Int4),
        }
    }

    /// Bytes of each trained parameter's gradient.
    fn gradient_bytes(&self) -> u128 {
        if self.fp32_gradients || self.precision == Precision::Fp32 {
            4
        } else {
            2
        }
    }

    /// Bytes that the optimizer keeps of each trained parameter, copy included.
    fn optimizer_bytes(&self) -> u128 {
        let copy = if self.precision == Precision::Mixed { 4 } else { 0 };
        let moment = if self.precision == Precision::Bf16 { 2 } else { 4 };
        copy + match self.optimizer {
            Optimizer::Adamw => 2 * moment,
            Optimizer::Adam8bit => 2,
            Optimizer::Lion | Optimizer::SgdMomentum => moment,
            Optimizer::Adafactor | Optimizer::Sgd => 0,
        }
    }

    pub(super) fn estimate(&self, model: &Model, kind: &str) -> Estimate {
        let (shape, split) = (&model.shape, &self.split);
        let copies = u128::from(split.data);
        let among = |whole: u128, stage: u8| {
            if self.zero >= stage {
                whole.div_ceil(copies)
            } else {
                whole
            }
        };
        let by = |stage: u8| match (self.zero >= stage, split.data) {
            (true, 2..) => format!(" ÷ {} copies", split.data),
            _ => String::new(),
        };
        let dtype = self.weights_dtype();
        let weights = split.share(dtype.bytes(shape.params.into()), shape);
        let (trained, of) = match self.method {
            Method::Full => (u128::from(shape.params), "parameters"),
            Method::Lora | Method::Qlora => (shape.adapter_params(self.rank), "adapter parameters"),
        };
        let here = split.share(trained, shape);
        let mut terms = vec![Term::new(
            TermName::Weights,
            among(weights, 3),
            format!(
                "{} parameters × {}{}{}",
                grouped(shape.params),
                dtype.words(),
                split.words(),
                by(3)
            ),
        )];
        if self.method != Method::Full {
            let words = format!(
                "{} adapter parameters of rank {} × 2 bytes{}",
                grouped(trained),
                self.rank,
                split.words()
            );
            terms.push(Term::new(TermName::Adapters, here * 2, words));
        }
        let gradient = self.gradient_bytes();
        terms.push(Term::new(
            TermName::Gradients,
            among(here * gradient, 2),
            format!(
                "{} {of} × {gradient} bytes{}{}",
                grouped(trained),
                split.words(),
                by(2)
            ),
        ));
        let kept = self.optimizer_bytes();
        terms.push(Term::new(
            TermName::Optimizer,
            among(here * kept, 1),
            format!(
                "{} {of} × {kept} bytes ({}, {}){}{}",
                grouped(trained),
                self.optimizer.as_str(),
                self.precision.as_str(),
                split.words(),
                by(1)
            ),
        ));
        terms.push(self.activations(model));
        if self.zero == 3 && split.data > 1 {
            let layer = (2 * weights).div_ceil(split.layers(shape));
            terms.push(Term::new(
                TermName::Gathered,
                layer,
                "two layers' weights, fetched from the other copies while they are used",
            ));
        }
        terms.push(Term::new(
            TermName::Overhead,
            OVERHEAD,
            "driver context, workspaces and messages between GPUs",
        ));
        let mut notes = drawn_note(model);
        if self.method != Method::Full && shape.ffn.is_none() {
            notes.push("adapters stand beside attention alone; experts are left as they are".into());
        }
        Estimate {
            title: format!(
                "{kind}, {} {}, {} tokens × {} on each of {} GPU{}",
                model.name,
                self.method.as_str(),
                grouped(self.sequence),
                self.batch,
                split.gpus(),
                if split.gpus() == 1 { "" } else { "s" }
            ),
            terms,
            gpus: u32::try_from(split.gpus()).unwrap_or(u32::MAX),
            together: split.tensor,
            run_ms: None,
            token_bytes: None,
            notes,
        }
    }

    fn activations(&self, model: &Model) -> Term {
        let (shape, split) = (&model.shape, &self.split);
        let (s, b, h) = (
            u128::from(self.sequence),
            u128::from(self.batch),
            u128::from(shape.hidden),
        );
        let one = s * b * h;
        let (layer, working, words) = match self.recompute {
            Recompute::None => (
                one * 34 + 5 * u128::from(shape.heads) * s * s * b,
                0,
                "34·s·b·h + 5·a·s²·b for each layer",
            ),
            Recompute::Selective => (one * 34, 0, "34·s·b·h for each layer"),
            Recompute::Full => (one * 2, one * 34, "2·s·b·h for each layer, and 34·s·b·h of one"),
        };
        // The first run of a pipeline keeps as many batches as there are runs.
        let kept = split.layers(shape) * u128::from(split.pipeline);
        let chances = 8 * s * b * u128::from(shape.vocabulary);
        let bytes = (layer * kept + working + chances).div_ceil(split.tensor.into());
        Term::new(
            TermName::Activations,
            bytes,
            format!(
                "{words} (s {}, b {}, h {}), and the chances of {} words{}",
                grouped(s),
                self.batch,
                grouped(h),
                grouped(shape.vocabulary),
                match split.tensor {
                    1 => String::new(),
                    tensor => format!(" ÷ {tensor} tensor"),
                }
            ),
        )
    }
}
