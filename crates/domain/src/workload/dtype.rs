//! What a number is kept in: how many bits each parameter, key or value takes.

use serde::{Deserialize, Serialize};

/// A data type or a quantisation. Those of 4 and 2 bits carry a 16-bit scale for every 64 values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    Fp32,
    #[default]
    Bf16,
    Fp16,
    Fp8,
    Int8,
    Int4,
    Int2,
}

/// In how many parts a bit is counted, so that a scale shared by 64 values is a whole number.
const PARTS: u128 = 64;

impl Dtype {
    pub const ALL: [Dtype; 7] = [
        Dtype::Fp32,
        Dtype::Bf16,
        Dtype::Fp16,
        Dtype::Fp8,
        Dtype::Int8,
        Dtype::Int4,
        Dtype::Int2,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Dtype::Fp32 => "fp32",
            Dtype::Bf16 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp8 => "fp8",
            Dtype::Int8 => "int8",
            Dtype::Int4 => "int4",
            Dtype::Int2 => "int2",
        }
    }

    /// Bits of one value, in parts.
    fn parts(self) -> u128 {
        match self {
            Dtype::Fp32 => 32 * PARTS,
            Dtype::Bf16 | Dtype::Fp16 => 16 * PARTS,
            Dtype::Fp8 | Dtype::Int8 => 8 * PARTS,
            Dtype::Int4 => 4 * PARTS + 16,
            Dtype::Int2 => 2 * PARTS + 16,
        }
    }

    /// Bytes of so many values, rounded up.
    pub fn bytes(self, values: u128) -> u128 {
        (values * self.parts()).div_ceil(8 * PARTS)
    }

    /// `2 bytes (bf16)`.
    pub fn words(self) -> &'static str {
        match self {
            Dtype::Fp32 => "4 bytes (fp32)",
            Dtype::Bf16 => "2 bytes (bf16)",
            Dtype::Fp16 => "2 bytes (fp16)",
            Dtype::Fp8 => "1 byte (fp8)",
            Dtype::Int8 => "1 byte (int8)",
            Dtype::Int4 => "4.25 bits (int4 and its scales)",
            Dtype::Int2 => "2.25 bits (int2 and its scales)",
        }
    }

    pub fn is_quantised(self) -> bool {
        matches!(self, Dtype::Int8 | Dtype::Int4 | Dtype::Int2)
    }

    /// What keys and values are kept in beside weights of this type, unless something else is said.
    pub fn of_cache(self) -> Dtype {
        match self {
            Dtype::Fp32 => Dtype::Fp32,
            Dtype::Fp16 => Dtype::Fp16,
            _ => Dtype::Bf16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_takes_its_bits() {
        let of_64 = Dtype::ALL.map(|dtype| dtype.bytes(64));
        assert_eq!(of_64, [256, 128, 128, 64, 64, 34, 18]);
        assert_eq!(Dtype::Int4.bytes(1), 1, "never less than was asked");
    }
}
