//! Links: which of a node's free GPUs go together best, and which are best left to those who need more.

use crate::schedule::fleet::Gpu;
use crate::schedule::hardware::{Link, LinkPath};

/// Every set is weighed up to this number of them; beyond it sets are grown GPU by GPU.
const SETS_MAX: usize = 20_000;

/// How well a set is linked: its weakest link, then all of them, then how little it cuts off from the rest.
type Worth = (u32, u32, i64);

/// The best linked `wanted` of these, by their places in the list; none if they are fewer.
pub(super) fn choose(gpus: &[&Gpu], wanted: usize) -> Option<Vec<usize>> {
    if gpus.len() < wanted {
        return None;
    }
    let told = |gpu: &&Gpu| links(gpu).is_some_and(|links| !links.is_empty());
    if gpus.len() == wanted || !gpus.iter().any(told) {
        return Some((0..wanted).collect());
    }
    let links = Links::between(gpus);
    match sets(gpus.len(), wanted) {
        Some(_) => links.best_of_all(wanted),
        None => links.grown(wanted),
    }
}

fn links(gpu: &Gpu) -> Option<&[Link]> {
    Some(&gpu.facts.hardware.as_ref()?.links)
}

/// How fast data goes this way, roughly in GB/s; only the order matters.
fn speed(link: &Link) -> u32 {
    match link.path {
        LinkPath::Nvlink | LinkPath::Nvswitch | LinkPath::Xgmi => 200 + 25 * link.width.min(100),
        LinkPath::Board => 150,
        LinkPath::PciSwitch => 50,
        LinkPath::PciSwitches => 40,
        LinkPath::HostBridge => 30,
        LinkPath::NumaNode => 20,
        LinkPath::System => 10,
    }
}

/// How many sets of so many there are, if few enough to look at each.
fn sets(of: usize, wanted: usize) -> Option<usize> {
    (0..wanted).try_fold(1_usize, |sets, at| {
        let more = sets * (of - at) / (at + 1);
        (more <= SETS_MAX).then_some(more)
    })
}

/// The speed between each two.
struct Links {
    between: Vec<Vec<u32>>,
}

impl Links {
    fn between(gpus: &[&Gpu]) -> Links {
        let way = |from: &Gpu, to: &Gpu| {
            let links = links(from).unwrap_or_default();
            let there = links.iter().filter(|link| link.peer == to.facts.uuid);
            there.map(speed).max().unwrap_or(0)
        };
        let row = |from: &&Gpu| gpus.iter().map(|to| way(from, to).max(way(to, from))).collect();
        Links {
            between: gpus.iter().map(row).collect(),
        }
    }

    fn worth(&self, set: &[usize]) -> Worth {
        let pairs = || {
            set.iter()
                .enumerate()
                .flat_map(|(at, &one)| set[at + 1..].iter().map(move |&other| self.between[one][other]))
        };
        let inside: u32 = pairs().sum();
        let all: u32 = set.iter().flat_map(|&one| &self.between[one]).sum();
        (
            pairs().min().unwrap_or(0),
            inside,
            -(i64::from(all) - 2 * i64::from(inside)),
        )
    }

    /// The first of the best sets, in the order of their members.
    fn best_of_all(&self, wanted: usize) -> Option<Vec<usize>> {
        let all = self.between.len();
        let mut set: Vec<usize> = (0..wanted).collect();
        let mut best = (self.worth(&set), set.clone());
        loop {
            // The next set in order: the last member that can move on does, and those behind it follow.
            let Some(at) = (0..wanted).rev().find(|&at| set[at] < all - wanted + at) else {
                return Some(best.1);
            };
            set[at] += 1;
            for behind in at + 1..wanted {
                set[behind] = set[behind - 1] + 1;
            }
            let worth = self.worth(&set);
            if worth > best.0 {
                best = (worth, set.clone());
            }
        }
    }

    /// The best set among those grown from each GPU by whichever adds most.
    fn grown(&self, wanted: usize) -> Option<Vec<usize>> {
        let grow = |seed: usize| {
            let mut set = vec![seed];
            while set.len() < wanted {
                let others = (0..self.between.len()).filter(|at| !set.contains(at));
                let adds = |at: usize| -> u32 { set.iter().map(|&member| self.between[at][member]).sum() };
                let next = others.max_by_key(|&at| (adds(at), std::cmp::Reverse(at)));
                set.extend(next);
            }
            set.sort_unstable();
            (self.worth(&set), std::cmp::Reverse(set))
        };
        let best = (0..self.between.len()).map(grow).max();
        best.map(|(_, std::cmp::Reverse(set))| set)
    }
}
