//! Workloads: what users want run, in their own terms, and jobs through their whole life.
//!
//! A workload says what a job is; what it needs is derived from that (`estimate`), shown, and stored with the job when it
//! is submitted, so that a better formula never changes what was decided. Absent: where a job runs (schedule), what it
//! costs (ledger).

pub mod derive;
pub mod dtype;
pub mod estimate;
pub mod frames;
pub mod image;
pub mod inference;
pub mod job;
pub mod label;
pub mod learnt;
pub mod member;
pub mod model;
pub mod picture;
pub mod roster;
pub mod segments;
pub mod service;
pub mod session;
pub mod spec;
pub mod split;
pub mod task;
pub mod trace;
pub mod train;
pub mod usage;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use estimate::Estimate;
use frames::Frames;
use inference::Inference;
use picture::{Rendering, Video};
use spec::Kind;
use train::{Method, Train};

/// What a job is, in its user's terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    Inference(Inference),
    FineTune(Train),
    Training(Train),
    Rendering(Rendering),
    Video(Video),
}

impl Workload {
    pub fn kind(&self) -> Kind {
        match self {
            Workload::Inference(_) => Kind::Inference,
            Workload::FineTune(_) => Kind::FineTune,
            Workload::Training(_) => Kind::Training,
            Workload::Rendering(_) => Kind::Rendering,
            Workload::Video(_) => Kind::Video,
        }
    }

    /// Refuses what means nothing, naming the field.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Workload::Inference(inference) => inference.check(),
            Workload::FineTune(train) => train.check("/workload/fine_tune"),
            Workload::Training(train) => {
                if train.method != Method::Full {
                    return Err(Refusal::invalid(
                        "/workload/training/method",
                        format!(
                            "{} trains adapters of a model that is there; that is `fine_tune`",
                            train.method.as_str()
                        ),
                    ));
                }
                train.check("/workload/training")
            }
            Workload::Rendering(rendering) => rendering.check(),
            Workload::Video(video) => video.check(),
        }
    }

    /// What it needs, by rule.
    pub fn estimate(&self) -> Result<Estimate, Refusal> {
        self.check()?;
        Ok(match self {
            Workload::Inference(inference) => inference.estimate(&inference.model()?),
            Workload::FineTune(train) => train.estimate(&train.model()?, "fine-tune"),
            Workload::Training(train) => train.estimate(&train.model()?, "training"),
            Workload::Rendering(rendering) => rendering.estimate(),
            Workload::Video(video) => video.estimate(),
        })
    }

    /// The size its model is called by, in billions of parameters.
    pub fn billions(&self) -> Option<u32> {
        let model = match self {
            Workload::Inference(inference) => inference.model(),
            Workload::FineTune(train) | Workload::Training(train) => train.model(),
            Workload::Rendering(_) | Workload::Video(_) => return None,
        };
        model.ok().map(|model| model.billions)
    }

    /// What it is about, by which its cost is put together with that of others like it: its kind, and its model by the name of
    /// the catalogue, or its scene. A scene that was not named is called by its job.
    pub fn subject(&self, job_name: &str) -> String {
        let model = |name: &str| {
            let found = model::find(name, "");
            found.map_or_else(|_| name.to_owned(), |model| model.name.into_owned())
        };
        let of = match self {
            Workload::Inference(inference) => model(&inference.model),
            Workload::FineTune(train) | Workload::Training(train) => model(&train.model),
            Workload::Rendering(Rendering { scene, .. }) | Workload::Video(Video { scene, .. }) => {
                scene.as_deref().unwrap_or(job_name).to_owned()
            }
        };
        format!("{} {of}", self.kind().as_str())
    }

    /// The frames it is made of; none of what is made of segments.
    pub fn frame_list(&self) -> Option<&Frames> {
        match self {
            Workload::Rendering(rendering) => Some(&rendering.frames),
            Workload::Video(video) => video.frames.as_ref(),
            _ => None,
        }
    }

    /// Frames it makes; segments are none.
    pub fn frames(&self) -> u64 {
        match self {
            Workload::Rendering(rendering) => rendering.frames.count(),
            Workload::Video(video) => video.frames.as_ref().map_or(0, |frames| frames.count()),
            _ => 0,
        }
    }

    /// Frames or segments it is cut into; none for what is not.
    pub fn pieces(&self) -> Option<u64> {
        match self {
            Workload::Rendering(rendering) => Some(rendering.frames.count()),
            Workload::Video(video) => Some(video.pieces()),
            _ => None,
        }
    }
}
