//! Kinds of work: what policies allow, and what quotas and budgets tell apart.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What sort of work a job is. `batch` is whatever says nothing of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    #[default]
    Batch,
    Inference,
    FineTune,
    Training,
    Rendering,
    Video,
}

impl Kind {
    pub const ALL: &'static [Kind] = &[
        Kind::Batch,
        Kind::Inference,
        Kind::FineTune,
        Kind::Training,
        Kind::Rendering,
        Kind::Video,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Batch => "batch",
            Kind::Inference => "inference",
            Kind::FineTune => "fine_tune",
            Kind::Training => "training",
            Kind::Rendering => "rendering",
            Kind::Video => "video",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let kind = Kind::ALL.iter().copied().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| {
            format!(
                "unknown kind '{text}', known are batch, inference, fine_tune, training, rendering, video"
            )
        })
    }
}

/// A kind that limits are counted by, and the size of its models, in billions of parameters. Written `inference` or
/// `inference:13b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counted {
    kind: Kind,
    billions: Option<u32>,
}

impl Counted {
    /// The groups a job of this kind is counted in, the whole kind first. What says nothing of itself is in none: a limit
    /// on it would be one on everything that is not called something else.
    pub fn groups(kind: Kind, billions: Option<u32>) -> impl Iterator<Item = Counted> {
        let sizes = [Some(None), billions.map(Some)];
        let sizes = sizes.into_iter().flatten().filter(move |_| kind != Kind::Batch);
        sizes.map(move |billions| Counted { kind, billions })
    }

    /// `inference of 13B models`.
    pub fn words(self) -> String {
        match self.billions {
            None => self.kind.as_str().to_owned(),
            Some(billions) => format!("{} of {billions}B models", self.kind.as_str()),
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        match self.billions {
            None => Ok(()),
            Some(billions) => write!(f, ":{billions}b"),
        }
    }
}

impl FromStr for Counted {
    type Err = String;

    fn from_str(text: &str) -> Result<Counted, String> {
        let (kind, size) = match text.split_once(':') {
            Some((kind, size)) => (kind, Some(size)),
            None => (text, None),
        };
        let kind: Kind = kind.parse()?;
        if kind == Kind::Batch {
            return Err("batch is whatever says nothing of itself; limit everything instead".into());
        }
        let whole = |size: &str| {
            let digits = size.strip_suffix('b')?;
            let plain = (1..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .parse::<u32>()
                .ok()
                .filter(|&billions| plain && billions > 0)
        };
        let billions = size
            .map(|size| whole(size).ok_or_else(|| format!("'{size}' is not a size of models, such as 13b")))
            .transpose()?;
        if billions.is_some() && !matches!(kind, Kind::Inference | Kind::FineTune | Kind::Training) {
            return Err(format!("{} has no models, and no size of them", kind.as_str()));
        }
        Ok(Counted { kind, billions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_read_as_they_are_written() {
        for text in ["inference", "inference:13b", "fine_tune:7b", "rendering", "video"] {
            assert_eq!(text.parse::<Counted>().map(|of| of.to_string()), Ok(text.into()));
        }
        for bad in [
            "",
            ":",
            "batch",
            "inference:",
            "inference:13",
            "inference:b",
            "inference:0b",
            "inference:13B",
            "inference:+1b",
            "rendering:13b",
            "Inference",
            "inference:13b:1b",
            "inference:1000000000b",
        ] {
            assert!(bad.parse::<Counted>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_job_is_in_its_kind_and_in_its_size_of_it() {
        let groups = |kind, billions| {
            let groups = Counted::groups(kind, billions);
            groups.map(|of| of.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(groups(Kind::Inference, Some(13)), ["inference", "inference:13b"]);
        assert_eq!(groups(Kind::Video, None), ["video"]);
        assert!(groups(Kind::Batch, None).is_empty());
    }
}
