//! What runs in an image, and with which surroundings: the job's word first, the image's where the job is silent.
//!
//! The job's command is run as given; without one, the image's entrypoint and its arguments. The image's
//! variables come below the job's, except those that no job may set either.

use tenure_api::channel::Order;
use tenure_domain::workload::spec::is_reserved_variable;

use super::{Config, ImageError};

/// Fills in what the order leaves to the image.
pub fn complete(order: &mut Order, config: &Config) -> Result<(), ImageError> {
    if order.command.is_empty() {
        order.command = config.entrypoint.iter().chain(&config.cmd).cloned().collect();
    }
    if order.command.first().is_none_or(|program| program.is_empty()) {
        return Err(ImageError::Refused(
            "the job names no command, and its image has none either".to_owned(),
        ));
    }
    if order.workdir.is_none() {
        order.workdir.clone_from(&config.workdir);
    }
    let below = config
        .env
        .iter()
        .filter_map(|variable| variable.split_once('='))
        .filter(|(name, value)| {
            !name.is_empty() && !is_reserved_variable(name) && !name.contains('\0') && !value.contains('\0')
        })
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    order.env = below.chain(order.env.drain(..)).collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure_domain::id::{AllocationId, JobId};

    use super::*;

    fn order(command: &[&str]) -> Order {
        let order = serde_json::json!({
            "allocation": AllocationId(1), "job": JobId(1), "name": "j", "tenant": "t", "attempt": 1,
            "command": command, "env": [["A", "job"]], "secrets": [], "devices": [],
            "cpu_milli": 1, "memory_mib": 1, "isolation": "guarded", "run_time_s": 1, "grace_s": 1,
        });
        serde_json::from_value(order).unwrap()
    }

    fn config() -> Config {
        Config {
            env: [
                "A=image",
                "B=image=2",
                "LD_PRELOAD=/x.so",
                "NVIDIA_VISIBLE_DEVICES=all",
                "odd",
            ]
            .map(str::to_owned)
            .into(),
            entrypoint: vec!["/entry".into()],
            cmd: vec!["argument".into()],
            workdir: Some("/work".into()),
            user: None,
        }
    }

    #[test]
    fn the_job_has_the_first_word() {
        let mut given = order(&["/bin/true"]);
        given.workdir = Some("/mine".into());
        complete(&mut given, &config()).unwrap();
        assert_eq!(given.command, ["/bin/true"]);
        assert_eq!(given.workdir.as_deref(), Some("/mine"));
        let pairs: Vec<(&str, &str)> = given.env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [("A", "image"), ("B", "image=2"), ("A", "job")],
            "the last one counts, and what no job may set no image may"
        );
    }

    #[test]
    fn the_image_has_the_second() {
        let mut silent = order(&[]);
        complete(&mut silent, &config()).unwrap();
        assert_eq!(silent.command, ["/entry", "argument"]);
        assert_eq!(silent.workdir.as_deref(), Some("/work"));
        let nothing = complete(&mut order(&[]), &Config::default());
        assert!(matches!(nothing, Err(ImageError::Refused(_))));
    }
}
