//! Whom to evict: by example, and what holds of every choice.

use super::*;
use proptest::prelude::*;

const NOW: Time = Time(100 * 3_600_000);

fn running(job: u64, gpus: u32) -> Running {
    Running {
        job: JobId(job),
        priority: Priority::Normal,
        gpus,
        started: Time(0),
        safe: Time(0),
        suspendable: false,
        restart_ms: 60_000,
        cost_gpu_s: 1e6,
        borrows: true,
        evictions: 0,
        last_evictions: Vec::new(),
        aged: false,
    }
}

fn evictor(gpus: u32) -> Evictor {
    Evictor {
        priority: Priority::Normal,
        gpus,
        cost_gpu_s: 100.0,
        nominal: false,
        aged: false,
    }
}

fn choose(evictor: &Evictor, free: u32, running: &[Running]) -> Option<Vec<u64>> {
    victims(evictor, free, running, &Bounds::default(), NOW)
        .map(|jobs| jobs.iter().map(|job| job.0).collect())
}

#[test]
fn nobody_is_evicted_when_the_evictor_would_still_not_fit() {
    assert_eq!(choose(&evictor(8), 1, &[running(1, 4), running(2, 2)]), None);
    assert_eq!(
        choose(&evictor(8), 2, &[running(1, 4), running(2, 2)]),
        Some(vec![2, 1])
    );
}

#[test]
fn who_just_checkpointed_or_can_be_suspended_goes_first() {
    let stale = running(1, 1);
    let fresh = Running {
        safe: Time(NOW.0 - 60_000),
        ..running(2, 1)
    };
    let suspendable = Running {
        suspendable: true,
        ..running(3, 1)
    };
    assert_eq!(
        choose(&evictor(1), 0, &[stale.clone(), fresh.clone()]),
        Some(vec![2])
    );
    assert_eq!(
        choose(&evictor(1), 0, &[stale, fresh, suspendable]),
        Some(vec![3])
    );
}

#[test]
fn lower_priority_goes_first_and_higher_never() {
    let low = Running {
        priority: Priority::Low,
        ..running(1, 1)
    };
    let high = Running {
        priority: Priority::High,
        ..running(2, 1)
    };
    assert_eq!(
        choose(&evictor(1), 0, &[high.clone(), running(3, 1), low]),
        Some(vec![1])
    );
    assert_eq!(choose(&evictor(1), 0, &[high]), None);
}

#[test]
fn a_job_runs_its_guaranteed_time_and_is_not_evicted_without_end() {
    let at_start = Running {
        started: Time(NOW.0 - 4 * 60_000),
        ..running(1, 1)
    };
    let slow_restart = Running {
        restart_ms: 600_000,
        started: Time(NOW.0 - 15 * 60_000),
        ..running(2, 1)
    };
    let often = Running {
        evictions: 256,
        ..running(3, 1)
    };
    let lately = Running {
        last_evictions: vec![Time(NOW.0 - 1); 4],
        ..running(4, 1)
    };
    for job in [at_start, slow_restart, often, lately] {
        assert_eq!(choose(&evictor(1), 0, &[job]), None);
    }
}

#[test]
fn equals_do_not_evict_one_another() {
    let near = Running {
        cost_gpu_s: 250.0,
        ..running(1, 1)
    };
    assert_eq!(choose(&evictor(1), 0, &[near]), None);
}

#[test]
fn lent_capacity_is_reclaimed_and_nominal_use_is_not() {
    let cheap = Running {
        cost_gpu_s: 1.0,
        ..running(1, 1)
    };
    let owner = Evictor {
        nominal: true,
        ..evictor(1)
    };
    assert_eq!(choose(&owner, 0, std::slice::from_ref(&cheap)), Some(vec![1]));
    let within = Running {
        borrows: false,
        ..running(2, 1)
    };
    assert_eq!(choose(&evictor(1), 0, std::slice::from_ref(&within)), None);
}

#[test]
fn the_aged_stay() {
    let aged = Running {
        aged: true,
        ..running(1, 1)
    };
    assert_eq!(choose(&evictor(1), 0, &[aged]), None);
}

#[test]
fn whoever_became_needless_is_spared() {
    let small = Running {
        safe: NOW,
        ..running(1, 1)
    };
    let large = running(2, 8);
    assert_eq!(choose(&evictor(8), 0, &[small, large]), Some(vec![2]));
}

fn any_running() -> impl Strategy<Value = Running> {
    (
        1u64..1000,
        1u32..9,
        0i64..200,
        any::<bool>(),
        any::<bool>(),
        0usize..4,
        1.0f64..1e6,
        0u32..300,
    )
        .prop_map(
            |(job, gpus, hours, suspendable, borrows, priority, cost_gpu_s, evictions)| Running {
                started: Time(NOW.0 - hours * 1_800_000),
                suspendable,
                borrows,
                priority: Priority::ALL[priority],
                cost_gpu_s,
                evictions,
                ..running(job, gpus)
            },
        )
}

proptest! {
    /// Two jobs that could each evict the other would take turns for ever.
    #[test]
    fn no_two_jobs_evict_one_another(a in any_running(), b in any_running()) {
        let wants = |job: &Running| Evictor {
            priority: job.priority, gpus: job.gpus, cost_gpu_s: job.cost_gpu_s, nominal: !job.borrows, aged: job.aged,
        };
        let bounds = Bounds::default();
        prop_assert!(!(a.may_give_way(&wants(&b), &bounds, NOW) && b.may_give_way(&wants(&a), &bounds, NOW)));
    }

    #[test]
    fn the_chosen_make_room_are_needed_and_allowed(
        mut jobs in proptest::collection::vec(any_running(), 0..12), gpus in 1u32..20, free in 0u32..8,
    ) {
        for (n, job) in jobs.iter_mut().enumerate() { job.job = JobId(n as u64); }
        let (evictor, bounds) = (evictor(gpus), Bounds::default());
        let allowed: u32 = jobs.iter().filter(|job| job.may_give_way(&evictor, &bounds, NOW)).map(|job| job.gpus).sum();
        match victims(&evictor, free, &jobs, &bounds, NOW) {
            None => prop_assert!(free + allowed < gpus),
            Some(chosen) => {
                let of = |id: &JobId| jobs.iter().find(|job| job.job == *id).unwrap();
                let freed: u32 = chosen.iter().map(|id| of(id).gpus).sum();
                prop_assert!(free + freed >= gpus);
                for id in &chosen {
                    prop_assert!(of(id).may_give_way(&evictor, &bounds, NOW));
                    prop_assert!(free + freed - of(id).gpus < gpus, "{id} is needless");
                }
            }
        }
    }
}
