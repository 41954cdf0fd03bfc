//! Setting price books: the platform's for its tenants, a tenant's for its subscribers.

use super::Case;
use crate::event::Event;
use crate::ledger::book::{Book, BookEntry};
use crate::refusal::Refusal;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::zone::Zone;

impl Case<'_> {
    pub(super) fn set_book(
        &self,
        seller: ScopeId,
        buyer: Option<ScopeId>,
        from: Option<Time>,
        book: &Book,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, seller)?;
        self.own_prices(seller)?;
        if !matches!(seller, ScopeId::Platform | ScopeId::Tenant(_)) {
            return Err(Refusal::invalid(
                "/seller",
                "only the platform and tenants have prices of their own",
            ));
        }
        if let Some(buyer) = buyer {
            let below = self.state.tree.get(buyer).and_then(|scope| scope.parent) == Some(seller);
            let level = matches!(
                (seller, buyer),
                (ScopeId::Platform, ScopeId::Tenant(_)) | (ScopeId::Tenant(_), ScopeId::Subscriber(_))
            );
            if !below || !level {
                return Err(Refusal::invalid(
                    "/buyer",
                    "a book is for a tenant of the platform, or for a subscriber of its tenant",
                ));
            }
        }
        book.check(seller)?;
        let from = from.unwrap_or(self.command.at);
        if from < self.command.at {
            return Err(
                Refusal::invalid("/from", "prices do not reach back").hint("leave it out to begin now")
            );
        }
        Ok(vec![Event::BookSet {
            entry: Box::new(BookEntry {
                seller,
                buyer,
                from,
                book: book.clone(),
                tzdata: Zone::edition().into(),
            }),
        }])
    }

    /// What a tenant asks of its subscribers is nobody's matter outside it, whatever roles they hold above.
    pub(super) fn own_prices(&self, seller: ScopeId) -> Result<(), Refusal> {
        let ScopeId::Tenant(tenant) = seller else {
            return Ok(());
        };
        let by = self.command.by.user_id();
        let own = by.is_none_or(|user| self.state.tree.tenant_of(ScopeId::User(user)) == Some(tenant));
        own.then_some(()).ok_or_else(Refusal::not_found)
    }
}
