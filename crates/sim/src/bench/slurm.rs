//! A small real Slurm beside us: munge, one controller and one node on private ports and sockets, ended with the
//! benchmark. Needs Debian's `slurmctld`, `slurmd`, `slurm-client` and `munge`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::house::free_port;

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Slurm {
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    pub fn start() -> anyhow::Result<Slurm> {
        let dir = tempfile::Builder::new().prefix("tenure-slurm-").tempdir()?;
        let root = dir.path().to_owned();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        for below in ["state", "spool", "munge"] {
            fs::create_dir(root.join(below))?;
        }
        let mut key = vec![0; 128];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut key)?;
        fs::write(root.join("munge/key"), key)?;
        fs::set_permissions(root.join("munge/key"), fs::Permissions::from_mode(0o400))?;
        let owned = Command::new("chown")
            .args(["-R", "munge:munge"])
            .arg(root.join("munge"))
            .status()?;
        ensure!(owned.success(), "there is no user munge");
        fs::write(root.join("slurm.conf"), settings(&root))?;
        let mut slurm = Slurm {
            dir,
            daemons: Vec::new(),
        };
        let munge = root.join("munge");
        let setting = |name: &str, file: &str| format!("--{name}={}", munge.join(file).display());
        slurm.daemon(
            Command::new("runuser")
                .args(["-u", "munge", "--", "/usr/sbin/munged", "--foreground"])
                .args([
                    setting("key-file", "key"),
                    setting("socket", "socket"),
                    setting("pid-file", "pid"),
                    setting("log-file", "log"),
                    setting("seed-file", "seed"),
                ]),
        )?;
        slurm.until("munge answers", || munge.join("socket").exists())?;
        slurm.daemon(Command::new("slurmctld").args(["-D", "-i"]))?;
        slurm.daemon(Command::new("slurmd").args(["-D", "-N", "n1"]))?;
        let idle = slurm.client("sinfo");
        slurm.until("the node is idle", || {
            let mut idle = Command::new(idle.get_program());
            idle.args(["-h", "-o", "%T"]).envs(environment(&root));
            idle.output()
                .is_ok_and(|output| output.stdout.starts_with(b"idle"))
        })?;
        Ok(slurm)
    }

    fn daemon(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let child = command
            .envs(environment(self.dir.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {:?}", command.get_program()))?;
        self.daemons.push(child);
        Ok(())
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            ensure!(Instant::now() < deadline, "Slurm: never: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(environment(self.dir.path()));
        command
    }

    /// `srun` of one task.
    pub fn srun(&self) -> Command {
        let mut srun = self.client("srun");
        srun.args(["-n", "1", "--mem", "16"]);
        srun
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
    }
}

fn environment(root: &Path) -> [(&'static str, PathBuf); 1] {
    [("SLURM_CONF", root.join("slurm.conf"))]
}

fn settings(root: &Path) -> String {
    let (root, controller, node) = (root.display(), free_port(), free_port());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!(
        "ClusterName=beside\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n\
         AuthType=auth/munge\nAuthInfo=socket={root}/munge/socket\nCryptoType=crypto/munge\n\
         SlurmUser=root\nStateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool\n\
         SlurmctldPidFile={root}/slurmctld.pid\nSlurmdPidFile={root}/slurmd.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core_Memory\nSlurmdParameters=config_overrides\nReturnToService=2\n\
         SwitchType=switch/none\nMpiDefault=none\n\
         NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=8 RealMemory=4096 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    )
}
