"""Runs side by side get different GPUs, told apart by UUID; a pretended nvidia-smi lists them."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from threespo.cli import main
from threespo.errors import InputError
from threespo.runs import gpus
from threespo.runs.gpus import VISIBLE_DEVICES, check_granted_gpus, claim_gpus, visible_devices
from threespo.scaling import doctor

ROOT = Path(__file__).resolve().parents[2]
UUIDS = [f"GPU-{letter * 8}-0000" for letter in "abcd"]

JOB = """
import os, pathlib, sys, time
from threespo.runs.gpus import claim_gpus
folder, log, runs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
with claim_gpus(1, runs, folder=folder):
    start = time.monotonic()
    time.sleep(0.4)
    log.write_text(f"{os.environ['CUDA_VISIBLE_DEVICES']} {start} {time.monotonic()}")
"""


def pretend(folder, uuids, used=(), extra=()):
    """Write a nvidia-smi that lists GPUs with these UUIDs, 80 GiB each, of which ``used`` MiB are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [*used, *[0] * (len(uuids) - len(used))]
    listing = [f"GPU {place}: NVIDIA H100 80GB (UUID: {uuid})" for place, uuid in enumerate(uuids)]
    memory = [f"{uuid}, 81920, {amount}" for uuid, amount in zip(uuids, taken, strict=True)]
    script = folder / "nvidia-smi"
    lines = {"-L": [*listing, *extra], "--query": memory}
    asked = "'-L' if '-L' in sys.argv else '--query'"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nlines = {lines!r}\nprint('\\n'.join(lines[{asked}]))\n"
    )
    script.chmod(0o755)
    return folder


def at(folder):
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def four(monkeypatch, tmp_path):
    for name in (VISIBLE_DEVICES, gpus.DEVICE_ORDER, *gpus.SCHEDULER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", at(pretend(tmp_path / "bin", UUIDS)))
    monkeypatch.setenv(gpus.MPS_FOLDER, str(tmp_path / "mps"))


def jobs(number, tmp_path, paths=None):
    """Start jobs that each claim a GPU for 0.4 s; return (name of the device, start, end) of each."""
    logs = [tmp_path / f"job-{place}" for place in range(number)]
    command = [sys.executable, "-c", JOB, str(tmp_path / "locks")]
    running = [
        subprocess.Popen(
            [*command, str(log), "1"],
            cwd=ROOT,
            env={**os.environ, "PATH": (paths or [os.environ["PATH"]] * number)[place]},
            stderr=subprocess.PIPE,
            text=True,
        )
        for place, log in enumerate(logs)
    ]
    for job in running:
        assert job.wait() == 0, job.communicate()[1]
    read = [log.read_text().split() for log in logs]
    return [(name, float(start), float(end)) for name, start, end in read]


def most_at_once(spans):
    return max(sum(start <= moment < end for _, start, end in spans) for _, moment, _ in spans)


def test_eight_jobs_on_four_gpus_never_meet_and_use_all(four, tmp_path):
    done = jobs(8, tmp_path)
    assert {name for name, _, _ in done} == {"0", "1", "2", "3"}
    for device in "0123":
        assert most_at_once([span for span in done if span[0] == device]) == 1


def test_two_runs_may_share_a_gpu_and_spread_first(four, tmp_path, monkeypatch):
    names = []
    with contextlib.ExitStack() as held:
        for _ in range(8):
            held.enter_context(claim_gpus(1, runs_per_gpu=2, folder=tmp_path))
            names.append(os.environ.pop(VISIBLE_DEVICES))
        with (
            pytest.raises(InputError, match="only 0 of 4 are free"),
            claim_gpus(1, runs_per_gpu=2, patience=0, folder=tmp_path),
        ):
            pass
    assert names == ["0", "1", "2", "3"] * 2


def test_a_run_that_wants_a_gpu_alone_and_those_that_share_keep_apart(four, tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "2")
    with (
        claim_gpus(1, folder=tmp_path, runs_per_gpu=2),
        pytest.raises(InputError, match="only 0 of 1 are free"),
        claim_gpus(1, patience=0, folder=tmp_path),
    ):
        pass
    with (
        claim_gpus(1, folder=tmp_path),
        pytest.raises(InputError, match="only 0 of 1 are free"),
        claim_gpus(1, patience=0, folder=tmp_path, runs_per_gpu=2),
    ):
        pass
    with (
        claim_gpus(1, folder=tmp_path, runs_per_gpu=2),
        claim_gpus(1, folder=tmp_path, runs_per_gpu=2),
        pytest.raises(InputError, match="only 0 of 1 are free"),
        claim_gpus(1, patience=0, folder=tmp_path, runs_per_gpu=2),
    ):
        pass


def test_two_cgroups_that_each_see_0_are_two_devices(four, tmp_path, monkeypatch):
    paths = [at(pretend(tmp_path / f"cgroup-{place}", [uuid])) for place, uuid in enumerate(UUIDS[:2])]
    done = jobs(2, tmp_path, paths=paths)
    assert [name for name, _, _ in done] == ["0", "0"]
    assert (tmp_path / "locks" / f"{UUIDS[0]}.lock").exists()
    assert (tmp_path / "locks" / f"{UUIDS[1]}.lock").exists()
    with claim_gpus(1, folder=tmp_path):
        assert os.environ.pop(VISIBLE_DEVICES) == "0"
        monkeypatch.setenv("PATH", paths[1])
        with claim_gpus(1, patience=0, folder=tmp_path):
            assert os.environ[VISIBLE_DEVICES] == "0", "another device of the same name"
    # One cgroup's device is one device.
    assert most_at_once(jobs(2, tmp_path, paths=paths[:1] * 2)) == 1


def test_claims_do_not_overlap_and_are_given_back(four, tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "0,1,2,3")
    with claim_gpus(1, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "0"
        assert os.environ[gpus.DEVICE_ORDER] == "PCI_BUS_ID", "CUDA would number the fastest first"
        os.environ[VISIBLE_DEVICES] = "0,1,2,3"
        with claim_gpus(2, folder=tmp_path):
            assert os.environ[VISIBLE_DEVICES] == "1,2"
        os.environ[VISIBLE_DEVICES] = "0,1,2,3"
        with (
            pytest.raises(InputError, match="only 3 of 4 are free"),
            claim_gpus(4, patience=0, folder=tmp_path),
        ):
            pass
    assert os.environ[VISIBLE_DEVICES] == "0,1,2,3"
    assert gpus.DEVICE_ORDER not in os.environ
    with claim_gpus(4, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "0,1,2,3"


def test_a_device_has_one_lease_whatever_it_is_called(four, tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "1")
    with claim_gpus(1, folder=tmp_path):
        monkeypatch.setenv(VISIBLE_DEVICES, UUIDS[1][:9])
        with (
            pytest.raises(InputError, match="only 0 of 1 are free"),
            claim_gpus(1, patience=0, folder=tmp_path),
        ):
            pass


def test_a_killed_run_leaves_no_claim(four, tmp_path):
    code = (
        "import os, pathlib, signal; from threespo.runs.gpus import claim_gpus\n"
        f"with claim_gpus(4, folder=pathlib.Path({str(tmp_path)!r})): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == -9
    with claim_gpus(4, patience=0, folder=tmp_path):
        pass


def test_what_the_scheduler_has_given_is_not_leased_again(four, tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "3")
    monkeypatch.setenv("SLURM_JOB_GPUS", "3")
    # Two jobs on one device: the scheduler shares it (shards), and it is not for us to refuse that.
    with claim_gpus(1, folder=tmp_path), claim_gpus(1, patience=0, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "3"
    assert not list(tmp_path.glob("*.lock"))
    # An allocation of two GPUs for two runs: they claim theirs.
    monkeypatch.setenv(VISIBLE_DEVICES, "2,3")
    with claim_gpus(1, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "2"
        assert len(list(tmp_path.glob("*.lock"))) == 1


def test_a_gpu_that_others_use_is_passed_over_or_named(four, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", at(pretend(tmp_path / "bin", UUIDS, used=[60_000])))
    with claim_gpus(1, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "1"
    with (
        pytest.raises(InputError, match=r"GPU 0 \(63 GB\): in use by processes"),
        claim_gpus(4, patience=0, folder=tmp_path),
    ):
        pass


def test_slices_of_a_gpu_stand_in_its_place(four, tmp_path, monkeypatch):
    slices = [f"  MIG 3g.40gb     Device  {place}: (UUID: MIG-{place}{place})" for place in range(2)]
    monkeypatch.setenv("PATH", at(pretend(tmp_path / "bin", UUIDS[:1], extra=slices)))
    assert [device.name for device in visible_devices()] == ["MIG-00", "MIG-11"]
    assert visible_devices()[0].model == "MIG 3g.40gb"
    with claim_gpus(2, folder=tmp_path):
        assert os.environ[VISIBLE_DEVICES] == "MIG-00,MIG-11"


def test_a_machine_with_too_few_says_so_before_anything_runs(four, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"gpu=5: this machine offers 4 GPU\(s\).*gpu=4"):
        check_granted_gpus(5)
    assert check_granted_gpus(4) == "4 of 4 GPUs (NVIDIA H100 80GB); each run has a GPU of its own"
    assert "2 runs share a GPU (no MPS" in check_granted_gpus(2, 2)
    (tmp_path / "mps").mkdir()
    (tmp_path / "mps" / "control").touch()
    assert "2 runs share a GPU (MPS is on)" in check_granted_gpus(2, 2)
    monkeypatch.setenv(VISIBLE_DEVICES, "")
    with (
        pytest.raises(InputError, match=r"needs 1 GPU\(s\), this machine offers 0"),
        claim_gpus(1, folder=tmp_path),
    ):
        pass


def test_a_device_that_cannot_be_told_apart_is_refused(four, tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "7")
    with (
        pytest.raises(InputError, match=r"CUDA_VISIBLE_DEVICES: '7' is no device that nvidia-smi lists"),
        claim_gpus(1),
    ):
        pass
    with claim_gpus(0):
        assert os.environ[VISIBLE_DEVICES] == "7", "no GPU asked for changes nothing"


FAILURES = [
    (
        "print('NVIDIA-SMI has failed: no talk to the driver.'); sys.exit(9)",
        "has failed: no talk to the driver",
    ),
    (
        "print('Failed to initialize NVML: mismatch'); sys.exit(18)",
        "code 18.: Failed to initialize NVML: mismatch",
    ),
    ("print('No devices were found'); sys.exit(6)", "No devices were found"),
    ("print('No devices were found')", "No devices were found"),
    ("sys.exit('Insufficient Permissions')", "Insufficient Permissions"),
    ("sys.exit(255)", "exit code 255.: without a word"),
    (
        "print('GPU 0: A (UUID: GPU-1)') if '-L' in sys.argv else sys.exit('GPU is lost: \\xff')",
        "GPU is lost",
    ),
]


def failing(script, monkeypatch, folder):
    file = folder / "nvidia-smi"
    file.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)


@pytest.mark.parametrize(("script", "says"), FAILURES, ids=[says for _, says in FAILURES])
def test_a_driver_that_fails_is_heard(script, says, monkeypatch, tmp_path):
    failing(script, monkeypatch, tmp_path)
    for ask in (
        visible_devices,
        lambda: check_granted_gpus(1),
        lambda: claim_gpus(1, folder=tmp_path).__enter__(),
    ):
        with pytest.raises(InputError, match=says) as found:
            ask()
        assert "\n" not in str(found.value)
        assert "Mend the driver" in str(found.value)


def test_who_only_asks_what_is_here_or_needs_no_gpu_goes_on(monkeypatch, tmp_path, capsys):
    script, says = FAILURES[0]
    failing(script, monkeypatch, tmp_path)
    assert says in doctor.report_machine(tmp_path)[1]
    assert main(["plan", "ci"]) == 0
    assert says in capsys.readouterr().out
    with claim_gpus(0):
        pass
    monkeypatch.setenv(VISIBLE_DEVICES, "")
    assert visible_devices() == []


def test_a_driver_that_hangs_or_cannot_be_started_is_said(monkeypatch, tmp_path):
    def hang(*arguments, **options):
        raise subprocess.TimeoutExpired(arguments[0], options["timeout"])

    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    monkeypatch.setattr(gpus.subprocess, "run", hang)
    with pytest.raises(InputError, match="nvidia-smi does not answer within 60 s"):
        visible_devices()
    monkeypatch.undo()

    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"nvidia-smi cannot be started \(Exec format error\)"):
        visible_devices()


def test_a_machine_without_nvidia_smi_has_no_gpus(monkeypatch, tmp_path):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_devices() == []
    assert "none: studies run on CPU cores" in doctor.report_machine(tmp_path)[1]
