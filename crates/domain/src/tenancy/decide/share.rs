//! Setting a scope's share. What children are sure of together never passes what their parent is sure of.

use std::collections::BTreeMap;

use crate::decide::Case;
use crate::event::Event;
use crate::refusal::{Code, Refusal};
use crate::tenancy::role::Action;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::tenancy::share::{Nominal, Share};
use crate::tenancy::tree::Tree;

impl Case<'_> {
    pub(crate) fn set_share(
        &self,
        scope: ScopeId,
        share: &Share,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let place = self.may_limit(Action::QuotaSet, scope, revision)?;
        share.check(scope)?;
        if place.share == *share {
            return Ok(vec![]);
        }
        let tree = &self.state.tree;
        if let Some(parent) = place.parent {
            fits_parent(tree, parent, scope, share).map_err(|over| over.refusal(tree, parent))?;
        }
        for (class, nominal) in &share.nominal {
            let below = sum(tree.children(scope), class);
            if below > nominal.gpu_milli {
                let over = Over {
                    class: class.clone(),
                    by_milli: below - nominal.gpu_milli,
                };
                return Err(over.refusal(tree, scope));
            }
        }
        Ok(vec![Event::ShareSet {
            scope,
            share: share.clone(),
        }])
    }
}

/// What children would be sure of beyond their parent.
pub(crate) struct Over {
    class: Box<str>,
    by_milli: u64,
}

impl Over {
    pub(crate) fn refusal(&self, tree: &Tree, parent: ScopeId) -> Refusal {
        let (title, class) = (tree.title(parent), &self.class);
        let by = self.by_milli;
        Refusal::new(
            Code::ExceedsQuota,
            format!(
                "the children of {title} would be sure of {by} gpu_milli of {class} more than {title} is"
            ),
        )
        .field(format!("/nominal/{class}"))
        .hint(format!(
            "take {by} gpu_milli of {class} from one of them, or have the share of {title} raised by as much"
        ))
    }
}

/// Whether a parent that is sure of something is sure of enough, with `child` among its children having `share`.
pub(crate) fn fits_parent(tree: &Tree, parent: ScopeId, child: ScopeId, share: &Share) -> Result<(), Over> {
    let of_parent: Option<&BTreeMap<Box<str>, Nominal>> =
        tree.get(parent).map(|parent| &parent.share.nominal);
    for (class, has) in of_parent.into_iter().flatten() {
        let Some(asked) = share.nominal.get(class) else {
            continue;
        };
        let others = tree.children(parent).filter(|other| other.id != child);
        let together = sum(others, class).saturating_add(asked.gpu_milli);
        if together > has.gpu_milli {
            return Err(Over {
                class: class.clone(),
                by_milli: together - has.gpu_milli,
            });
        }
    }
    Ok(())
}

fn sum<'a>(scopes: impl Iterator<Item = &'a Scope>, class: &str) -> u64 {
    let nominals = scopes.filter_map(|scope| scope.share.nominal.get(class));
    nominals
        .map(|nominal| nominal.gpu_milli)
        .fold(0, u64::saturating_add)
}
