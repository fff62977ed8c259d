"""Where jobs stand, how long the rest takes, and what ``threespo status`` and the workflow's bar say of it."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from tests.followed import GRPO, SEARCH, going_on, study_in, trained
from threespo import cli
from threespo.pipeline import journal
from threespo.pipeline.stages import Job, list_jobs
from threespo.provenance import records
from threespo.watch.progress import Progress
from threespo.watch.status import StudyBar, describe_study, find_last_line, format_bar, format_duration

TRAIN, SEARCHING = Job("train", GRPO), Job("train", SEARCH)


@pytest.fixture
def study(tmp_path):
    return study_in(tmp_path / "ci")


def record(paths, job, seconds):
    records.write_record(
        paths, records.Record(job.stage, job.name, {}, {}, {}, {}, {"seconds": seconds}, {})
    )


def standing(study, paths, job, unfinished):
    return next(one for one in Progress(study, paths).read_jobs(unfinished) if one.job == job)


def test_a_job_is_waiting_running_and_finished(study):
    study, paths = study
    assert standing(study, paths, TRAIN, {TRAIN}).state == "waiting"
    with journal.log_job(paths, TRAIN):
        assert standing(study, paths, TRAIN, {TRAIN}).state == "running"
        assert standing(study, paths, SEARCHING, {TRAIN}).state == "finished", "it was not to run"
    assert standing(study, paths, TRAIN, {TRAIN}).state == "finished"


def test_a_failed_job_and_a_killed_one_are_told_apart(study):
    study, paths = study
    with pytest.raises(ZeroDivisionError), journal.log_job(paths, TRAIN):
        _ = 1 / 0
    assert standing(study, paths, TRAIN, {TRAIN}).state == "failed"
    assert not standing(study, paths, TRAIN, {TRAIN}).killed

    code = (
        "import os, pathlib\nfrom threespo.pipeline import journal\n"
        "from threespo.paths import Paths\nfrom threespo.pipeline.stages import Job\n"
        f"with journal.log_job(Paths(pathlib.Path({str(paths.root)!r})), Job('train', {SEARCH!r})): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    killed = standing(study, paths, SEARCHING, {SEARCHING})
    assert (killed.state, killed.killed) == ("failed", True)

    # Begun again, it is at work; the end of the earlier one is forgotten.
    with journal.log_job(paths, SEARCHING):
        assert standing(study, paths, SEARCHING, {SEARCHING}).state == "running"


def test_a_process_that_only_has_the_number_of_a_dead_one_is_another(study):
    _, paths = study
    journal.start_journal(paths, [TRAIN])
    call, _ = journal.read_journal(paths)
    assert call is not None
    assert call.is_alive
    values = json.loads(paths.journal.read_text())
    paths.journal.write_text(json.dumps({**values, "started": "1"}) + "\n")
    other, _ = journal.read_journal(paths)
    assert other is not None
    assert other.is_alive is False
    paths.journal.write_text(json.dumps({**values, "host": "elsewhere"}) + "\n{half a li")
    elsewhere, last = journal.read_journal(paths)
    assert elsewhere is not None
    assert elsewhere.is_alive is None
    assert last == {}


def test_a_training_run_tells_its_epoch_and_when_it_will_end(study):
    """Epochs of 20 generations in 10 seconds: of 300, 160 are left after seven, which take 80 seconds."""
    study, paths = study
    going_on(paths, GRPO, range(1, 8))
    with journal.log_job(paths, TRAIN):
        one = standing(study, paths, TRAIN, {TRAIN})
    assert one.training is not None
    assert (one.training.epoch, one.training.spent, one.training.budget, one.training.unit) == (
        7,
        140,
        300,
        "generations",
    )
    assert one.training.rate == 2.0
    assert one.training.seconds_left == pytest.approx(80.0)


def test_a_run_whose_record_is_being_written_is_not_at_its_beginning_again(study):
    study, paths = study
    with journal.log_job(paths, TRAIN):
        trained(paths, GRPO, 3)
        os.utime(paths.run(GRPO).metrics, (time.time() + 1, time.time() + 1))
        assert standing(study, paths, TRAIN, {TRAIN}).state == "finished"


def test_time_left_is_that_of_jobs_like_those_that_are_waiting(study):
    """Two trainings wait, one at a time: each takes what the finished one of its own method took."""
    study, paths = study
    others = [Job("train", name.replace("seed-0", "seed-1")) for name in (GRPO, SEARCH)]
    record(paths, TRAIN, 40.0)
    record(paths, SEARCHING, 60.0)
    progress = Progress(study, paths)
    waiting = {others[0]}
    assert progress.estimate_time_left(progress.read_jobs(waiting)) == (40.0, True)
    assert progress.estimate_time_left(progress.read_jobs({*others})) == (100.0, True)
    for job in list_jobs(study):
        if job.stage == "evaluate":
            waiting.add(job)
    # No evaluation has ended yet, so what they take is not known.
    assert progress.estimate_time_left(progress.read_jobs(waiting)) == (40.0, False)


def test_the_bar_has_jobs_generations_and_time(study):
    study, paths = study
    everything = list_jobs(study)
    trainings = [job for job in everything if job.stage == "train"]
    for job in trainings[:2]:
        record(paths, job, 30.0)
    progress = Progress(study, paths)
    line = format_bar(progress, progress.read_jobs(set(trainings[2:])))
    assert re.match(r"\[[-#= ]+\] \d+ of \d+ jobs, ", line)
    assert f"{len(everything) - 2} of {len(everything)} jobs, 600 of 1,200 generations" in line
    assert line.endswith("60 s left")


def test_the_workflows_bar_is_a_line_of_its_own_when_something_is_new(study, capsys):
    study, paths = study
    shown = StudyBar(study, paths, every=0.02)
    shown.start([TRAIN])
    time.sleep(0.5)
    going_on(paths, GRPO, [1])
    time.sleep(0.5)
    shown.stop()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "900 of 1,200 generations" in lines[0]
    assert "920 of 1,200 generations" in lines[1]
    StudyBar(study, paths).stop()


def test_status_says_what_is_at_work_what_failed_and_what_waits(study, monkeypatch, capsys):
    study, paths = study
    journal.start_journal(paths, [TRAIN, SEARCHING, Job("tables")])
    log = paths.log("train", SEARCH)
    log.parent.mkdir(parents=True)
    log.write_bytes(b"epoch 1\nthreespo: \x1b[31mno games\n\n")
    with pytest.raises(KeyError), journal.log_job(paths, SEARCHING):
        raise KeyError
    going_on(paths, GRPO, [1, 2])
    with journal.log_job(paths, TRAIN):
        lines, well = describe_study(paths)
        assert cli.main(["status", str(paths.root)]) == 1
    shown = capsys.readouterr().out
    assert not well
    assert f"process {os.getpid()} on " in lines[0]
    assert (
        f"running   train {GRPO}: epoch 2, 40 of 300 generations, 2 generations/s, 2 min left" in shown
    )
    assert f"failed    train {SEARCH}: threespo: \\x1b[31mno games ({log})" in shown
    assert "waiting   1 tables" in shown
    assert re.search(r"disk      [\d.]+ kB here, [\d.]+ GB free", shown)


def test_jobs_that_were_not_asked_for_count_for_nothing(study):
    study, paths = study
    others = [job for job in list_jobs(study) if job != TRAIN]
    journal.start_journal(paths, [TRAIN], others)
    with journal.log_job(paths, TRAIN):
        lines, _ = describe_study(paths)
    assert " 0 of 1 jobs" in lines[1]
    assert f"  left      {len(others)} that were not asked for" in lines


def test_status_without_a_workflow_compares_records(study):
    study, paths = study
    lines, well = describe_study(paths)
    assert well
    assert lines[0] == f"{paths.root}: no workflow is at work"
    assert " 0 of " in lines[1]


def test_looking_writes_nothing(study):
    _, paths = study
    journal.start_journal(paths, [TRAIN])
    before = {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")}
    describe_study(paths)
    assert {path: path.stat().st_mtime_ns for path in paths.root.rglob("*")} == before


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "5 s"), (100, "2 min"), (7199, "2.0 h"), (200_000, "2.3 days")]
)
def test_times_are_said_as_people_say_them(seconds, said):
    assert format_duration(seconds) == said


def test_the_last_line_of_a_log_is_the_last_that_says_anything():
    assert find_last_line(b"one\ntwo\n\n  \n") == "two"
    assert find_last_line(b"0%\r50%\r") == "50%"
    assert find_last_line(b"\xff\n") == "\ufffd"
    assert find_last_line(b"") == "an empty log"
