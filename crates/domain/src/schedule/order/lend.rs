//! How a request stands to the nominal quotas of its owner's whole chain, and the words for a no.
//!
//! Each scope that is sure of something of the class is asked beside its siblings that are; the first that says no
//! decides. Scopes without a nominal quota of the class neither borrow nor lend. Absent: hard quotas
//! (`admit`), and taking back what was lent (`reclaim`). Asked at every admission and for the order of the queue.

use super::quota::{Stand, Use, stand};
use crate::meter::{Amounts, Meter, Of, Resource};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::workload::spec::Demand;

/// On what a request stands that may be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Footing {
    /// No scope of the chain has a nominal quota of the class.
    Unsure,
    /// Within nominal wherever there is one: may reclaim what others borrowed.
    Nominal,
    /// Some scope of the chain borrows for it, and gives it back when its owner wants it.
    Borrows,
}

/// What a scope uses of its nominal quota of a class, if it has one.
pub fn use_of(scope: &Scope, class: &str) -> Option<Use> {
    let meter = meter(class);
    use_by(scope, class, |scope| scope.used.get(&meter).unwrap_or(0))
}

pub(super) fn meter(class: &str) -> Meter {
    Meter {
        resource: Resource::GpuMilli,
        of: Of::Class(class.into()),
    }
}

/// The same, by what somebody else says it uses.
pub(super) fn use_by(scope: &Scope, class: &str, used_milli: impl Fn(&Scope) -> u64) -> Option<Use> {
    let nominal = scope.nominal(class)?;
    Some(Use {
        nominal,
        used_milli: used_milli(scope),
    })
}

/// The siblings that share nominal quotas of the class with a scope.
pub fn siblings<'a>(state: &'a State, scope: &'a Scope, class: &str) -> impl Iterator<Item = (ScopeId, Use)> {
    let meter = meter(class);
    let used_milli = move |other: &Scope| other.used.get(&meter).unwrap_or(0);
    beside(state, scope).filter_map(move |other| Some((other.id, use_by(other, class, &used_milli)?)))
}

pub(super) fn beside<'a>(state: &'a State, scope: &'a Scope) -> impl Iterator<Item = &'a Scope> {
    let children = scope
        .parent
        .into_iter()
        .flat_map(|parent| state.tree.children(parent));
    children.filter(|other| other.id != scope.id)
}

/// On what `ask_milli` more of the class would stand for the owner; or which limit says no, and what would change it.
pub fn footing(state: &State, owner: ScopeId, class: &str, ask_milli: u64) -> Result<Footing, Refusal> {
    let meter = meter(class);
    stands(state, owner, class, ask_milli, |scope| {
        scope.used.get(&meter).unwrap_or(0)
    })
}

/// The same, were the scopes to use so much.
pub fn footing_by(
    state: &State,
    owner: ScopeId,
    class: &str,
    ask_milli: u64,
    used: impl Fn(&Scope) -> Amounts,
) -> Result<Footing, Refusal> {
    let meter = meter(class);
    stands(state, owner, class, ask_milli, |scope| {
        used(scope).get(&meter).unwrap_or(0)
    })
}

/// Whether what is asked stands within nominal quota, on its class or, if any will do, on some class.
pub fn is_sure(state: &State, owner: ScopeId, demand: &Demand) -> bool {
    let sure = |class: &str| footing(state, owner, class, demand.gpu_milli()) == Ok(Footing::Nominal);
    match &demand.class {
        Some(class) => sure(class),
        None => state
            .tree
            .chain(owner)
            .any(|scope| scope.sure_classes().any(|class| sure(class))),
    }
}

fn stands(
    state: &State,
    owner: ScopeId,
    class: &str,
    ask_milli: u64,
    used_milli: impl Fn(&Scope) -> u64,
) -> Result<Footing, Refusal> {
    let mut footing = Footing::Unsure;
    if ask_milli == 0 {
        return Ok(footing);
    }
    for scope in state
        .tree
        .chain(owner)
        .filter(|scope| scope.sure_classes().next().is_some())
    {
        let Some(of_scope) = use_by(scope, class, &used_milli) else {
            // Sure of what it leased, and of nothing beyond.
            let after_milli = used_milli(scope).saturating_add(ask_milli);
            if footing == Footing::Unsure && after_milli <= scope.leased.of(class).taken_milli {
                footing = Footing::Nominal;
            }
            continue;
        };
        let siblings: Vec<Use> = beside(state, scope)
            .filter_map(|other| use_by(other, class, &used_milli))
            .collect();
        match stand(of_scope, ask_milli, &siblings) {
            Stand::Nominal if footing == Footing::Unsure => footing = Footing::Nominal,
            Stand::Nominal => {}
            Stand::Borrows => footing = Footing::Borrows,
            Stand::BorrowLimit { missing_milli } => {
                return Err(borrow_limit(state, scope, class, of_scope, missing_milli));
            }
            Stand::NotLent { missing_milli } => {
                return Err(not_lent(state, scope, class, of_scope, missing_milli));
            }
        }
    }
    Ok(footing)
}

/// Refuses what is larger than nominal quota and borrowing limit together: it could never start.
pub fn refuse_for_ever(state: &State, owner: ScopeId, class: &str, ask_milli: u64) -> Result<(), Refusal> {
    for scope in state.tree.chain(owner) {
        let Some(nominal) = scope.nominal(class) else {
            continue;
        };
        let Some(borrow_milli) = nominal.borrow_milli else {
            continue;
        };
        let most = nominal.gpu_milli.saturating_add(borrow_milli);
        if ask_milli > most {
            let title = state.tree.title(scope.id);
            return Err(Refusal::new(
                Code::ExceedsQuota,
                format!(
                    "{ask_milli} gpu_milli of {class} asked, but {title} is sure of {} and may borrow {borrow_milli}",
                    nominal.gpu_milli
                ),
            )
            .field("/demand/gpus")
            .hint(format!(
                "ask for at most {most} gpu_milli of {class}, or have the share of {title} raised"
            )));
        }
    }
    Ok(())
}

fn has(title: &str, class: &str, of_scope: Use) -> String {
    let (used, nominal) = (of_scope.used_milli, of_scope.nominal.gpu_milli);
    format!("{title} uses {used} gpu_milli of {class}, its nominal quota being {nominal}")
}

fn borrow_limit(state: &State, scope: &Scope, class: &str, of_scope: Use, missing: u64) -> Refusal {
    let title = state.tree.title(scope.id);
    let most = of_scope.nominal.borrow_milli.unwrap_or(0);
    Refusal::new(
        Code::BorrowLimit,
        format!(
            "{}, and may borrow {most}; this would pass that by {missing}",
            has(&title, class, of_scope)
        ),
    )
    .hint(format!(
        "it starts when jobs of {title} give back {missing} gpu_milli of {class}, or when its nominal quota or its \
         borrowing limit is raised by as much"
    ))
}

fn not_lent(state: &State, scope: &Scope, class: &str, of_scope: Use, missing: u64) -> Refusal {
    let title = state.tree.title(scope.id);
    let others: Vec<Use> = siblings(state, scope, class).map(|(_, other)| other).collect();
    let lent: u64 = others.iter().map(|other| other.lent_milli()).sum();
    let taken: u64 = others.iter().map(|other| other.borrowed_milli()).sum();
    Refusal::new(
        Code::NotLent,
        format!(
            "{}; beside it {lent} are lent and {taken} borrowed, {missing} too few",
            has(&title, class, of_scope)
        ),
    )
    .hint(format!(
        "it starts when {missing} gpu_milli of {class} are given back by {title} or fall idle beside it and are lent, \
         or when its nominal quota is raised by as much"
    ))
}
