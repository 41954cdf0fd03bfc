use super::*;

/// Parameters that a dense shape comes to, with its table of words used twice or once.
fn counted(shape: &Shape) -> Option<[u128; 2]> {
    let Cache::Heads(cached) = shape.cache else {
        return None;
    };
    let (hidden, head_dim) = (u128::from(shape.hidden), u128::from(shape.head_dim));
    let (heads, cached) = (u128::from(shape.heads), u128::from(cached));
    let attention = 2 * hidden * heads * head_dim + 2 * hidden * cached * head_dim;
    let ffn = u128::from(shape.ffn_matrices) * hidden * u128::from(shape.ffn?);
    let layers = u128::from(shape.layers) * (attention + ffn);
    let words = u128::from(shape.vocabulary) * hidden;
    Some([layers + words, layers + 2 * words])
}

#[test]
fn every_dense_shape_comes_to_its_parameters() {
    let mut checked = 0;
    for known in CATALOGUE {
        let Some(counted) = counted(&known.shape) else {
            continue;
        };
        let params = u128::from(known.shape.params);
        let near = |count: u128| count.abs_diff(params) * 1000 < params * 5;
        assert!(
            counted.into_iter().any(near),
            "{}: {params}, its shape comes to {counted:?}",
            known.name
        );
        checked += 1;
    }
    assert!(checked > 25);
}

#[test]
fn names_are_told_apart_and_found() {
    for known in CATALOGUE {
        assert_eq!(find(known.name, "/model").map(|m| m.name), Ok(known.name.into()));
        let rounded = (known.shape.params + 500_000_000) / 1_000_000_000;
        assert!(u64::from(known.billions).abs_diff(rounded) <= 1, "{}", known.name);
    }
    for (text, name) in [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Llama 3 70B", "llama-3.1-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("HuggingFaceH4/zephyr-7b-alpha", "mistral-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-14B-Instruct", "qwen2.5-14b"),
        ("Qwen/Qwen2-7B", "qwen2.5-7b"),
        ("Salesforce/codegen-16B-mono", "codegen-16b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("microsoft/phi-4", "phi-4-14b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-3.8b"),
    ] {
        assert_eq!(find(text, "/model").map(|m| m.name), Ok(name.into()), "{text}");
    }
}

#[test]
fn what_is_not_known_names_its_kin() {
    let refusal = find("llama-9-1b", "/model").expect_err("no such model");
    assert!(
        refusal
            .hint
            .as_ref()
            .is_some_and(|hint| hint.contains("llama-2-7b"))
    );
    for bad in [
        "",
        "b",
        "B",
        "-7B",
        "7 B",
        "7.B",
        "7.1234B",
        "0B",
        "0.5M",
        "99T",
        "1e9B",
        "7BB",
        "９B",
        "\u{202e}7B",
    ] {
        assert!(find(bad, "/model").is_err(), "{bad:?}");
    }
}

#[test]
fn a_size_has_a_shape_between_its_neighbours() {
    let shape = |text: &str| find(text, "/model").unwrap_or_else(|why| panic!("{text}: {why}"));
    for (size, like) in [
        ("7B", "llama-2-7b"),
        ("13B", "llama-2-13b"),
        ("16B", "codegen-16b"),
        ("70B", "llama-2-70b"),
    ] {
        let (drawn, known) = (shape(size), shape(like));
        assert!(drawn.drawn && !known.drawn);
        let values = |model: &Model| u128::from(model.shape.layers) * model.shape.cached_values(1);
        let (drawn, known) = (values(&drawn), values(&known));
        assert!(
            drawn.abs_diff(known) * 100 <= known,
            "{size}: {drawn} and {known}"
        );
    }
    let sizes = [
        "1M", "125M", "0.5B", "1.5b", "3B", "9B", "14B", "15B", "20B", "30B", "34B", "100B", "405B", "1T",
        "10T",
    ];
    for size in sizes {
        let model = shape(size);
        assert!(
            model.shape.layers >= 12 && model.shape.hidden >= 768 && model.billions >= 1,
            "{size}: {model:?}"
        );
    }
    assert_eq!(shape("1.5B").shape.params, 1_500_000_000);
    assert_eq!(shape("350m").shape.params, 350_000_000);
}

#[test]
fn a_latent_cache_is_one_vector_for_all_heads() {
    let model = find("deepseek-v3", "/model").expect("known");
    assert_eq!(
        u128::from(model.shape.layers) * model.shape.cached_values(1) * 2,
        70_272
    );
    assert_eq!(model.shape.cached_values(8), model.shape.cached_values(1));
    let llama = find("llama-3.1-8b", "/model").expect("known");
    assert_eq!(llama.shape.cached_values(8), 2 * 128);
    assert_eq!(llama.shape.cached_values(16), 2 * 128, "a head is not cut");
}
