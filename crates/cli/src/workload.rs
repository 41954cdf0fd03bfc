//! What a job is, from flags. Shared by `run` and `fit`.

use clap::{Args, ValueEnum};
use tenure_domain::kind::Kind;
use tenure_domain::workload::Workload;
use tenure_domain::workload::derive::Derivation;
use tenure_domain::workload::dtype::Dtype;
use tenure_domain::workload::frames::Frames;
use tenure_domain::workload::inference::Inference;
use tenure_domain::workload::picture::{Rendering, Video};
use tenure_domain::workload::segments::Segments;
use tenure_domain::workload::split::Split;
use tenure_domain::workload::train::{Method, Optimizer, Precision, Recompute, Train};

use crate::refusal::Failure;
use crate::units;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What it is")]
pub struct WorkloadArgs {
    /// What numbers are kept in
    #[arg(long, value_enum)]
    dtype: Option<DtypeArg>,
    /// What keys and values are kept in
    #[arg(long, value_enum)]
    kv_dtype: Option<DtypeArg>,
    /// Tokens of each sequence
    #[arg(long, value_parser = tokens, value_name = "TOKENS")]
    context: Option<u32>,
    /// Sequences answered at once
    #[arg(long, value_name = "N")]
    sequences: Option<u32>,
    /// What is trained; makes it fine-tuning
    #[arg(long, value_enum)]
    method: Option<MethodArg>,
    /// How trained numbers are kept
    #[arg(long, value_enum)]
    precision: Option<PrecisionArg>,
    #[arg(long, value_enum)]
    optimizer: Option<OptimizerArg>,
    /// Samples on each GPU at a time
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// What is computed again rather than kept
    #[arg(long, value_enum)]
    recompute: Option<RecomputeArg>,
    /// Rank of adapters
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// What copies share out: 1 optimizer, 2 and gradients, 3 and weights
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(0..=3))]
    zero: Option<u8>,
    /// Copies of the model
    #[arg(long, value_name = "N")]
    data: Option<u32>,
    /// GPUs that share every layer
    #[arg(long, value_name = "N")]
    tensor: Option<u32>,
    /// Runs of layers
    #[arg(long, value_name = "N")]
    pipeline: Option<u32>,
    /// Frames, such as 1-240x2
    #[arg(long, value_name = "FRAMES", conflicts_with = "duration")]
    frames: Option<Frames>,
    /// A clip's length, cut into segments
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    duration: Option<u64>,
    /// The length of a segment
    #[arg(long, value_parser = units::seconds, value_name = "TIME", requires = "duration", default_value = "5m", hide_default_value = true)]
    segment: u64,
    /// What is rendered or worked on; runs of one scene are alike
    #[arg(long, value_name = "NAME")]
    scene: Option<String>,
    /// How long a frame or a segment takes
    #[arg(long, value_parser = milliseconds, value_name = "TIME")]
    each: Option<u64>,
    /// Device memory while a frame or a segment is worked on
    #[arg(long, value_parser = units::mib, value_name = "SIZE")]
    each_vram: Option<u64>,
}

macro_rules! word {
    ($name:ident: $of:ident { $($variant:ident $(= $text:literal)?,)* }) => {
        #[derive(Debug, Clone, Copy, ValueEnum)]
        pub enum $name { $($(#[value(name = $text)])? $variant,)* }
        impl From<$name> for $of {
            fn from(word: $name) -> $of { match word { $($name::$variant => $of::$variant,)* } }
        }
    };
}

word! { DtypeArg: Dtype { Fp32, Bf16, Fp16, Fp8, Int8, Int4, Int2, } }
word! { MethodArg: Method { Full, Lora, Qlora, } }
word! { PrecisionArg: Precision { Mixed, Bf16, Fp32, } }
word! { OptimizerArg: Optimizer { Adamw, Adam8bit, Adafactor, Lion, SgdMomentum, Sgd, } }
word! { RecomputeArg: Recompute { None, Selective, Full, } }

/// Tokens, from `8192` or `8k`.
fn tokens(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is not a number of tokens; write it like 4096 or 8k");
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Milliseconds, from `800ms`, `12.5s` or `2m`.
fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a length of time; write it like 800ms, 12.5s or 2m");
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().map_err(|_| wrong());
    }
    match text.strip_suffix('s').map(units::milli) {
        Some(Ok(ms)) => Ok(ms),
        _ => units::seconds(text)?.checked_mul(1000).ok_or_else(wrong),
    }
}

impl WorkloadArgs {
    /// What the flags, a model and a kind say together; nothing where none says anything.
    pub fn workload(&self, model: Option<&str>, kind: Kind) -> Result<Option<Workload>, Failure> {
        let (pictures, models) = (self.of_pictures(), self.of_models());
        match (model, pictures) {
            (Some(_), Some(flag)) => Err(Failure::usage(format!(
                "a model and {flag} are of different kinds of work"
            ))),
            (None, None) => match models {
                Some(flag) => Err(Failure::usage(format!("{flag} is of a model, and none is named"))),
                None => Ok(None),
            },
            (Some(model), None) => self.of_model(model, kind).map(Some),
            (None, Some(_)) => match models {
                Some(flag) => Err(Failure::usage(format!("{flag} is of a model, and none is named"))),
                None => self.of_picture(kind).map(Some),
            },
        }
    }

    /// The first flag that is about pictures.
    fn of_pictures(&self) -> Option<&'static str> {
        let flags = [
            (self.frames.is_some(), "--frames"),
            (self.duration.is_some(), "--duration"),
            (self.scene.is_some(), "--scene"),
            (self.each.is_some(), "--each"),
            (self.each_vram.is_some(), "--each-vram"),
        ];
        flags.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
    }

    fn of_models(&self) -> Option<&'static str> {
        let flags = [
            (self.dtype.is_some(), "--dtype"),
            (self.kv_dtype.is_some(), "--kv-dtype"),
            (self.context.is_some(), "--context"),
            (self.sequences.is_some(), "--sequences"),
        ];
        let split = [
            (self.data.is_some(), "--data"),
            (self.tensor.is_some(), "--tensor"),
            (self.pipeline.is_some(), "--pipeline"),
        ];
        let all = flags.into_iter().chain(self.of_training()).chain(split);
        all.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
    }

    fn of_training(&self) -> [(bool, &'static str); 7] {
        [
            (self.method.is_some(), "--method"),
            (self.precision.is_some(), "--precision"),
            (self.optimizer.is_some(), "--optimizer"),
            (self.batch.is_some(), "--batch"),
            (self.recompute.is_some(), "--recompute"),
            (self.rank.is_some(), "--rank"),
            (self.zero.is_some(), "--zero"),
        ]
    }

    fn split(&self) -> Split {
        Split {
            data: self.data.unwrap_or(1),
            tensor: self.tensor.unwrap_or(1),
            pipeline: self.pipeline.unwrap_or(1),
        }
    }

    fn of_model(&self, model: &str, kind: Kind) -> Result<Workload, Failure> {
        let training = self.of_training().into_iter().find(|(given, _)| *given);
        match (kind, training) {
            (Kind::FineTune, _) => Ok(Workload::FineTune(self.train(model)?)),
            (Kind::Training, _) => Ok(Workload::Training(self.train(model)?)),
            (Kind::Batch, Some(_)) => Ok(Workload::FineTune(self.train(model)?)),
            (Kind::Batch | Kind::Inference, None) => Ok(Workload::Inference(Inference {
                dtype: self.dtype.map(Into::into).unwrap_or_default(),
                kv_dtype: self.kv_dtype.map(Into::into),
                context: self.context.unwrap_or(Inference::of("").context),
                sequences: self.sequences.unwrap_or(1),
                split: self.split(),
                model: model.to_owned(),
            })),
            (Kind::Inference, Some((_, flag))) => Err(Failure::usage(format!(
                "{flag} is of training, and this is inference"
            ))
            .hint("give --kind fine-tune or --kind training")),
            (Kind::Rendering | Kind::Video, _) => Err(Failure::usage(format!(
                "a model, and the kind is {}",
                kind.as_str()
            ))),
        }
    }

    fn train(&self, model: &str) -> Result<Train, Failure> {
        let answered = [
            (self.sequences.is_some(), "--sequences"),
            (self.kv_dtype.is_some(), "--kv-dtype"),
        ];
        if let Some((_, flag)) = answered.into_iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!(
                "{flag} is of inference, and this is training"
            )));
        }
        let usual = Train::of(model, self.method.map(Into::into).unwrap_or_default());
        Ok(Train {
            precision: self.precision.map_or(usual.precision, Into::into),
            dtype: self.dtype.map(Into::into),
            optimizer: self.optimizer.map_or(usual.optimizer, Into::into),
            sequence: self.context.unwrap_or(usual.sequence),
            batch: self.batch.unwrap_or(usual.batch),
            recompute: self.recompute.map_or(usual.recompute, Into::into),
            rank: self.rank.unwrap_or(usual.rank),
            zero: self.zero.unwrap_or(usual.zero),
            split: self.split(),
            ..usual
        })
    }

    fn of_picture(&self, kind: Kind) -> Result<Workload, Failure> {
        let segments = self.duration.map(|duration_s| Segments {
            duration_s,
            segment_s: self.segment,
        });
        match (kind, &self.frames, segments) {
            (Kind::Batch | Kind::Rendering, Some(frames), None) => Ok(Workload::Rendering(Rendering {
                frames: frames.clone(),
                scene: self.scene.clone(),
                each_ms: self.each,
                vram_mib: self.each_vram,
            })),
            (Kind::Batch | Kind::Video, frames, segments) if frames.is_some() || segments.is_some() => {
                Ok(Workload::Video(Video {
                    frames: frames.clone(),
                    segments,
                    scene: self.scene.clone(),
                    each_ms: self.each,
                    vram_mib: self.each_vram,
                }))
            }
            (Kind::Batch | Kind::Rendering | Kind::Video, ..) => {
                Err(Failure::usage("what there is to make is not said")
                    .hint("give --frames 1-240, or --duration 90m"))
            }
            (kind, ..) => Err(Failure::usage(format!(
                "frames, and the kind is {}",
                kind.as_str()
            ))),
        }
    }
}

/// How a demand came about, in a line: `fine-tune, llama-2-7b …: 14.2 GiB on each GPU (rule)`.
pub fn said(derivation: &Derivation) -> String {
    let estimate = &derivation.estimate;
    match derivation.vram_mib {
        None => estimate.title.clone(),
        Some(vram_mib) => format!(
            "{}: {} VRAM{} ({})",
            estimate.title,
            units::show_mib(vram_mib),
            if estimate.gpus > 1 { " on each" } else { "" },
            derivation.basis.words()
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        model_name: Option<String>,
        #[command(flatten)]
        args: WorkloadArgs,
    }

    fn read(line: &str, kind: Kind) -> Result<Option<Workload>, String> {
        let words = ["tenure"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let workload = line.args.workload(line.model_name.as_deref(), kind);
        workload.map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn flags_say_what_it_is() {
        let kind = |line: &str, kind| read(line, kind).map(|workload| workload.map(|of| of.kind()));
        for (line, given, means) in [
            ("", Kind::Inference, None),
            ("--model-name 7B", Kind::Batch, Some(Kind::Inference)),
            (
                "--model-name 7B --context 8k --sequences 4",
                Kind::Inference,
                Some(Kind::Inference),
            ),
            (
                "--model-name 7B --method qlora",
                Kind::Batch,
                Some(Kind::FineTune),
            ),
            (
                "--model-name 7B --zero 3 --data 8",
                Kind::Training,
                Some(Kind::Training),
            ),
            (
                "--frames 1-240x2 --each 12.5s",
                Kind::Batch,
                Some(Kind::Rendering),
            ),
            ("--frames 1-240x2", Kind::Video, Some(Kind::Video)),
            ("--duration 90m --segment 5m", Kind::Batch, Some(Kind::Video)),
        ] {
            assert_eq!(kind(line, given), Ok(means), "{line}");
        }
        for (line, given) in [
            ("--context 8k", Kind::Inference),
            ("--model-name 7B --frames 1-2", Kind::Batch),
            ("--model-name 7B --rank 8", Kind::Inference),
            ("--model-name 7B --rank 8 --sequences 3", Kind::Batch),
            ("--frames 1-2 --dtype int4", Kind::Batch),
            ("--frames 2-1", Kind::Batch),
            ("--scene x", Kind::Rendering),
            ("--frames 1-2", Kind::Training),
            ("--model-name 7B", Kind::Video),
            ("--segment 5m", Kind::Video),
        ] {
            assert!(kind(line, given).is_err(), "{line}");
        }
    }

    #[test]
    fn lengths_and_tokens_are_exact() {
        assert_eq!(milliseconds("800ms"), Ok(800));
        assert_eq!(milliseconds("12.5s"), Ok(12_500));
        assert_eq!(milliseconds("1m30s"), Ok(90_000));
        assert!(milliseconds("12").is_err() && milliseconds("-1s").is_err() && milliseconds("xms").is_err());
        assert_eq!((tokens("8k"), tokens("4096")), (Ok(8192), Ok(4096)));
        assert!(tokens("8m").is_err() && tokens("9999999k").is_err());
    }
}
