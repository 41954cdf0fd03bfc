//! Estimates beside figures from elsewhere: published shapes, and what the makers of training tools say they need.
//! Weights and caches within a tenth, training within a quarter, of every figure.

use tenure_domain::workload::Workload;
use tenure_domain::workload::dtype::Dtype;
use tenure_domain::workload::estimate::{Estimate, TermName};
use tenure_domain::workload::inference::Inference;
use tenure_domain::workload::split::Split;
use tenure_domain::workload::train::{Method, Optimizer, Precision, Recompute, Train};

const GIB: f64 = (1_u64 << 30) as f64;
const KIB: f64 = 1024.0;
const GB: f64 = 1e9;

fn estimate(workload: &Workload) -> Estimate {
    workload
        .estimate()
        .unwrap_or_else(|why| panic!("{workload:?}: {why}"))
}

fn inference(model: &str, dtype: Dtype) -> Estimate {
    estimate(&Workload::Inference(Inference {
        dtype,
        ..Inference::of(model)
    }))
}

fn tune(model: &str, method: Method, change: impl Fn(&mut Train)) -> Estimate {
    let mut train = Train::of(model, method);
    change(&mut train);
    estimate(&Workload::FineTune(train))
}

/// Every figure that is too far off, so that one run shows all.
#[derive(Default)]
struct Table(Vec<String>, usize);

impl Table {
    fn row(&mut self, what: String, ours: f64, theirs: f64, within: f64) {
        self.1 += 1;
        let off = ours / theirs - 1.0;
        if off.abs() > within {
            self.0.push(format!(
                "{what}: {ours:.2}, not {theirs:.2} ({:+.1} %)",
                off * 100.0
            ));
        }
    }

    fn done(self, rows: usize) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
        assert_eq!(self.1, rows, "every figure was looked at");
    }
}

#[test]
fn weights_and_caches_are_within_a_tenth_of_published_shapes() {
    let mut table = Table::default();
    // By name, and by the size alone.
    for (model, size, bf16, int8, int4, token_kib, at_4096) in [
        ("llama-2-7b", Some("7B"), 12.55, 6.28, 3.14, 512.0, 2.00),
        ("llama-3.1-8b", None, 14.96, 7.48, 3.74, 128.0, 0.50),
        ("llama-2-13b", Some("13B"), 24.24, 12.12, 6.06, 800.0, 3.13),
        ("codegen-16b", Some("16B"), 29.9, 14.9, 7.5, 816.0, 3.19),
        ("llama-2-70b", Some("70B"), 128.48, 64.24, 32.12, 320.0, 1.25),
        ("llama-3.1-70b", Some("70B"), 131.42, 65.71, 32.85, 320.0, 1.25),
    ] {
        for model in [Some(model), size].into_iter().flatten() {
            for (dtype, gib) in [(Dtype::Bf16, bf16), (Dtype::Int8, int8), (Dtype::Int4, int4)] {
                let weights = inference(model, dtype).bytes_of(TermName::Weights) as f64 / GIB;
                table.row(format!("{model} {}", dtype.as_str()), weights, gib, 0.10);
            }
            let bf16 = inference(model, Dtype::Bf16);
            let token = bf16.token_bytes.expect("a cache") as f64 / KIB;
            table.row(format!("{model} KV of a token"), token, token_kib, 0.10);
            let cache = bf16.bytes_of(TermName::KvCache) as f64 / GIB;
            table.row(format!("{model} KV at 4096"), cache, at_4096, 0.10);
        }
    }
    for (model, gib) in [("HuggingFaceH4/zephyr-7b-alpha", 13.74), ("llama-2-70b", 128.15)] {
        let weights = inference(model, Dtype::Bf16).bytes_of(TermName::Weights) as f64 / GIB;
        table.row(format!("{model} as its hub counts"), weights, gib, 0.10);
    }
    let cache = inference("llama-2-70b", Dtype::Bf16).bytes_of(TermName::KvCache) as f64 / GB;
    table.row("70B at 4K, a worked example".into(), cache, 1.34, 0.10);
    let latent = inference("deepseek-v3", Dtype::Bf16)
        .token_bytes
        .expect("a cache") as f64;
    table.row("a latent cache".into(), latent, 61.0 * 576.0 * 2.0, 0.10);
    table.done(11 * 5 + 4);
}

#[test]
fn full_fine_tuning_is_within_a_quarter_of_sixteen_bytes_a_parameter() {
    let mut table = Table::default();
    for (model, size, gib) in [
        ("llama-2-7b", "7B", 100.0),
        ("llama-3.1-8b", "8B", 120.0),
        ("llama-2-13b", "13B", 194.0),
        ("codegen-16b", "16B", 239.0),
        ("llama-2-70b", "70B", 1028.0),
        ("llama-3.1-70b", "70B", 1051.0),
    ] {
        for model in [model, size] {
            let whole = tune(model, Method::Full, |_| {}).bytes() as f64 / GIB;
            table.row(format!("{model} full"), whole, gib, 0.25);
        }
    }
    table.done(12);
}

/// What the row is called, how it is trained, and GB for 7B, 14B, 30B and 70B.
type Told = (&'static str, Method, Precision, Option<Dtype>, [f64; 4]);

#[test]
fn training_is_within_a_quarter_of_what_tools_say() {
    let told: [Told; 6] = [
        (
            "full, mixed",
            Method::Full,
            Precision::Mixed,
            None,
            [120.0, 240.0, 600.0, 1200.0],
        ),
        (
            "full, bf16",
            Method::Full,
            Precision::Bf16,
            None,
            [60.0, 120.0, 300.0, 600.0],
        ),
        (
            "LoRA",
            Method::Lora,
            Precision::Mixed,
            None,
            [16.0, 32.0, 64.0, 160.0],
        ),
        (
            "QLoRA 8",
            Method::Qlora,
            Precision::Mixed,
            Some(Dtype::Int8),
            [10.0, 20.0, 40.0, 80.0],
        ),
        (
            "QLoRA 4",
            Method::Qlora,
            Precision::Mixed,
            Some(Dtype::Int4),
            [6.0, 12.0, 24.0, 48.0],
        ),
        (
            "QLoRA 2",
            Method::Qlora,
            Precision::Mixed,
            Some(Dtype::Int2),
            [4.0, 8.0, 16.0, 24.0],
        ),
    ];
    let mut table = Table::default();
    for (what, method, precision, dtype, figures) in told {
        for (model, gb) in ["7B", "14B", "30B", "70B"].into_iter().zip(figures) {
            let whole = tune(model, method, |train| {
                (train.precision, train.dtype) = (precision, dtype);
            });
            table.row(format!("{what} {model}"), whole.bytes() as f64 / GB, gb, 0.25);
        }
    }
    table.done(24);
}

#[test]
fn each_parameter_takes_what_tools_say_of_any_size() {
    let states = |method, precision, dtype: Option<Dtype>, gradients| {
        let of = tune("100B", method, |train| {
            (train.precision, train.dtype, train.fp32_gradients) = (precision, dtype, gradients);
        });
        let parts = [
            TermName::Weights,
            TermName::Adapters,
            TermName::Gradients,
            TermName::Optimizer,
        ];
        parts.map(|part| of.bytes_of(part)).iter().sum::<u64>() as f64 / 100e9
    };
    let mut table = Table::default();
    for (what, ours, theirs) in [
        ("18x", states(Method::Full, Precision::Mixed, None, false), 18.0),
        (
            "18x, long gradients",
            states(Method::Full, Precision::Mixed, None, true),
            18.0,
        ),
        ("8x", states(Method::Full, Precision::Bf16, None, false), 8.0),
        ("2x", states(Method::Lora, Precision::Mixed, None, false), 2.0),
        (
            "x",
            states(Method::Qlora, Precision::Mixed, Some(Dtype::Int8), false),
            1.0,
        ),
        (
            "x/2",
            states(Method::Qlora, Precision::Mixed, Some(Dtype::Int4), false),
            0.5,
        ),
        (
            "x/4",
            states(Method::Qlora, Precision::Mixed, Some(Dtype::Int2), false),
            0.25,
        ),
    ] {
        table.row(what.into(), ours, theirs, 0.25);
    }
    let eight = tune("100B", Method::Full, |train| {
        train.optimizer = Optimizer::Adam8bit
    });
    let parts = [TermName::Weights, TermName::Gradients, TermName::Optimizer];
    let eight = parts.map(|part| eight.bytes_of(part)).iter().sum::<u64>() as f64 / 100e9;
    table.row("8-bit Adam".into(), eight, 10.0, 0.25);
    table.done(8);
}

#[test]
fn activations_are_those_of_the_paper() {
    let of = |recompute| {
        let estimate = tune("llama-2-7b", Method::Full, |train| {
            (train.recompute, train.sequence, train.batch) = (recompute, 4096, 2);
        });
        estimate.bytes_of(TermName::Activations)
    };
    let (s, b, h, a, layers, words) = (4096_u64, 2, 4096, 32, 32, 32_000);
    let chances = 8 * s * b * words;
    assert_eq!(
        of(Recompute::None),
        layers * (s * b * h * 34 + 5 * a * s * s * b) + chances
    );
    assert_eq!(of(Recompute::Selective), layers * 34 * s * b * h + chances);
    assert_eq!(
        of(Recompute::Full),
        layers * 2 * s * b * h + 34 * s * b * h + chances
    );
}

#[test]
fn copies_share_out_what_their_stage_says() {
    let of = |zero, data, part: TermName| {
        tune("llama-2-7b", Method::Full, |train| {
            train.zero = zero;
            train.split.data = data;
        })
        .bytes_of(part)
    };
    for (stage, part) in [
        (1, TermName::Optimizer),
        (2, TermName::Gradients),
        (3, TermName::Weights),
    ] {
        let whole = of(0, 8, part);
        assert_eq!(of(stage - 1, 8, part), whole, "{part:?} before stage {stage}");
        assert_eq!(of(stage, 8, part), whole.div_ceil(8), "{part:?} in stage {stage}");
        assert_eq!(of(stage, 1, part), whole, "one copy shares with nobody");
    }
    assert_eq!(of(2, 8, TermName::Gathered), 0);
    assert!(of(3, 8, TermName::Gathered) > 0);
}

#[test]
fn tensor_and_pipeline_divide_layers() {
    let of = |tensor, pipeline| {
        estimate(&Workload::Inference(Inference {
            split: Split {
                data: 1,
                tensor,
                pipeline,
            },
            ..Inference::of("llama-2-70b")
        }))
    };
    let whole = of(1, 1);
    for (tensor, pipeline) in [(2, 1), (8, 1), (1, 2), (4, 2), (1, 80)] {
        let part = of(tensor, pipeline);
        assert_eq!(part.gpus, tensor * pipeline);
        assert_eq!(part.together, tensor);
        let over = u64::from(tensor * pipeline);
        for name in [TermName::Weights, TermName::KvCache] {
            assert_eq!(
                part.bytes_of(name),
                whole.bytes_of(name).div_ceil(over),
                "{name:?} {tensor} {pipeline}"
            );
        }
    }
    // Eight heads of keys and values: sixteen GPUs have one each, twice.
    assert_eq!(
        of(16, 1).bytes_of(TermName::KvCache),
        whole.bytes_of(TermName::KvCache) / 8
    );
}

#[test]
fn a_card_is_told_how_many_tokens_it_has_room_for() {
    let of = inference("llama-2-70b", Dtype::Int4);
    let tokens = of.tokens_within(80 * 1024).expect("a cache");
    let used = of.bytes() - of.bytes_of(TermName::KvCache) + tokens * of.token_bytes.expect("a cache");
    assert!(
        used <= 72 << 30 && used + (1 << 20) > 72 << 30,
        "nine tenths of the card"
    );
    assert_eq!(
        inference("llama-2-70b", Dtype::Bf16).tokens_within(80 * 1024),
        Some(0)
    );
}

#[test]
fn the_sum_is_what_is_asked_and_every_term_says_why() {
    for known in tenure_domain::workload::model::CATALOGUE {
        for workload in [
            Workload::Inference(Inference::of(known.name)),
            Workload::FineTune(Train::of(known.name, Method::Qlora)),
            Workload::Training(Train::of(known.name, Method::Full)),
        ] {
            let estimate = estimate(&workload);
            let sum: u64 = estimate.terms.iter().map(|term| term.bytes).sum();
            assert_eq!(estimate.vram_mib(), sum.div_ceil(1 << 20), "{}", known.name);
            let said =
                |term: &tenure_domain::workload::estimate::Term| term.bytes > 0 && !term.words.is_empty();
            assert!(
                estimate.terms.iter().all(said),
                "{} {:?}",
                known.name,
                estimate.terms
            );
        }
    }
}
