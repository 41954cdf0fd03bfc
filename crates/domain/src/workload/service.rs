//! Services: jobs that answer requests. A service is a job of replicas, each an ordinary job of its own; the server
//! routes requests to those that are ready and says how many there should be.
//!
//! Here: what a user says of a service, and what is known of a living one. How many replicas a load needs is `scaler`'s;
//! placing, metering, evicting and stopping a replica is that of any job. Deliberately absent: requests and their counts
//! as they come, which are readings of the server and no facts.

pub mod scaler;

use serde::{Deserialize, Serialize};

use super::spec::JobSpec;
use super::task::Task;
use crate::id::UserId;
use crate::refusal::Refusal;
use crate::time::Time;
use crate::workload::job::Outcome;

/// INVARIANT: each replica that one command makes takes an id of the one block that the command has.
pub const MAX_REPLICAS: u32 = 256;
/// As many as a node carries streams to one allocation, less some for people who come to look.
pub const MAX_IN_FLIGHT: u32 = 48;
/// Ports that replicas are given, each its own, below those that gangs meet at and those that the kernel gives out. A
/// prime number of them, so that ids, which come in blocks, are spread over all.
const PORTS: std::ops::Range<u64> = 10_000..19_973;
/// The variable that says which.
pub const PORT_VARIABLE: &str = "PORT";
const MAX_SECONDS: u32 = 24 * 3600;
const MAX_PATH_BYTES: usize = 1024;

/// A replica that ran for so long before it failed was good: its failure is the first again.
pub const GOOD_RUN_MS: u64 = 60_000;
/// How long the first failure keeps its successor waiting; each further one twice as long, up to the last.
const BACK_OFF_MS: u64 = 1000;
const MOST_BACK_OFF_MS: u64 = 300_000;

/// Between how many replicas a service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// So many are kept even when nobody asks. With zero, the first request waits for the start.
    pub min: u32,
    pub max: u32,
}

impl Default for Replicas {
    fn default() -> Self {
        Replicas { min: 1, max: 1 }
    }
}

impl Replicas {
    /// Refuses what means nothing; `field` is where it stands.
    pub fn check(self, field: &str) -> Result<(), Refusal> {
        if self.max == 0 || self.max > MAX_REPLICAS {
            return Err(Refusal::invalid(
                format!("{field}/max"),
                format!("a service has at most 1 to {MAX_REPLICAS} replicas"),
            ));
        }
        if self.min > self.max {
            return Err(Refusal::invalid(
                format!("{field}/min"),
                format!("at least {} replicas, and at most {}", self.min, self.max),
            ));
        }
        Ok(())
    }

    pub fn clamp(self, count: u32) -> u32 {
        count.clamp(self.min, self.max)
    }
}

/// What a job says that answers requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Where its replica listens, for HTTP/1.1. Absent: each replica has a port of its own, which it finds in the variable
    /// `PORT` and for `{port}` in its command; replicas on one node share their tenant's ports, so several need that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default)]
    pub replicas: Replicas,
    /// Requests a replica works on at once. More wait at the server, and are a reason for more replicas.
    #[serde(default = "default_in_flight")]
    pub in_flight: u32,
    /// A path that a replica answers with 2xx once it is ready. Absent: it is ready when its port takes connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// A replica that is not ready so long after its start has failed.
    #[serde(default = "default_ready_s")]
    pub ready_s: u32,
    /// Replicas are given back when fewer would have done for so long.
    #[serde(default = "default_idle_s")]
    pub idle_s: u32,
    /// How long a request waits for a replica that has room.
    #[serde(default = "default_wait_s")]
    pub wait_s: u32,
    /// A replica that says nothing for so long in the middle of a request is given up on.
    #[serde(default = "default_silence_s")]
    pub silence_s: u32,
}

fn default_in_flight() -> u32 {
    8
}

fn default_ready_s() -> u32 {
    300
}

fn default_idle_s() -> u32 {
    60
}

fn default_wait_s() -> u32 {
    300
}

fn default_silence_s() -> u32 {
    300
}

impl Default for Service {
    fn default() -> Service {
        Service {
            port: None,
            replicas: Replicas::default(),
            in_flight: default_in_flight(),
            ready: None,
            ready_s: default_ready_s(),
            idle_s: default_idle_s(),
            wait_s: default_wait_s(),
            silence_s: default_silence_s(),
        }
    }
}

impl Service {
    /// Where a replica listens.
    pub fn port_of(&self, replica: &Task) -> u16 {
        let number = replica.of.0.wrapping_add(replica.number.into());
        let given = PORTS.start + number % (PORTS.end - PORTS.start);
        self.port.unwrap_or(given as u16)
    }

    /// Refuses so many replicas of this service; `field` is where they stand.
    pub fn check_replicas(&self, replicas: Replicas, field: &str) -> Result<(), Refusal> {
        replicas.check(field)?;
        if self.port.is_some() && replicas.max > 1 {
            return Err(Refusal::invalid(
                format!("{field}/max"),
                "a service with a fixed port has one replica, for replicas on one node share their tenant's ports",
            )
            .hint("leave `port` out, and have the program listen where the variable PORT says"));
        }
        Ok(())
    }

    /// Refuses what can never be served, naming the field.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.port == Some(0) {
            return Err(Refusal::invalid("/service/port", "a port is 1 to 65535"));
        }
        self.check_replicas(self.replicas, "/service/replicas")?;
        if self.in_flight == 0 || self.in_flight > MAX_IN_FLIGHT {
            return Err(Refusal::invalid(
                "/service/in_flight",
                format!("a replica works on 1 to {MAX_IN_FLIGHT} requests at once"),
            ));
        }
        if let Some(path) = &self.ready {
            let plain = path.starts_with('/')
                && path.len() <= MAX_PATH_BYTES
                && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
            if !plain {
                return Err(Refusal::invalid(
                    "/service/ready",
                    format!("a path begins with '/', is plain ASCII and at most {MAX_PATH_BYTES} bytes long"),
                ));
            }
        }
        for (seconds, field) in [
            (self.ready_s, "/service/ready_s"),
            (self.idle_s, "/service/idle_s"),
            (self.wait_s, "/service/wait_s"),
            (self.silence_s, "/service/silence_s"),
        ] {
            if seconds == 0 || seconds > MAX_SECONDS {
                return Err(Refusal::invalid(field, format!("1 to {MAX_SECONDS} seconds")));
            }
        }
        Ok(())
    }
}

/// Refuses jobs that cannot be services.
pub(crate) fn check(spec: &JobSpec) -> Result<(), Refusal> {
    let Some(service) = &spec.service else {
        return Ok(());
    };
    service.check()?;
    let cut = spec.tasks.is_some() || spec.workload.as_deref().and_then(|it| it.pieces()).is_some();
    let wrong = [
        (spec.stdin, "/stdin", "nobody types to a service"),
        (spec.tty, "/tty", "nobody types to a service"),
        (
            spec.demand.nodes > 1,
            "/demand/nodes",
            "each replica of a service is on one node",
        ),
        (cut, "/service", "frames and segments are made, and not served"),
        (
            service.port.is_none() && spec.env.contains_key(PORT_VARIABLE),
            "/env",
            "PORT is said by Tenure to each replica; give the service a port, or leave the variable out",
        ),
    ];
    match wrong.into_iter().find(|(wrong, _, _)| *wrong) {
        Some((_, field, why)) => Err(Refusal::invalid(field, why)),
        None => Ok(()),
    }
}

/// What is known of a living service beside its spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Between how many; the spec's, until somebody scales it.
    pub replicas: Replicas,
    /// How many there should be now.
    pub wanted: u32,
    /// Replicas that failed in a row.
    #[serde(default)]
    pub failures: u32,
    /// No replica is started before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_after: Option<Time>,
    /// How the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Requests that were journalled as served.
    #[serde(default)]
    pub requests: u64,
}

impl Serving {
    /// Of a service that was submitted just now.
    pub fn new(replicas: Replicas) -> Serving {
        Serving {
            replicas,
            wanted: replicas.min,
            failures: 0,
            restart_after: None,
            trouble: None,
            requests: 0,
        }
    }

    /// A replica ended after it had run for so long. One that was stopped, or ran as long as it may, did not fail.
    pub(crate) fn ended(&mut self, at: Time, ran_ms: u64, outcome: &Outcome) {
        let why = match outcome {
            Outcome::Cancelled | Outcome::TimedOut => return,
            Outcome::Succeeded => "it ended by itself".to_owned(),
            Outcome::Failed {
                exit_code: Some(code),
                ..
            } => format!("it ended with exit code {code}"),
            Outcome::Failed {
                signal: Some(signal), ..
            } => format!("it was ended by signal {signal}"),
            Outcome::NotStarted { why, .. } => format!("it could not be started: {why}"),
            Outcome::OverLimit => "it used more than it was given".to_owned(),
            Outcome::GaveUp { attempts } => format!("its node failed it {attempts} times"),
            other => other.as_str().replace('_', " "),
        };
        self.failed(at, ran_ms, why);
    }

    /// A replica failed that had run for so long.
    pub(crate) fn failed(&mut self, at: Time, ran_ms: u64, why: String) {
        self.failures = if ran_ms >= GOOD_RUN_MS {
            1
        } else {
            self.failures + 1
        };
        self.restart_after = Some(at.plus_ms(back_off_ms(self.failures)));
        self.trouble = Some(why);
    }

    pub(crate) fn scaled(&mut self, replicas: Replicas, wanted: u32) {
        (self.replicas, self.wanted) = (replicas, wanted);
    }

    pub(crate) fn used(&mut self, uses: &[ServiceUse]) {
        let requests = uses.iter().map(|one| one.requests);
        self.requests = requests.fold(self.requests, u64::saturating_add);
    }

    /// Whether a replica may be started now.
    pub fn may_start(&self, at: Time) -> bool {
        self.restart_after.is_none_or(|after| at >= after)
    }
}

fn back_off_ms(failures: u32) -> u64 {
    let doubled = BACK_OFF_MS
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u64::MAX);
    if failures > 16 {
        MOST_BACK_OFF_MS
    } else {
        doubled.min(MOST_BACK_OFF_MS)
    }
}

/// What one user asked of one service within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceUse {
    pub user: UserId,
    pub requests: u64,
    /// Of them, those that no replica answered, or not to the end.
    #[serde(default)]
    pub lost: u64,
    /// Bytes of bodies towards the service, and from it.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::workload::task::Work;

    fn field(service: &Service) -> String {
        service.check().unwrap_err().field.unwrap().into_owned()
    }

    #[test]
    fn what_means_nothing_is_refused_by_its_field() {
        let good = Service::default();
        assert!(good.check().is_ok());
        let with = |change: &dyn Fn(&mut Service)| {
            let mut service = good.clone();
            change(&mut service);
            service
        };
        assert_eq!(field(&with(&|it| it.port = Some(0))), "/service/port");
        assert_eq!(field(&with(&|it| it.in_flight = 0)), "/service/in_flight");
        assert_eq!(field(&with(&|it| it.in_flight = 49)), "/service/in_flight");
        assert_eq!(
            field(&with(&|it| it.replicas = Replicas { min: 2, max: 1 })),
            "/service/replicas/min"
        );
        let two = Replicas { min: 0, max: 2 };
        assert_eq!(
            field(&with(&|it| (it.port, it.replicas) = (Some(80), two))),
            "/service/replicas/max"
        );
        assert!(with(&|it| it.replicas = two).check().is_ok());
        assert_eq!(
            field(&with(&|it| it.replicas = Replicas { min: 0, max: 0 })),
            "/service/replicas/max"
        );
        assert_eq!(
            field(&with(&|it| it.ready = Some("health".into()))),
            "/service/ready"
        );
        assert_eq!(
            field(&with(&|it| it.ready = Some("/a b".into()))),
            "/service/ready"
        );
        assert_eq!(field(&with(&|it| it.idle_s = 0)), "/service/idle_s");
        assert_eq!(field(&with(&|it| it.wait_s = 86_401)), "/service/wait_s");
    }

    #[test]
    fn each_replica_has_a_port_of_its_own_unless_one_is_said() {
        let service = Service::default();
        let replica = |block: u64, number| Task {
            of: JobId(block * 1024),
            number,
            work: Work::Replica,
            tries: 0,
        };
        let first = (0..9973).map(|block| service.port_of(&replica(block, 0)));
        let first: std::collections::BTreeSet<u16> = first.collect();
        assert_eq!(first.len(), 9973);
        assert_eq!((first.first(), first.last()), (Some(&10_000), Some(&19_972)));
        assert_ne!(service.port_of(&replica(1, 0)), service.port_of(&replica(1, 1)));
        let fixed = Service {
            port: Some(80),
            ..service
        };
        assert_eq!(fixed.port_of(&replica(7, 7)), 80);
    }

    #[test]
    fn each_failure_waits_twice_as_long_and_a_good_run_forgives() {
        let mut serving = Serving::new(Replicas { min: 1, max: 4 });
        let waits: Vec<u64> = (0..12)
            .map(|_| {
                serving.failed(Time(0), 10, "exit 1".into());
                serving.restart_after.unwrap().since_ms(Time(0))
            })
            .collect();
        assert_eq!(&waits[..4], &[1000, 2000, 4000, 8000]);
        assert_eq!(waits[11], MOST_BACK_OFF_MS);
        assert!(!serving.may_start(Time(299_999)) && serving.may_start(Time(300_000)));
        serving.failed(Time(0), GOOD_RUN_MS, "exit 1".into());
        assert_eq!(serving.restart_after, Some(Time(1000)));
        assert_eq!(back_off_ms(u32::MAX), MOST_BACK_OFF_MS);
    }
}
