//! What must be true of every state, recomputed from the jobs and allocations alone.

use std::collections::{BTreeMap, BTreeSet};

use tenure_domain::booking::plan::MAX_WINDOWS;
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::meter::{Amounts, Meter, Of};
use tenure_domain::money::Micros;
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::pass::QueueKey;
use tenure_domain::schedule::queue::Queue;
use tenure_domain::tenancy::budget::Cost;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Job, Phase};
use tenure_domain::workload::member::MemberPhase;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::workload::task::AHEAD;
use tenure_domain::{Event, State, Time};

mod market;

pub fn check(state: &State) {
    scopes_count_what_is_below(state);
    money_adds_up(state);
    devices_are_given_once(state);
    jobs_are_where_their_phase_says(state);
    tree_is_whole(state);
    use_is_within_what_was_given(state);
    volumes_are_where_they_are_counted(state);
    promises_are_of_those_who_wait(state);
    tasks_are_their_jobs(state);
    nothing_is_booked_twice(state);
    market::is_whole(state);
}

/// A service has no more replicas than it wants, but for those on their way out, and none of it ends but by a wish.
fn replicas_are_as_wanted(parent: &Job, living: &[&Job]) {
    let serving = parent.tasks.as_ref().and_then(|tasks| tasks.serving());
    let serving = serving.expect("a service");
    assert!(serving.wanted >= serving.replicas.min && serving.wanted <= serving.replicas.max);
    if parent.stop.is_some() {
        assert!(
            !living.is_empty(),
            "{} is stopping, and nothing is left of it",
            parent.id
        );
    }
    let fresh = living
        .iter()
        .filter(|task| task.phase == Phase::Queued && task.attempt == 1);
    assert!(fresh.count() <= AHEAD, "{} floods the queue", parent.id);
    let begun = living.iter().any(|task| task.phase != Phase::Queued);
    assert!(
        !begun || parent.admission.is_some(),
        "{} is not admitted",
        parent.id
    );
    let charged: i64 = living.iter().map(|task| task.charged.money.0).sum();
    assert!(
        parent.charged.money.0 >= charged,
        "{}: what its replicas cost is its cost",
        parent.id
    );
}

/// Every piece of a job of tasks is in one place; its tasks know it and it knows them; few of them wait.
fn tasks_are_their_jobs(state: &State) {
    for job in state.jobs.values().filter(|job| job.parent().is_some()) {
        let task = job.spec.task.as_ref().expect("a task");
        let parent = state
            .jobs
            .get(&task.of)
            .expect("a task's job lives as long as it does");
        assert_eq!(parent.owner, job.owner);
        let living = &parent.tasks.as_ref().expect("a job of tasks").living;
        assert_eq!(living.get(&task.number), Some(&job.id), "{} is not known", job.id);
    }
    for parent in state.jobs.values() {
        let Some(tasks) = &parent.tasks else { continue };
        let living: Vec<&Job> = tasks.jobs(&state.jobs).collect();
        assert_eq!(living.len(), tasks.living.len(), "{}: a task is gone", parent.id);
        assert!(living.iter().all(|task| task.parent() == Some(parent.id)));
        if tasks.serving().is_some() {
            replicas_are_as_wanted(parent, &living);
            continue;
        }
        let pieces = tasks.pieces();
        let with_tasks = living.iter().filter_map(|task| task.spec.task.as_ref());
        let with_tasks = with_tasks.map(|task| task.work.span());
        let again = pieces.again.iter().map(|again| again.span);
        let mut places: Vec<u64> = with_tasks
            .chain(again)
            .chain(pieces.done.iter())
            .chain(pieces.failed.iter())
            .flat_map(|span| span.first..span.end())
            .chain(pieces.given..pieces.total)
            .collect();
        places.sort_unstable();
        if parent.stop.is_none() {
            let all: Vec<u64> = (0..pieces.total).collect();
            assert_eq!(places, all, "{}: a piece is lost, or there twice", parent.id);
            let left = !tasks.living.is_empty() || !tasks.is_given_out();
            assert!(left, "{} has nothing to do and has not ended", parent.id);
        } else {
            assert!(
                !living.is_empty(),
                "{} is stopping, and nothing is left of it",
                parent.id
            );
            places.dedup();
            assert!(places.len() as u64 <= pieces.total);
        }
        let cut = parent.spec.tasks.expect("it says how it is cut");
        assert!(
            living.len() <= cut.parallel() as usize,
            "{}: too many tasks",
            parent.id
        );
        let fresh = |task: &&&Job| task.phase == Phase::Queued && task.attempt == 1;
        assert!(
            living.iter().filter(fresh).count() <= AHEAD,
            "{} floods the queue",
            parent.id
        );
        let begun = living.iter().any(|task| task.phase != Phase::Queued);
        assert!(
            !begun || parent.admission.is_some(),
            "{} is not admitted",
            parent.id
        );
        let charged: i64 = living.iter().map(|task| task.charged.money.0).sum();
        assert!(
            parent.charged.money.0 >= charged + pieces.done_micros,
            "{}: what its tasks cost is its cost",
            parent.id
        );
        if let Some(admission) = &parent.admission {
            let frames = parent.spec.frames();
            let made = if frames > 0 { pieces.done.count() } else { 0 };
            assert_eq!(admission.hold.left.frames, frames - made, "{}: frames", parent.id);
            assert_eq!(admission.hold.left.money.0, 0);
        }
    }
}

/// What is derived from windows is what they say, and no GPU is two windows' at once.
fn nothing_is_booked_twice(state: &State) {
    let mut live = BTreeSet::new();
    for booking in state.bookings.iter() {
        assert!(state.tree.get(booking.scope).is_some() && booking.scope != ScopeId::Platform);
        assert_eq!(
            booking.account,
            state.account_of(booking.scope),
            "a booking's tenant pays for it"
        );
        assert!(
            !booking.windows.is_empty() || booking.more,
            "what has no window is over"
        );
        let order = booking.windows.iter().map(|window| window.start);
        assert!(order.is_sorted(), "{}: windows are in order", booking.id);
        assert!(booking.windows.len() <= MAX_WINDOWS, "{}: too many", booking.id);
        for window in &booking.windows {
            assert!(window.start < window.end && !window.seats.is_empty());
            for gpu in window.gpus.iter().filter(|_| window.is_open()) {
                assert!(live.insert(*gpu), "{gpu:?} is in two windows");
            }
        }
    }
    if state.bookings.is_empty() {
        return;
    }
    let text = serde_json::to_string(&state.bookings).expect("bookings encode");
    let mut again = state.clone();
    again.bookings = serde_json::from_str(&text).expect("bookings decode");
    again.rebuild_indexes();
    assert_eq!(again.bookings, state.bookings, "indexes are what the windows say");
}

/// At no moment are more GPUs of a node booked than it ever had, counted window by window.
pub fn seats_are_there(state: &State, had: &BTreeMap<(NodeId, Box<str>), i64>) {
    let mut steps: BTreeMap<(NodeId, &str), Vec<(Time, i64)>> = BTreeMap::new();
    for window in state.bookings.iter().flat_map(|booking| &booking.windows) {
        for seat in &window.seats {
            let steps = steps.entry((seat.node, &seat.class)).or_default();
            let gpus = i64::from(seat.gpus);
            steps.extend([(window.start, gpus), (window.end, -gpus)]);
        }
    }
    for ((node, class), mut steps) in steps {
        let most = had.get(&(node, class.into())).copied().unwrap_or(0);
        // What ends goes before what begins at that moment.
        steps.sort_unstable();
        let mut booked = 0;
        for (at, change) in steps {
            booked += change;
            assert!(
                booked <= most,
                "{node}: {booked} of {most} {class} are booked at {at:?}"
            );
        }
    }
}

/// Every promise is of one queued job, on a known node, and who runs is known by tenant and priority.
fn promises_are_of_those_who_wait(state: &State) {
    let mut jobs = BTreeSet::new();
    for promise in state.calendar.iter() {
        assert!(jobs.insert(promise.job), "two promises to {}", promise.job);
        let phase = state.jobs[&promise.job].phase;
        assert!(phase == Phase::Queued || promise.moves() && phase == Phase::Stopping);
        let members = state.jobs[&promise.job].spec.demand.nodes as usize;
        assert_eq!(promise.rooms().count(), members, "a gang is promised room whole");
        for (node, slices) in promise.rooms() {
            assert!(state.fleet.node(node).is_some());
            assert!(state.calendar.on(node).any(|kept| kept == promise));
            assert_eq!(slices.len(), state.jobs[&promise.job].spec.demand.gpus as usize);
        }
        assert_eq!(promise.evicts(), promise.admission.is_some());
    }
    let mut running: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let runs = |job: &&Job| job.phase == Phase::Running && !job.is_parent();
    for job in state.jobs.values().filter(runs) {
        let tenant = state.tree.tenant_of(ScopeId::User(job.owner));
        running
            .entry((tenant, job.spec.priority))
            .or_default()
            .insert(job.id);
    }
    assert_eq!(state.running, running);
}

/// Volumes are of living scopes unless removed, names are their own, and nodes count what is bound to them.
fn volumes_are_where_they_are_counted(state: &State) {
    let mut names = BTreeSet::new();
    for volume in state.volumes.iter() {
        assert!(
            !volume.removed || volume.node.is_some(),
            "what nothing has to erase is forgotten"
        );
        if volume.removed {
            assert_eq!(state.volumes.jobs_of(volume.id).count(), 0);
            continue;
        }
        assert!(state.tree.get(volume.scope).is_some() && volume.scope != ScopeId::Platform);
        assert!(names.insert((volume.scope, &volume.name)), "two of one name");
        assert_eq!(state.volumes.named(volume.scope, &volume.name), Some(volume));
    }
    for node in state.fleet.nodes() {
        let bound = state.volumes.iter().filter(|volume| volume.node == Some(node.id));
        assert_eq!(
            node.used_volume_mib,
            bound.map(|volume| volume.size_mib).sum::<u64>(),
            "{}: volume space",
            node.name
        );
    }
    for job in state.jobs.values() {
        assert_eq!(job.volumes.len(), job.spec.volumes.len());
        for id in &job.volumes {
            let volume = state.volumes.find(*id).expect("a live job's volumes are there");
            assert!(state.volumes.jobs_of(*id).any(|named| named == job.id));
            let tenant = |scope| state.tree.tenant_of(scope);
            assert_eq!(
                tenant(volume.scope),
                tenant(ScopeId::User(job.owner)),
                "a job has volumes of its own tenant alone"
            );
            for allocation in job.allocations().filter_map(|id| state.fleet.allocation(id)) {
                assert_eq!(
                    volume.node,
                    Some(allocation.node),
                    "a job is where its volumes are"
                );
            }
        }
    }
}

/// Whatever nodes say: no allocation's devices worked longer than it ran, or held more than its slice.
fn use_is_within_what_was_given(state: &State) {
    for allocation in state.fleet.allocations() {
        let Some(used) = &allocation.used else { continue };
        let most_ms = allocation.metered_ms * allocation.slices.len() as u64;
        assert!(used.busy_ms <= most_ms && used.throttled_ms <= most_ms && used.waited_ms <= most_ms);
        let largest = allocation.slices.iter().map(|slice| slice.vram_mib).max();
        // What was made smaller may have held more before.
        assert!(
            allocation.resized || Some(used.peak_vram_mib) <= largest,
            "{used:?} of {:?}",
            allocation.slices
        );
        let job = state.jobs[&allocation.job]
            .usage
            .expect("a job has its allocation's use");
        assert!(job.busy_ms >= used.busy_ms && job.peak_vram_mib >= used.peak_vram_mib);
    }
}

fn ancestors(state: &State, owner: UserId) -> Vec<ScopeId> {
    let mut chain = vec![ScopeId::User(owner)];
    while let Some(parent) = state
        .tree
        .get(chain[chain.len() - 1])
        .expect("an owner's scopes exist")
        .parent
    {
        chain.push(parent);
    }
    assert_eq!(
        chain.last(),
        Some(&ScopeId::Platform),
        "every chain ends at the platform"
    );
    chain
}

fn scopes_count_what_is_below(state: &State) {
    let mut used: BTreeMap<ScopeId, Amounts> = BTreeMap::new();
    let mut held: BTreeMap<(ScopeId, Of), Cost> = BTreeMap::new();
    for job in state.jobs.values() {
        let Some(admission) = &job.admission else { continue };
        for scope in ancestors(state, job.owner) {
            let sums = used.entry(scope).or_default();
            for (meter, amount) in admission.amounts.iter() {
                sums.set(meter.clone(), sums.get(meter).unwrap_or(0) + amount);
            }
            let hold = &admission.hold;
            let groups = [
                Some(Of::All),
                hold.class.clone().map(Of::Class),
                hold.sku.clone().map(Of::Sku),
                hold.kind.map(|kind| {
                    let meter: Meter = format!("jobs@kind:{}", kind.as_str()).parse().expect("a meter");
                    meter.of
                }),
            ];
            for of in groups.into_iter().flatten() {
                let sum = held.entry((scope, of)).or_default();
                sum.money.0 += hold.left_at(scope).money.0;
                sum.gpu_ms += hold.left.gpu_ms;
                sum.frames += hold.left.frames;
            }
        }
    }
    for booking in state.bookings.iter() {
        let mut next = Some(booking.scope);
        while let Some(scope) = next {
            for of in booking.counted_as() {
                let sum = held.entry((scope, of)).or_default();
                sum.money.0 += booking.held().money.0;
                sum.gpu_ms += booking.held().gpu_ms;
            }
            next = state.tree.get(scope).expect("a living scope").parent;
        }
    }
    for (scope, of, money) in market::held(state) {
        held.entry((scope, of)).or_default().money.0 += money;
    }
    for volume in state.volumes.iter().filter(|volume| !volume.removed) {
        let mut next = Some(volume.scope);
        while let Some(scope) = next {
            let sums = used.entry(scope).or_default();
            sums.add(&[("volume_mib".parse().expect("a meter"), volume.size_mib)].into());
            next = state.tree.get(scope).expect("a living scope").parent;
        }
    }
    for scope in state.tree.iter() {
        assert_eq!(
            scope.used,
            used.remove(&scope.id).unwrap_or_default(),
            "{}: use is the sum of admitted jobs and volumes below",
            scope.id
        );
        for (of, period, spend) in scope.spending.iter() {
            let sum = held.get(&(scope.id, of.clone())).copied().unwrap_or_default();
            assert_eq!(
                spend.held,
                sum,
                "{} {of} {}: held is the sum of holds below",
                scope.id,
                period.as_str()
            );
            assert!(spend.spent.money.0 >= 0);
        }
    }
    for ((scope, of), cost) in held {
        let counted = state
            .tree
            .get(scope)
            .is_some_and(|scope| scope.spending.iter().filter(|(o, ..)| **o == of).count() == 4);
        assert!(
            counted || cost == Cost::default(),
            "{scope} {of}: a hold is counted in all four periods"
        );
    }
}

fn money_adds_up(state: &State) {
    assert_eq!(state.accounts.sum(), 0, "postings sum to zero");
    let mut held: BTreeMap<AccountId, i64> = BTreeMap::new();
    for job in state.jobs.values() {
        if let Some(admission) = &job.admission {
            assert!(admission.hold.left.money.0 >= 0);
            assert_eq!(
                admission.hold.account,
                state.account_of(ScopeId::User(job.owner)),
                "a job's tenant pays for it"
            );
            *held.entry(admission.hold.account).or_default() += admission.hold.left.money.0;
        }
    }
    for booking in state.bookings.iter() {
        *held.entry(booking.account).or_default() += booking.held().money.0;
    }
    for bid in state.market.bids() {
        *held.entry(AccountId::Tenant(bid.tenant)).or_default() += bid.held().0;
    }
    for (account, balance) in state.accounts.iter() {
        assert_eq!(
            balance.held,
            Micros(held.remove(&account).unwrap_or(0)),
            "{account}: held is the sum of holds"
        );
    }
    assert!(held.values().all(|&money| money == 0));
    let total = state.tree.get(ScopeId::Platform).map(|platform| {
        platform
            .spending
            .at(&Of::All, tenure_domain::time::Period::Total, Default::default())
    });
    if let Some(total) = total {
        assert_eq!(
            total.spent.money.0,
            state.accounts.get(AccountId::Revenue).posted.0 + state.market.paid_out().0,
            "all that was spent was earned, by the platform or by sellers"
        );
    }
}

fn devices_are_given_once(state: &State) {
    let mut uuids = BTreeSet::new();
    let mut seen: BTreeSet<AllocationId> = BTreeSet::new();
    for node in state.fleet.nodes() {
        let here: Vec<_> = state
            .fleet
            .allocations()
            .filter(|allocation| allocation.node == node.id)
            .collect();
        assert_eq!(
            node.allocations,
            here.iter().map(|allocation| allocation.id).collect(),
            "{}: allocations",
            node.name
        );
        seen.extend(&node.allocations);
        assert_eq!(
            node.used_cpu_milli,
            here.iter().map(|allocation| allocation.cpu_milli).sum::<u32>()
        );
        assert_eq!(
            node.used_memory_mib,
            here.iter().map(|allocation| allocation.memory_mib).sum::<u64>()
        );
        assert!(
            node.status != NodeStatus::Lost || here.is_empty(),
            "nothing runs on a lost node"
        );
        for gpu in &node.gpus {
            if gpu.present && node.status != NodeStatus::Lost {
                assert!(
                    uuids.insert(gpu.facts.uuid.clone()),
                    "GPU {} is on two nodes",
                    gpu.facts.uuid
                );
            }
            let slices: Vec<_> = here
                .iter()
                .filter(|allocation| !allocation.paused)
                .flat_map(|a| a.slices.iter().map(move |slice| (a.id, slice)))
                .filter(|(_, slice)| slice.gpu == gpu.id)
                .collect();
            assert_eq!(
                gpu.used_vram_mib,
                slices.iter().map(|(_, slice)| slice.vram_mib).sum::<u64>(),
                "{}",
                gpu.id
            );
            assert_eq!(
                gpu.used_permille,
                slices
                    .iter()
                    .map(|(_, slice)| u32::from(slice.compute_permille))
                    .sum::<u32>(),
                "{}",
                gpu.id
            );
            let holders: BTreeSet<AllocationId> = slices.iter().map(|(id, _)| *id).collect();
            assert_eq!(gpu.holders.iter().copied().collect::<BTreeSet<_>>(), holders);
            assert_eq!(gpu.holders.len(), holders.len());
            assert!(
                gpu.used_permille <= 1000 && gpu.used_vram_mib <= gpu.facts.vram_mib,
                "{} is over-committed",
                gpu.id
            );
            let parts: Vec<_> = slices
                .iter()
                .filter_map(|(_, slice)| slice.part.as_ref())
                .collect();
            assert!(
                parts.is_empty() || parts.len() == slices.len(),
                "{}: a share beside a part",
                gpu.id
            );
            for (index, part) in parts.iter().enumerate() {
                let apart = |other: &&tenure_domain::schedule::hardware::PartChoice| {
                    !other.placement.overlaps(part.placement)
                };
                assert!(
                    parts[index + 1..].iter().all(apart),
                    "{}: {parts:?} overlap",
                    gpu.id
                );
            }
            assert!(
                gpu.present || !gpu.holders.is_empty() || gpu.quarantine.is_some(),
                "a GPU that is gone, free and not quarantined is forgotten"
            );
        }
        let slices = here
            .iter()
            .filter(|allocation| !allocation.paused)
            .flat_map(|allocation| &allocation.slices);
        assert!(
            slices.into_iter().all(|slice| node.gpu(slice.gpu).is_some()),
            "slices are of known GPUs"
        );
    }
    assert_eq!(
        seen.len(),
        state.fleet.allocations().count(),
        "every allocation stands on a node"
    );
}

fn waits(job: &Job) -> bool {
    if job.is_parent() {
        return false;
    }
    job.phase == Phase::Queued || (job.phase == Phase::Paused && job.pause.is_none())
}

fn jobs_are_where_their_phase_says(state: &State) {
    let queue: BTreeSet<QueueKey> = state
        .jobs
        .values()
        .filter(|job| waits(job))
        .map(|job| QueueKey(std::cmp::Reverse(job.spec.priority), job.id))
        .collect();
    assert_eq!(
        state.queue.iter().collect::<BTreeSet<_>>(),
        queue,
        "the queue is the waiting jobs"
    );
    let anew: Queue = state.jobs.values().collect();
    assert_eq!(state.queue, anew, "and every job is in its line");
    let mut by_owner: BTreeMap<UserId, BTreeSet<_>> = BTreeMap::new();
    for (id, job) in state.jobs.iter() {
        assert_eq!(*id, job.id);
        by_owner.entry(job.owner).or_default().insert(*id);
        let living: Vec<_> = job
            .living()
            .map(|(number, member)| {
                let allocation = state.fleet.allocation(member.allocation);
                (number, member, allocation.expect("a living allocation"))
            })
            .collect();
        if job.is_parent() {
            assert!(job.members.is_empty(), "{id}: its tasks have what it needs");
            continue;
        }
        let (queued, paused) = (
            job.phase == Phase::Queued,
            living.iter().any(|(.., allocation)| allocation.paused),
        );
        assert_eq!(
            job.admission.is_none(),
            queued || paused,
            "{id}: what waits for GPUs holds nothing else"
        );
        assert_eq!(
            living.is_empty(),
            queued,
            "{id}: only what is queued has no place"
        );
        gangs_are_whole(job);
        for (number, member, allocation) in &living {
            assert_eq!((allocation.job, allocation.attempt), (*id, job.attempt));
            assert_eq!((allocation.member, allocation.node), (*number, member.node));
        }
        assert_eq!(
            paused,
            job.phase == Phase::Paused || (paused && job.phase == Phase::Stopping),
            "{id}: what is paused has no GPUs"
        );
        assert!(job.tries() <= job.spec.max_attempts && job.tries() >= 1);
        assert!(
            !waits(job) || job.stop.is_none(),
            "what waits is not being stopped"
        );
    }
    assert_eq!(state.jobs_by_owner, by_owner);
    assert_eq!(
        state.fleet.allocations().count(),
        state.jobs.values().flat_map(Job::allocations).count()
    );
}

/// All members are placed or none; none goes on where one did not end well; the job is as far as the last of them.
fn gangs_are_whole(job: &Job) {
    let id = job.id;
    let placed = job.members.len();
    let wanted = job.spec.demand.nodes as usize;
    assert!(
        placed == 0 || placed == wanted,
        "{id} has {placed} of {wanted} members"
    );
    let mut ends = job.members.iter().filter_map(|member| member.end.as_ref());
    assert!(
        job.stop.is_some() || ends.all(|end| end.is_success()),
        "{id} goes on without a member"
    );
    assert!(
        job.failed.is_none() || job.stop.is_some(),
        "{id} failed and is not stopped"
    );
    let least = job.members.iter().map(|member| member.phase).min();
    match job.phase {
        Phase::Running => assert!(least >= Some(MemberPhase::Running), "{id} runs in part"),
        Phase::Starting => assert!(least >= Some(MemberPhase::Starting), "{id} starts in part"),
        _ => {}
    }
    for member in &job.members {
        assert_eq!(member.phase == MemberPhase::Ended, member.end.is_some());
    }
}

fn tree_is_whole(state: &State) {
    for scope in state.tree.iter() {
        match scope.parent {
            None => assert_eq!(scope.id, ScopeId::Platform),
            Some(parent) => {
                assert!(scope.id.level().fits_under(parent.level()));
                assert_eq!(
                    state.tree.child_named(parent, &scope.name),
                    Some(scope.id),
                    "siblings have names of their own"
                );
            }
        }
        for user in scope.roles.keys() {
            let home = state.tree.tenant_of(ScopeId::User(*user));
            assert!(
                state.tree.get(ScopeId::User(*user)).is_some(),
                "roles are of living users"
            );
            assert!(
                home.is_none() || home == state.tree.tenant_of(scope.id),
                "a tenant's user holds roles inside that tenant alone"
            );
        }
    }
    assert!(
        state
            .secrets
            .keys()
            .all(|(scope, _)| state.tree.get(*scope).is_some()),
        "secrets are of living scopes"
    );
}

/// Nobody above an admitted job uses more than its quota; asked when a job is admitted, as a quota may be lowered below use.
pub fn quotas_hold(state: &State, admitted: &Event) {
    let Event::JobAdmitted { job, admission } = admitted else {
        return;
    };
    for scope in ancestors(state, state.jobs[job].owner) {
        let scope = state.tree.get(scope).expect("a living scope");
        for (meter, limit) in scope.limits().iter() {
            let used = scope.used.get(meter).unwrap_or(0);
            assert!(
                used <= limit || admission.amounts.get(meter).unwrap_or(0) == 0,
                "{} is over its quota of {meter}: {used} of {limit}",
                scope.id
            );
        }
    }
}

/// Two tenants share a device at `fenced` or above on both sides, or by consent of both; asked when a job is placed.
pub fn neighbours_agree(state: &State, placed: &Event) {
    let Event::JobPlaced {
        job,
        allocation,
        others,
    } = placed
    else {
        return;
    };
    for allocation in [allocation].into_iter().chain(others) {
        neighbours_of_one_agree(state, *job, allocation);
    }
}

fn neighbours_of_one_agree(state: &State, job: JobId, allocation: &Allocation) {
    let tenant = |job: &Job| state.tree.tenant_of(ScopeId::User(job.owner));
    let words = |job: &Job| {
        let chain: Vec<_> = ancestors(state, job.owner)
            .into_iter()
            .filter_map(|id| state.tree.get(id))
            .collect();
        let consent = chain
            .iter()
            .find_map(|scope| scope.policy.share_guarded)
            .unwrap_or(false);
        let least = chain
            .iter()
            .filter_map(|scope| scope.policy.min_isolation)
            .max()
            .unwrap_or(Isolation::Guarded);
        (consent, least.max(job.spec.demand.isolation))
    };
    let mine = &state.jobs[&job];
    let node = state.fleet.node(allocation.node).expect("a known node");
    if !allocation.slices.is_empty() {
        assert!(
            allocation.isolation >= words(mine).1,
            "{job}: weaker than its policy or its demand"
        );
    }
    for slice in &allocation.slices {
        let gpu = node.gpu(slice.gpu).expect("a known GPU");
        assert!(gpu.present && node.status == NodeStatus::Up);
        for other in gpu.holders.iter().filter(|&&holder| holder != allocation.id) {
            let neighbour = state.fleet.allocation(*other).expect("a living allocation");
            let theirs = &state.jobs[&neighbour.job];
            let fenced =
                allocation.isolation >= Isolation::Fenced && neighbour.isolation >= Isolation::Fenced;
            let agreed = words(mine).0 && words(theirs).0;
            assert!(
                tenant(mine) == tenant(theirs) || fenced || agreed,
                "two tenants share {} without walls or consent",
                gpu.id
            );
            assert!(
                neighbour.isolation >= words(mine).1 && allocation.isolation >= words(theirs).1,
                "a neighbour is too weak"
            );
            assert!(
                allocation.isolation != Isolation::Exclusive,
                "exclusive and shared at once"
            );
        }
    }
}

pub fn round_trips(event: &Event) {
    let text = serde_json::to_string(event).expect("events encode");
    let back: Event = serde_json::from_str(&text).expect("events decode");
    assert_eq!(&back, event, "{text}");
}

pub fn snapshot_is_faithful(state: &State) {
    let text = serde_json::to_string(state).expect("a state encodes");
    let mut back: State = serde_json::from_str(&text).expect("a state decodes");
    back.rebuild_indexes();
    assert!(back == *state, "a snapshot gives back the state it was taken of");
}
