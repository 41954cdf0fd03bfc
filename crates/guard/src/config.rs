//! The environment contract: which page and slice stand for which device. Documented at the crate's head.

use std::path::PathBuf;

/// Which of the driver's devices a page stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Platform by its place in the loader's list, device by its place on the platform.
    Place { platform: usize, device: usize },
    /// Platform by its name.
    Named { platform: String, device: usize },
    /// The device that says it has this UUID.
    Uuid(String),
}

/// One device of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub page: PathBuf,
    pub slice: u64,
    pub device: Selector,
}

/// Reads the mappings from the environment.
pub fn from_environment() -> Result<Vec<Mapping>, String> {
    let text = |name: &str| match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not text")),
    };
    parse(
        text("TENURE_GUARD_PAGE")?.as_deref(),
        text("TENURE_GUARD_SLICE")?.as_deref(),
        text("TENURE_GUARD_DEVICE")?.as_deref(),
    )
}

/// The path in a variable, which must be set.
pub fn path(name: &str) -> Result<PathBuf, String> {
    match std::env::var_os(name) {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(format!("{name} is not set")),
    }
}

/// What a CUDA context takes of a device beside what programs ask for, unless the job was told otherwise. Contexts of
/// current drivers take a hundred to five hundred mebibytes.
const CONTEXT_MIB: u64 = 256;

/// What a CUDA context is charged.
pub fn context_bytes() -> Result<u64, String> {
    let name = "TENURE_GUARD_CUDA_CONTEXT_MIB";
    let mib = match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => CONTEXT_MIB,
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name}: {text:?} is not a number"))?,
        Err(std::env::VarError::NotUnicode(_)) => return Err(format!("{name} is not text")),
    };
    mib.checked_mul(1 << 20)
        .ok_or(format!("{name}: {mib} MiB is more than there can be"))
}

fn parse(pages: Option<&str>, slices: Option<&str>, devices: Option<&str>) -> Result<Vec<Mapping>, String> {
    let pages: Vec<&str> = pages.ok_or("TENURE_GUARD_PAGE is not set")?.split(';').collect();
    let slices: Vec<&str> = slices
        .ok_or("TENURE_GUARD_SLICE is not set")?
        .split(';')
        .collect();
    let devices: Vec<&str> = devices.unwrap_or("0:0").split(';').collect();
    if pages.len() != slices.len() || pages.len() != devices.len() {
        return Err("TENURE_GUARD_PAGE, _SLICE and _DEVICE name different numbers of devices".into());
    }
    let mut mappings: Vec<Mapping> = Vec::new();
    for ((page, slice), device) in pages.iter().zip(slices).zip(devices) {
        let slice = slice
            .parse()
            .map_err(|_| format!("TENURE_GUARD_SLICE: {slice:?} is not a slice id"))?;
        let device = selector(device).ok_or(format!("TENURE_GUARD_DEVICE: {device:?} names no device"))?;
        if mappings.iter().any(|other| other.device == device) {
            return Err("TENURE_GUARD_DEVICE names a device twice".into());
        }
        mappings.push(Mapping {
            page: page.into(),
            slice,
            device,
        });
    }
    Ok(mappings)
}

fn selector(text: &str) -> Option<Selector> {
    if let Some(uuid) = text.strip_prefix("uuid:") {
        let plain: String = uuid.chars().filter(|c| *c != '-').collect();
        let hex = plain.len() == 32 && plain.chars().all(|c| c.is_ascii_hexdigit());
        return hex.then(|| Selector::Uuid(plain.to_ascii_lowercase()));
    }
    let (platform, device) = text.rsplit_once(':')?;
    let device = device.parse().ok()?;
    Some(match platform.parse() {
        Ok(platform) => Selector::Place { platform, device },
        Err(_) => Selector::Named {
            platform: platform.into(),
            device,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_or_several() {
        let one = parse(Some("/run/a"), Some("7"), None).unwrap();
        assert_eq!(
            one[0].device,
            Selector::Place {
                platform: 0,
                device: 0
            }
        );
        let two = parse(Some("/a;fd:5"), Some("7;8"), Some("Intel(R) OpenCL:0;1:2")).unwrap();
        assert_eq!(two[1].page, PathBuf::from("fd:5"));
        assert_eq!(
            two[1].device,
            Selector::Place {
                platform: 1,
                device: 2
            }
        );
        let uuid = parse(
            Some("/a"),
            Some("1"),
            Some("uuid:01234567-89ab-CDEF-0123-456789abcdef"),
        )
        .unwrap();
        assert_eq!(
            uuid[0].device,
            Selector::Uuid("0123456789abcdef0123456789abcdef".into())
        );
    }

    #[test]
    fn doubt_is_an_error() {
        for (pages, slices, devices) in [
            (None, Some("7"), None),
            (Some("/a"), None, None),
            (Some("/a"), Some("x"), None),
            (Some("/a;/b"), Some("7"), None),
            (Some("/a;/b"), Some("7;8"), Some("0:0")),
            (Some("/a;/b"), Some("7;8"), Some("0:0;0:0")),
            (Some("/a"), Some("7"), Some("0")),
            (Some("/a"), Some("7"), Some("uuid:12")),
        ] {
            assert!(
                parse(pages, slices, devices).is_err(),
                "{pages:?} {slices:?} {devices:?}"
            );
        }
    }
}
