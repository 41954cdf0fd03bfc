//! Debian's `docker-registry` on a port of its own, with what the tests push into it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::built::{Built, INDEX, MANIFEST, sha256};

/// `ada` and `secret`.
pub const CREDENTIALS: &str = "ada:secret";
const HTPASSWD: &str = "ada:$2b$04$VjaFdRhKYbqIAgCZqSuyIuHsEQG9gTtLlNq4gK4.rMLafhX90FPFe\n";

pub struct DockerRegistry {
    process: Child,
    root: tempfile::TempDir,
    port: u16,
    closed: bool,
    http: reqwest::Client,
}

impl DockerRegistry {
    pub async fn start() -> DockerRegistry {
        DockerRegistry::with(false).await
    }

    /// One that wants to know who asks.
    pub async fn closed() -> DockerRegistry {
        DockerRegistry::with(true).await
    }

    async fn with(closed: bool) -> DockerRegistry {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let storage = root.path().join("storage");
        let mut config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{port}\n",
            storage.display()
        );
        if closed {
            let passwords = root.path().join("htpasswd");
            std::fs::write(&passwords, HTPASSWD).unwrap();
            config += &format!(
                "auth:\n  htpasswd:\n    realm: here\n    path: {}\n",
                passwords.display()
            );
        }
        std::fs::write(root.path().join("config.yml"), config).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(root.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's docker-registry is installed by scripts/setup");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = DockerRegistry {
            process,
            root,
            port,
            closed,
            http: reqwest::Client::new(),
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while registry.http.get(registry.url("")).send().await.is_err() {
            assert!(Instant::now() < deadline, "the registry never answered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        registry
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.host())
    }

    fn signed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        if self.closed {
            request.basic_auth("ada", Some("secret"))
        } else {
            request
        }
    }

    pub async fn push_blob(&self, repository: &str, blob: &[u8]) {
        let begun = self.signed(self.http.post(self.url(&format!("{repository}/blobs/uploads/"))));
        let begun = begun.send().await.unwrap().error_for_status().unwrap();
        let location = begun.headers()["location"].to_str().unwrap();
        let mut location = begun.url().join(location).unwrap();
        location.query_pairs_mut().append_pair("digest", &sha256(blob));
        let put = self.signed(self.http.put(location)).body(blob.to_vec());
        put.send().await.unwrap().error_for_status().unwrap();
    }

    pub async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &[u8]) {
        let put = self.http.put(self.url(&format!("{repository}/manifests/{tag}")));
        let put = self
            .signed(put)
            .header("content-type", kind)
            .body(manifest.to_vec());
        put.send().await.unwrap().error_for_status().unwrap();
    }

    /// Pushes an image; it is then to be had by the name returned.
    pub async fn push(&self, repository: &str, tag: &str, built: &Built) -> String {
        for blob in built.blobs() {
            self.push_blob(repository, blob).await;
        }
        self.push_manifest(repository, tag, MANIFEST, &built.manifest)
            .await;
        format!("{}/{repository}:{tag}", self.host())
    }

    /// Pushes one image for several machines.
    pub async fn push_index(&self, repository: &str, tag: &str, index: &[u8], images: &[&Built]) -> String {
        for built in images {
            self.push(repository, &built.digest(), built).await;
        }
        self.push_manifest(repository, tag, INDEX, index).await;
        format!("{}/{repository}:{tag}", self.host())
    }

    /// Where the registry keeps a blob.
    pub fn blob_file(&self, blob: &[u8]) -> PathBuf {
        let hex = &sha256(blob)[7..];
        let below = Path::new("docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data");
        self.root.path().join("storage").join(below)
    }

    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}
