//! `decide`: from a state and a wish to events, or to a refusal. Each wish is decided in the room of its noun.

mod audit;
mod book;
mod booking;
mod fleet;
mod grow;
mod invoice;
mod job;
mod market;
mod member;
mod meter;
mod pause;
mod platform;
mod resize;
mod scrub;
mod service;
mod session;
mod task;
mod volume;

pub(crate) use meter::Rater;
pub(crate) use pause::can_pause;

use crate::actor::Actor;
use crate::command::{Command, Wish};
use crate::event::Event;
use crate::id::Ids;
use crate::refusal::Refusal;
use crate::state::State;
use crate::tenancy::authorize::authorize;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::JobSpec;

/// What a decision needs at hand: the state, the command, and the fresh ids that came with it.
pub(crate) struct Case<'a> {
    pub state: &'a State,
    pub command: &'a Command,
    pub ids: Ids,
}

impl Case<'_> {
    pub fn may(&self, action: Action, scope: ScopeId) -> Result<(), Refusal> {
        authorize(
            &self.state.tree,
            &self.command.by,
            action,
            scope,
            None,
            self.command.at,
        )
    }

    /// Only Tenure itself: the scheduler, the reconciler, the refusal counter.
    pub fn only_system(&self) -> Result<(), Refusal> {
        if self.command.by == Actor::System {
            Ok(())
        } else {
            Err(Refusal::not_found())
        }
    }

    pub fn may_ask(&self, action: Action, scope: ScopeId, ask: &JobSpec) -> Result<(), Refusal> {
        authorize(
            &self.state.tree,
            &self.command.by,
            action,
            scope,
            Some(ask),
            self.command.at,
        )
    }
}

/// Decides one command. The same state and command give the same events.
pub fn decide(state: &State, command: &Command) -> Result<Vec<Event>, Refusal> {
    let mut case = Case {
        state,
        command,
        ids: Ids::starting_at(command.ids),
    };
    let events = decided(&mut case)?;
    let events = case.follow(events);
    let events = crate::market::fault::with_leases(state, events, command.at);
    Ok(crate::ledger::alert::with_alerts(state, events, command.at))
}

fn decided(case: &mut Case<'_>) -> Result<Vec<Event>, Refusal> {
    let (state, command) = (case.state, case.command);
    match &command.wish {
        Wish::Found {
            platform,
            owner,
            key,
            prices,
        } => case.found(platform, owner, *key, prices),
        Wish::SetPrices { prices } => case.set_prices(prices),
        Wish::Adjust {
            scope,
            kind,
            amount,
            invoice,
            reason,
        } => case.adjust(*scope, *kind, *amount, *invoice, reason),
        Wish::IssueInvoice { draft } => case.issue_invoice(draft),
        Wish::PayInvoice { invoice, reference } => case.pay_invoice(*invoice, reference),
        Wish::SetBook {
            seller,
            buyer,
            from,
            book,
        } => case.set_book(*seller, *buyer, *from, book),
        Wish::DefineSku { sku } => case.define_sku(sku),
        Wish::RemoveSku { name } => case.remove_sku(name),
        Wish::CountRefusals { counts } => case.only_system().map(|()| {
            vec![Event::AccessRefused {
                counts: counts.clone(),
            }]
        }),

        Wish::CreateTenant { name } => case.create_tenant(name),
        Wish::CreateSubscriber { tenant, name } => case.create_subscriber(*tenant, name),
        Wish::CreateUser {
            parent,
            name,
            kind,
            identity,
            role,
        } => case.create_user(*parent, name, *kind, identity.as_ref(), *role),
        Wish::Suspend { scope } => case.suspend(*scope),
        Wish::Resume { scope } => case.resume(*scope),
        Wish::Move { scope, parent } => case.move_scope(*scope, *parent),
        Wish::Close { scope } => case.close(*scope),
        Wish::SetIdentity { user, identity } => case.set_identity(*user, identity.as_ref()),
        Wish::GrantRole { scope, user, role } => case.grant_role(*scope, *user, *role),
        Wish::RevokeRole { scope, user, role } => case.revoke_role(*scope, *user, *role),
        Wish::CreateKey {
            user,
            label,
            digest,
            expires,
            allow,
        } => case.create_key(*user, label, *digest, *expires, allow.as_ref()),
        Wish::RevokeKey { key } => case.revoke_key(*key),
        Wish::SetQuota {
            scope,
            quota,
            revision,
        } => case.set_quota(*scope, quota, *revision),
        Wish::SetShare {
            scope,
            share,
            revision,
        } => case.set_share(*scope, share, *revision),
        Wish::SetLogKeeping {
            scope,
            keeping,
            revision,
        } => case.set_log_keeping(*scope, *keeping, *revision),
        Wish::SetBudgets {
            scope,
            budgets,
            revision,
        } => case.set_budgets(*scope, budgets, *revision),
        Wish::SetPolicy {
            scope,
            policy,
            revision,
        } => case.set_policy(*scope, policy, *revision),
        Wish::SetRules {
            scope,
            rules,
            revision,
        } => case.set_rules(*scope, rules, *revision),
        Wish::StoreSecret { scope, name, secret } => case.store_secret(*scope, name, *secret),
        Wish::EraseSecret { scope, name } => case.erase_secret(*scope, name),
        Wish::CreateVolume {
            scope,
            name,
            size_mib,
        } => case.create_volume(*scope, name, *size_mib),
        Wish::GrowVolume {
            volume,
            size_mib,
            revision,
        } => case.grow_volume(*volume, *size_mib, *revision),
        Wish::RemoveVolume { volume } => case.remove_volume(*volume),
        Wish::NoteVolumeErased { node, volume } => case.note_volume_erased(*node, *volume),

        Wish::CreateWebhook {
            scope,
            name,
            origin,
            kinds,
            secret,
            after,
        } => case.create_webhook(*scope, name, origin, kinds, *secret, *after),
        Wish::RotateWebhook { webhook, old, secret } => case.rotate_webhook(*webhook, *old, *secret),
        Wish::PauseWebhook { webhook } => case.pause_webhook(*webhook),
        Wish::ResumeWebhook { webhook, after } => case.resume_webhook(*webhook, *after),
        Wish::RemoveWebhook { webhook } => case.remove_webhook(*webhook),
        Wish::FailWebhook {
            webhook,
            revision,
            why,
        } => case.fail_webhook(*webhook, *revision, why),

        Wish::CreateJoinToken {
            digest,
            expires,
            tenant,
        } => case.create_join_token(*digest, *expires, *tenant),
        Wish::JoinNode { token, name, key } => case.join_node(*token, name, *key),
        Wish::ReportInventory { node, inventory } => case.report_inventory(*node, inventory),
        Wish::LoseNode { node } => case.lose_node(*node),
        Wish::ReturnNode { node } => case.return_node(*node),
        Wish::CordonNode { node } => case.cordon_node(*node),
        Wish::UncordonNode { node } => case.uncordon_node(*node),
        Wish::LabelNode {
            node,
            labels,
            revision,
        } => case.label_node(*node, labels, *revision),
        Wish::NoteScrub { node, receipt } => case.note_scrub(*node, receipt),
        Wish::ReleaseGpu { gpu } => case.release_gpu(*gpu),
        Wish::AddNodeKey { node, key } => case.add_node_key(*node, *key),
        Wish::RevokeNodeKey { node, key } => case.revoke_node_key(*node, *key),
        Wish::RemoveNode { node } => case.remove_node(*node),

        Wish::SetBookingTerms { terms } => case.set_booking_terms(terms),
        Wish::Book {
            scope,
            spec,
            zone,
            shown,
        } => case.book(*scope, spec, zone, *shown),
        Wish::EditBooking {
            booking,
            edit,
            zone,
            revision,
        } => case.edit_booking(*booking, edit, zone, *revision),
        Wish::ExtendBooking {
            booking,
            of,
            more_s,
            zone,
        } => case.extend_booking(*booking, *of, *more_s, zone.as_deref()),
        Wish::TransferBooking { booking, to } => case.transfer_booking(*booking, *to),
        Wish::CancelBooking { booking, which, zone } => {
            case.cancel_booking(*booking, *which, zone.as_deref())
        }
        Wish::AdvanceBookings { zones } => {
            case.only_system()?;
            Ok(crate::booking::advance::advance(state, *zones, command.at))
        }
        Wish::ResolveBookings { zones, edition } => {
            case.only_system()?;
            Ok(crate::booking::resolve::resolve(
                state, *zones, edition, command.at,
            ))
        }

        Wish::SetMarketTerms { terms } => case.set_market_terms(terms),
        Wish::MakeOffer { seller, spec, zone } => case.make_offer(*seller, spec, zone.as_deref()),
        Wish::WithdrawOffer { offer } => case.withdraw_offer(*offer),
        Wish::SetAutoOffer { seller, spec } => case.set_auto_offer(*seller, spec),
        Wish::RemoveAutoOffer { seller, class } => case.remove_auto_offer(*seller, class),
        Wish::PlaceBid { scope, spec } => case.place_bid(*scope, spec),
        Wish::CancelBid { bid } => case.cancel_bid(*bid),
        Wish::RecallLease { lease } => case.recall_lease(*lease),
        Wish::ReturnLease { lease } => case.return_lease(*lease),
        Wish::AnswerGpuCheck {
            node,
            gpu,
            number,
            report,
        } => case.answer_gpu_check(*node, *gpu, *number, report),
        Wish::AdvanceMarket { zones } => {
            case.only_system()?;
            Ok(crate::market::advance::advance(
                state,
                *zones,
                &mut case.ids,
                command.at,
            ))
        }

        Wish::Submit { owner, spec, trace } => case.submit(*owner, spec, *trace, true),
        Wish::Enqueue { owner, spec, trace } => case.submit(*owner, spec, *trace, false),
        Wish::Stop { job, reason } => case.stop(*job, *reason),
        Wish::Resize {
            job,
            compute_permille,
            vram_mib,
        } => case.resize(*job, *compute_permille, *vram_mib),
        Wish::Scale { job, replicas } => case.scale(*job, *replicas),
        Wish::Steer {
            job,
            wanted,
            leave,
            why,
        } => case.steer(*job, *wanted, leave, why),
        Wish::FailReplica { replica, why } => case.fail_replica(*replica, why),
        Wish::NoteServiceUse { job, uses } => case.note_service_use(*job, uses),
        Wish::Pause { job, reason } => case.pause(*job, *reason),
        Wish::ResumeJob { job } => case.resume_job(*job),
        Wish::OpenSession {
            job,
            member,
            kind,
            from,
        } => case.open_session(*job, *member, kind, from),
        Wish::EndSession { session, end } => case.end_session(*session, end),
        Wish::Schedule { job } => {
            case.only_system()?;
            crate::schedule::pass::step(state, *job, &mut case.ids, command.at)
        }
        Wish::Promise { job } => {
            case.only_system()?;
            Ok(crate::schedule::pass::promise(
                state,
                *job,
                &mut case.ids,
                command.at,
            ))
        }
        Wish::Withdraw => {
            case.only_system()?;
            Ok(crate::schedule::calendar::lapsed(state, command.at))
        }
        Wish::Observe {
            node,
            allocation,
            observation,
        } => case.observe(*node, *allocation, observation),
        Wish::Meter { node, ran } => case.meter(*node, ran),
        Wish::NoteConduct { node, record } => case.note_conduct(*node, record),
    }
}
