//! A server of canned answers, which keeps what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.target.split('?').next() == Some(path)
    }
}

pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// Promises one byte more than comes, as a connection that breaks does.
    pub cut: bool,
}

pub fn ok(body: Value) -> Reply {
    Reply {
        status: 200,
        body: body.to_string().into_bytes(),
        cut: false,
    }
}

pub fn bytes(body: &[u8]) -> Reply {
    Reply {
        status: 200,
        body: body.to_vec(),
        cut: false,
    }
}

pub fn problem(status: u16, code: &str, detail: &str, hint: &str) -> Reply {
    let body = json!({"type": format!("/errors/{code}"), "code": code, "title": code, "status": status, "detail": detail, "hint": hint});
    Reply {
        status,
        body: body.to_string().into_bytes(),
        cut: false,
    }
}

pub struct Stub {
    pub url: String,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    pub fn new(answer: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(&stream);
                    let Some(request) = read(&mut reader) else { return };
                    let reply = answer(&request)
                        .unwrap_or_else(|| problem(404, "not_found", "there is no such object here", ""));
                    seen.lock().unwrap().push(request);
                    let length = reply.body.len() + usize::from(reply.cut);
                    let head = format!(
                        "HTTP/1.1 {} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
                        reply.status
                    );
                    let mut stream = &stream;
                    let _ = stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&reply.body));
                });
            }
        });
        Stub { url, asked }
    }

    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().unwrap_or(0));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        target,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

pub fn whoami() -> Value {
    json!({"user": scope("usr_0000000000001", "user", "acme/research/ada"), "grants": [], "platform": "demo", "version": "0.1.0", "seq": 40})
}

pub fn scope(id: &str, level: &str, path: &str) -> Value {
    json!({"id": id, "level": level, "name": path.rsplit('/').next(), "path": path, "created": "2026-01-01T00:00:00Z", "suspended": false, "revision": 3})
}

pub fn job(id: &str, name: &str, phase: &str) -> Value {
    json!({
        "id": id, "owner": "usr_0000000000001", "owner_path": "acme/research/ada",
        "spec": {"name": name, "command": ["python3", "train.py"], "demand": {"gpus": 1, "vram_mib": 8192, "compute_permille": 500}},
        "phase": phase, "submitted": "2026-01-01T00:00:00Z", "attempt": 1, "ran_ms": 61_000, "charged_micros": 520_400, "held_micros": 0, "gpu_ms": 0
    })
}

pub fn ended(id: &str, name: &str, outcome: Value) -> Value {
    let mut job = job(id, name, "done");
    job["outcome"] = outcome;
    job["started"] = json!("2026-01-01T00:00:00Z");
    job
}
