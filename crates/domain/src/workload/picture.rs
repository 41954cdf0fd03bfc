//! Pictures: frames of a scene to render, and clips to work on, by their frames or cut into segments.
//!
//! What a frame takes is the user's word, or what was measured of the same scene before (`learnt`).

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, MIB, Term, TermName, grouped};
use super::frames::Frames;
use super::segments::Segments;
use crate::name;
use crate::refusal::Refusal;

const MAX_EACH_MS: u64 = 7 * 24 * 3600 * 1000;
const MAX_VRAM_MIB: u64 = 1 << 30;

/// Frames of a scene.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rendering {
    /// Such as `1-240x2`.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "1-240x2"))]
    pub frames: Frames,
    /// What is rendered; runs of one scene are alike. The job's name unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    /// How long a frame takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_ms: Option<u64>,
    /// Device memory while a frame is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
}

/// A clip, by its frames or its segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Video {
    /// Such as `1-240x2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "1-240x2"))]
    pub frames: Option<Frames>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// What is done; runs of one are alike. The job's name unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    /// How long a frame, or a segment, takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_ms: Option<u64>,
    /// Device memory while one is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
}

fn check(scene: Option<&str>, each_ms: Option<u64>, vram_mib: Option<u64>, at: &str) -> Result<(), Refusal> {
    if let Some(scene) = scene {
        let fine = name::check_text(scene, 200, "/workload").and_then(|()| match scene.trim() {
            "" => Err(Refusal::invalid("", "a scene has a name")),
            _ => Ok(()),
        });
        fine.map_err(|refusal| refusal.field(format!("{at}/scene")))?;
    }
    if each_ms.is_some_and(|each_ms| each_ms == 0 || each_ms > MAX_EACH_MS) {
        return Err(Refusal::invalid(
            format!("{at}/each_ms"),
            format!("a frame or segment takes 1 to {MAX_EACH_MS} milliseconds"),
        ));
    }
    if vram_mib.is_some_and(|vram_mib| vram_mib == 0 || vram_mib > MAX_VRAM_MIB) {
        return Err(Refusal::invalid(
            format!("{at}/vram_mib"),
            format!("a frame or segment takes 1 to {MAX_VRAM_MIB} MiB"),
        ));
    }
    Ok(())
}

fn estimate(title: String, pieces: u64, one: &str, each_ms: Option<u64>, vram_mib: Option<u64>) -> Estimate {
    let terms = vram_mib.map(|vram_mib| {
        Term::new(
            TermName::Picture,
            u128::from(vram_mib) * MIB,
            format!("a {one} at work, as the job says"),
        )
    });
    Estimate {
        title,
        terms: terms.into_iter().collect(),
        gpus: 1,
        together: 1,
        run_ms: each_ms.map(|each_ms| each_ms.saturating_mul(pieces)),
        token_bytes: None,
        notes: Vec::new(),
    }
}

impl Rendering {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        check(
            self.scene.as_deref(),
            self.each_ms,
            self.vram_mib,
            "/workload/rendering",
        )
    }

    pub(super) fn estimate(&self) -> Estimate {
        let count = self.frames.count();
        let title = format!("rendering, {} frames ({})", grouped(count), self.frames);
        estimate(title, count, "frame", self.each_ms, self.vram_mib)
    }
}

impl Video {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        match (&self.frames, &self.segments) {
            (Some(_), Some(_)) => {
                return Err(Refusal::invalid(
                    "/workload/video",
                    "a clip is cut by its frames or into segments; give one",
                ));
            }
            (None, None) => {
                return Err(Refusal::invalid(
                    "/workload/video",
                    "a clip has frames, or a duration in segments; give one",
                ));
            }
            (None, Some(segments)) => segments.check("/workload/video/segments")?,
            (Some(_), None) => {}
        }
        check(
            self.scene.as_deref(),
            self.each_ms,
            self.vram_mib,
            "/workload/video",
        )
    }

    /// Frames or segments.
    pub fn pieces(&self) -> u64 {
        let segments = self.segments.map_or(0, |segments| segments.count());
        self.frames.as_ref().map_or(segments, Frames::count)
    }

    pub(super) fn estimate(&self) -> Estimate {
        let pieces = self.pieces();
        let (title, one) = match (&self.frames, self.segments) {
            (Some(frames), _) => (format!("video, {} frames ({frames})", grouped(pieces)), "frame"),
            (None, segments) => {
                let each_s = segments.map_or(0, |segments| segments.segment_s);
                (
                    format!("video, {} segments of {each_s} s", grouped(pieces)),
                    "segment",
                )
            }
        };
        estimate(title, pieces, one, self.each_ms, self.vram_mib)
    }
}
