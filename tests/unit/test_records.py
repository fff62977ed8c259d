"""What tells results apart: digests with a memory, records, results that another study has, and what is found damaged."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline import perform as performing
from threespo.pipeline import reuse
from threespo.pipeline.perform import perform
from threespo.pipeline.plan import check_study, plan_jobs
from threespo.pipeline.stages import Job, list_jobs
from threespo.pipeline.workflow_run import WorkflowRun, lock_study, unlock
from threespo.provenance import digests as module
from threespo.provenance import records
from threespo.provenance.digests import DigestCache, file_digest, semantic_digest
from threespo.study.load import dump_study, load_study
from threespo.study.resolve import resolve_study

ROOT = Path(__file__).resolve().parents[2]
DATA, POLICY = Job("data", "alfworld"), Job("policy", "alfworld/tiny-s")


@pytest.fixture
def study(monkeypatch):
    monkeypatch.chdir(ROOT)
    return load_study(ROOT / "config" / "studies" / "ci.yaml")


@pytest.fixture
def paths(study, tmp_path):
    """Return a study's folder in which data and policy have been made."""
    return made(study, Paths(tmp_path / "ci"))


def made(study, paths):
    paths.root.mkdir()
    paths.study.write_text(dump_study(study))
    do(study, paths, DATA)
    do(study, paths, POLICY)
    return paths


def do(study, paths, job, done=None):
    """Do a job whose work is to write files; note it in the list ``done``."""

    def work():
        folder = job.outputs(paths).paths()[0]
        (folder / "deep").mkdir(parents=True, exist_ok=True)
        (folder / "deep" / "file").write_text(job.stage)
        if done is not None:
            done.append(str(job))

    perform(study, paths, job, work)


def states(study, paths):
    return {
        str(verdict.job): verdict.lines()[0].split(": ")[1]
        for verdict in plan_jobs(study, paths, DigestCache())
    }


def test_digests_of_a_folder_ignore_markers_of_tools_and_name_every_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_text("1")
    before = DigestCache().digests_of(tmp_path)
    # SHA-256 of "1", from another implementation.
    assert before == {"deep/a": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}
    (tmp_path / ".marker").write_text("x")
    assert DigestCache().digests_of(tmp_path) == before
    (tmp_path / "deep" / "a").write_text("2")
    assert DigestCache().digests_of(tmp_path) != before
    assert DigestCache().digests_of(tmp_path / "nowhere") == {}


def test_a_known_file_is_not_read_again_until_it_changes_even_with_its_times_put_back(
    tmp_path, monkeypatch
):
    memory, file = tmp_path / "memory.json", tmp_path / "weights"
    file.write_text("before")
    monkeypatch.setattr(module, "_RECENT_SECONDS", -1)
    first = DigestCache(memory)
    expected = first.digests_of(file)
    first.save()
    read = []
    monkeypatch.setattr(module, "file_digest", lambda path: read.append(path) or file_digest(path))
    assert DigestCache(memory).digests_of(file) == expected
    assert not read
    times = file.stat()
    file.write_text("beware")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert DigestCache(memory).digests_of(file) != expected
    assert read == [file]
    memory.write_text("[1")
    assert DigestCache(memory).digests_of(file) == {"": file_digest(file)}


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path):
    memory, file = tmp_path / "memory.json", tmp_path / "weights"
    file.write_text("before")
    digests = DigestCache(memory)
    digests.digests_of(file)
    digests.save()
    assert not memory.exists()


@pytest.mark.parametrize(
    ("name", "text", "same", "other"),
    [
        ("a.yaml", "a: 1\nb: [x]\n", "# said\na:   1\n\nb:\n  - x\n", "b: [x]\na: 1\n"),
        (
            "a.ipynb",
            '{"cells": [{"cell_type": "code", "source": "x", "metadata": {}, "outputs": []}]}',
            '{"cells": [{"outputs": [1], "cell_type": "code", "source": "x", "metadata": {"time": 3}}], "nbformat": 4}',
            '{"cells": [{"cell_type": "code", "source": "y", "metadata": {}, "outputs": []}]}',
        ),
        ("a.csv", "1,2\n", "1,2\n", "1,3\n"),
        ("broken.yaml", "a: [", "a: [", "a: [1"),
    ],
)
def test_a_repository_file_counts_by_what_it_says(tmp_path, name, text, same, other):
    found = []
    for content in (text, same, other):
        (tmp_path / name).write_text(content)
        found.append(semantic_digest(tmp_path / name))
    assert found[0] == found[1] != found[2]


def test_a_job_is_done_once_and_again_when_its_result_its_input_or_its_record_is_not_as_it_was(
    study, paths, capsys
):
    done = []
    do(study, paths, DATA, done)
    do(study, paths, POLICY, done)
    assert done == []
    assert "up to date" in capsys.readouterr().err
    (paths.policy("alfworld", "tiny-s") / "deep" / "file").write_text("edited")
    do(study, paths, POLICY, done)
    (paths.policy("alfworld", "tiny-s") / "more").write_text("not of this job")
    do(study, paths, POLICY, done)
    paths.record("policy", "alfworld/tiny-s").write_text("{")
    do(study, paths, POLICY, done)
    assert done == [str(POLICY)] * 3
    # The result of a job that reads a damaged input would be false: it is not begun.
    (paths.data("alfworld") / "deep" / "file").write_text("edited")
    with pytest.raises(
        InputError,
        match=r"deep/file: is damaged or was edited: it is not what 'data alfworld' has written",
    ):
        do(study, paths, POLICY, done)
    (paths.data("alfworld") / "deep" / "file").unlink()
    with pytest.raises(InputError, match=r"deep/file: is missing"):
        do(study, paths, POLICY, done)
    paths.record("data", "alfworld").unlink()
    with pytest.raises(InputError, match="no record of 'data alfworld' says how it was made"):
        do(study, paths, POLICY, done)
    assert len(done) == 3


def test_results_of_another_study_are_taken_only_if_their_records_agree_and_they_are_whole(
    study, paths, tmp_path
):
    def other(name, one=study):
        beside = Paths(tmp_path / name)
        beside.root.mkdir()
        beside.study.write_text(dump_study(one))
        return beside

    twin, done = other("twin"), []
    assert states(study, twin)["data alfworld"] == f"taken from {paths.root}"
    do(study, twin, DATA, done)
    do(study, twin, POLICY, done)
    assert done == []
    file = Path("deep") / "file"
    assert (twin.data("alfworld") / file).samefile(paths.data("alfworld") / file)
    # Neither study writes into the other's file.
    (twin.data("alfworld") / file).unlink()
    do(study, twin, DATA, done)
    assert done == []

    changed = load_study(ROOT / "config" / "studies" / "ci.yaml", {"alfworld": {"max_steps": 9}})
    third = other("third", changed)
    do(changed, third, DATA, done)
    do(changed, third, POLICY, done)
    assert done == [str(POLICY)], "the games are the same, the policy is another"

    for damaged in (paths, twin, third):
        (damaged.data("alfworld") / file).unlink(missing_ok=True)
        (damaged.data("alfworld") / file).write_text("edited")
    fourth = other("fourth")
    do(study, fourth, DATA, done)
    assert done == [str(POLICY), str(DATA)]


def test_check_names_what_is_wrong_and_deep_reads_what_size_and_times_hide(study, paths, monkeypatch):
    lines, well = check_study(study, paths, deep=False)
    assert not well, "most of the study has not run"
    assert lines[-1].startswith(
        f"{paths.root}: 2 of {len(list_jobs(study))} jobs have their results as recorded (2 files)"
    )
    monkeypatch.setattr(module, "_RECENT_SECONDS", -1)
    memory = DigestCache(paths.digests)
    plan_jobs(study, paths, memory)
    memory.save()
    # Bits that fall over on the disk leave no trace in times; here the memory is told that they did not change.
    file = paths.policy("alfworld", "tiny-s") / "deep" / "file"
    file.write_text("fell ovr"[:6])
    found = file.stat()
    known = json.loads(paths.digests.read_text())
    (name,) = (name for name in known if name.startswith("policy"))
    known[name][0] = [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
    paths.digests.write_text(json.dumps(known))
    said = "policy alfworld/tiny-s: policy/alfworld/tiny-s/deep/file: damaged or edited"
    assert not any(line.startswith(said) for line in check_study(study, paths, deep=False)[0])
    assert any(line.startswith(said) for line in check_study(study, paths, deep=True)[0])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stage": "data"}', "\x00", '{"code": 3}'])
def test_a_garbage_record_is_one_message_and_a_reason_to_run(study, paths, text):
    paths.record("data", "alfworld").write_text(text)
    with pytest.raises(InputError, match="not a stage's record"):
        records.read_record(paths, DATA)
    verdict = plan_jobs(study, paths, DigestCache())[0]
    damaged = "  stages/data/alfworld.json: the job's record is damaged, or of an older version"
    assert verdict.lines() == ["data alfworld: changed", damaged]


def test_one_workflow_at_a_time_holds_a_study_and_clears_locks_only_when_nobody_works(
    paths, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    left = Path(".snakemake/locks/0.output.lock")
    left.parent.mkdir(parents=True)
    left.write_text(f"{paths.root}/report.html\n")
    others = left.with_name("1.output.lock")
    others.write_text(f"{paths.root}-other/report.html\n")
    with lock_study(paths):
        with pytest.raises(
            InputError, match=r"another call of the workflow \(process \d+ on .*\) is at work"
        ):
            lock_study(paths)
        with pytest.raises(InputError, match="is at work"):
            unlock(paths)
    assert unlock(paths) == [left]
    assert (left.exists(), others.exists()) == (False, True)


def test_a_job_does_not_go_on_with_what_was_made_with_other_settings_or_code(study, paths):
    """As when somebody edits study.json and calls a command by hand, or lets the workflow leave jobs out."""
    changed = load_study(ROOT / "config" / "studies" / "ci.yaml", {"alfworld": {"games": {"train": 7}}})
    said = r"needs 'data alfworld', which is out of date "
    with pytest.raises(InputError, match=said + r"\(field tasks.games.train: 8"):
        do(changed, paths, POLICY)
    record = json.loads(paths.record("data", "alfworld").read_text())
    record["code"]["threespo.runs.data"] = "0" * 64
    paths.record("data", "alfworld").write_text(json.dumps(record))
    with pytest.raises(InputError, match=said + r"\(code threespo.runs.data"):
        do(study, paths, POLICY)


def test_what_is_edited_while_a_job_runs_is_noted_so_that_it_runs_again(study, paths):
    file = paths.data("alfworld") / "deep" / "file"
    (paths.policy("alfworld", "tiny-s") / "deep" / "file").unlink()

    def work():
        (paths.policy("alfworld", "tiny-s") / "deep" / "file").write_text("made")
        file.write_text("edited meanwhile")

    before = file.read_text()
    perform(study, paths, POLICY, work)
    assert records.read_record(paths, POLICY).input == {
        "data/alfworld/deep/file": "changed while the job ran"
    }
    file.write_text(before)
    assert states(study, paths)["policy alfworld/tiny-s"] == "changed"


def test_a_job_that_leaves_out_a_result_has_no_record(study, paths):
    shutil.rmtree(paths.policy("alfworld", "tiny-s"))
    paths.record("policy", "alfworld/tiny-s").unlink()
    with pytest.raises(
        RuntimeError, match="policy alfworld/tiny-s has ended, but policy/alfworld/tiny-s: missing"
    ):
        perform(study, paths, POLICY, lambda: None)
    assert records.read_record(paths, POLICY) is None


def test_a_record_that_lacks_a_result_or_is_another_jobs_does_not_hide_that(study, paths):
    file = paths.record("policy", "alfworld/tiny-s")
    text = file.read_text()
    shutil.rmtree(paths.policy("alfworld", "tiny-s"))
    file.write_text(json.dumps({**json.loads(text), "output": {}}))
    assert "  policy/alfworld/tiny-s: missing" in plan_jobs(study, paths, DigestCache())[1].lines()
    for change in ({"name": "alfworld/tiny-m"}, {"made": {"commit": "\ud800"}}):
        file.write_text(json.dumps({**json.loads(text), **change}))
        with pytest.raises(InputError, match="not a stage's record"):
            records.read_record(paths, POLICY)


def test_a_folder_in_the_place_of_a_file_is_replaced(study, paths):
    record, folder = paths.record("policy", "alfworld/tiny-s"), paths.policy("alfworld", "tiny-s")
    record.unlink()
    record.mkdir()
    shutil.rmtree(folder)
    folder.write_text("a file")
    do(study, paths, POLICY)
    assert states(study, paths)["policy alfworld/tiny-s"] == "unchanged"


def test_another_study_that_goes_on_while_its_results_are_taken_is_noticed(
    study, paths, tmp_path, monkeypatch
):
    twin, done = Paths(tmp_path / "twin"), []
    twin.root.mkdir()
    twin.study.write_text(dump_study(study))

    def goes_on(*arguments):
        (paths.data("alfworld") / "deep" / "file").write_text("made with other settings")
        reuse.link_results(*arguments)

    monkeypatch.setattr(performing, "link_results", goes_on)
    do(study, twin, DATA, done)
    assert done == [str(DATA)]
    assert (twin.data("alfworld") / "deep" / "file").read_text() == "data"


def test_another_study_of_the_same_name_is_refused(paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        (tmp_path / f"{name}.yaml").write_text((ROOT / "config" / "studies" / "ci.yaml").read_text())

    def begin(**config):
        run = WorkflowRun(resolve_study({"results": str(tmp_path / "results"), **config}, None))
        try:
            run.begin(execute=True)
        finally:
            if run._lock:
                run._lock.close()

    begin(study="mine.yaml")
    begin(study="mine.yaml")
    with pytest.raises(
        InputError, match=r"holds the results of the study in mine.yaml; give other.yaml another 'name'"
    ):
        begin(study="other.yaml")
    begin(study="mine.yaml", name="x", set={"seeds": [3]})
    with pytest.raises(InputError, match=r"ci-x: holds the study with set=.*choose another name="):
        begin(study="mine.yaml", name="x", set={"seeds": [4]})


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("took", "seconds", 1.0),
        ("took", "energy_joules", 5.0),
        ("made", "commit", "0" * 40),
        ("made", "torch", "9.9"),
    ],
)
def test_what_tables_read_of_a_record_is_covered_by_it(study, paths, part, name, value):
    file = paths.record(DATA.stage, DATA.name)
    values = json.loads(file.read_text())
    values[part][name] = value
    file.write_text(json.dumps(values))
    with pytest.raises(
        InputError, match=r"alfworld\.json: not a stage's record \('took' or 'made' was edited"
    ):
        records.read_record(paths, DATA)
    lines, well = check_study(study, paths, deep=True)
    assert (
        "data alfworld: stages/data/alfworld.json: the job's record is damaged, or of an older version"
        in lines
    )
    assert not well
    done = []
    do(study, paths, DATA, done)
    assert done == ["data alfworld"]
    # Layout and order of the file say nothing.
    values = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(values.items()))))
    assert records.read_record(paths, DATA).cost["seconds"] == values["took"]["seconds"]


@pytest.mark.parametrize("field", ["format", "digest_of_took_and_made", "accepted"])
def test_a_record_of_an_earlier_version_is_refused(paths, field):
    file = paths.record(DATA.stage, DATA.name)
    values = json.loads(file.read_text())
    del values[field]
    file.write_text(json.dumps(values))
    with pytest.raises(InputError, match="older version" if field == "format" else field):
        records.read_record(paths, DATA)


@pytest.mark.parametrize("spoiled", [b"{}", b"", b"\xff", b'{"name": "ci"}', b"another"])
def test_a_study_that_is_not_as_the_workflow_wrote_it_is_found(paths, tmp_path, spoiled):
    """Whatever became of it: edited, cut off, one bad bit, another study's."""
    resolved = resolve_study({"study": "ci", "results": str(tmp_path)}, None)
    assert resolved.paths == paths
    with contextlib.suppress(InputError):
        WorkflowRun(resolved).begin(execute=True)
    assert not [
        line for line in check_study(resolved.study, paths, deep=False)[0] if "study.json" in line
    ]
    text = paths.study.read_bytes()
    other = dump_study(load_study(ROOT / "config" / "studies" / "mini.yaml")).encode()
    for content in (
        other if spoiled == b"another" else spoiled,
        text.replace(b"0", b"1", 1),
        text[:-9],
        text + b" ",
    ):
        paths.study.write_bytes(content)
        lines, well = check_study(resolved.study, paths, deep=False)
        assert lines[0].startswith(f"{paths.study}: damaged or edited")
        assert not well


@pytest.mark.parametrize("leads_to", ["elsewhere", "itself", "file", "nowhere"])
def test_links_in_the_place_of_results_are_replaced_and_never_followed(study, paths, tmp_path, leads_to):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    folder = DATA.outputs(paths).paths()[0]
    expected = DigestCache().digests_of(folder)
    targets = {
        "elsewhere": elsewhere,
        "itself": paths.root,
        "file": elsewhere / "mine.txt",
        "nowhere": tmp_path / "gone",
    }
    shutil.rmtree(folder)
    folder.symlink_to(targets[leads_to])
    assert DigestCache().digests_of(folder) == (
        {"": file_digest(elsewhere / "mine.txt")} if leads_to == "file" else {}
    )
    lines, _ = check_study(study, paths, deep=True)
    if leads_to in ("elsewhere", "itself"):
        assert "data alfworld: data/alfworld: a link to a folder, which is not followed" in lines
    do(study, paths, DATA)
    assert not folder.is_symlink()
    assert DigestCache().digests_of(folder) == expected
    assert [path.name for path in elsewhere.iterdir()] == ["mine.txt"]
    assert (elsewhere / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("leads_to", ["folder", "itself", "file", "nowhere"])
def test_a_link_in_the_place_of_a_file_of_results_is_replaced(study, paths, tmp_path, leads_to):
    """A figure, for example, that somebody has replaced by a link to a folder."""
    mine = tmp_path / "mine"
    (mine / "deep").mkdir(parents=True)
    file = paths.record(DATA.stage, DATA.name)
    file.unlink()
    file.symlink_to(
        {"folder": mine, "itself": paths.root, "file": mine / "file", "nowhere": tmp_path / "gone"}[
            leads_to
        ]
    )
    do(study, paths, DATA)
    assert not file.is_symlink()
    assert records.read_record(paths, DATA) is not None
    assert [path.name for path in mine.iterdir()] == ["deep"]
