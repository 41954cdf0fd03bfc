//! The models known by name, as their makers published them.

use super::{Cache, Known, Shape};

/// Layers, width, heads, width of a head.
type Trunk = (u32, u32, u32, u32);

const fn dense(
    name: &'static str,
    billions: u32,
    params: u64,
    trunk: Trunk,
    cached_heads: u32,
    ffn: (u32, u32),
    vocabulary: u32,
) -> Known {
    let (layers, hidden, heads, head_dim) = trunk;
    Known {
        name,
        billions,
        shape: Shape {
            params,
            layers,
            hidden,
            heads,
            head_dim,
            cache: Cache::Heads(cached_heads),
            ffn: Some(ffn.0),
            ffn_matrices: ffn.1,
            vocabulary,
        },
    }
}

const fn experts(
    name: &'static str,
    billions: u32,
    params: u64,
    trunk: Trunk,
    cache: Cache,
    vocabulary: u32,
) -> Known {
    let (layers, hidden, heads, head_dim) = trunk;
    Known {
        name,
        billions,
        shape: Shape {
            params,
            layers,
            hidden,
            heads,
            head_dim,
            cache,
            ffn: None,
            ffn_matrices: 0,
            vocabulary,
        },
    }
}

const fn latent(rank: u32, rope: u32) -> Cache {
    Cache::Latent { rank, rope }
}

/// By family and size.
#[rustfmt::skip]
pub const CATALOGUE: &[Known] = &[
    dense("llama-2-7b", 7, 6_738_415_616, (32, 4096, 32, 128), 32, (11008, 3), 32000),
    dense("llama-2-13b", 13, 13_015_864_320, (40, 5120, 40, 128), 40, (13824, 3), 32000),
    dense("llama-2-70b", 70, 68_976_648_192, (80, 8192, 64, 128), 8, (28672, 3), 32000),
    dense("codellama-34b", 34, 33_743_970_304, (48, 8192, 64, 128), 8, (22016, 3), 32000),
    dense("llama-3.2-1b", 1, 1_235_814_400, (16, 2048, 32, 64), 8, (8192, 3), 128_256),
    dense("llama-3.2-3b", 3, 3_212_749_824, (28, 3072, 24, 128), 8, (8192, 3), 128_256),
    dense("llama-3.1-8b", 8, 8_030_261_248, (32, 4096, 32, 128), 8, (14336, 3), 128_256),
    dense("llama-3.1-70b", 70, 70_553_706_496, (80, 8192, 64, 128), 8, (28672, 3), 128_256),
    dense("llama-3.1-405b", 405, 405_853_388_800, (126, 16384, 128, 128), 8, (53248, 3), 128_256),
    dense("mistral-7b", 7, 7_241_732_096, (32, 4096, 32, 128), 8, (14336, 3), 32000),
    dense("mistral-nemo-12b", 12, 12_247_782_400, (40, 5120, 32, 128), 8, (14336, 3), 131_072),
    dense("mistral-small-24b", 24, 23_572_403_200, (40, 5120, 32, 128), 8, (32768, 3), 131_072),
    dense("mistral-large-123b", 123, 122_610_069_504, (88, 12288, 96, 128), 8, (28672, 3), 32768),
    experts("mixtral-8x7b", 47, 46_702_792_704, (32, 4096, 32, 128), Cache::Heads(8), 32000),
    experts("mixtral-8x22b", 141, 140_620_634_112, (56, 6144, 48, 128), Cache::Heads(8), 32768),
    dense("qwen2.5-0.5b", 1, 494_032_768, (24, 896, 14, 64), 2, (4864, 3), 151_936),
    dense("qwen2.5-1.5b", 2, 1_543_714_304, (28, 1536, 12, 128), 2, (8960, 3), 151_936),
    dense("qwen2.5-3b", 3, 3_085_938_688, (36, 2048, 16, 128), 2, (11008, 3), 151_936),
    dense("qwen2.5-7b", 7, 7_615_616_512, (28, 3584, 28, 128), 4, (18944, 3), 152_064),
    dense("qwen2.5-14b", 14, 14_770_033_664, (48, 5120, 40, 128), 8, (13824, 3), 152_064),
    dense("qwen2.5-32b", 32, 32_763_876_352, (64, 5120, 40, 128), 8, (27648, 3), 152_064),
    dense("qwen2.5-72b", 72, 72_706_203_648, (80, 8192, 64, 128), 8, (29568, 3), 152_064),
    dense("codegen-16b", 16, 16_032_155_648, (34, 6144, 24, 256), 24, (24576, 2), 51200),
    experts("deepseek-v2-lite", 16, 15_706_484_224, (27, 2048, 16, 128), latent(512, 64), 102_400),
    experts("deepseek-v3", 671, 671_026_419_200, (61, 7168, 128, 128), latent(512, 64), 129_280),
    dense("gemma-7b", 9, 8_537_680_896, (28, 3072, 16, 256), 16, (24576, 3), 256_000),
    dense("gemma-2-2b", 3, 2_614_341_888, (26, 2304, 8, 256), 4, (9216, 3), 256_000),
    dense("gemma-2-9b", 9, 9_241_705_984, (42, 3584, 16, 256), 8, (14336, 3), 256_000),
    dense("gemma-2-27b", 27, 27_227_128_320, (46, 4608, 32, 128), 16, (36864, 3), 256_000),
    dense("phi-2-2.7b", 3, 2_779_683_840, (32, 2560, 32, 80), 32, (10240, 2), 51200),
    dense("phi-3-3.8b", 4, 3_821_079_552, (32, 3072, 32, 96), 32, (8192, 3), 32064),
    dense("phi-3-14b", 14, 13_960_238_080, (40, 5120, 40, 128), 10, (17920, 3), 32064),
    dense("phi-4-14b", 14, 14_659_507_200, (40, 5120, 40, 128), 10, (17920, 3), 100_352),
];
