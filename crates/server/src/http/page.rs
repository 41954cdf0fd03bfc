//! The page of each error code, as written in `docs/errors/`.

macro_rules! pages {
    ($($code:literal)*) => {
        /// Every code and its page.
        pub const PAGES: &[(&str, &str)] = &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md"))),)*];
    };
}

pages! {
    "invalid_field" "not_permitted" "forbidden_by_rule" "suspended" "not_found" "name_taken" "revision_mismatch"
    "wrong_phase" "paused" "jobs_still_live" "volumes_still_there" "volumes_apart" "volume_unavailable" "wrong_parent" "last_owner" "grant_exceeds_grantor" "already_founded"
    "policy_excludes" "exceeds_quota" "exceeds_budget" "exceeds_fleet" "invalid_rule" "bad_join_token"
    "contradictory_report" "quota_in_use" "borrow_limit" "not_lent" "budget_held" "scope_suspended" "no_capacity" "not_shared" "no_nodes" "promised" "behind_others"
    "malformed_request" "unauthenticated" "route_not_found" "method_not_allowed" "idempotency_in_flight"
    "body_too_large" "unsupported_media_type" "idempotency_key_reused" "too_many_requests" "too_many_sessions" "slice_in_use" "internal" "not_leader"
    "unavailable" "booked_out" "booking_closed" "bookings_still_there" "trades_still_there" "no_offers" "nothing_to_sell" "self_trade" "price_changed" "service_full" "service_waits" "replica_failed" "replica_silent"
}

pub fn page(code: &str) -> Option<&'static str> {
    PAGES
        .iter()
        .find(|(known, _)| *known == code)
        .map(|(_, page)| *page)
}
