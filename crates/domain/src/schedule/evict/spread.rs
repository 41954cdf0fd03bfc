//! The cheapest set of jobs, over several nodes, whose leaving makes all members of a gang fit.
//!
//! What nodes would give for whom is guessed first and put in order, cheapest for a member first; then nodes are cleared in
//! that order, the members counted in earnest on each, until there is room for all. The gang is then placed with the
//! victims gone, behind all walls, and admitted with their quota back. Whoever is not needed is let be. A victim that is
//! itself a gang leaves all its nodes: its loss is shared out over them, and where members do not come to all of them also
//! counted whole, and the cheaper set is taken. Work is bounded by the nodes looked at. Absent: clearing a block so that members are near.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::{Candidate, Candidates};
use super::plan::{Plan, gone_by};
use crate::id::{JobId, NodeId};
use crate::schedule::admit::admit_without;
use crate::schedule::calendar::{Promised, Stay, mask, masked};
use crate::schedule::fleet::{Node, NodeStatus};
use crate::schedule::guess::Rest;
use crate::schedule::pass::Ask;
use crate::schedule::place::{Members, Place, gang_classes, gang_places, gang_room};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Admission, Job};
use crate::workload::spec::{JobSpec, Priority};

/// Classes of GPUs tried.
const CLASSES: usize = 4;
/// How often members are counted on a node with some gone, to find enough of them and again to let some be.
const COUNTED: usize = 256;
/// How often the whole gang is placed, for one order.
const PLACED: usize = 4;

/// Some of those on one node, and what their leaving seems to give.
struct Step<'a> {
    priority: Option<Priority>,
    /// Lost for each member that has room then.
    each: u64,
    /// Members that have room then.
    more: u64,
    node: NodeId,
    who: Vec<&'a Candidate<'a>>,
}

/// How a gang's loss counts on one of its nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Whole,
    Shared,
}

pub(super) fn plan<'a>(
    state: &'a State,
    ask: &Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> Option<Plan<'a>> {
    let specs = gang_classes(state, ask.spec);
    let all: Vec<&Candidate<'_>> = candidates.all().iter().collect();
    // It stays from when they have left: what is promised to others for later must not meet that either.
    let stay = Stay::of(*ask, gone_by(&all, at));
    let open = masked(state, stay, at);
    let plans = specs.iter().take(CLASSES).filter_map(|spec| {
        let mut spread = Spread {
            state,
            ask: Ask { spec, ..*ask },
            stay,
            needs,
            members: Members::of(state, ask.owner, spec, needs),
            candidates,
            open: &open,
            room: gang_room(state, ask.owner, spec, needs, &open),
            held: BTreeMap::new(),
            counted: 0,
            at,
        };
        let shared = spread.plan(Loss::Shared);
        let whole = match &shared {
            Some(plan) if uses_all(plan) => None,
            _ => spread.plan(Loss::Whole),
        };
        shared.into_iter().chain(whole).min_by_key(Plan::cost)
    });
    plans.min_by_key(Plan::cost)
}

/// Whether members come to all nodes that gangs leave, so that their loss is rightly shared out.
fn uses_all(plan: &Plan<'_>) -> bool {
    let used: BTreeSet<NodeId> = plan.places.iter().map(|place| place.node).collect();
    let mut gangs = plan.victims.iter().filter(|victim| victim.job.is_gang());
    gangs.all(|gang| gang.nodes().iter().all(|node| used.contains(node)))
}

struct Spread<'a, 's> {
    state: &'a State,
    ask: Ask<'s>,
    stay: Stay<'s>,
    needs: VolumeNeeds,
    members: Members<'s>,
    candidates: &'a Candidates<'a>,
    /// Nodes where others were promised room, as they are for this job.
    open: &'s Promised,
    /// Members that there is room for with nobody gone.
    room: usize,
    /// Members that nodes hold with nobody gone, as far as was looked.
    held: BTreeMap<NodeId, usize>,
    counted: usize,
    at: Time,
}

impl<'a> Spread<'a, '_> {
    fn wanted(&self) -> usize {
        self.ask.spec.demand.nodes as usize
    }

    fn plan(&mut self, loss: Loss) -> Option<Plan<'a>> {
        let steps = match self.room < self.wanted() {
            true => self.steps(loss),
            // It is quota that lacks, wherever that is held.
            false => self.each_alone(),
        };
        let more: u64 = steps.iter().map(|step| step.more).sum();
        if (self.room as u64).saturating_add(more) < self.wanted() as u64 {
            return None;
        }
        self.counted = 0;
        let mut gone: Vec<&'a Candidate<'a>> = Vec::new();
        let mut known: BTreeSet<JobId> = BTreeSet::new();
        let mut holds: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut taken_back: BTreeMap<(ScopeId, Box<str>), u64> = BTreeMap::new();
        let (mut tries, mut next_try) = (0, 0);
        for (which, step) in steps.iter().enumerate() {
            let before = gone.len();
            for candidate in &step.who {
                let id = candidate.job.id;
                if !known.contains(&id) && may_be_taken(candidate, &mut taken_back) {
                    known.insert(id);
                    gone.push(candidate);
                }
            }
            let nodes: BTreeSet<NodeId> = gone[before..].iter().flat_map(|one| one.nodes()).collect();
            for node in nodes {
                holds.insert(node, self.count(node, &gone)?);
            }
            // Where quota lacks too, room says nothing: more and more are asked before it is tried again.
            if gone.len() == before || self.total(&holds) < self.wanted() || which < next_try {
                continue;
            }
            if let Some((places, admission)) = self.fits(&gone) {
                return self.least(gone, holds, places, admission);
            }
            tries += 1;
            if tries == PLACED {
                return None;
            }
            next_try = which + (1 << (2 * tries));
        }
        let last = !gone.is_empty() && self.total(&holds) >= self.wanted();
        let (places, admission) = last.then(|| self.fits(&gone)).flatten()?;
        self.least(gone, holds, places, admission)
    }

    /// The plan without those who are not needed, the dearest let be first.
    fn least(
        &mut self,
        gone: Vec<&'a Candidate<'a>>,
        mut holds: BTreeMap<NodeId, usize>,
        places: Vec<Place>,
        admission: Admission,
    ) -> Option<Plan<'a>> {
        let (ask, state, at) = (self.ask, self.state, self.at);
        let admitted = |victims: &[&Candidate<'_>]| {
            let jobs: Vec<&Job> = victims.iter().map(|victim| victim.job).collect();
            admit_without(state, &ask, &places, &jobs, at).is_ok()
        };
        let for_quota = !admitted(&[]);
        let mut dearest = gone.clone();
        dearest.sort_by_key(|one| (one.job.spec.priority, one.loss, one.job.id));
        let mut victims = gone.clone();
        self.counted = 0;
        for one in dearest.into_iter().rev() {
            let mut left = victims.clone();
            left.retain(|victim| victim.job.id != one.job.id);
            let nodes = one.nodes();
            let held: usize = nodes.iter().map(|node| holds[node]).sum();
            let others = self.total(&holds).saturating_sub(held);
            let at_most: usize = nodes.iter().map(|node| self.guess(*node, &left)).sum();
            if left.is_empty() || others + at_most < self.wanted() || for_quota && !admitted(&left) {
                continue;
            }
            let counts = nodes.iter().map(|node| self.count(*node, &left));
            let Some(counts) = counts.collect::<Option<Vec<usize>>>() else {
                break;
            };
            if others + counts.iter().sum::<usize>() >= self.wanted() {
                holds.extend(nodes.into_iter().zip(counts));
                victims = left;
            }
        }
        let whole = Plan {
            victims: gone,
            places,
            admission,
        };
        if victims.len() == whole.victims.len() {
            return Some(whole);
        }
        let fewer = self.fits(&victims);
        Some(fewer.map_or(whole, |(places, admission)| Plan {
            victims,
            places,
            admission,
        }))
    }

    /// Members that have room, some nodes holding other numbers than they do now.
    fn total(&self, holds: &BTreeMap<NodeId, usize>) -> usize {
        let now = |node: &NodeId| self.held.get(node).copied().unwrap_or(0);
        let more: usize = holds.values().sum();
        let less: usize = holds.keys().map(now).sum();
        (self.room + more).saturating_sub(less)
    }

    /// How many members the node holds with these gone; nothing where enough was counted already.
    fn count(&mut self, node: NodeId, gone: &[&Candidate<'_>]) -> Option<usize> {
        if !self.held.contains_key(&node) {
            let now = self.counted_on(node, &[]);
            self.held.insert(node, now);
        }
        self.counted += 1;
        (self.counted <= COUNTED).then(|| self.counted_on(node, gone))
    }

    fn counted_on(&self, node: NodeId, gone: &[&Candidate<'_>]) -> usize {
        if self.guess(node, gone) == 0 {
            return 0;
        }
        let then = self.without(node, gone);
        then.map_or(0, |node| self.members.on(&node).len())
    }

    /// How many members the node could hold with these gone, before walls and promises.
    fn guess(&self, node: NodeId, gone: &[&Candidate<'_>]) -> usize {
        let Some(node) = self.state.fleet.node(node) else {
            return 0;
        };
        let mut rest = Rest::of(node, &self.ask.spec.demand);
        for candidate in gone {
            candidate
                .on(node.id)
                .for_each(|allocation| rest.give_back(allocation, candidate.pauses));
        }
        usize::try_from(rest.members()).unwrap_or(usize::MAX)
    }

    /// The node as the gang would find it with these gone.
    fn without(&self, node: NodeId, gone: &[&Candidate<'_>]) -> Option<Node> {
        let mut node = self.state.fleet.node(node)?.clone();
        gone.iter().for_each(|candidate| candidate.leave(&mut node));
        mask(self.state, &mut node, self.stay, self.at);
        Some(node)
    }

    /// Where all members would be with these gone, and what they would be admitted with.
    fn fits(&self, gone: &[&Candidate<'_>]) -> Option<(Vec<Place>, Admission)> {
        let mut open = self.open.clone();
        let nodes: BTreeSet<NodeId> = gone.iter().flat_map(|candidate| candidate.nodes()).collect();
        for id in nodes {
            open.insert(id, self.without(id, gone)?);
        }
        let ask = &self.ask;
        let places = gang_places(self.state, ask.owner, ask.spec, self.needs, &open).ok()?;
        let jobs: Vec<&Job> = gone.iter().map(|candidate| candidate.job).collect();
        let admission = admit_without(self.state, ask, &places, &jobs, self.at).ok()?;
        Some((places, admission))
    }

    /// Who would leave where, cheapest for a member first.
    fn steps(&self, loss: Loss) -> Vec<Step<'a>> {
        let spec: &JobSpec = self.ask.spec;
        let tenant = self.state.tree.tenant_of(self.ask.owner);
        let mut steps = Vec::new();
        for id in self.candidates.nodes() {
            let node = self.state.fleet.node(id);
            let will_do = |node: &&Node| {
                node.status == NodeStatus::Up && node.admits(tenant, spec.demand.region.as_deref())
            };
            if let Some(node) = node.filter(will_do) {
                self.steps_on(node, loss, &mut steps);
            }
        }
        steps.sort_by_key(|step| (step.priority, step.each, step.node));
        steps
    }

    /// Everybody by itself, least lost for what it holds first.
    fn each_alone(&self) -> Vec<Step<'a>> {
        let each = |candidate: &'a Candidate<'a>| Step {
            priority: Some(candidate.job.spec.priority),
            each: candidate.loss / candidate.job.spec.demand.gpu_milli().max(1),
            more: 0,
            node: candidate.allocations[0].node,
            who: vec![candidate],
        };
        let mut steps: Vec<Step<'_>> = self.candidates.all().iter().map(each).collect();
        steps.sort_by_key(|step| (step.priority, step.each, step.node));
        steps
    }

    /// Those on one node in the order they are asked there, cut where the next few give more for less than the rest.
    fn steps_on(&self, node: &Node, loss: Loss, steps: &mut Vec<Step<'a>>) {
        let mut rest = Rest::of(node, &self.ask.spec.demand);
        // After each that leaves: the highest priority, what is lost and how many members there is room for, so far.
        let mut after = vec![(None, 0_u64, rest.members())];
        let here: Vec<&'a Candidate<'a>> = self.candidates.on(node.id).collect();
        for candidate in &here {
            candidate
                .on(node.id)
                .for_each(|allocation| rest.give_back(allocation, candidate.pauses));
            let (priority, lost, _) = after[after.len() - 1];
            after.push((
                priority.max(Some(candidate.job.spec.priority)),
                lost.saturating_add(lost_on(candidate, node.id, loss)),
                rest.members(),
            ));
        }
        let mut from = 0;
        while from < here.len() {
            let rate = |to: usize| {
                let (priority, lost, members) = after[to];
                let more = members.checked_sub(after[from].2).filter(|more| *more > 0)?;
                Some((priority, (lost - after[from].1) / more, to))
            };
            let Some((priority, each, to)) = (from + 1..after.len()).filter_map(rate).min() else {
                return;
            };
            steps.push(Step {
                priority,
                each,
                more: after[to].2 - after[from].2,
                node: node.id,
                who: here[from..to].to_vec(),
            });
            from = to;
        }
    }
}

fn lost_on(candidate: &Candidate<'_>, node: NodeId, loss: Loss) -> u64 {
    let all = candidate.allocations.len().max(1) as u64;
    match loss {
        Loss::Whole => candidate.loss,
        Loss::Shared => candidate.loss / all * candidate.on(node).count() as u64,
    }
}

/// Whether the candidate may leave beside those that were taken: of a borrower no more than it borrows, though a job that
/// straddles leaves whole.
fn may_be_taken(candidate: &Candidate<'_>, taken: &mut BTreeMap<(ScopeId, Box<str>), u64>) -> bool {
    let Some(lent) = &candidate.lent else {
        return true;
    };
    let of = taken.entry((lent.scope, lent.class.clone())).or_default();
    let may = *of < lent.borrowed_milli;
    if may {
        *of = of.saturating_add(candidate.job.spec.demand.gpu_milli());
    }
    may
}
