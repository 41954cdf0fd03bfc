//! Saying how logs are kept. A tenant says it of its own logs: it can only keep less than the platform does.

use crate::decide::Case;
use crate::event::Event;
use crate::refusal::{Code, Refusal};
use crate::tenancy::keeping::Keeping;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;

impl Case<'_> {
    pub(crate) fn set_log_keeping(
        &self,
        scope: ScopeId,
        keeping: Keeping,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PolicySet, scope)?;
        let place = self.state.tree.find(scope)?;
        if revision.is_some_and(|read| read != place.revision) {
            return Err(
                Refusal::new(Code::RevisionMismatch, "the scope was changed since you read it")
                    .hint("read it again and repeat the change"),
            );
        }
        keeping.check(scope)?;
        if scope != ScopeId::Platform {
            keeping.check_within(&self.state.logs_of_each())?;
        }
        Ok(if place.keeping == keeping {
            vec![]
        } else {
            vec![Event::LogKeepingSet { scope, keeping }]
        })
    }
}
