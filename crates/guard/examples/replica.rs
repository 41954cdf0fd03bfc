//! A stand-in for a model server, for `tenure-bench service`: it knows nothing of Tenure, answers HTTP, and does work on
//! an OpenCL device by the tokens of each request, which it streams as it makes them.
//!
//! `replica serve PORT ROUNDS` answers `GET /ready`, and `POST /generate?context=N&generated=M` with server-sent events;
//! `replica measure MICROS` says how many rounds of the kernel take so long here, for one unit of work.

// `call!` exists to call C functions on values made here.
#![allow(clippy::macro_metavars_in_unsafe, dead_code)]

#[path = "../tests/it/cl.rs"]
mod cl;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cl::{Cl, Handle, SPIN};

/// One work group: the device works for one request at a time, as a model's steps do.
const ITEMS: usize = 128;
/// Units of work of a generated token against one of the prompt, which are read many at a time.
const DECODE: u64 = 25;
/// Tokens between two events.
const STEP: u64 = 8;
/// Units of work in one launch at most, so that requests take turns.
const LAUNCH: u64 = 400;

struct Device {
    cl: Cl,
    queue: Handle,
    kernel: Handle,
    /// Rounds of a unit.
    rounds: u64,
}

// SAFETY: OpenCL objects may be used from any thread, and a kernel's arguments are set under the lock around this.
unsafe impl Send for Device {}

impl Device {
    fn open(rounds: u64) -> Device {
        let cl = Cl::open().unwrap_or_else(|code| {
            eprintln!("no OpenCL device: {code}");
            std::process::exit(1);
        });
        let context = cl.context();
        let queue = cl.queue(context, 2);
        let kernel = cl.kernel(context, SPIN, "spin");
        let buffer = cl.buffer(context, 0, ITEMS * 4).expect("a buffer");
        cl.set_arg(kernel, 0, &buffer);
        Device {
            cl,
            queue,
            kernel,
            rounds,
        }
    }

    fn once(&self, rounds: u64) {
        let rounds = u32::try_from(rounds.max(1)).unwrap_or(u32::MAX);
        self.cl.set_arg(self.kernel, 1, &rounds);
        assert_eq!(
            self.cl.launch(self.queue, self.kernel, ITEMS, ITEMS, null_mut()),
            0
        );
        self.cl.finish(self.queue);
    }
}

/// Works for so many units, giving way to other requests in between.
fn work(device: &Mutex<Device>, mut units: u64) {
    while units > 0 {
        let now = units.min(LAUNCH);
        let device = device.lock().expect("nobody panics with it");
        device.once(now * device.rounds);
        units -= now;
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", port, rounds] => serve(
            port.parse().expect("a port"),
            rounds.parse().expect("a number of rounds"),
        ),
        ["measure", micros] => measure(micros.parse().expect("a number of microseconds")),
        _ => {
            eprintln!("replica serve PORT ROUNDS | replica measure MICROS");
            std::process::exit(2);
        }
    }
}

fn measure(micros: f64) {
    let device = Device::open(1);
    let trial = 400_000;
    // The shortest of a few is the kernel without what else the machine does.
    let took = (0..10).map(|_| {
        let begun = Instant::now();
        device.once(trial);
        begun.elapsed().as_secs_f64() * 1e6
    });
    let took = took.fold(f64::MAX, f64::min);
    println!("{}", (trial as f64 * micros / took).max(1.0) as u64);
}

fn serve(port: u16, rounds: u64) {
    let device = Device::open(rounds);
    // The first launch compiles; nobody should wait for that.
    device.once(1);
    let device = Arc::new(Mutex::new(device));
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    for stream in listener.incoming().flatten() {
        let device = device.clone();
        std::thread::spawn(move || {
            let _ = stream.set_nodelay(true);
            // A caller that left is no news.
            let _ = converse(stream, &device);
        });
    }
}

fn converse(stream: TcpStream, device: &Mutex<Device>) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let (name, value) = line.split_once(':').unwrap_or((line.trim_end(), ""));
            if name.is_empty() {
                break;
            }
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        let target = first.split(' ').nth(1).unwrap_or("/");
        match target.split_once('?') {
            Some(("/generate", query)) => generate(&mut writer, device, query)?,
            _ if target == "/ready" => plain(&mut writer, "200 OK")?,
            _ => plain(&mut writer, "404 Not Found")?,
        }
    }
}

fn plain(writer: &mut TcpStream, status: &str) -> std::io::Result<()> {
    writer.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())
}

fn number(query: &str, name: &str) -> u64 {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name);
    values
        .next()
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

fn generate(writer: &mut TcpStream, device: &Mutex<Device>, query: &str) -> std::io::Result<()> {
    let (context, generated) = (number(query, "context"), number(query, "generated"));
    work(device, context);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    writer.write_all(head.as_bytes())?;
    let mut left = generated;
    while left > 0 {
        let tokens = left.min(STEP);
        work(device, tokens * DECODE);
        left -= tokens;
        event(writer, &format!("data: {{\"tokens\":{tokens}}}\n\n"))?;
    }
    event(writer, "data: [DONE]\n\n")?;
    writer.write_all(b"0\r\n\r\n")
}

fn event(writer: &mut TcpStream, text: &str) -> std::io::Result<()> {
    writer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}
