//! Which device files a job may open: rules, enforced by the device controller of version 1 or by a filter program
//! of version 2. Before either stands the job's own `/dev`, from which no other device file can be reached or made.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::kernel::DeviceRule;

const fn plain(major: u32, minor: Option<u32>) -> DeviceRule {
    DeviceRule {
        block: false,
        major,
        minor,
    }
}

/// null, zero, full, random, urandom, tty, ptmx and the terminals below pts.
const PLAIN: [DeviceRule; 8] = [
    plain(1, Some(3)),
    plain(1, Some(5)),
    plain(1, Some(7)),
    plain(1, Some(8)),
    plain(1, Some(9)),
    plain(5, Some(0)),
    plain(5, Some(2)),
    plain(136, None),
];

/// How the kernel of this host takes the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Files,
    Filter,
}

pub(super) fn only_plain(way: Way, dir: &Path) -> io::Result<()> {
    match way {
        Way::Files => {
            fs::write(dir.join("devices.deny"), "a")?;
            PLAIN.iter().try_for_each(|rule| allow(dir, *rule, "rwm"))
        }
        Way::Filter => filter(dir, &PLAIN),
    }
}

pub(super) fn also(way: Way, dir: &Path, files: &[PathBuf]) -> io::Result<()> {
    let rules: Vec<DeviceRule> = files.iter().map(|file| rule(file)).collect::<io::Result<_>>()?;
    match way {
        _ if rules.is_empty() => Ok(()),
        Way::Files => rules.into_iter().try_for_each(|rule| allow(dir, rule, "rw")),
        Way::Filter => filter(dir, &[PLAIN.as_slice(), &rules].concat()),
    }
}

fn rule(file: &Path) -> io::Result<DeviceRule> {
    let facts = fs::metadata(file)?;
    let kind = facts.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        return Err(io::Error::other(format!("{} is no device", file.display())));
    }
    Ok(DeviceRule {
        block: kind.is_block_device(),
        major: rustix::fs::major(facts.rdev()),
        minor: Some(rustix::fs::minor(facts.rdev())),
    })
}

fn allow(dir: &Path, rule: DeviceRule, how: &str) -> io::Result<()> {
    let kind = if rule.block { 'b' } else { 'c' };
    let minor = rule.minor.map_or("*".to_owned(), |minor| minor.to_string());
    fs::write(
        dir.join("devices.allow"),
        format!("{kind} {}:{minor} {how}", rule.major),
    )
}

/// The filter takes the place of one that was there.
fn filter(dir: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    crate::kernel::filter_devices(&fs::File::open(dir)?, rules)
}

/// Whether the kernel takes filters here, tried out in a cgroup that nobody enters.
pub(super) fn try_filter(place: &Path) -> io::Result<()> {
    let dir = place.join(format!("probe-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let tried = only_plain(Way::Filter, &dir);
    fs::remove_dir(&dir)?;
    tried
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The filter on a real cgroup of version 2, with a shell inside that opens what it may and what it may not.
    #[test]
    fn a_filter_lets_through_only_what_it_names() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts
            .lines()
            .find_map(|line| line.split(' ').nth(1).filter(|_| line.contains(" cgroup2 ")))
            .expect("a host has version 2 mounted, beside version 1 or alone");
        let dir = Path::new(root).join(format!("tenure-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let opens = |file: &str| {
            let script = format!("echo $$ > {}/cgroup.procs && exec 3<{file}", dir.display());
            let status = Command::new("sh")
                .args(["-c", &script])
                .stderr(std::process::Stdio::null())
                .status();
            status.unwrap().success()
        };
        // The console's messages: there on every host, and no job's business.
        let others = "/dev/kmsg";
        assert!(opens("/dev/null") && opens(others), "without a filter");
        only_plain(Way::Filter, &dir).unwrap();
        assert!(opens("/dev/null") && opens("/dev/urandom"));
        assert!(!opens(others), "the filter does not hold");
        also(Way::Filter, &dir, &[others.into()]).unwrap();
        assert!(
            opens("/dev/null") && opens(others),
            "what the job was given is let through"
        );
        only_plain(Way::Filter, &dir).unwrap();
        assert!(!opens(others), "the newer takes the place of the older");
        fs::remove_dir(&dir).unwrap();
    }
}
