//! Sessions: who may be at a running job, how many at once, and that their end is noted once.

use super::Case;
use crate::event::Event;
use crate::id::{JobId, SessionId};
use crate::refusal::{Code, Refusal};
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Job, Phase};
use crate::workload::session::{MAX_PER_JOB, MAX_PER_USER, Session, SessionEnd, SessionKind, plain_address};

impl Case<'_> {
    pub(super) fn open_session(
        &mut self,
        id: JobId,
        member: u32,
        kind: &SessionKind,
        from: &str,
    ) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        self.may(kind.action(), ScopeId::User(job.owner))?;
        // Only people open sessions; Tenure itself has no business inside a job.
        let user = self.command.by.user_id().ok_or_else(Refusal::not_found)?;
        kind.check()?;
        self.one_program(job)?;
        if !job.spec.secrets.is_empty() && user != job.owner {
            // Whoever is inside the job reads what the job reads.
            return Err(Refusal::new(
                Code::NotPermitted,
                "only its owner enters a job that reads secrets",
            )
            .hint("have the job's owner do it, or run the job without the secrets"));
        }
        if member >= job.spec.demand.nodes {
            return Err(no_such_member(job));
        }
        let Some(allocation) = job.allocation_of(member).filter(|_| job.phase == Phase::Running) else {
            if job.phase == Phase::Running {
                return Err(Refusal::new(
                    Code::WrongPhase,
                    format!("member {member} of the job has ended; only what runs can be entered"),
                )
                .hint("enter another of its members"));
            }
            return Err(Refusal::new(
                Code::WrongPhase,
                format!(
                    "the job is {}; only a running job can be entered",
                    job.phase.as_str()
                ),
            )
            .hint("wait until it runs"));
        };
        let open = |wanted: &dyn Fn(&Session) -> bool| {
            self.state
                .sessions
                .values()
                .filter(|session| wanted(session))
                .count()
        };
        let full = |whose: &str, most: usize| {
            Err(Refusal::new(
                Code::TooManySessions,
                format!("{whose} has {most} sessions open, as many as there may be"),
            )
            .hint("end one of them"))
        };
        if open(&|session| session.job == id) >= MAX_PER_JOB {
            return full("the job", MAX_PER_JOB);
        }
        if open(&|session| session.user == user) >= MAX_PER_USER {
            return full("the user", MAX_PER_USER);
        }
        let session = Session {
            id: SessionId(self.ids.take()),
            job: id,
            allocation,
            owner: job.owner,
            user,
            from: plain_address(from),
            kind: kind.clone(),
            since: self.command.at,
        };
        Ok(vec![Event::SessionOpened { session }])
    }

    /// Said by whoever carried the session, once or more often.
    pub(super) fn end_session(&mut self, id: SessionId, end: &SessionEnd) -> Result<Vec<Event>, Refusal> {
        self.only_system()?;
        Ok(self
            .state
            .sessions
            .get(&id)
            .map(|session| Event::SessionEnded {
                session: id,
                job: session.job,
                owner: session.owner,
                user: session.user,
                end: end.bounded(),
            })
            .into_iter()
            .collect())
    }
}

fn no_such_member(job: &Job) -> Refusal {
    let last = job.spec.demand.nodes - 1;
    let sentence = match last {
        0 => "the job has one member, number 0".to_owned(),
        _ => format!("the job has members 0 to {last}"),
    };
    Refusal::invalid("/member", sentence)
}
