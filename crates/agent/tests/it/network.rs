//! Tenants' networks: jobs of one tenant reach one another, nobody else reaches them, and what they reach outside is
//! what policy says.

use std::process::{Child, Command, Stdio};

use tenure_api::channel::{LogStream, Order};
use tenure_domain::tenancy::policy::{Egress, Network};

use crate::bench::{Bench, eventually, fresh, is_running};

/// Somewhere outside: a network of its own with a server on a public address, and on that of metadata services.
struct Outside {
    server: Child,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// Names of networks are the host's: one test at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const PUBLIC: &str = "203.0.113.7";
const HOST: &str = "203.0.113.1";
const METADATA: &str = "169.254.169.254";

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(status.success(), "ip {line}");
}

impl Outside {
    async fn new() -> Outside {
        let turn = TURN.lock().await;
        clear();
        ip("netns add tn-outside");
        ip("link add tn-out type veth peer name eth0 netns tn-outside");
        ip(&format!("addr add {HOST}/24 dev tn-out"));
        ip("link set tn-out up");
        ip(&format!("-n tn-outside addr add {PUBLIC}/24 dev eth0"));
        ip(&format!("-n tn-outside addr add {METADATA}/32 dev eth0"));
        ip("-n tn-outside link set eth0 up");
        ip("-n tn-outside link set lo up");
        ip(&format!("route add {METADATA}/32 dev tn-out"));
        let server = Command::new("ip")
            .args(["netns", "exec", "tn-outside", "python3", "-c", SERVER, "8000"])
            .spawn()
            .unwrap();
        Outside { server, _turn: turn }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        clear();
    }
}

/// The pair by its end here: with its namespace it goes only after a while.
fn clear() {
    for what in [["link", "delete", "tn-out"], ["netns", "delete", "tn-outside"]] {
        let _ = Command::new("ip").args(what).stderr(Stdio::null()).status();
    }
}

/// Answers each connection with two megabytes.
const SERVER: &str = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])), reuse_port=True)
while True:
    peer, _ = listener.accept()
    try: peer.sendall(b'x' * (2 << 20))
    except OSError: pass
    peer.close()
";

/// Reads all of an answer and says how much it was, or why there was none.
fn client(address: &str, port: u16) -> String {
    format!(
        "python3 -c \"
import socket, time
begun = time.monotonic()
try:
    with socket.create_connection(('{address}', {port}), timeout=3) as peer:
        got = 0
        while True:
            part = peer.recv(65536)
            if not part: break
            got += len(part)
        print('{address} gave', got, 'in', time.monotonic() - begun)
except OSError as error:
    print('{address} refused', error)
\"\n"
    )
}

fn order(bench: &Bench, tenant: &str, script: &str) -> Order {
    let mut order = bench.order(fresh(), script);
    order.tenant = tenant.into();
    order
}

async fn said(bench: &Bench, order: Order) -> String {
    let id = order.allocation;
    bench.run(order).await;
    bench.log(id, LogStream::Stdout).await + &bench.log(id, LogStream::Stderr).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_reach_only_what_they_may() {
    let _outside = Outside::new().await;
    let bench = Bench::new().await;
    let log = bench.agent_log();
    assert!(log.contains("egress to public addresses by policy"), "{log}");
    eventually("the outside answers the host", || {
        std::net::TcpStream::connect((PUBLIC, 8000)).is_ok()
    })
    .await;
    let mut watcher = bench.watch();
    let service = order(
        &bench,
        "acme",
        &format!("hostname -I; python3 -c \"{SERVER}\" 8000"),
    );
    let id = service.allocation;
    bench.start(service).await;
    watcher.state(id, is_running).await;
    let address = loop {
        let chunk =
            tenure_engine::Engine::read_log(bench.hub(), bench.node, id, LogStream::Stdout, 0, 65536, 2000);
        let text = String::from_utf8(chunk.await.unwrap().bytes).unwrap();
        if let Some(address) = text.split_whitespace().next() {
            break address.to_owned();
        }
    };
    let own = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = own.local_addr().unwrap().port();
    let all = client("127.0.0.1", 8000)
        + &client(&address, 8000)
        + &client(PUBLIC, 8000)
        + &client(METADATA, 8000)
        + &client(HOST, port);
    let text = said(&bench, order(&bench, "acme", &format!("sleep 0.3; {all}"))).await;
    let gave = |text: &str, address: &str| text.contains(&format!("{address} gave 2097152"));
    // The same tenant: one network, one loopback. Outside only what is public.
    assert!(
        gave(&text, "127.0.0.1") && gave(&text, &address) && gave(&text, PUBLIC),
        "{text}"
    );
    assert!(
        !gave(&text, METADATA) && text.contains(&format!("{HOST} refused")),
        "{text}"
    );
    let text = said(&bench, order(&bench, "other", &all)).await;
    assert!(gave(&text, PUBLIC), "{text}");
    assert_eq!(text.matches("gave").count(), 1, "{text}");
    let mut alone = order(&bench, "acme", &all);
    alone.network.egress = Egress::None;
    let text = said(&bench, alone).await;
    assert_eq!(text.matches("gave").count(), 0, "{text}");
    // The host itself reaches a job's address, but nobody does through it.
    assert!(!bench.agent_log().contains("ERROR"), "{}", bench.agent_log());
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_keeps_its_rate() {
    let _outside = Outside::new().await;
    let bench = Bench::new().await;
    eventually("the outside answers the host", || {
        std::net::TcpStream::connect((PUBLIC, 8000)).is_ok()
    })
    .await;
    let seconds = async |max_mbit| {
        let mut order = order(&bench, "acme", &client(PUBLIC, 8000));
        order.network = Network {
            egress: Egress::Internet,
            max_mbit,
        };
        let text = said(&bench, order).await;
        let (_, seconds) = text.rsplit_once("in ").unwrap_or_else(|| panic!("{text}"));
        seconds.trim().parse::<f64>().unwrap()
    };
    let (free, bounded) = (seconds(None).await, seconds(Some(4)).await);
    // 4.2 s by the book, less the second's worth that may come at once.
    println!("2 MiB: {free:.3} s without a bound, {bounded:.3} s at 4 Mbit/s");
    assert!(bounded > 2.5 && bounded > 3.0 * free, "{free} {bounded}");
}

/// Says a word to as many ports as there can be, and so begins as many connections, none of them ever answered.
const FLOOD: &str = "python3 -c \"
import socket
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(20000, 30000):
    try: out.sendto(b'x', ('203.0.113.7', port))
    except OSError: pass
print('flooded')
\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn no_tenant_has_all_the_connections() {
    const MOST: u64 = 8192;
    let _outside = Outside::new().await;
    let bench = Bench::new().await;
    eventually("the outside answers the host", || {
        std::net::TcpStream::connect((PUBLIC, 8000)).is_ok()
    })
    .await;
    let kept = || -> u64 {
        let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
        text.trim().parse().unwrap()
    };
    let before = kept();
    let text = said(&bench, order(&bench, "greedy", FLOOD)).await;
    let more = kept().saturating_sub(before);
    println!("10,000 datagrams to as many ports: {more} connections more are kept");
    assert!(text.contains("flooded"), "{text}");
    // Others on this machine may have begun some meanwhile.
    assert!((MOST / 2..MOST + 1000).contains(&more), "{more}");
    let text = said(&bench, order(&bench, "other", &client(PUBLIC, 8000))).await;
    assert!(text.contains("gave 2097152"), "{text}");
    // And who was greedy has no more of them.
    let text = said(&bench, order(&bench, "greedy", &client(PUBLIC, 8000))).await;
    assert!(text.contains("refused"), "{text}");
}
