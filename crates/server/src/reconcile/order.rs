//! What a node is told about one allocation, secrets opened on the way.

use tenure_api::channel::{DeviceSlice, ImageOrder, Order, VolumeOrder};
use tenure_api::secret_text::SecretText;
use tenure_domain::State;
use tenure_domain::id::{AllocationId, SecretId};
use tenure_domain::tenancy::policy::Network;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::TRACE_PARENT;
use tenure_domain::workload::task::words;

use super::member;
use crate::controller::Controller;
use crate::keyring::Keyring;
use crate::trace;

/// The order for an allocation; none when it is no longer intended, an explanation when it cannot be made.
pub async fn order(
    controller: &Controller,
    keyring: &Keyring,
    id: AllocationId,
) -> Result<Option<Order>, String> {
    let Some((mut order, wanted)) = draft(controller, id)? else {
        return Ok(None);
    };
    for (purpose, name, secret) in wanted {
        let Some(journal) = controller.journal() else {
            return Ok(None);
        };
        let value = keyring
            .find(&journal, &secret.to_string())
            .await
            .map_err(|error| format!("secret {name}: {error}"))?;
        let value = value.ok_or_else(|| format!("secret {name} was erased"))?;
        let value = String::from_utf8(value).map_err(|_| format!("secret {name} is not text"))?;
        let value = SecretText::new(value);
        match (purpose, &mut order.image) {
            (Purpose::Variable(variable), _) => order.secrets.push((variable, value)),
            (Purpose::Registry, Some(image)) => image.credentials = Some(value),
            (Purpose::Registry, None) => {}
        }
    }
    Ok(Some(order))
}

/// What a secret is opened for.
enum Purpose {
    Variable(String),
    Registry,
}

type Wanted = Vec<(Purpose, String, SecretId)>;

fn draft(controller: &Controller, id: AllocationId) -> Result<Option<(Order, Wanted)>, String> {
    let state = controller.view().read();
    let Some(allocation) = state.fleet.allocation(id) else {
        return Ok(None);
    };
    let Some(job) = state.jobs.get(&allocation.job) else {
        return Ok(None);
    };
    let spec = &job.spec;
    let mut wanted = Wanted::new();
    let variables = spec
        .secrets
        .iter()
        .map(|(variable, name)| (Purpose::Variable(variable.clone()), name));
    let registry = spec.image_secret.iter().map(|name| (Purpose::Registry, name));
    for (purpose, name) in variables.chain(registry) {
        let secret = state
            .secret(job.owner, name)
            .ok_or_else(|| format!("secret {name} was erased"))?;
        wanted.push((purpose, name.clone(), secret));
    }
    let volumes = job.volumes.iter().zip(&spec.volumes).filter_map(|(id, wanted)| {
        let volume = state.volumes.get(*id)?;
        Some(VolumeOrder {
            id: *id,
            name: wanted.name.clone(),
            size_mib: volume.size_mib,
            read_only: wanted.read_only,
        })
    });
    let owner = ScopeId::User(job.owner);
    let mut env = member::environment(&state, job, allocation);
    let parent = trace::handed_on(controller.traces(), &state, job, allocation.attempt);
    env.extend(parent.map(|parent| (TRACE_PARENT.to_owned(), parent.to_string())));
    let order = Order {
        allocation: id,
        job: job.id,
        name: spec.name.clone(),
        tenant: tenant(&state, id),
        attempt: allocation.attempt,
        command: words::command(spec).into_owned(),
        env,
        secrets: Vec::new(),
        workdir: spec.workdir.clone(),
        image: spec.image.as_ref().map(|name| {
            Box::new(ImageOrder {
                name: name.clone(),
                credentials: None,
            })
        }),
        volumes: volumes.collect(),
        devices: devices(&state, id),
        cpu_milli: allocation.cpu_milli,
        memory_mib: allocation.memory_mib,
        isolation: allocation.isolation,
        network: Network::of(state.tree.chain(owner).map(|scope| &scope.policy)),
        run_time_s: spec.run_time_s,
        grace_s: spec.grace_s,
        stdin: spec.stdin,
        tty: spec.tty,
    };
    Ok(Some((order, wanted)))
}

/// Whose an allocation is, as its node tells tenants apart.
pub fn tenant(state: &State, id: AllocationId) -> String {
    let allocation = state.fleet.allocation(id);
    let job = allocation.and_then(|allocation| state.jobs.get(&allocation.job));
    job.and_then(|job| state.tree.tenant_of(ScopeId::User(job.owner)))
        .map_or_else(|| "platform".into(), |tenant| tenant.to_string())
}

/// An allocation's slices, by the vendors' own identities of their devices.
pub fn devices(state: &State, id: AllocationId) -> Vec<DeviceSlice> {
    let Some(allocation) = state.fleet.allocation(id) else {
        return Vec::new();
    };
    let capped = state
        .jobs
        .get(&allocation.job)
        .is_some_and(|job| job.spec.demand.capped);
    let named = allocation.slices.iter().filter_map(|slice| {
        let gpu = state.fleet.node(allocation.node)?.gpu(slice.gpu)?;
        Some(DeviceSlice {
            uuid: gpu.facts.uuid.clone(),
            vram_mib: slice.vram_mib,
            compute_permille: slice.compute_permille,
            capped,
            part: slice.part.clone(),
        })
    });
    named.collect()
}
