//! What a curious or hostile job tries: each probe is run inside a job of another tenant, where it must fail, and
//! then bare on the host beside a bare victim, where it must succeed: a probe that cannot succeed shows nothing.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_api::channel::{LogStream, VolumeOrder};
use tenure_domain::id::VolumeId;

use crate::bench::{Bench, eventually, fresh, is_running};

/// What a tenant has that is nobody else's.
const VICTIM: &str = r#"
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
open('/tmp/victim-secret', 'w').write('secret')
open('/dev/shm/victim-secret', 'w').write('secret')
if os.path.isdir('/volumes/victim'):
    with open('/volumes/victim/file', 'w') as kept:
        kept.write('victim-volume')
        kept.flush()
        os.fsync(kept.fileno())
libc.shmget(0x7e501, 4096, 0o1666)
libc.msgget(0x7e502, 0o1666)
libc.semget(0x7e503, 1, 0o1666)
libc.mq_open(b'/victim-queue', 0o102, 0o666, None)
tcp = socket.create_server(('0.0.0.0', 18123), reuse_port=True)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('0.0.0.0', 18124))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind('\0victim-socket')
abstract.listen()
file = socket.socket(socket.AF_UNIX)
try: os.unlink('/tmp/victim.sock')
except OSError: pass
file.bind('/tmp/victim.sock')
file.listen()
print('victim secret on its log', flush=True)
address = [line for line in os.popen('hostname -I').read().split()] or ['127.0.0.1']
print('address', address[0], flush=True)
time.sleep(600)
"#;

/// Each succeeds where it reaches what it should not. `py` stands for a Python with the C library at hand.
const PROBES: [(&str, &str); 51] = [
    // Processes.
    (
        "see another's processes",
        "grep -l 'victim-marke[r]' /proc/[0-9]*/cmdline | grep -q .",
    ),
    ("signal another's process", "kill -0 $VICTIM_PID"),
    (
        "read another's environment",
        "grep -q VICTIM_SECRET /proc/$VICTIM_PID/environ",
    ),
    (
        "read another's memory",
        "head -c 1 /proc/$VICTIM_PID/maps | grep -q .",
    ),
    ("read another's open files", "ls /proc/$VICTIM_PID/fd/"),
    (
        "reach files through another's root",
        "cat /proc/$VICTIM_PID/root/tmp/victim-secret",
    ),
    (
        "see the agent",
        "grep -l 'tenure-agen[t]' /proc/[0-9]*/cmdline | grep -v '/proc/1/'",
    ),
    (
        "trace another's process",
        "py 'assert libc.ptrace(16, int(os.environ[\"VICTIM_PID\"]), 0, 0) == 0'",
    ),
    // Files.
    (
        "read another's files by path",
        "cat $STATE/allocations/$VICTIM/state.jsonl",
    ),
    ("read another's /tmp", "cat /tmp/victim-secret"),
    ("read another's shared memory files", "cat /dev/shm/victim-secret"),
    ("read another's log", "cat $STATE/allocations/$VICTIM/stdout"),
    ("list the node's allocations", "ls $STATE/allocations"),
    ("read the node's key", "cat $STATE/node.key"),
    (
        "write another's stop request",
        "echo x >> $STATE/allocations/$VICTIM/probe",
    ),
    (
        "speak to the agent's socket",
        "py 'socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(os.environ[\"STATE\"] + \"/agent.sock\")'",
    ),
    ("read the host's shadow file", "cat /etc/shadow"),
    ("list the host's homes", "ls /root"),
    ("list the host's state", "ls /var/lib/dpkg"),
    ("list the host's logs", "ls /var/log"),
    ("read other users' names", "grep -q daemon /etc/passwd"),
    (
        "write to the host's programs",
        "touch /usr/tenure-probe && rm /usr/tenure-probe",
    ),
    (
        "write to the host's settings",
        "touch /etc/tenure-probe && rm /etc/tenure-probe",
    ),
    ("write to the root", "touch /tenure-probe && rm /tenure-probe"),
    ("see the pages of shared devices", "ls -d /dev/shm/tenure-*"),
    // Volumes.
    ("list the node's volumes", "ls $STATE/volumes"),
    (
        "read another's volume as a file",
        "head -c 1 $STATE/volumes/$VOLUME.img",
    ),
    (
        "read another's volume as a device",
        "grep -q victim-volume $VOLUME_DEVICE",
    ),
    (
        "mount another's volume",
        "mkdir -p $TMPDIR/v && mount $VOLUME_DEVICE $TMPDIR/v && umount $TMPDIR/v",
    ),
    // Devices.
    ("open one of the host's devices", ": < $DEVICE"),
    (
        "make a device",
        "mknod $TMPDIR/tenure-null c 1 1 && rm $TMPDIR/tenure-null",
    ),
    ("read the kernel's log", "dmesg | grep -q ."),
    // Communication.
    (
        "attach another's shared memory",
        "py 'assert libc.shmget(0x7e501, 0, 0) >= 0'",
    ),
    (
        "open another's message queue",
        "py 'assert libc.msgget(0x7e502, 0) >= 0'",
    ),
    (
        "open another's semaphores",
        "py 'assert libc.semget(0x7e503, 0, 0) >= 0'",
    ),
    (
        "open another's named queue",
        "py 'assert libc.mq_open(b\"/victim-queue\", 0) >= 0'",
    ),
    (
        "connect to another's abstract socket",
        "py 'socket.socket(socket.AF_UNIX).connect(\"\\0victim-socket\")'",
    ),
    (
        "connect to another's socket file",
        "py 'socket.socket(socket.AF_UNIX).connect(\"/tmp/victim.sock\")'",
    ),
    (
        "connect to another's service",
        "py 'socket.create_connection((os.environ[\"VICTIM_ADDRESS\"], 18123), timeout=2)'",
    ),
    (
        "connect to another's loopback",
        "py 'socket.create_connection((\"127.0.0.1\", 18123), timeout=2)'",
    ),
    (
        "connect to the host's loopback",
        "py 'socket.create_connection((\"127.0.0.1\", int(os.environ[\"HOST_PORT\"])), timeout=2)'",
    ),
    (
        "read what passes on the network",
        "py 'socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)'",
    ),
    ("see the host's interfaces", "ls /sys/class/net"),
    // Rights.
    (
        "mount",
        "mkdir -p $TMPDIR/m && mount -t tmpfs none $TMPDIR/m && umount $TMPDIR/m",
    ),
    ("make namespaces", "unshare --user --map-root-user true"),
    ("change the root", "chroot / /bin/true"),
    ("become root by a set-user-id program", "test $($SETUID -u) = 0"),
    ("set the host's name", "hostname $(hostname)"),
    (
        "load a program into the kernel",
        "py 'assert libc.syscall(321, 0, ctypes.create_string_buffer(struct.pack(\"IIII\", 2, 4, 4, 1) + b\"\\0\" * 112), 128) >= 0'",
    ),
    (
        "make its own limits",
        "mkdir $CGROUP/tenure-probe && rmdir $CGROUP/tenure-probe",
    ),
    (
        "run before all others",
        "py 'os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))'",
    ),
];

/// A shell script that says of each probe whether it reached something.
fn script() -> String {
    let mut text = String::from(
        "py() { python3 -c \"import ctypes, os, socket, struct\nlibc = ctypes.CDLL(None)\nlibc.mq_open.restype = ctypes.c_int\n$1\"; }\n",
    );
    for (number, (_, probe)) in PROBES.iter().enumerate() {
        text.push_str(&format!(
            "if ( {probe} ) >/dev/null 2>&1; then echo reached {number}; else echo held {number}; fi\n"
        ));
    }
    text
}

/// Which probes reached something.
fn reached(log: &str) -> BTreeMap<&'static str, bool> {
    let said = |line: &str| {
        let (word, number) = line.split_once(' ')?;
        Some((PROBES[number.parse::<usize>().ok()?].0, word == "reached"))
    };
    log.lines().filter_map(said).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_probes_reach_nothing() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let victim = fresh();
    let mut order = bench.order(victim, "");
    order.command = ["python3", "-c", VICTIM, "victim-marker"]
        .map(String::from)
        .into();
    order.env.push(("VICTIM_SECRET".into(), "secret".into()));
    let volume = VolumeId(victim.0);
    order.volumes = vec![VolumeOrder {
        id: volume,
        name: "victim".into(),
        size_mib: 16,
        read_only: false,
    }];
    bench.start(order).await;
    watcher.state(victim, is_running).await;
    let log = bench
        .state_dir()
        .join("allocations")
        .join(victim.to_string())
        .join("stdout");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("the victim is ready", || text().contains("address ")).await;
    let address = text().split_whitespace().last().unwrap().to_owned();
    let pid = |of: &str| {
        let output = Command::new("pgrep").args(["-f", of]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let device = [
        "/dev/loop-control",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/hwrng",
        "/dev/kmsg",
    ]
    .into_iter()
    .find(|device| std::fs::File::open(device).is_ok())
    .unwrap();
    // On a file system that honours set-user-id programs, shown to every job.
    let setuid = bench.root.path().join("marks/id");
    std::fs::copy("/usr/bin/id", &setuid).unwrap();
    crate::bench::open_to_all(&setuid, 0o4755);
    let cgroup = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .into_iter()
        .find(|dir| std::path::Path::new(dir).is_dir())
        .unwrap();
    let volume_device = crate::volume::device_of(&bench, volume);
    let variables = |victim_pid: String, address: &str| {
        [
            ("VICTIM_PID", victim_pid),
            ("VICTIM", victim.to_string()),
            ("VICTIM_ADDRESS", address.to_owned()),
            ("STATE", bench.state_dir().display().to_string()),
            ("HOST_PORT", host.local_addr().unwrap().port().to_string()),
            ("DEVICE", device.to_owned()),
            ("SETUID", setuid.display().to_string()),
            ("CGROUP", cgroup.to_owned()),
            ("VOLUME", volume.to_string()),
            ("VOLUME_DEVICE", volume_device.clone()),
        ]
    };

    let mut order = bench.order(fresh(), &script());
    let id = order.allocation;
    order.tenant = "curious".into();
    let inside = variables(pid("victim-marker"), &address);
    order
        .env
        .extend(inside.map(|(name, value)| (name.to_owned(), value)));
    bench.run(order).await;
    let log = bench.log(id, LogStream::Stdout).await;
    let found = reached(&log);
    assert_eq!(
        found.len(),
        PROBES.len(),
        "{log}{}",
        bench.log(id, LogStream::Stderr).await
    );
    let leaks: Vec<_> = found.iter().filter(|(_, reached)| **reached).collect();
    assert!(leaks.is_empty(), "{leaks:?}");

    // The same without any wall: victim and prober bare on the host.
    let mut bare = Command::new("/usr/bin/python3")
        .args(["-c", VICTIM, "bare-victim", "victim-marker"])
        .env("VICTIM_SECRET", "secret")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let output = Command::new("sh")
        .args(["-c", &script()])
        .envs(variables(bare.id().to_string(), "127.0.0.1"))
        .env("TMPDIR", bench.root.path())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    bare.kill().unwrap();
    bare.wait().unwrap();
    for (kind, key) in [("-M", "0x7e501"), ("-Q", "0x7e502"), ("-S", "0x7e503")] {
        let _ = Command::new("ipcrm").args([kind, key]).status();
    }
    for file in ["/tmp/victim-secret", "/dev/shm/victim-secret", "/tmp/victim.sock"] {
        let _ = std::fs::remove_file(file);
    }
    let found = reached(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(found.len(), PROBES.len(), "every probe was tried without walls");
    let idle: Vec<_> = found.iter().filter(|(_, reached)| !**reached).collect();
    assert!(
        idle.is_empty(),
        "probes that reach nothing even without walls: {idle:?}"
    );
}
