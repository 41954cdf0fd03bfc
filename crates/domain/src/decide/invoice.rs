//! Invoices and adjustments: issuing, paying, crediting, refunding, correcting. Each is the seller's to do: the
//! platform's towards tenants, a tenant's towards its subscribers and users.

use super::Case;
use crate::event::Event;
use crate::id::{AdjustmentId, InvoiceId};
use crate::ledger::account::{AccountId, Posting};
use crate::ledger::adjust::{Adjustment, AdjustmentKind};
use crate::ledger::invoice::{Draft, Invoice, seller};
use crate::money::Micros;
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;

/// The largest sum that is given or taken by hand: a billion.
const MAX_ADJUSTMENT_MICROS: i64 = 1_000_000_000_000_000;

impl Case<'_> {
    /// Who bills a scope. Only those may who bill it, and of a tenant's bills only people of that tenant.
    fn may_bill(&self, scope: ScopeId) -> Result<(), Refusal> {
        let tree = &self.state.tree;
        let seller = seller(tree, scope)
            .ok_or_else(|| Refusal::invalid("/scope", "the platform is billed by nobody"))?;
        tree.find(scope)?;
        self.own_prices(seller)?;
        self.may(Action::InvoiceManage, seller)
    }

    pub(super) fn issue_invoice(&mut self, draft: &Draft) -> Result<Vec<Event>, Refusal> {
        self.may_bill(draft.scope)?;
        if draft.from >= draft.until {
            return Err(Refusal::invalid("/until", "the span ends before it begins"));
        }
        if draft.until > self.command.at {
            return Err(Refusal::invalid("/until", "the span is not over")
                .hint("what is metered until then is still to come; a draft shows what there is"));
        }
        if let Some(met) = self.state.invoices.meets(draft.scope, draft.from, draft.until) {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!(
                    "{} is issued for {} to {}, and nothing is billed twice",
                    met.id,
                    met.draft.from.rfc3339(),
                    met.draft.until.rfc3339()
                ),
            )
            .hint("begin where it ends"));
        }
        let invoice = Invoice {
            id: InvoiceId(self.ids.take()),
            currency: self.state.prices.currency,
            issued: self.command.at,
            draft: draft.clone(),
            paid: None,
            refunded: Micros::ZERO,
        };
        Ok(vec![Event::InvoiceIssued {
            invoice: Box::new(invoice),
        }])
    }

    fn invoice(&self, id: InvoiceId) -> Result<&Invoice, Refusal> {
        self.state.invoices.get(id).ok_or_else(Refusal::not_found)
    }

    pub(super) fn pay_invoice(&self, id: InvoiceId, reference: &str) -> Result<Vec<Event>, Refusal> {
        let invoice = self.invoice(id)?;
        self.may_bill(invoice.draft.scope)?;
        name::check_text(reference, 200, "/reference")?;
        if invoice.paid.is_some() {
            return Err(Refusal::new(Code::WrongPhase, format!("{id} was paid before")));
        }
        let total = invoice.draft.total;
        let payer = payer(invoice.draft.scope).filter(|_| total.0 != 0);
        let posting = payer.map(|payer| transfer(AccountId::Outside, payer, total));
        Ok(vec![Event::InvoicePaid {
            invoice: id,
            scope: invoice.draft.scope,
            reference: reference.into(),
            posting,
        }])
    }

    pub(super) fn adjust(
        &mut self,
        scope: ScopeId,
        kind: AdjustmentKind,
        amount: Micros,
        invoice: Option<InvoiceId>,
        reason: &str,
    ) -> Result<Vec<Event>, Refusal> {
        self.may_bill(scope)?;
        let payer = payer(scope)
            .ok_or_else(|| Refusal::invalid("/scope", "only tenants and subscribers have accounts"))?;
        if reason.trim().is_empty() {
            return Err(Refusal::invalid(
                "/reason",
                "say why: it stands on the next invoice",
            ));
        }
        name::check_text(reason, 500, "/reason")?;
        let bounded = (-MAX_ADJUSTMENT_MICROS..=MAX_ADJUSTMENT_MICROS).contains(&amount.0);
        let signed = kind == AdjustmentKind::Correction;
        if !bounded || amount.0 == 0 || amount.0 < 0 && !signed {
            return Err(Refusal::invalid(
                "/amount_micros",
                "an amount is more than nothing and at most a billion; only a correction takes",
            ));
        }
        match (kind, invoice) {
            (AdjustmentKind::Refund, Some(id)) => self.refundable(scope, id, amount)?,
            (AdjustmentKind::Refund, None) => {
                return Err(Refusal::invalid("/invoice", "a refund is of an invoice; name it")
                    .hint("what is of none is a credit"));
            }
            // What it is of tells who reads the bill which month was wrong; unlike a refund it is not bounded by it.
            (AdjustmentKind::Correction, Some(id)) => self.invoice_of(scope, id).map(|_| ())?,
            (AdjustmentKind::Credit, Some(_)) => {
                return Err(Refusal::invalid(
                    "/invoice",
                    "only refunds and corrections are of an invoice",
                ));
            }
            (_, None) => {}
        }
        self.payable(payer, amount)?;
        Ok(vec![Event::Adjusted {
            adjustment: Box::new(Adjustment {
                id: AdjustmentId(self.ids.take()),
                scope,
                kind,
                amount,
                invoice,
                reason: reason.into(),
                posting: transfer(AccountId::Adjustment, payer, amount),
            }),
        }])
    }

    fn invoice_of(&self, scope: ScopeId, id: InvoiceId) -> Result<&Invoice, Refusal> {
        let invoice = self.invoice(id)?;
        let own = invoice.draft.scope == scope;
        own.then_some(invoice).ok_or_else(Refusal::not_found)
    }

    fn refundable(&self, scope: ScopeId, id: InvoiceId, amount: Micros) -> Result<(), Refusal> {
        let invoice = self.invoice_of(scope, id)?;
        let left = Micros(invoice.draft.total.0.saturating_sub(invoice.refunded.0).max(0));
        if amount > left {
            return Err(Refusal::invalid(
                "/amount_micros",
                format!(
                    "{id} was for {}, of which {} went back before: at most {left} can",
                    invoice.draft.total, invoice.refunded
                ),
            ));
        }
        Ok(())
    }

    /// Refuses what an account's integers could not count.
    fn payable(&self, account: AccountId, amount: Micros) -> Result<(), Refusal> {
        let accounts = [account, AccountId::Adjustment].map(|id| self.state.accounts.get(id).posted.0);
        let fits = accounts.iter().all(|posted| {
            let after = i128::from(*posted).abs() + i128::from(amount.0).abs();
            after < i128::from(i64::MAX)
        });
        fits.then_some(()).ok_or_else(|| {
            Refusal::invalid("/amount_micros", "more than the ledger can count in one account")
        })
    }
}

/// The account a scope's invoices are paid from; a user's are for its information.
fn payer(scope: ScopeId) -> Option<AccountId> {
    match scope {
        ScopeId::Tenant(tenant) => Some(AccountId::Tenant(tenant)),
        ScopeId::Subscriber(subscriber) => Some(AccountId::Subscriber(subscriber)),
        ScopeId::Platform | ScopeId::User(_) => None,
    }
}

/// Postings are of positive amounts: what would be negative goes the other way.
fn transfer(from: AccountId, to: AccountId, amount: Micros) -> Posting {
    match amount.0 < 0 {
        true => Posting {
            from: to,
            to: from,
            amount: Micros(-amount.0),
        },
        false => Posting { from, to, amount },
    }
}
