//! Events of jobs carry what was set aside for them, in the prices of every level that pays; each caller is shown the
//! prices of its own level.

use tenure_domain::Event;
use tenure_domain::ledger::hold::Hold;

/// Whose prices a caller sees of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prices {
    /// People of the tenant who see its costs: what it pays and what it asks. Whoever reads the whole journal too.
    All,
    /// Whoever stands above the tenant: what it pays.
    Tenant,
    /// Whoever stands below: what the job's owner pays.
    Owner,
}

/// Whether prices stand in it.
pub(super) fn has_any(event: &Event) -> bool {
    matches!(
        event,
        Event::JobAdmitted { .. }
            | Event::JobResized { .. }
            | Event::JobRepriced { .. }
            | Event::JobResuming { .. }
    )
}

/// The event with those prices alone.
pub(super) fn only(mut event: Event, prices: Prices) -> Event {
    if let Event::JobAdmitted { admission, .. }
    | Event::JobResized { admission, .. }
    | Event::JobRepriced { admission, .. }
    | Event::JobResuming { admission, .. } = &mut event
    {
        hold(&mut admission.hold, prices);
    }
    event
}

fn hold(hold: &mut Hold, prices: Prices) {
    if prices == Prices::All {
        return;
    }
    let Some(resale) = hold.resale.take() else {
        return;
    };
    if prices == Prices::Owner {
        hold.account = resale.from;
        hold.hourly = resale.hourly;
        hold.left.money = resale.left;
        hold.clauses = Some(Box::new(resale.clauses)).filter(|clauses| !clauses.is_plain());
    }
}
