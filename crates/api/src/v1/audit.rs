//! The audit of a job: what it did at its devices' boundary, as its nodes signed it, and what is out of order in it.

use serde::{Deserialize, Serialize};
use tenure_domain::audit::anomaly::Anomaly;
use tenure_domain::audit::conduct::SignedConduct;
use tenure_domain::id::JobId;
use utoipa::ToSchema;

/// Empty until an attempt of the job has ended. Of jobs with many attempts the last are here; the journal has all.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobAuditView {
    #[schema(value_type = String)]
    pub job: JobId,
    /// One for each attempt, oldest first.
    pub records: Vec<SignedConduct>,
    pub anomalies: Vec<Anomaly>,
}
