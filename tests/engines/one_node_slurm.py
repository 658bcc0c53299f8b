"""A Slurm of one node for tests: munged, slurmctld and slurmd of this machine, with every file in one folder. Needs root
(slurmd starts jobs) and Debian's packages slurmctld, slurmd and munge; stop() ends the three processes."""

import os
import shutil
import socket
import subprocess
import time

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel"]


def why_not():
    """A sentence if this machine cannot run it, else an empty text."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if lacking:
        return "not installed: " + ", ".join(lacking)
    return "" if os.geteuid() == 0 else "slurmd needs root"


class OneNode:
    def __init__(self, folder, n_cpus):
        self.folder, self.processes = folder, []
        host = socket.gethostname()
        for name in ["state", "spool", "munge"]:
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        os.chmod(os.path.join(folder, "munge"), 0o755)
        self.socket = os.path.join(folder, "munge", "socket")
        key = os.path.join(folder, "munge", "key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o400), "wb") as file:
            file.write(os.urandom(1024))
        self.conf = os.path.join(folder, "slurm.conf")
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write(f"""ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.socket}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={n_cpus} State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
        self.environment = dict(os.environ, SLURM_CONF=self.conf, PATH=os.environ["PATH"] + ":/usr/sbin")
        self.start("munge", ["munged", "--foreground", "--force", "--key-file", key, "--socket", self.socket,
                             "--pid-file", os.path.join(folder, "munge", "pid"), "--seed-file",
                             os.path.join(folder, "munge", "seed"), "--log-file", os.path.join(folder, "munge", "log")])
        self.wait_until("munged has its socket", lambda: os.path.exists(self.socket))
        self.start("slurmctld", ["slurmctld", "-D", "-i"])
        self.start("slurmd", ["slurmd", "-D"])
        self.wait_until("the node is idle", lambda: "idle" in self.ask(["sinfo", "--noheader", "--format=%T"]))

    def start(self, name, words):
        with open(os.path.join(self.folder, name + ".log"), "wb") as log:
            self.processes.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=subprocess.STDOUT))

    def ask(self, words):
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def wait_until(self, what, holds, seconds=60):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {seconds} s; logs are in {self.folder}")
            time.sleep(0.1)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
