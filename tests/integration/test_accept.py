"""``threespo accept``: results stand through a change of code that is proven to have no effect, and through no other."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import Checkout
from tests.integration.test_changes import ROOT, RUN, flip, substitute, verdicts
from threespo.files import try_lock
from threespo.paths import JobId, Paths
from threespo.provenance import records

GRPO = "alfworld/tiny-s/grpo/seed-0"
RECORD = ROOT / "stages" / "train" / f"{GRPO}.json"


def accept(checkout: Checkout) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "threespo.cli", "accept", "ci"],
        cwd=checkout.folder,
        env=checkout.environment(),
        capture_output=True,
        text=True,
    )


def states(checkout: Checkout) -> dict[str, str]:
    return {job: lines[0] for job, lines in verdicts(checkout).items()}


def results(checkout: Checkout) -> dict[str, bytes]:
    """Return every file of the results, records among them."""
    files = (
        path
        for path in checkout.results().rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )
    return {path.relative_to(checkout.results()).as_posix(): path.read_bytes() for path in files}


def rename_publicly(folder: Path) -> None:
    """Give a function another name, where it is and where it is called."""
    substitute("threespo/methods/base.py", "class MethodEntry:", "class MethodOffer:")(folder)
    for file in (folder / "threespo").rglob("*.py"):
        file.write_text(file.read_text().replace("MethodEntry", "MethodOffer"))


def change_settings(folder: Path) -> None:
    """Add a setting, remove an option that has its default, and rename another: one study proves all three."""
    field = 'Field(default=0.0, ge=0, le=1)\n    """Of nothing."""\n    weight_decay: float = Field('
    substitute(
        "threespo/runs/training_settings.py", "weight_decay: float = Field(", f"added: float = {field}"
    )(folder)

    options, method = "threespo/methods/threespo_options.py", "threespo/methods/threespo.py"
    removed = 'keep_duplicates: bool = False\n    """Try children with the same observation each for itself."""'
    substitute(options, removed, "")(folder)
    substitute(method, "rank if self.options.keep_duplicates else child.node.key", "child.node.key")(
        folder
    )
    for file in (options, method):
        substitute(file, "tie_break", "order_of_equals")(folder)


@pytest.mark.parametrize("edit", [rename_publicly, change_settings])
def test_a_change_without_an_effect_is_accepted_after_a_job_of_every_kind(
    finished_copy: Checkout, edit
) -> None:
    before, log = results(finished_copy), finished_copy.log
    edit(finished_copy.folder)
    changed = {job for job, state in states(finished_copy).items() if state == "changed"}
    trained = {job for job in changed if job.startswith("train")}
    assert len(trained) == 4
    log.write_text("")
    done = accept(finished_copy)
    assert done.returncode == 0, done.stderr
    assert "run again to the same bytes" in done.stdout
    # Of each row one seed.
    again = [line for line in log.read_text().splitlines() if line.startswith("train ")]
    assert len(again) == 2
    assert {line.split("/")[2] for line in again} == {"grpo", "threespo-calibrated"}

    after = results(finished_copy)
    differing = {name for name in before if before[name] != after.get(name)}
    # Jobs read the present settings from the study's file, which is written again where these have changed.
    written_again = {"study.json", "call.json"} if edit is change_settings else set()
    assert {name for name in differing if not name.startswith("stages/")} == written_again
    assert after.keys() == before.keys()
    told = states(finished_copy)
    assert all(told[job].startswith("unchanged, accepted at ") for job in trained)
    record = json.loads((finished_copy.folder / RECORD).read_text())
    (note,) = record["accepted"]
    assert note["from"] != note["to"]
    assert note["every_method"] is True
    assert sum(job.startswith("train ") for job in note["run"]) == 2
    if edit is change_settings:
        searched = json.loads(
            (finished_copy.folder / str(RECORD).replace("grpo", "threespo-calibrated")).read_text()
        )
        named = " ".join(searched["accepted"][0]["settings"])
        assert all(
            name in named for name in ("added", "keep_duplicates", "tie_break", "order_of_equals")
        )
    # What is only drawn is drawn anew; nothing is trained.
    log.write_text("")
    assert finished_copy.snakemake().returncode == 0
    assert not [
        line
        for line in log.read_text().splitlines()
        if line.startswith(("train", "evaluate", "learning", "data"))
    ]
    assert "accepted" in (finished_copy.results() / "report.html").read_text()


def test_a_change_with_an_effect_is_named_and_nothing_is_written(finished_copy: Checkout) -> None:
    substitute("threespo/runs/learning_rate.py", "return settings.", "return 2 * settings.")(
        finished_copy.folder
    )
    before = results(finished_copy)
    done = accept(finished_copy)
    assert done.returncode == 1, done.stderr
    assert "weights/model.safetensors comes out differently now" in done.stdout
    assert results(finished_copy) == before
    assert not list(finished_copy.results().glob(".accept*"))


def test_a_change_that_makes_a_job_fail_is_named(finished_copy: Checkout) -> None:
    substitute("threespo/runs/learning_rate.py", "return settings.", "return nothing + settings.")(
        finished_copy.folder
    )
    done = accept(finished_copy)
    assert done.returncode == 1
    assert "fails now: NameError" in done.stdout


def old_format(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    del record["format"]
    (folder / RECORD).write_text(json.dumps(record))


def half_a_note(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(record | {"accepted": ["half"]}))


def truncated(folder: Path) -> None:
    (folder / RECORD).write_bytes((folder / RECORD).read_bytes()[:100])


def other_machine(folder: Path) -> None:
    paths, job = Paths(folder / ROOT), JobId("train", GRPO)
    record = records.read_record(paths, job)
    assert record is not None
    records.write_record(
        paths, dataclasses.replace(record, environment={**record.environment, "processor": "another"})
    )


def other_setting(folder: Path) -> None:
    file = folder / "config" / "studies" / "ci.yaml"
    values = yaml.safe_load(file.read_text())
    values["methods"]["grpo"]["learning_rate"] = 1e-5
    file.write_text(yaml.safe_dump(values))


def damaged(folder: Path) -> None:
    flip(RUN / "metrics.parquet")(folder)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (old_format, "is of an older version"),
        (half_a_note, "not a stage's record (accepted: expected notes)"),
        (truncated, "not a stage's record"),
        (other_machine, "made with processor another"),
        (damaged, "damaged or edited"),
    ],
)
def test_what_cannot_be_accepted_is_one_line_and_nothing_changes(
    finished_copy: Checkout, spoil, said: str
) -> None:
    rename_publicly(finished_copy.folder)
    spoil(finished_copy.folder)
    before = results(finished_copy)
    done = accept(finished_copy)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert results(finished_copy) == before


def test_another_learning_rate_is_refused_since_bytes_differ(finished_copy: Checkout) -> None:
    other_setting(finished_copy.folder)
    before = results(finished_copy)
    done = accept(finished_copy)
    assert done.returncode == 1, done.stderr
    assert "weights/model.safetensors comes out differently now (settings that differ:" in done.stdout
    assert "learning_rate" in done.stdout
    assert results(finished_copy) == before


def test_a_job_of_other_code_or_edited_while_it_ran_is_no_part_of_anothers_proof(
    finished_copy: Checkout,
) -> None:
    paths, seed_1 = Paths(finished_copy.results()), GRPO.replace("seed-0", "seed-1")
    record = records.read_record(paths, JobId("train", seed_1))
    assert record is not None
    records.write_record(
        paths, dataclasses.replace(record, code={**record.code, "threespo.rng:derive": "another"})
    )
    edited = records.read_record(paths, JobId("train", GRPO.replace("grpo", "threespo-calibrated")))
    assert edited is not None
    records.write_record(
        paths,
        dataclasses.replace(
            edited, code={**edited.code, "threespo.rng:derive": records.EDITED_DURING_JOB}
        ),
    )
    rename_publicly(finished_copy.folder)
    finished_copy.log.write_text("")
    assert accept(finished_copy).returncode == 0
    again = {
        line.split()[1]
        for line in finished_copy.log.read_text().splitlines()
        if line.startswith("train ")
    }
    assert {GRPO, seed_1} <= again
    assert states(finished_copy)[f"train {edited.name}"] == "changed"


def test_a_study_that_is_running_is_not_accepted(finished_copy: Checkout) -> None:
    lock = try_lock(Paths(finished_copy.results()).lock)
    assert lock is not None
    with lock:
        done = accept(finished_copy)
    assert done.returncode == 2
    assert "is at work on this study" in done.stderr


def test_with_nothing_to_accept_nothing_runs(finished_copy: Checkout) -> None:
    before = results(finished_copy)
    done = accept(finished_copy)
    assert done.returncode == 0
    assert done.stdout == "0 jobs accepted, 0 of them run again to the same bytes\n"
    assert results(finished_copy) == before
