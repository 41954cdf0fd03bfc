//! The jobs of a trace, and a small generator for when there is none.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

/// One job: what the trace says, then what became of it. Seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub at: u64,
    pub run_s: u64,
    pub gpus: u32,
    pub team: u32,
    pub started: Option<u64>,
    pub done: u64,
    pub evictions: u32,
}

impl Job {
    pub fn new(at: u64, run_s: u64, gpus: u32, team: u32) -> Job {
        Job {
            at,
            run_s: run_s.max(1),
            gpus,
            team,
            started: None,
            done: 0,
            evictions: 0,
        }
    }

    pub fn wait_s(&self) -> u64 {
        self.started.unwrap_or(self.done) - self.at
    }

    pub fn service(&self) -> u64 {
        self.run_s * u64::from(self.gpus)
    }
}

/// Reads `timestamp,duration,num_gpus,gpu_time,cluster`; in order of arrival.
pub fn parse(text: &str) -> anyhow::Result<Vec<Job>> {
    let mut teams: BTreeMap<&str, u32> = BTreeMap::new();
    let mut jobs = Vec::new();
    for (at, line) in text
        .lines()
        .enumerate()
        .skip(1)
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let fields: Vec<&str> = line.trim().split(',').collect();
        ensure!(fields.len() >= 5, "line {}: five fields expected", at + 1);
        let when = format!("{}Z", fields[0].replacen(' ', "T", 1));
        let arrived =
            tenure_domain::Time::parse_rfc3339(&when).with_context(|| format!("line {}: no time", at + 1))?;
        let run_s: f64 = fields[1]
            .parse()
            .with_context(|| format!("line {}: no duration", at + 1))?;
        let gpus: u32 = fields[2]
            .parse()
            .with_context(|| format!("line {}: no number of GPUs", at + 1))?;
        let fresh = teams.len() as u32;
        let team = *teams.entry(fields[4]).or_insert(fresh);
        jobs.push(Job::new((arrived.0 / 1000) as u64, run_s as u64, gpus, team));
    }
    jobs.sort_by_key(|job| job.at);
    Ok(jobs)
}

/// Jobs of eight teams over about a week: bursts of like jobs, most of them short, few of them very long.
pub fn generate(count: usize, seed: u64) -> Vec<Job> {
    let mut state = seed;
    let mut below = move |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let (mut jobs, mut at) = (Vec::with_capacity(count), 1_000_000);
    while jobs.len() < count {
        at += below(600 * 4);
        let team = below(8) as u32;
        let gpus = [1, 1, 1, 1, 2, 4, 8, 16][below(8) as usize];
        // A power of two from a minute to two days, longer for some teams, and each of a burst within a tenth of it.
        let usual = 60 << (below(9) + u64::from(team) % 4).min(11);
        for n in 0..1 + below(8) {
            jobs.push(Job::new(at + n * 5, usual + usual * below(20) / 100, gpus, team));
        }
    }
    jobs.truncate(count);
    jobs.sort_by_key(|job| job.at);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_in_order_of_arrival() {
        let text = "timestamp,duration,num_gpus,gpu_time,cluster\n\
            2017-10-09 07:01:55,66.0,1,66.0,b\n2017-10-09 06:13:03,2951.0,4,2951.0,a\n\n";
        let jobs = parse(text).unwrap();
        assert_eq!((jobs[0].run_s, jobs[0].gpus, jobs[1].run_s), (2951, 4, 66));
        assert_eq!(jobs[1].at - jobs[0].at, 48 * 60 + 52);
        assert_ne!(jobs[0].team, jobs[1].team);
        assert!(parse("head\n1,2\n").is_err());
    }

    #[test]
    fn generated_jobs_are_the_same_for_a_seed() {
        assert_eq!(generate(500, 3), generate(500, 3));
        assert_ne!(generate(500, 3), generate(500, 4));
    }
}
