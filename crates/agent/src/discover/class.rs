//! Short classes for quotas and prices, from the names vendors give: `H100-80GB`, `RTX-4090`, `MI300X`, `Arc-A770`.
//!
//! Pure. A model sold with several sizes of memory carries the size; nothing else does, so that a class stays one word.

/// Models sold with several sizes of memory, in GB. What a driver reports is a little less.
const SIZES: &[(&str, &[u64])] = &[
    ("A100", &[40, 80]),
    ("A800", &[40, 80]),
    ("GH200", &[96, 144]),
    ("H100", &[64, 80, 94, 96]),
    ("H20", &[96, 141]),
    ("H800", &[80, 94]),
    ("P100", &[12, 16]),
    ("RTX-3060", &[8, 12]),
    ("RTX-3080", &[10, 12]),
    ("RTX-4060-Ti", &[8, 16]),
    ("RTX-5060-Ti", &[8, 16]),
    ("V100", &[16, 32]),
];

/// Words of a product name that do not tell one class from another.
fn says_nothing(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "nvidia",
        "tesla",
        "geforce",
        "amd",
        "instinct",
        "radeon",
        "intel",
        "data",
        "center",
        "graphics",
        "gpu",
        "generation",
        "edition",
        "pcie",
        "sxm",
        "oam",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
    ];
    let word = word.to_ascii_lowercase();
    let form = word
        .strip_prefix("sxm")
        .is_some_and(|rest| rest.parse::<u8>().is_ok());
    let size = ["gb", "g"]
        .iter()
        .filter_map(|unit| word.strip_suffix(unit))
        .any(|number| number.parse::<u32>().is_ok());
    form || size || WORDS.contains(&word.as_str())
}

fn words(name: &str) -> Vec<String> {
    let plain = name.replace("(R)", " ").replace("(TM)", " ").replace("(tm)", " ");
    plain
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn join(words: &[String], otherwise: &str) -> String {
    let mut class = words.join("-");
    class.truncate(48);
    if class.is_empty() {
        otherwise.to_owned()
    } else {
        class
    }
}

/// The size the model was sold with that is within 7 % of what the driver reports.
fn size_gb(sizes: &[u64], vram_mib: u64) -> u64 {
    let reported_gb = vram_mib / 1024;
    let near = |sold: &&u64| (vram_mib).abs_diff(**sold * 1024) * 100 <= **sold * 1024 * 7;
    let distance = |sold: &&u64| vram_mib.abs_diff(**sold * 1024);
    sizes
        .iter()
        .filter(near)
        .min_by_key(distance)
        .copied()
        .unwrap_or(reported_gb)
}

pub fn nvidia(name: &str, vram_mib: u64) -> String {
    let mut kept: Vec<String> = words(name)
        .into_iter()
        .filter(|word| !says_nothing(word))
        .collect();
    let model = |kept: &[String]| kept.join("-");
    // The NVL card is told from its sisters by its memory.
    let sized = |model: &str| SIZES.iter().find(|(known, _)| *known == model);
    if kept.len() > 1 && kept.last().is_some_and(|last| last == "NVL") && sized(&kept[0]).is_some() {
        kept.pop();
    }
    match sized(&model(&kept)) {
        Some((model, sizes)) => format!("{model}-{}GB", size_gb(sizes, vram_mib)),
        None => join(&kept, "nvidia"),
    }
}

/// Server cards are known by their number alone; the rest of the name says how they are mounted.
pub fn amd(name: &str) -> String {
    let words = words(name);
    let server = words.iter().find(|word| {
        word.strip_prefix("MI")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    });
    match server {
        Some(server) => server.clone(),
        None => {
            let kept: Vec<String> = words.into_iter().filter(|word| !says_nothing(word)).collect();
            join(&kept, "amd")
        }
    }
}

pub fn intel(name: &str) -> String {
    let kept: Vec<String> = words(name)
        .into_iter()
        .filter(|word| !says_nothing(word))
        .collect();
    join(&kept, "intel")
}

/// For a device nobody but OpenCL knows.
pub fn other(name: &str) -> String {
    join(&words(name), "opencl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_a_name(class: &str) -> bool {
        tenure_domain::name::check(class, "/class").is_ok()
    }

    /// Product names as NVML gives them, with the memory it reports.
    #[test]
    fn nvidia_product_names() {
        for (name, vram_mib, expected) in [
            ("NVIDIA A100-SXM4-40GB", 40_960, "A100-40GB"),
            ("A100-SXM4-40GB", 40_536, "A100-40GB"),
            ("NVIDIA A100-PCIE-40GB", 40_960, "A100-40GB"),
            ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80GB"),
            ("NVIDIA A100 80GB PCIe", 81_920, "A100-80GB"),
            ("NVIDIA A800-SXM4-80GB", 81_251, "A800-80GB"),
            ("NVIDIA H100 80GB HBM3", 81_559, "H100-80GB"),
            ("NVIDIA H100 PCIe", 81_559, "H100-80GB"),
            ("NVIDIA H100 NVL", 95_830, "H100-94GB"),
            ("NVIDIA H200", 143_771, "H200"),
            ("NVIDIA H200 NVL", 143_771, "H200-NVL"),
            ("NVIDIA H20", 97_871, "H20-96GB"),
            ("NVIDIA GH200 480GB", 97_871, "GH200-96GB"),
            ("NVIDIA GH200 144G HBM3e", 147_456, "GH200-144GB"),
            ("NVIDIA B200", 183_359, "B200"),
            ("NVIDIA GB200", 189_471, "GB200"),
            ("NVIDIA L40S", 46_068, "L40S"),
            ("NVIDIA L4", 23_034, "L4"),
            ("NVIDIA A10", 23_028, "A10"),
            ("NVIDIA A10G", 23_028, "A10G"),
            ("NVIDIA A30", 24_576, "A30"),
            ("Tesla T4", 15_360, "T4"),
            ("Tesla V100-SXM2-16GB", 16_384, "V100-16GB"),
            ("Tesla V100-SXM2-32GB", 32_768, "V100-32GB"),
            ("Tesla P100-PCIE-16GB", 16_384, "P100-16GB"),
            ("NVIDIA GeForce RTX 4090", 24_564, "RTX-4090"),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", 16_376, "RTX-4090-Laptop"),
            ("NVIDIA GeForce RTX 4080 SUPER", 16_376, "RTX-4080-SUPER"),
            ("NVIDIA GeForce RTX 4060 Ti", 16_380, "RTX-4060-Ti-16GB"),
            ("NVIDIA GeForce RTX 3080", 10_240, "RTX-3080-10GB"),
            ("NVIDIA GeForce RTX 3060", 12_288, "RTX-3060-12GB"),
            ("NVIDIA RTX A6000", 49_140, "RTX-A6000"),
            ("NVIDIA RTX 6000 Ada Generation", 49_140, "RTX-6000-Ada"),
            ("Quadro RTX 6000", 24_576, "Quadro-RTX-6000"),
            (
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                97_887,
                "RTX-PRO-6000-Blackwell-Server",
            ),
            // A size nobody sells is told as it is.
            ("NVIDIA A100-SXM4-40GB", 20_480, "A100-20GB"),
            ("NVIDIA", 1, "nvidia"),
        ] {
            let class = nvidia(name, vram_mib);
            assert_eq!(class, expected, "{name}");
            assert!(is_a_name(&class), "{class}");
        }
    }

    #[test]
    fn amd_and_intel_product_names() {
        for (name, expected) in [
            ("AMD Instinct MI300X OAM", "MI300X"),
            ("AMD Instinct MI300X", "MI300X"),
            ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "MI250"),
            ("Instinct MI210", "MI210"),
            ("AMD Radeon RX 7900 XTX", "RX-7900-XTX"),
            ("AMD Radeon PRO W7900", "PRO-W7900"),
            ("AMD GPU 0x15bf", "0x15bf"),
            ("", "amd"),
        ] {
            assert_eq!(amd(name), expected, "{name}");
            assert!(is_a_name(&amd(name)));
        }
        for (name, expected) in [
            ("Intel(R) Data Center GPU Max 1550", "Max-1550"),
            ("Intel Data Center GPU Flex 170", "Flex-170"),
            ("Intel(R) Arc(TM) A770 Graphics", "Arc-A770"),
            ("Intel(R) Arc(TM) Pro B60 Graphics", "Arc-Pro-B60"),
            ("Intel(R) UHD Graphics 770", "UHD-770"),
            ("Intel", "intel"),
        ] {
            assert_eq!(intel(name), expected, "{name}");
            assert!(is_a_name(&intel(name)));
        }
        assert_eq!(other("\u{202e}../…"), "opencl");
        assert_eq!(
            other("llvmpipe (LLVM 15.0.6, 256 bits)"),
            "llvmpipe-LLVM-15-0-6-256-bits"
        );
    }
}
