"""The doctor, on this machine and on machines that lack something.

Machines that lack something are made of this one, as containers do it: a filter answers some calls with an
errno.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from racecheck.frontends.cli.main import main
from racecheck.model.errors import CannotRun
from racecheck.sessions.doctor import examination
from racecheck.sessions.doctor.examination import DoctorCheck

TARGETS = Path(__file__).parents[1] / "programs"
WITHOUT = (sys.executable, str(TARGETS / "forbidding.py"))
NON_LINUX = """
import os, signal, socket, sys
sys.platform = "darwin"
for module, name in (os, "pidfd_open"), (signal, "SIGRTMAX"), (socket, "AF_NETLINK"):
    delattr(module, name)
from racecheck.frontends.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
    )


def checks_without(*calls: str, **environment: str) -> dict[str, DoctorCheck]:
    """What the doctor says, torch aside, where some calls (``name=ERRNO``) fail."""
    code = (
        "import json; from dataclasses import asdict; from racecheck.sessions.doctor import examination as d; "
        "print(json.dumps([asdict(each) for each in d._Probe([*d._OTHERS, *d._OPTIONAL]).results()]))"
    )
    done = run(*WITHOUT, *calls, "--", sys.executable, "-c", code, **environment)
    assert done.returncode == 0, done.stderr
    return {each["name"]: DoctorCheck(**each) for each in json.loads(done.stdout)}


def missing(checks: dict[str, DoctorCheck]) -> set[str]:
    return {name for name, each in checks.items() if not each.ok}


def test_this_machine_can_run_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    """All the other tests of worlds need it."""
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "PASS"
    names = [each["name"] for each in data["checks"]]
    assert len(names) == len(set(names))
    assert {"linux", "kernel", "seccomp", "memory", "kcmp", "torch", "loopback", "runs"} <= set(names)
    assert all(each["detail"] for each in data["checks"])
    assert all(bool(each["hint"]) is not each["ok"] for each in data["checks"])


@pytest.mark.parametrize(
    ("call", "name", "required"),
    [
        ("kcmp=EPERM", "kcmp", True),
        ("tgkill=EPERM", "stacks", True),
        ("process_vm_writev=EPERM", "memory", True),
        ("connect=ENETUNREACH", "loopback", True),
        ("pidfd_getfd=EPERM", "pidfd_getfd", False),
        ("unshare=EPERM", "layer", False),
        ("personality=EPERM", "addresses", False),
    ],
)
def test_what_is_forbidden_is_missing_and_nothing_else(call: str, name: str, required: bool) -> None:
    """A probe that does not do what it is about would not notice; one that does more would be named too."""
    found = checks_without(call)
    assert missing(found) == {name}
    assert found[name].required is required
    assert found[name].hint


def test_without_seccomp_everything_that_needs_a_filter_is_missing() -> None:
    found = checks_without("seccomp=EPERM")
    assert {"seccomp", "signals", "descriptors", "memory", "stacks"} <= missing(found)
    assert "Operation not permitted" in found["seccomp"].detail
    assert found["kernel"].ok, "it is not the kernel's fault"


def test_a_kernel_that_does_not_know_the_flag_is_too_old() -> None:
    """EINVAL is what Linux before 5.19 says."""
    found = checks_without("seccomp=EINVAL")
    assert "kernel" in missing(found)
    assert "WAIT_KILLABLE_RECV" in found["kernel"].detail
    assert "5.19" in found["kernel"].hint


def test_few_open_files() -> None:
    """Descriptors of watched files have high numbers."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
        "from racecheck.sessions.doctor import examination as d; "
        "print(*[each.name for each in d._Probe(d._OTHERS).results() if not each.ok])"
    )
    done = run(sys.executable, "-c", code)
    assert done.stdout.split() == ["descriptors"]


def test_a_directory_for_runs_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACECHECK_RUNS", "/proc/runs")
    with pytest.raises(CannotRun, match=r"runs: cannot make /proc/runs/racecheck-\d+: .*RACECHECK_RUNS"):
        examination.start(Path("/proc/runs"))


def test_torch_without_distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.6.0+nodist'\n")
    (tmp_path / "torch" / "distributed.py").write_text("def is_available(): return False\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (torch,) = examination._Probe([examination._TORCH]).results()
    assert not torch.ok
    assert "2.6.0+nodist has no torch.distributed with gloo" in torch.detail
    assert "pip install torch" in torch.hint


def test_without_torch_a_session_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(CannotRun, match=r"torch: ImportError: libtorch\.so"):
        examination.start(tmp_path)


def test_a_run_names_what_the_machine_lacks() -> None:
    """kcmp is not needed to start: without a look beforehand the run would go wrong silently."""
    racecheck = (*WITHOUT, "kcmp=EPERM", "--", sys.executable, "-m", "racecheck")
    done = run(*racecheck, "run", f"{TARGETS / 'savers.py'}::guarded", "--json")
    assert done.returncode == 3
    data = json.loads(done.stdout)
    assert data["verdict"] == "UNKNOWN"
    assert "kcmp" in data["reasons"][0]
    assert data["schedules"] == 0

    said = run(*racecheck, "run", f"{TARGETS / 'savers.py'}::guarded")
    assert said.returncode == 3
    assert said.stdout.startswith("UNKNOWN  this machine cannot run controlled worlds: kcmp: ")


def test_the_other_project_of_that_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "racecheck-9.9.dist-info").mkdir()
    (tmp_path / "racecheck-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: racecheck\nVersion: 9.9\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "racecheck", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (found,) = (each for each in json.loads(done.stdout)["checks"] if each["name"] == "package")
    assert found["detail"] == "racecheck 9.9 is installed, which is another project"
    assert found["hint"].startswith("pip uninstall racecheck")
    assert not found["required"]


def test_the_doctor_of_a_machine_that_lacks_something() -> None:
    done = run(*WITHOUT, "kcmp=EPERM", "personality=EPERM", "--", sys.executable, "-m", "racecheck", "doctor")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert any(line.split()[:2] == ["MISSING", "kcmp"] for line in lines)
    assert any(line.startswith("optional addresses") for line in lines)
    assert lines[-1] == "This machine cannot run controlled worlds: kcmp."


def test_elsewhere_than_on_linux_it_still_prints() -> None:
    done = run(sys.executable, "-c", NON_LINUX, "doctor")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("MISSING  linux")
    assert done.stderr == ""


def test_elsewhere_than_on_linux_a_run_is_unknown() -> None:
    target = f"{TARGETS / 'savers.py'}::guarded"
    done = run(sys.executable, "-c", NON_LINUX, "run", target, "--json")
    assert done.returncode == 3, done.stderr
    assert "linux" in json.loads(done.stdout)["reasons"][0]
    assert "Traceback" not in done.stderr


def test_a_machine_on_which_no_process_can_be_waited_for() -> None:
    target = f"{TARGETS / 'savers.py'}::guarded"
    done = run(*WITHOUT, "pidfd_open=EPERM", "--", sys.executable, "-m", "racecheck", "run", target, "--json")
    assert done.returncode == 3, done.stderr
    assert "pidfd_open(2) is not possible: Operation not permitted" in json.loads(done.stdout)["reasons"][0]
    assert "Traceback" not in done.stderr


def test_an_interpreter_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = examination._Probe(examination._OTHERS).results()
    assert {each.name for each in found} == {each.name for each in examination._OTHERS}
    assert "could not be tested" in found[0].detail


def test_a_limit_on_processes_is_named_in_place_of_what_is_not_missing() -> None:
    for words in ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "no answer in 10 s"):
        found = examination._result(examination._OTHERS[0], False, words)
        assert ("ulimit -u" in found.hint) == ("unavailable" in words)
    assert not examination._result(examination._OTHERS[0], True, "Resource temporarily unavailable").hint
