//! How a model is split over the GPUs of a gang: copies of it, parts of each layer, and runs of layers.

use serde::{Deserialize, Serialize};

use super::model::Shape;
use super::spec::MAX_GPUS;
use crate::refusal::Refusal;

/// Over how many GPUs, each way; their product is the number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Split {
    /// Copies, each with a part of the batch or of the requests.
    pub data: u32,
    /// Parts of every layer; they belong on one node.
    pub tensor: u32,
    /// Runs of layers, one after the other.
    pub pipeline: u32,
}

impl Default for Split {
    fn default() -> Self {
        Split {
            data: 1,
            tensor: 1,
            pipeline: 1,
        }
    }
}

impl Split {
    pub(crate) fn is_none(&self) -> bool {
        *self == Split::default()
    }

    pub(super) fn check(&self, shape: &Shape, field: &str) -> Result<(), Refusal> {
        for (name, number) in [
            ("data", self.data),
            ("tensor", self.tensor),
            ("pipeline", self.pipeline),
        ] {
            if number == 0 {
                return Err(Refusal::invalid(
                    format!("{field}/{name}"),
                    "a split is over at least 1",
                ));
            }
        }
        if u64::from(self.data) * u64::from(self.tensor) > u64::from(MAX_GPUS)
            || self.gpus() > u64::from(MAX_GPUS)
        {
            return Err(Refusal::invalid(
                field.to_owned(),
                format!("a job has at most {MAX_GPUS} GPUs"),
            ));
        }
        if !shape.heads.is_multiple_of(self.tensor) {
            return Err(Refusal::invalid(
                format!("{field}/tensor"),
                format!("{} heads cannot be shared by {} GPUs", shape.heads, self.tensor),
            )
            .hint("give a divisor of the number of heads"));
        }
        if self.pipeline > shape.layers {
            return Err(Refusal::invalid(
                format!("{field}/pipeline"),
                format!("{} layers make at most as many runs", shape.layers),
            ));
        }
        Ok(())
    }

    /// GPUs in all.
    pub fn gpus(&self) -> u64 {
        u64::from(self.data)
            .saturating_mul(self.tensor.into())
            .saturating_mul(self.pipeline.into())
    }

    /// Layers of the longest run.
    pub(super) fn layers(&self, shape: &Shape) -> u128 {
        shape.layers.div_ceil(self.pipeline).into()
    }

    /// What of something that lies in the layers one GPU has.
    pub(super) fn share(&self, whole: u128, shape: &Shape) -> u128 {
        (whole * self.layers(shape)).div_ceil(u128::from(shape.layers) * u128::from(self.tensor))
    }

    /// ` ÷ 4 tensor ÷ 2 pipeline`, or nothing.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        for (number, name) in [(self.tensor, "tensor"), (self.pipeline, "pipeline")] {
            if number > 1 {
                words.push_str(&format!(" ÷ {number} {name}"));
            }
        }
        words
    }
}
