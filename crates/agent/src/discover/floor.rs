//! Version floors: drivers and container toolkits with known holes, as data. What is below gives no level at which
//! tenants would share.
//!
//! Sources: NVIDIA's security bulletins, by the numbers under which it publishes them. A branch that a bulletin fixed
//! nothing in, and that is older than one it did, stays open for ever. Deliberately absent: finding the version out
//! (`nvidia.rs`, `toolkit.rs`), and holes that need the administrator's rights.

/// A version as its numbers; a letter or a dash ends it, as in `1.17.8-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    pub fn read(text: &str) -> Option<Version> {
        let plain: String = text
            .trim()
            .trim_start_matches('v')
            .chars()
            .take_while(|letter| letter.is_ascii_digit() || *letter == '.')
            .collect();
        let numbers: Option<Vec<u32>> = plain.split('.').map(|number| number.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 2).map(Version)
    }
}

/// One bulletin: what it is about, and the first version of each branch without it.
struct Hole {
    what: &'static str,
    bulletin: u32,
    fixed: &'static [&'static [u32]],
}

/// NVIDIA's driver for Linux; a branch is its first number.
const DRIVER: &[Hole] = &[
    Hole {
        what: "CVE-2026-24187: a program reaches memory that was freed, and with it the kernel",
        bulletin: 5821,
        fixed: &[&[535, 309, 1], &[580, 159, 3], &[595, 71, 5]],
    },
    Hole {
        what: "CVE-2025-23282: a local user becomes root by a race in the driver",
        bulletin: 5703,
        fixed: &[&[535, 274, 2], &[570, 195, 3], &[580, 95, 5]],
    },
    Hole {
        what: "CVE-2025-23277: memory beyond what was allotted is reached",
        bulletin: 5670,
        fixed: &[&[535, 261, 3], &[570, 172, 8], &[575, 64, 5]],
    },
];

/// NVIDIA's container toolkit; all of it is one branch.
const TOOLKIT: &[Hole] = &[
    Hole {
        what: "CVE-2026-24260: a race lets a container out",
        bulletin: 5850,
        fixed: &[&[1, 19, 1]],
    },
    Hole {
        what: "CVE-2025-23266: a container's variables reach a privileged hook",
        bulletin: 5659,
        fixed: &[&[1, 17, 8]],
    },
    Hole {
        what: "CVE-2025-23359: a way around the repair of CVE-2024-0132",
        bulletin: 5616,
        fixed: &[&[1, 17, 4]],
    },
    Hole {
        what: "CVE-2024-0132: an image reaches the host's files",
        bulletin: 5582,
        fixed: &[&[1, 16, 2]],
    },
];

impl Hole {
    fn is_open_in(&self, version: &Version) -> bool {
        let branch = version.0.first();
        let own = self.fixed.iter().find(|fixed| fixed.first() == branch);
        match own {
            Some(fixed) => version.0.as_slice() < *fixed,
            None => branch < self.fixed.last().and_then(|newest| newest.first()),
        }
    }

    fn says(&self, version: &str) -> String {
        let first: Vec<String> = self
            .fixed
            .iter()
            .map(|fixed| {
                let mut numbers = fixed.iter().map(u32::to_string);
                // NVIDIA writes a driver's last number with two digits.
                let wide = fixed.first().is_some_and(|branch| *branch > 100);
                let last = fixed.last().map(|last| format!("{last:02}")).filter(|_| wide);
                let head = numbers
                    .by_ref()
                    .take(fixed.len() - 1)
                    .collect::<Vec<_>>()
                    .join(".");
                format!("{head}.{}", last.or(numbers.next()).unwrap_or_default())
            })
            .collect();
        format!(
            "version {version} is known to be bad ({}; bulletin {}), the first good ones are {}",
            self.what,
            self.bulletin,
            first.join(", ")
        )
    }
}

fn wrong(holes: &[Hole], text: &str) -> Option<String> {
    let Some(version) = Version::read(text) else {
        return Some(format!("version {text:?} cannot be judged"));
    };
    let open = holes.iter().find(|hole| hole.is_open_in(&version));
    open.map(|hole| hole.says(text))
}

/// The branch of a version.
pub fn branch(version: &str) -> Option<u32> {
    Version::read(version)?.0.first().copied()
}

/// What is wrong with a version of NVIDIA's driver.
pub fn wrong_driver(version: &str) -> Option<String> {
    wrong(DRIVER, version)
}

/// What is wrong with a version of NVIDIA's container toolkit.
pub fn wrong_toolkit(version: &str) -> Option<String> {
    wrong(TOOLKIT, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_bad_version_is_refused() {
        for (version, cve) in [
            ("1.13.5", "CVE-2026-24260"),
            ("1.16.1", "CVE-2026-24260"),
            ("1.17.7-1", "CVE-2026-24260"),
            ("v1.19.0", "CVE-2026-24260"),
        ] {
            let why = wrong_toolkit(version).expect(version);
            assert!(
                why.contains(cve) && why.contains(version) && why.contains("1.19.1"),
                "{why}"
            );
        }
        for good in ["1.19.1", "1.19.1-1", "1.20.0-rc.1", "2.0"] {
            assert_eq!(wrong_toolkit(good), None, "{good}");
        }
        for (version, word) in [
            ("570.86.15", "CVE-2026-24187"),
            ("535.309.00", "535.309.01"),
            ("580.95.05", "580.159.03"),
            ("550.144.03", "bulletin 5821"),
            ("470.256.02", "595.71.05"),
            ("590.48.01", "CVE-2026-24187"),
        ] {
            let why = wrong_driver(version).expect(version);
            assert!(why.contains(word), "{why}");
        }
        for good in ["535.309.01", "580.159.03", "580.159.04", "595.71.05", "615.71.09"] {
            assert_eq!(wrong_driver(good), None, "{good}");
        }
        for odd in ["", "x", "580", "580.x"] {
            assert!(
                wrong_driver(odd).is_some_and(|why| why.contains("cannot be judged")),
                "{odd}"
            );
        }
    }

    /// Each row bites by itself: just below its floor it is the reason, or one newer is.
    #[test]
    fn every_row_is_below_the_one_before() {
        for holes in [DRIVER, TOOLKIT] {
            for hole in holes {
                for fixed in hole.fixed {
                    let mut below = Version(fixed.to_vec());
                    assert!(!hole.is_open_in(&below), "{}", hole.what);
                    *below.0.last_mut().unwrap() -= 1;
                    assert!(hole.is_open_in(&below), "{}", hole.what);
                }
                assert!(hole.fixed.is_sorted(), "{}", hole.what);
            }
        }
    }
}
