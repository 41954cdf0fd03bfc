//! Placement: which slices a job gets. The board says which node would waste the least; the walls around the job and
//! its neighbours say whether it may.
//!
//! Pure: the same state gives the same placement. Nothing here looks at prices or quota. Places are looked for one at
//! a time, as they are asked for: whoever admits the first looks at no second. Called by `pass.rs`.

mod again;
mod block;
pub(super) mod company;
mod explain;
mod fit;
mod gang;
mod link;
mod member;
mod row;
mod wall;

use std::borrow::Cow;

use super::allocation::Slice;
use super::board::shape::{Classes, Shape};
use super::calendar::Promised;
use super::fleet::{Node, NodeStatus};
use super::index::Memo;
use super::volume::VolumeNeeds;
use crate::id::NodeId;
use crate::refusal::Refusal;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::image::ImageName;
use crate::workload::spec::{Demand, Isolation, JobSpec};

pub use again::has_room_again;
pub use explain::{explain, refuse_beyond_fleet};
pub(crate) use fit::vram_wanted;
pub use gang::{Members, gang_classes, gang_places, gang_room};
pub(super) use member::seats;
use wall::Wall;

/// So many places that are nearly as good are looked at for one that has the job's image, or quieter neighbours.
const LOOK_MAX: usize = 64;

/// Where a job would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub node: NodeId,
    pub slices: Vec<Slice>,
    pub class: Option<Box<str>>,
    pub isolation: Isolation,
    pub isolation_why: String,
}

impl Place {
    /// The job as it is counted and charged here: a part comes with the compute it has, asked for or not.
    pub fn spec<'a>(&self, asked: &'a JobSpec) -> Cow<'a, JobSpec> {
        let parts = self.slices.iter().filter(|slice| slice.part.is_some());
        match parts.map(|slice| slice.compute_permille).max() {
            Some(given) if given != asked.demand.compute_permille => {
                let mut spec = asked.clone();
                spec.demand.compute_permille = given;
                Cow::Owned(spec)
            }
            _ => Cow::Borrowed(asked),
        }
    }
}

/// The job as it is counted and charged at these places, one for each member, and the VRAM of all of them. Members are
/// counted alike; where parts of several sizes were given, as the largest.
pub(super) fn given<'a>(places: &[Place], asked: &'a JobSpec) -> (Cow<'a, JobSpec>, u64) {
    let slices = places.iter().flat_map(|place| &place.slices);
    let share = |place: &&Place| place.slices.iter().map(|slice| slice.compute_permille).max();
    let largest = places.iter().max_by_key(share);
    (
        largest.map_or(Cow::Borrowed(asked), |place| place.spec(asked)),
        slices.map(|slice| slice.vram_mib).sum(),
    )
}

/// Every place the job could go now, one for each GPU class, best first; or why there is none.
pub fn places<'a>(
    state: &'a State,
    owner: ScopeId,
    spec: &'a JobSpec,
    volumes: VolumeNeeds,
    promised: &'a Promised,
) -> Result<Places<'a>, Refusal> {
    let search = Search::new(state, owner, spec, volumes, promised);
    match search.best(&[]) {
        Some(first) => Ok(Places {
            search,
            given: Vec::new(),
            first: Some(first),
        }),
        None => Err(search.none()),
    }
}

/// The places a job could have on this node, as it is or as it might be, one for each GPU class.
pub(super) fn places_on(
    state: &State,
    node: &Node,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
) -> Vec<Place> {
    let promised = Promised::new();
    let search = Search::new(state, owner, spec, volumes, &promised);
    let mut places = Vec::new();
    let mut given = Vec::new();
    while let Some(place) = search.tightest([node].into_iter(), &given) {
        let class = place.class.clone();
        places.push(place);
        match class {
            Some(class) => given.push(class),
            None => break,
        }
    }
    places
}

/// See `places`.
pub struct Places<'a> {
    search: Search<'a>,
    first: Option<Place>,
    /// Classes that a place was given of.
    given: Vec<Box<str>>,
}

impl Iterator for Places<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let place = match self.first.take() {
            Some(first) => first,
            None if self.given.is_empty() => return None,
            None => self.search.best(&self.given)?,
        };
        self.given.extend(place.class.clone());
        Some(place)
    }
}

/// A job that looks for a place.
struct Search<'a> {
    state: &'a State,
    spec: &'a JobSpec,
    demand: &'a Demand,
    wall: Wall,
    volumes: VolumeNeeds,
    /// The image it would have to fetch where it is not.
    image: Option<String>,
    /// What it asks for, before anything about where.
    asked: Shape,
    /// Nodes where others were promised room, with what is left for it. They are looked at one by one.
    promised: &'a Promised,
}

impl<'a> Search<'a> {
    fn new(
        state: &'a State,
        owner: ScopeId,
        spec: &'a JobSpec,
        volumes: VolumeNeeds,
        promised: &'a Promised,
    ) -> Search<'a> {
        let demand = &spec.demand;
        let image = spec.image.as_deref();
        Search {
            state,
            spec,
            demand,
            wall: Wall::of(state, owner, demand),
            volumes,
            image: image.and_then(|image| Some(image.parse::<ImageName>().ok()?.key())),
            asked: state.fleet.seen().shape(demand),
            promised,
        }
    }

    fn none(&self) -> Refusal {
        let for_volumes = self.volumes.explain(self.state);
        for_volumes.unwrap_or_else(|| explain::none_now(self.state, self.demand))
    }

    /// The best place with GPUs of none of the classes that were `given` already.
    fn best(&self, given: &[Box<str>]) -> Option<Place> {
        if let Some(node) = self.volumes.node() {
            let node = self.promised.get(&node).or_else(|| self.state.fleet.node(node))?;
            return self.tightest([node].into_iter(), given);
        }
        let mut index = self.state.fleet.index();
        self.on_board(&mut index, given)
            .or_else(|| self.tightest(self.off_board(&index), given))
    }

    /// The nodes that are looked at one by one, as they are for this job. CPU is on the board for every node but those
    /// with promises.
    fn off_board<'n>(&'n self, index: &'n Memo) -> impl Iterator<Item = &'n Node> {
        let odd = index.odd.iter().filter(|_| self.demand.gpus > 0);
        let odd = odd.filter(|id| !self.promised.contains_key(id));
        odd.filter_map(|id| self.state.fleet.node(*id))
            .chain(self.promised.values())
    }

    /// Pools to look into, in turn: what is the tenant's alone goes first.
    fn shapes(&self, index: &Memo, given: &[Box<str>]) -> impl Iterator<Item = Shape> + use<> {
        let seen = self.state.fleet.seen();
        let classes = if self.demand.gpus > 0 {
            seen.classes(|make| {
                self.takes(&make.class, &make.model, given) && wall::could_give(make, self.demand, &self.wall)
            })
        } else {
            self.asked.classes
        };
        self.in_pools(index, classes)
    }

    fn in_pools(&self, index: &Memo, classes: Classes) -> impl Iterator<Item = Shape> + use<> {
        let region = self
            .demand
            .region
            .as_deref()
            .map_or(0, |region| index.region(region));
        let own = self.wall.tenant.and_then(|tenant| index.pool(tenant));
        let asked = self.asked;
        own.into_iter().chain([0]).map(move |pool| Shape {
            classes,
            region,
            pool,
            ..asked
        })
    }

    fn takes(&self, class: &str, model: &str, given: &[Box<str>]) -> bool {
        self.demand.takes(class, model)
            && !given.iter().any(|known| **known == *class)
            && wall::allows_class(self.state, self.wall.owner, class)
    }

    /// Whether the node would do but for its GPUs.
    fn node_will_do(&self, node: &Node) -> bool {
        node.status == NodeStatus::Up
            && node.admits(self.wall.tenant, self.demand.region.as_deref())
            && self.volumes.are_met_by(node)
            && self.demand.cpu_milli <= node.free_cpu_milli()
            && self.demand.memory_mib <= node.free_memory_mib()
    }

    fn lacks_image(&self, node: &Node) -> bool {
        self.image
            .as_deref()
            .is_some_and(|image| !node.images.contains(image))
    }

    /// A few nodes that may have room for it, whatever walls stand before that.
    fn roomy(&self) -> Vec<&'a Node> {
        if let Some(node) = self.volumes.node() {
            return self.state.fleet.node(node).into_iter().collect();
        }
        let index = &mut *self.state.fleet.index();
        let mut found: Vec<NodeId> = Vec::new();
        for shape in self.in_pools(index, self.asked.classes) {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, &shape);
            let (_, rows) = index.board.best_first(&ranked);
            found.extend(rows.take(LOOK_MAX).map(|(row, _)| index.nodes[row].node));
        }
        found.extend(index.odd.iter().take(LOOK_MAX));
        found
            .into_iter()
            .filter_map(|node| self.state.fleet.node(node))
            .collect()
    }

    fn on_board(&self, index: &mut Memo, given: &[Box<str>]) -> Option<Place> {
        for shape in self.shapes(index, given) {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, &shape);
            let (board, rows) = index.board.best_first(&ranked);
            let nearly = board.nearly();
            let mut best: Option<(row::Found, u32)> = None;
            let mut looked = 0;
            for (row, score) in rows {
                if let Some((_, first)) = best {
                    looked += 1;
                    if looked > LOOK_MAX || score + nearly < first {
                        break;
                    }
                }
                let Some(found) =
                    self.at_row(board, row, index.nodes[row], &shape, given, &mut index.companies)
                else {
                    continue;
                };
                match &mut best {
                    _ if found.is_ideal() => return Some(found.place),
                    None => best = Some((found, score)),
                    Some((known, first)) if found.is_better_than(known, score == *first) => *known = found,
                    Some(_) => {}
                }
            }
            if let Some((found, _)) = best {
                return Some(found.place);
            }
        }
        None
    }

    /// The tightest place on these nodes, looked at one by one.
    fn tightest<'n>(&self, nodes: impl Iterator<Item = &'n Node>, given: &[Box<str>]) -> Option<Place> {
        let mut best: Option<((bool, u64, bool, NodeId), Place)> = None;
        for node in nodes.filter(|node| self.node_will_do(node)) {
            let foreign = node.held_for().is_none();
            let mut offer = |left: u64, place: Place| {
                let rank = (foreign, left, self.lacks_image(node), node.id);
                if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                    best = Some((rank, place));
                }
            };
            if self.demand.gpus == 0 {
                if given.is_empty() {
                    offer(node.free_cpu_milli().into(), on_cpu(node));
                }
                continue;
            }
            let mut asked: Vec<&str> = Vec::new();
            for gpu in &node.gpus {
                let class = &*gpu.facts.class;
                if asked.contains(&class) || !self.takes(class, &gpu.facts.model, given) {
                    continue;
                }
                asked.push(class);
                let place = fit::on_node(self.state, node, class, self.demand, &self.wall);
                if let Some((left, place)) = place {
                    offer(left, place);
                }
            }
        }
        best.map(|(_, place)| place)
    }
}

fn on_cpu(node: &Node) -> Place {
    Place {
        node: node.id,
        slices: Vec::new(),
        class: None,
        isolation: Isolation::Guarded,
        isolation_why: "no device is given; CPU, memory and time are limited by the node's kernel".into(),
    }
}
