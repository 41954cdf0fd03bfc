//! What a member is told of the others and of its task, in its environment.
//!
//! Members on one node share their tenant's network there, and reach one another at its loopback; between nodes no
//! job reaches another (decision 8), so an address to meet at is given only to members that are all on one node.

use tenure_domain::State;
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::workload::job::Job;
use tenure_domain::workload::task::words;

/// Where members of one node meet unless the job says otherwise. A tenant's jobs share its ports on a node, so each
/// job has a number of its own among these, below those that the kernel gives out.
const MEET_PORTS: std::ops::Range<u64> = 20_000..30_000;

/// The job's own variables, and what Tenure says of its members.
pub fn environment(state: &State, job: &Job, allocation: &Allocation) -> Vec<(String, String)> {
    let own = job.spec.env.iter();
    let mut all: Vec<(String, String)> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    let peers: Vec<&str> = job
        .members
        .iter()
        .map(|member| state.fleet.node(member.node).map_or("", |node| &*node.name))
        .collect();
    let mut say = |name: &str, value: String| all.push((name.to_owned(), value));
    say("TENURE_MEMBER", allocation.member.to_string());
    say("TENURE_MEMBERS", job.members.len().to_string());
    say("TENURE_PEERS", peers.join(","));
    for (name, value) in words::variables(&job.spec) {
        say(name, value);
    }
    let together = job.members.iter().all(|member| member.node == allocation.node);
    if job.is_gang() && together {
        let port = MEET_PORTS.start + job.id.0 % (MEET_PORTS.end - MEET_PORTS.start);
        for (name, value) in [
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", port.to_string()),
        ] {
            if !job.spec.env.contains_key(name) && !job.spec.secrets.contains_key(name) {
                say(name, value);
            }
        }
    }
    all
}
