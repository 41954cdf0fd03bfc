//! Loads of every sort against the scaler, second by second, and a naive one beside it.

use super::*;

fn service(in_flight: u32, idle_s: u32) -> Service {
    Service {
        in_flight,
        idle_s,
        ..Service::default()
    }
}

/// A service under a load, second by second; replicas are ready `start_s` after they are wanted.
struct Run {
    service: Service,
    replicas: Replicas,
    scaler: Scaler,
    wanted: u32,
    start_s: usize,
    history: Vec<u32>,
}

impl Run {
    fn new(service: Service, min: u32, max: u32) -> Run {
        Run {
            service,
            replicas: Replicas { min, max },
            scaler: Scaler::default(),
            wanted: min,
            start_s: 2,
            history: vec![],
        }
    }

    /// One second in which so many requests were there all the time.
    fn second(&mut self, requests: u32, busy_permille: Option<u16>) -> u32 {
        let started = self
            .history
            .iter()
            .rev()
            .take(self.start_s)
            .copied()
            .min()
            .unwrap_or(0);
        let ready = started.min(self.wanted);
        let in_flight = requests.min(ready * self.service.in_flight);
        let sample = Sample {
            at: Time(self.history.len() as i64 * 1000),
            arrivals: requests,
            demand_milli: u64::from(requests) * 1000,
            in_flight,
            waiting: requests - in_flight,
            ready,
            busy_permille,
        };
        let wanted = self
            .scaler
            .wanted(&self.service, self.replicas, self.wanted, sample);
        self.wanted = wanted.replicas;
        self.history.push(self.wanted);
        self.wanted
    }

    fn changes(&self, from: usize) -> usize {
        self.history[from..]
            .windows(2)
            .filter(|pair| pair[0] != pair[1])
            .count()
    }
}

/// As many as this moment needs, and no memory: what flaps.
fn naive(requests: u32, each: u32) -> u32 {
    requests.div_ceil(each)
}

#[test]
fn the_first_request_starts_a_replica_and_silence_gives_it_back() {
    let mut run = Run::new(service(4, 30), 0, 8);
    for _ in 0..60 {
        assert_eq!(run.second(0, None), 0);
    }
    assert_eq!(run.second(1, None), 1, "at once");
    let down = (1..120).find(|_| run.second(0, None) == 0);
    assert!(down.is_some_and(|after| (28..=36).contains(&after)), "{down:?}");
}

#[test]
fn a_burst_is_met_within_seconds_and_only_as_far_as_allowed() {
    let mut run = Run::new(service(4, 30), 1, 6);
    for _ in 0..40 {
        run.second(1, None);
    }
    assert_eq!(run.wanted, 1);
    let up = (1..10).find(|_| run.second(16, None) >= 4);
    assert!(
        up.is_some_and(|after| after <= 2),
        "those who wait twice are enough: {up:?}"
    );
    for _ in 0..10 {
        run.second(1000, None);
    }
    assert_eq!(run.wanted, 6);
}

#[test]
fn a_load_that_comes_and_goes_settles() {
    let mut run = Run::new(service(4, 20), 0, 16);
    let load = |second: usize| if second % 6 < 3 { 24 } else { 0 };
    let mut by_the_moment = vec![];
    for second in 0..300 {
        run.second(load(second), None);
        by_the_moment.push(naive(load(second), 4));
    }
    let flaps = by_the_moment.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(flaps > 90, "the load makes a naive scaler flap: {flaps}");
    assert_eq!(run.changes(30), 0, "{:?}", run.history);
    assert!(run.wanted >= 4, "and its peaks are met");
}

#[test]
fn noise_around_a_border_changes_nothing() {
    let mut run = Run::new(service(4, 30), 0, 16);
    let mut seed = 7u64;
    for _ in 0..1200 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Around 12.8, where four replicas become five.
        run.second(11 + (seed >> 33) as u32 % 5, None);
    }
    assert!(run.changes(60) <= 4, "{}", run.changes(60));
}

#[test]
fn a_slow_climb_is_followed_and_a_slow_fall_too() {
    let mut run = Run::new(service(4, 10), 0, 32);
    for requests in (0..64).chain((0..64).rev()) {
        for _ in 0..5 {
            run.second(requests, None);
        }
    }
    let top = run.history.iter().copied().max();
    assert!(top.is_some_and(|top| (16..=22).contains(&top)), "{top:?}");
    for _ in 0..20 {
        run.second(0, None);
    }
    assert_eq!(run.wanted, 0);
    // Up one way, down one way.
    let turns = run
        .history
        .windows(2)
        .filter(|pair| pair[0] != pair[1])
        .map(|pair| pair[1] > pair[0])
        .collect::<Vec<_>>();
    let changes_of_mind = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes_of_mind, 1, "{:?}", run.history);
}

#[test]
fn slices_that_are_used_up_ask_for_one_more_and_keep_what_works() {
    let mut run = Run::new(service(8, 10), 1, 4);
    for _ in 0..20 {
        run.second(4, Some(500));
    }
    assert_eq!(run.wanted, 1);
    for _ in 0..8 {
        run.second(5, Some(1000));
    }
    assert!(run.wanted >= 2, "{:?}", run.history);
    // Two slices with nine tenths to do: one would not have enough, whatever the number of requests.
    let before = run.wanted;
    for _ in 0..40 {
        run.second(1, Some(900));
    }
    assert!(run.wanted >= 2 && run.wanted <= before);
    for _ in 0..40 {
        run.second(1, Some(100));
    }
    assert_eq!(run.wanted, 1);
}

#[test]
fn a_new_leader_gives_nothing_back_before_it_knows() {
    let mut run = Run::new(service(4, 30), 0, 8);
    run.wanted = 5;
    for _ in 0..29 {
        assert_eq!(run.second(0, None), 5);
    }
    (0..4).for_each(|_| {
        run.second(0, None);
    });
    assert_eq!(run.wanted, 0);
}

#[test]
fn bounds_that_moved_are_kept_to() {
    let mut run = Run::new(service(4, 30), 2, 4);
    run.wanted = 0;
    assert_eq!(run.second(0, None), 2);
    run.wanted = 9;
    assert_eq!(run.second(0, None), 4);
}

#[test]
fn requests_too_short_to_be_seen_keep_a_replica() {
    let (service, replicas) = (service(4, 10), Replicas { min: 0, max: 2 });
    let mut scaler = Scaler::default();
    let mut wanted = 1;
    for second in 0..60 {
        let sample = Sample {
            at: Time(second * 1000),
            arrivals: u32::from(second % 5 == 0),
            ready: 1,
            ..Sample::default()
        };
        wanted = scaler.wanted(&service, replicas, wanted, sample).replicas;
        assert_eq!(wanted, 1, "second {second}");
    }
}
