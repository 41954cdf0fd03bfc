//! A registry that does what it is told, and remembers what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::built::{Built, MANIFEST, sha256};

#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub authorization: Option<String>,
}

#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Says more bytes than it sends, and hangs up.
    pub cut: bool,
    /// How long it is silent in the middle of the body.
    pub silence: Duration,
}

pub fn reply(status: u16) -> Reply {
    Reply {
        status,
        headers: Vec::new(),
        body: Vec::new(),
        cut: false,
        silence: Duration::ZERO,
    }
}

impl Reply {
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Reply {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn body(mut self, body: &[u8]) -> Reply {
        self.body = body.to_vec();
        self
    }
}

pub struct Fake {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let answer = Arc::new(answer);
        std::thread::spawn({
            let asked = asked.clone();
            move || {
                for stream in listener.incoming().flatten() {
                    let (asked, answer) = (asked.clone(), answer.clone());
                    std::thread::spawn(move || serve(stream, &asked, &*answer));
                }
            }
        });
        Fake { port, asked }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How often a path with this in it was asked for.
    pub fn count(&self, part: &str) -> usize {
        self.asked()
            .iter()
            .filter(|asked| asked.path.contains(part))
            .count()
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &(dyn Fn(&Asked) -> Reply + Send + Sync)) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let path = lines
        .next()
        .and_then(|line| Some(line.split(' ').nth(1)?.to_owned()));
    let authorization = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.to_owned())
    });
    let Some(path) = path else {
        return;
    };
    let request = Asked { path, authorization };
    asked.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let length = reply.body.len() + if reply.cut { 1000 } else { 0 };
    let mut head = format!(
        "HTTP/1.1 {} x\r\ncontent-length: {length}\r\nconnection: close\r\n",
        reply.status
    );
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let mut stream = &stream;
    let (first, second) = reply.body.split_at(reply.body.len() / 2);
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(first));
    std::thread::sleep(reply.silence);
    let _ = stream.write_all(second);
}

/// What an honest registry answers about one image, under any name.
pub fn honest(built: &Built, asked: &Asked) -> Reply {
    if asked.path.contains("/manifests/") {
        return reply(200).header("content-type", MANIFEST).body(&built.manifest);
    }
    let blob = built
        .blobs()
        .into_iter()
        .find(|blob| asked.path.ends_with(&sha256(blob)));
    blob.map_or_else(|| reply(404), |blob| reply(200).body(blob))
}
