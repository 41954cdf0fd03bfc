//! The environment a job starts with: nothing of the agent's, a few plain variables, its own, and what Tenure says.

use std::ffi::CString;

use tenure_api::channel::Order;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Name and value of each variable; a later one wins.
pub fn of(order: &Order, home: &str, guard: Vec<(String, String)>) -> Vec<(String, String)> {
    let plain = [
        ("PATH", PATH),
        ("HOME", home),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", home),
    ];
    let mut all: Vec<(String, String)> = plain.map(|(name, value)| (name.into(), value.into())).into();
    all.extend(order.env.iter().cloned());
    all.extend(order.secrets.iter().map(|(name, secret)| {
        // The job is whom the secret is for.
        (name.clone(), secret.reveal().to_owned())
    }));
    let devices: Vec<&str> = order.devices.iter().map(|device| device.uuid.as_str()).collect();
    all.extend([
        ("TENURE_ALLOCATION".to_owned(), order.allocation.to_string()),
        ("TENURE_JOB".to_owned(), order.job.to_string()),
        ("TENURE_JOB_NAME".to_owned(), order.name.clone()),
        ("TENURE_ATTEMPT".to_owned(), order.attempt.to_string()),
        ("TENURE_DEVICES".to_owned(), devices.join(",")),
    ]);
    if !guard.is_empty() {
        // A compiled kernel is code: never from a place that another can write to.
        all.push(("POCL_CACHE_DIR".to_owned(), format!("{home}/.cache/pocl")));
    }
    all.extend(guard);
    let mut seen = std::collections::HashSet::new();
    let mut last: Vec<_> = all
        .into_iter()
        .rev()
        .filter(|(name, _)| seen.insert(name.clone()))
        .collect();
    last.reverse();
    last
}

/// As the kernel wants it. A value with a zero byte cannot be one.
pub fn as_texts(variables: &[(String, String)]) -> Result<Vec<CString>, String> {
    variables
        .iter()
        .map(|(name, value)| {
            CString::new(format!("{name}={value}")).map_err(|_| format!("variable {name} has a zero byte"))
        })
        .collect()
}

/// Where a program named without a slash may be.
pub fn places(program: &str, variables: &[(String, String)]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = variables
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or(PATH, |(_, value)| value);
    path.split(':')
        .filter(|place| !place.is_empty())
        .map(|place| format!("{place}/{program}"))
        .collect()
}
