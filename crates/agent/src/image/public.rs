//! Names asked for public addresses alone.
//!
//! The agent stands in the host's network and asks what tenants name and strangers lead to: it must not be made to
//! knock where those could not. The look is at the very addresses that are then connected to, so a name that means
//! one thing now and another a moment later gains nothing. Who may be elsewhere is settled in `registry`.

use std::net::SocketAddr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tenure_api::public::is_public;

/// Why a name was not asked.
#[derive(Debug, thiserror::Error)]
#[error("{0} has no public address")]
pub struct NotPublic(pub String);

/// Names, as far as they mean public addresses.
pub struct Public {
    /// Of the proxies the host's administrator set: who goes through one knocks nowhere else.
    proxies: Vec<String>,
}

impl Public {
    pub fn new() -> Public {
        let proxies = ["http_proxy", "https_proxy", "all_proxy"]
            .into_iter()
            .flat_map(|name| [name.to_owned(), name.to_uppercase()])
            .filter_map(|name| std::env::var(name).ok())
            .filter_map(|value| {
                let url = Url::parse(&value).or_else(|_| Url::parse(&format!("http://{value}")));
                Some(url.ok()?.host_str()?.to_owned())
            });
        Public {
            proxies: proxies.collect(),
        }
    }
}

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        let is_proxy = self.proxies.iter().any(|proxy| proxy == name.as_str());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found
                .filter(|address| is_proxy || is_public(address.ip()))
                .collect();
            if public.is_empty() {
                return Err(NotPublic(name.as_str().to_owned()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_of_this_machine_has_no_public_address() {
        let public = Public { proxies: Vec::new() };
        let refused = public.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert!(refused.is::<NotPublic>(), "{refused}");
        let with_proxy = Public {
            proxies: vec!["localhost".into()],
        };
        assert!(with_proxy.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
