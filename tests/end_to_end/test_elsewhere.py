"""Where there is no Linux: what it alone has is taken away, from workers too, and runs train."""

import os
import subprocess
import sys

from klip.runs import read_run, run_paths

WITHOUT = """
import builtins, io, os, select, signal, socket
for module, names in {
    os: "sched_getaffinity sched_setaffinity sched_getscheduler sched_setscheduler pidfd_open "
        "memfd_create eventfd getrandom splice copy_file_range posix_fadvise posix_fallocate pipe2 "
        "fdatasync getxattr setxattr listxattr O_TMPFILE O_DIRECT O_PATH",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    select: "epoll",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
usual = io.open
def elsewhere(file, *args, **options):
    if str(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return usual(file, *args, **options)
builtins.open = io.open = elsewhere
with usual(os.environ["CLEARED"], "a") as file:
    file.write("x")
"""


def test_train_resume_and_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    cleared = tmp_path / "cleared"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "CLEARED": str(cleared)}

    def klip(*words):
        command = [sys.executable, "-m", "klip", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    runs = tmp_path / "runs"
    small = ["--steps", "1024", "--hidden", "8", "--epochs", "1", "--seeds", "1"]
    done = klip("train", "CartPole-v1", *small, "--out", str(runs))
    assert done.returncode == 0, done.stderr + done.stdout
    assert cleared.read_text() == "xx", "the worker is a process of its own, and cleared as well"
    (run,) = run_paths(runs)
    assert read_run(run).status == "done"
    for words in (["resume", str(runs)], ["run", "paper", "--task", "CartPole-v1", "--dry-run"]):
        done = klip(*words)
        assert done.returncode == 0, done.stderr + done.stdout
