"""What machines and people do to a running study: nothing is lost, nothing is half-true, and the next call goes on."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import create_server

import pytest
import yaml

from tests.integration import soak
from tests.integration.conftest import Checkout, copy_repository
from threespo.envs.alfworld import official
from threespo.errors import InputError
from threespo.provenance.digests import file_digest

pytestmark = pytest.mark.slow

RUN = "alfworld/tiny-s/grpo/seed-0"
DAY = 86_400
BRIEF = """
name: ci
description: as few jobs as a study can have
seeds: [0]
alfworld:
  difficulty: small
  games: {train: 8, calibration: 8, valid_seen: 6, valid_unseen: 6}
  max_steps: 15
policies:
  tiny-s: {kind: tiny, size: s, stands_for: qwen2.5-1.5b-instruct, max_prompt_tokens: 1024, max_response_tokens: 32}
methods: {grpo: {method: grpo, learning_rate: 3.0e-4, paper_row: grpo}}
training: {generations: 300, tasks_per_epoch: 2, group_size: 4}
evaluation: {seeds: [123]}
"""


FINISH = """
import sys
from threespo.provenance.digests import DigestCache
from threespo.pipeline.perform import perform
from threespo.pipeline.plan import check_study, plan_jobs
from threespo.study.resolve import resolve_study
from threespo.pipeline.stages import STAGES
from threespo.pipeline.workflow_run import WorkflowRun

found = resolve_study({"study": "ci"}, None)
study, paths = found.study, found.paths
held = WorkflowRun(found)
held.begin(execute=True)
for verdict in plan_jobs(study, paths, DigestCache()):
    job = verdict.job
    if verdict.must_run:
        perform(study, paths, job, lambda: STAGES[job.stage].run(job.settings(study, paths)))
lines, _ = check_study(study, paths, deep=True)
sys.exit(0 if len(lines) == 1 else str(lines))
"""
"""What a call of the workflow does, without Snakemake and its seconds; then everything must be as recorded."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Iterator[Checkout]:
    """Return a checkout in which a brief study has run to its end; tests must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        # A run that is trained again takes as long as before, so what was made of its times need not be made again.
        patch.setenv("FAKE_STEADY", "1")
        made = brief(tmp_path_factory.mktemp("undisturbed") / "repository")
        done = finish(made)
        assert done.returncode == 0, done.stdout + done.stderr
        yield made


def brief(folder: Path) -> Checkout:
    """Return a checkout whose study ``ci`` has ten jobs."""
    made = copy_repository(folder, "*.safetensors")
    (folder / "config" / "studies" / "ci.yaml").write_text(BRIEF)
    catalogue = folder / "config" / "paper" / "items.yaml"
    items = yaml.safe_load(catalogue.read_text())
    items["notebooks"] = {"main_results": items["notebooks"]["main_results"]}
    items["items"] = [item for item in items["items"] if item["notebook"] == "main_results"]
    catalogue.write_text(yaml.safe_dump(items, sort_keys=False))
    return made


@pytest.fixture
def checkout(undisturbed, tmp_path) -> Checkout:
    """Return a copy of a finished checkout in which the trained run's results are gone."""
    made = copy_of(undisturbed, tmp_path)
    shutil.rmtree(made.results() / "runs" / RUN)
    return made


def copy_of(undisturbed: Checkout, folder: Path) -> Checkout:
    shutil.copytree(undisturbed.folder, folder / "copy", symlinks=True)
    return Checkout(folder / "copy")


def threespo(checkout: Checkout, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "threespo.cli", *arguments]
    return subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment(**extra), capture_output=True, text=True
    )


def train(checkout: Checkout, **more: str) -> subprocess.CompletedProcess[str]:
    return threespo(
        checkout, "train", "results/ci/study.json", "--run", RUN, OMP_NUM_THREADS="1", **more
    )


@contextlib.contextmanager
def training(checkout: Checkout) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """Have the workflow train, on and on; yield its main process, and a function that lets it end and waits for that."""
    checkout.log.write_text("")
    goal, errors = checkout.folder.parent / "goal", checkout.folder.parent / "errors.log"
    with errors.open("w") as said:
        process = subprocess.Popen(
            checkout.command("--until", "train"), cwd=checkout.folder, start_new_session=True,
            env=checkout.environment(FAKE_UNTIL=str(goal)), stdout=subprocess.DEVNULL, stderr=said,
        )  # fmt: skip

    def end() -> None:
        assert process.poll() is None, errors.read_text()
        goal.touch()
        assert process.wait(60) == 0, errors.read_text()

    try:
        wait_for(lambda: "train" in checkout.log.read_text() or process.poll() is not None)
        assert process.poll() is None, errors.read_text()
        yield process, end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_one_message(done: subprocess.CompletedProcess[str], *said: str, code: int = 2) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    (message,) = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("threespo: ") and "as asked" not in line
    ]
    for words in said:
        assert words in message


def check(checkout: Checkout, study: str = "ci") -> list[str]:
    """Return what ``threespo check`` says is missing or damaged."""
    done = threespo(checkout, "check", f"results/{study}")
    assert done.returncode == 1, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("results/")]


def finish(checkout: Checkout, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = checkout.environment(FAKE_NOTEBOOKS="all", OMP_NUM_THREADS="1", **extra)
    command = [sys.executable, "-c", FINISH, "notebook"]
    return subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True)


def goes_on(checkout: Checkout, undisturbed: Checkout) -> None:
    """Make sure that the next call ends, with the results of a study that was never disturbed."""
    done = finish(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    is_as(checkout, undisturbed)


def is_as(checkout: Checkout, undisturbed: Checkout) -> None:
    expected = soak.results(undisturbed.folder)
    assert len(expected) > 20
    assert not soak.differences(expected, soak.results(checkout.folder))


def state(folder: Path, *without: str) -> dict[str, tuple[str, int]]:
    """Return digest and modification time of every file, but for caches of the interpreter."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    names = {str(file.relative_to(folder)): file for file in files}
    return {
        name: (file_digest(file), file.stat().st_mtime_ns)
        for name, file in names.items()
        if "__pycache__" not in name and not name.startswith(("stages.log", *without))
    }


# --- a full disk, a read-only one, no memory


@pytest.mark.parametrize("file", ["*/runs/*/.timing.parquet.*", "*/stages/train/*"])
def test_a_full_disk_ends_a_job_with_one_message_and_the_next_call_makes_it_anew(
    undisturbed, checkout, file
):
    is_one_message(
        train(checkout, FAKE_FAULTS=f"full:{file}"), "cannot be written (No space left on device)", RUN
    )
    assert not list(checkout.results().rglob(".*.parquet*")), "half-written files are gone"
    of_train = [line for line in check(checkout) if line.startswith(f"train {RUN}: ")]
    if "timing" in file:
        names = {line.split("/")[-1] for line in of_train}
        assert {"metrics.parquet: missing", "timing.parquet: missing"} & names == {
            "timing.parquet: missing"
        }
    goes_on(checkout, undisturbed)


def test_a_result_without_its_record_deceives_no_reader(checkout):
    (checkout.results() / "stages" / "train" / f"{RUN}.json").unlink()
    is_one_message(
        train(checkout, FAKE_FAULTS="full:*/stages/train/*"),
        "cannot be written (No space left on device)",
    )
    assert (checkout.results() / "runs" / RUN / "weights" / "model.safetensors").is_file()
    assert check(checkout)[0] == f"train {RUN}: has not ended yet in this folder"
    reader = threespo(checkout, "evaluate", "results/ci/study.json", "--run", RUN)
    is_one_message(reader, f"no record of 'train {RUN}' says how it was made")


def test_a_full_disk_leaves_an_earlier_result_and_its_record_in_agreement(undisturbed, tmp_path):
    checkout = copy_of(undisturbed, tmp_path)
    before = state(checkout.results(), ".jobs.lock", ".journal", "runs/alfworld/tiny-s/grpo/seed-0.lock")
    module = checkout.folder / "threespo" / "methods" / "grpo.py"
    whole = module.read_text()
    module.write_text(whole + "\nADDED = 1\n")
    is_one_message(
        train(checkout, FAKE_FAULTS="full:*/runs/*/.metrics.parquet.*"), "Earlier results are untouched"
    )
    assert state(checkout.results(), ".jobs.lock", ".journal") == before
    module.write_text(whole)
    goes_on(checkout, undisturbed)


def test_a_full_disk_ends_the_main_process_with_one_message(undisturbed, checkout):
    (checkout.results() / "study.json").unlink()
    is_one_message(
        checkout.snakemake(FAKE_FAULTS="full:*/.study.json.*"),
        "cannot be written (No space left on device)",
    )
    # What only saves time does not stop anybody.
    done = finish(checkout, FAKE_FAULTS="full:*/..digests.json.*")
    assert done.returncode == 0, done.stdout + done.stderr
    is_as(checkout, undisturbed)


def test_the_lock_holds_on_a_full_disk_though_it_cannot_say_who_holds_it(undisturbed, checkout):
    (checkout.results() / ".workflow.lock").unlink()
    done = finish(checkout, FAKE_FAULTS="full:*/.workflow.lock")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout.results() / ".workflow.lock").read_text() == ""
    is_as(checkout, undisturbed)


def test_read_only_results_can_be_looked_at_and_are_not_worked_on(checkout):
    place = {"FAKE_FAULTS": f"readonly:{checkout.results()}"}
    before = state(checkout.results())
    is_one_message(checkout.snakemake(**place), "cannot be written (Read-only file system)")
    looked = checkout.snakemake("--dry-run", **place)
    assert looked.returncode == 0, looked.stderr
    assert f"train {RUN}: runs/{RUN}/metrics.parquet: missing (and 7 more)" in looked.stderr
    assert threespo(checkout, "check", "results/ci", **place).stdout.count("missing") == 12
    assert state(checkout.results()) == before


def test_a_job_that_gets_no_memory_says_so(undisturbed, checkout):
    is_one_message(train(checkout, FAKE_HUNGRY="1"), "out of memory", code=1)
    goes_on(checkout, undisturbed)


def test_a_job_that_is_killed_in_mid_write_leaves_nothing_half_true(undisturbed, checkout):
    assert train(checkout, FAKE_FAULTS="killed:*/runs/*/.timing.parquet.*").returncode == -signal.SIGKILL
    run = checkout.results() / "runs" / RUN
    assert (run / "metrics.parquet").is_file()
    (half,) = run.glob(".timing*")
    assert half.stat().st_size > 0
    named = [line for line in check(checkout) if line.startswith("train")]
    assert f"train {RUN}: runs/{RUN}/timing.parquet: missing" in named
    assert not any("metrics.parquet" in line for line in named), "this one is as it was"
    goes_on(checkout, undisturbed)


def test_a_workflow_whose_job_is_killed_for_its_memory_says_that_it_is_not_finished(
    undisturbed, checkout
):
    done = checkout.snakemake(FAKE_FAULTS="killed:*/runs/*/.timing.parquet.*")
    assert done.returncode == 1
    assert "threespo: not finished: 0 of 11 jobs done" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(check(checkout)) == 12
    goes_on(checkout, undisturbed)


# --- a clock that goes back


@pytest.mark.parametrize("when", ["between two calls", "in the middle"])
def test_a_clock_that_goes_back_by_a_day_runs_nothing_twice_and_misses_nothing(
    undisturbed, checkout, when
):
    fault = f"clock-{DAY}:{'*' if when == 'between two calls' else 'evaluate'}"
    if when == "between two calls":
        # What is there was made in the "future", as the kernel's clock has it too.
        tomorrow = time.time() + DAY
        for file in (*checkout.results().rglob("*"), *checkout.folder.glob("config/**/*")):
            os.utime(file, (tomorrow, tomorrow))
    done = checkout.snakemake("--until", "evaluate", FAKE_FAULTS=fault)
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.ran() == [f"evaluate {RUN}", f"train {RUN}"]
    goes_on(checkout, undisturbed)
    if when == "between two calls":
        again = checkout.snakemake()
        assert "Nothing to be done" in again.stderr, again.stderr


# --- several at once


def test_a_second_call_beside_a_running_one_is_refused_and_a_dry_run_changes_nothing(
    undisturbed, checkout
):
    with training(checkout) as (_, end):
        # Snakemake keeps a cache of its own.
        own = (".snakemake/log", ".snakemake/iocache")
        before = state(checkout.folder, *own)
        looked = checkout.snakemake("--dry-run")
        assert looked.returncode == 0, looked.stderr
        is_one_message(
            checkout.snakemake(), "results/ci: another call of the workflow (process ", "on this study"
        )
        is_one_message(threespo(checkout, "unlock", "results/ci"), "another call of the workflow")
        assert state(checkout.folder, *own) == before
        end()
    goes_on(checkout, undisturbed)


def test_another_study_runs_beside_a_running_one(undisturbed, checkout):
    with training(checkout) as (_, end):
        changed = ("study=ci", "set={evaluation: {temperature: 1.0}}", "name=warm")
        done = checkout.snakemake("--until", "train", config=changed)
        assert done.returncode == 0, done.stderr
        assert "2 jobs taken from results/ci" in done.stderr
        end()
    first, second = (
        checkout.results(name) / "runs" / RUN / "metrics.parquet" for name in ("ci", "ci-warm")
    )
    assert file_digest(first) == file_digest(second)
    goes_on(checkout, undisturbed)
    assert not [line for line in check(checkout, "ci-warm") if "has not ended yet" not in line]


def test_a_dry_run_in_a_fresh_checkout_writes_nothing(tmp_path):
    checkout = brief(tmp_path / "repository")
    before = state(checkout.folder)
    done = checkout.snakemake("--dry-run")
    assert done.returncode == 0, done.stderr
    assert "11 jobs not done yet" in done.stderr
    assert state(checkout.folder, ".snakemake") == before
    assert not (checkout.folder / "results").exists()


# --- what a killed workflow leaves


def test_an_orphan_is_waited_for_and_a_stale_lock_explained_and_cleared(undisturbed, checkout):
    with training(checkout) as (process, _):
        process.kill()
        process.wait()
        is_one_message(
            checkout.snakemake(), "results/ci: jobs of a workflow that was killed are still at work"
        )
        is_one_message(threespo(checkout, "unlock", "results/ci"), "still at work")
    assert list(checkout.folder.glob(".snakemake/locks/*.lock"))
    is_one_message(checkout.snakemake(), "has left its lock", "threespo unlock results/ci")
    # As an absolute path too.
    unlocked = threespo(checkout, "unlock", str(checkout.results()))
    assert (unlocked.returncode, unlocked.stdout[:17]) == (0, "locks removed: 2;"), (
        unlocked.stdout + unlocked.stderr
    )
    assert threespo(checkout, "unlock", "results/ci").stdout.startswith("locks removed: 0")
    done = checkout.snakemake("--until", "train")
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.ran() == [f"train {RUN}"]
    goes_on(checkout, undisturbed)


# --- a folder with a strange name


def test_a_folder_of_results_that_a_shell_would_run_is_refused(tmp_path):
    checkout = brief(tmp_path / "repository")
    done = checkout.snakemake(
        "--until", "data", config=("study=ci", "results=it's mine; touch pwned; $(touch pwned)")
    )
    assert (done.returncode, "expected the path of a folder without blanks" in done.stderr) == (2, True)
    assert not list(checkout.folder.rglob("pwned"))


# --- a download that stalls


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + 1000 * b"x"])
def test_a_stalled_download_ends_in_time_and_keeps_what_came(tmp_path, monkeypatch, sent):
    monkeypatch.setattr(official, "_TIMEOUT", 0.5)
    with create_server(("127.0.0.1", 0)) as server:
        served = []

        def serve() -> None:
            served.append(server.accept()[0])
            served[0].sendall(sent)

        threading.Thread(target=serve, daemon=True).start()
        archive = official.Archive(f"http://127.0.0.1:{server.getsockname()[1]}/games.zip")
        begun = time.monotonic()
        kept = 1000 if sent else 0
        with pytest.raises(
            InputError, match=rf"download failed \(.*timed out.*\); {kept} bytes are kept"
        ):
            official.fetch_release(tmp_path, [archive], progress=False)
        assert time.monotonic() - begun < 5
        served[0].close()
    assert (tmp_path / "games.zip.part").exists() == bool(sent)
