"""What git keeps of shared results, where two people's are merged: settled where it is plain, else explained in one line."""

import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import dump_yaml

from threespo.errors import InputError
from workflow import share
from workflow.descriptions import LOCK, PIPELINE, settle, shared, shared_here, stage_of, unfinished
from workflow.tools import check_repository, git

COMMENT = "# What collaborators push and pull.\n"
PERSON = {
    f"GIT_{role}_{what}": "a@example.org"
    for role in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def describe(**results: str) -> None:
    """Write what `make push` describes of studies with these results, and commit it."""
    stages = {
        name: {"cmd": f"snakemake --config study={name}", "outs": [f"results/{name}"]}
        for name in results
    }
    outs = {
        name: {"path": f"results/{name}", "md5": f"{digest}.dir", "size": 1}
        for name, digest in results.items()
    }
    found = {name: {"cmd": stages[name]["cmd"], "outs": [out]} for name, out in outs.items()}
    metrics = [f"results/{name}/tables/metrics.json" for name in results]
    plots = [{f"results/{name}/tables/learning_curves.csv": {"title": name}} for name in results]
    PIPELINE.write_text(
        COMMENT + yaml.safe_dump({"stages": stages, "metrics": metrics, "plots": plots}, sort_keys=False)
    )
    dump_yaml(LOCK, {"schema": "2.0", "stages": found})
    run("add", "--all")
    run("commit", "--quiet", "--allow-empty", "--message", " ".join(results) or "begin")


def run(*arguments: str) -> str:
    done = git(*arguments)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _repository(tmp_path, monkeypatch):
    """Work in a repository of one's own, whose branch ``main`` has the results of one study."""
    for name, value in {**PERSON, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_EDITOR": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    run("init", "--quiet", "--initial-branch", "main")
    describe(smoke="0")


def diverged(ours: dict[str, str], theirs: dict[str, str]) -> None:
    """Let two people describe results, each on a branch, and check out the first."""
    run("checkout", "--quiet", "-b", "theirs")
    describe(**theirs)
    run("checkout", "--quiet", "-b", "ours", "main")
    describe(**ours)


def digests() -> dict[str, str]:
    return {name: out["md5"].removesuffix(".dir") for name, out in shared_here().items()}


BOTH_ADD = (
    {"smoke": "0", "ci": "1"},
    {"smoke": "0", "mini": "2"},
    {"smoke": "0", "ci": "1", "mini": "2"},
)
MERGES = {
    "each adds a study": BOTH_ADD,
    "each adds several": (
        {"smoke": "0", "a": "1", "ci": "1"}, {"smoke": "0", "b": "2", "mini": "2"},
        {"smoke": "0", "a": "1", "ci": "1", "b": "2", "mini": "2"},
    ),
    "one adds, one has new results": ({"smoke": "0", "ci": "1"}, {"smoke": "5"}, {"smoke": "5", "ci": "1"}),
    "one has new results, one adds": ({"smoke": "5"}, {"smoke": "0", "ci": "1"}, {"smoke": "5", "ci": "1"}),
    "both have the same new results": (
        {"smoke": "5", "ci": "1"}, {"smoke": "5", "mini": "2"}, {"smoke": "5", "ci": "1", "mini": "2"},
    ),
    "one takes a study away": ({"ci": "1"}, {"smoke": "0", "mini": "2"}, {"ci": "1", "mini": "2"}),
}  # fmt: skip


@pytest.mark.parametrize("way", ["merge", "rebase", "cherry-pick"])
@pytest.mark.parametrize(("ours", "theirs", "expected"), MERGES.values(), ids=list(MERGES))
def test_results_of_both_are_kept_where_each_study_is_of_one(ours, theirs, expected, way):
    diverged(ours, theirs)
    if git(way, "theirs").returncode:
        assert set(settle()) <= {"dvc.lock", "dvc.yaml"}
        assert unfinished() is not None
        assert not run("ls-files", "--unmerged")
        run(*str(unfinished()).split()[1:])
    assert unfinished() is None
    assert settle() == []
    assert digests() == expected
    pipeline = yaml.safe_load(PIPELINE.read_text())
    assert set(pipeline["stages"]) == set(expected)
    assert PIPELINE.read_text().startswith(COMMENT)
    assert {f"results/{name}/tables/metrics.json" for name in expected} <= set(pipeline["metrics"])
    assert len(pipeline["plots"]) == len({next(iter(plot)) for plot in pipeline["plots"]})
    assert all(stage_of(name)["cmd"].endswith(f"study={name}") for name in expected)
    assert run("status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "study"),
    [
        ({"smoke": "1"}, {"smoke": "2"}, "smoke"),
        ({"smoke": "0", "ci": "1"}, {"smoke": "0", "ci": "2"}, "ci"),
        ({"smoke": "0", "a": "1", "ci": "1"}, {"smoke": "0", "b": "2", "ci": "3"}, "ci"),
        ({"ci": "1"}, {"smoke": "2", "ci": "1"}, "smoke"),
    ],
)
def test_two_results_of_one_study_are_for_a_person_to_choose_from(ours, theirs, study):
    diverged(ours, theirs)
    assert git("merge", "theirs").returncode
    before = (LOCK.read_bytes(), PIPELINE.read_bytes(), run("ls-files", "--stage"))
    with pytest.raises(
        InputError, match=f"conflict: both sides have shared results of '{study}', and not"
    ) as refused:
        settle()
    assert (LOCK.read_bytes(), PIPELINE.read_bytes(), run("ls-files", "--stage")) == before
    # The remedy is one.
    remedy = str(refused.value).partition("Keep one: ")[2].partition(" (")[0]
    subprocess.run(remedy, shell=True, check=True, capture_output=True)
    assert settle() == []
    assert digests() == ours


def test_two_remotes_are_for_a_person_to_choose_from():
    for branch, url in (("theirs", "/a"), ("ours", "/b")):
        run("checkout", "--quiet", "-b", branch, "main")
        Path(".dvc").mkdir(exist_ok=True)
        Path(".dvc/config").write_text(f"url = {url}\n")
        describe(smoke="0")
    assert git("merge", "theirs").returncode
    with pytest.raises(InputError, match=r"\.dvc/config: both sides of the merge have changed it"):
        settle()


@pytest.mark.parametrize("strategy", ["theirs", "ours"])
def test_what_a_merge_has_dropped_was_shared_all_the_same(strategy):
    diverged({"smoke": "0", "ci": "1"}, {"smoke": "0", "ci": "2"})
    run("merge", "--quiet", "--strategy-option", strategy, "theirs")
    run("branch", "--quiet", "-D", "theirs")
    assert digests()["ci"] == {"theirs": "2", "ours": "1"}[strategy]
    assert {"1.dir", "2.dir"} <= share.ever_shared("ci")
    assert share.ever_shared("smoke") == {"0.dir"}
    assert share.ever_shared("mini") == set()


DAMAGED = [
    "<<<<<<< HEAD\nstages:\n=======\n>>>>>>> theirs\n", "stages: [", "[]", "stages: {ci: {outs: [5]}}", "stages: 5", "\0",
    "[" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_descriptions_that_are_damaged_are_named_in_one_line(text):
    for file, read in ((LOCK, shared_here), (PIPELINE, lambda: stage_of("ci"))):
        file.write_text(text)
        with pytest.raises(InputError, match=f"^{file}: .*(take it from|Take that of)") as refused:
            read()
        assert "\n" not in str(refused.value)
    assert share.ever_shared("smoke") == {"0.dir"}, "one in history does no harm"
    assert shared("") == {}


def test_a_merge_that_was_committed_with_its_marks_says_what_to_take():
    diverged({"smoke": "1"}, {"smoke": "2"})
    assert git("merge", "theirs").returncode
    run("add", "--all")
    run("commit", "--quiet", "--message", "unfinished")
    assert settle() == []
    with pytest.raises(InputError, match=r"dvc\.lock: line \d is a mark of a merge") as refused:
        shared_here()
    remedy = str(refused.value).rpartition(": ")[2]
    subprocess.run(remedy, shell=True, check=True, capture_output=True)
    assert digests() == {"smoke": "1"}


def test_git_says_in_its_own_words_why_it_does_not_look_into_a_repository(tmp_path, monkeypatch):
    check_repository()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(
        InputError, match=r"git: fatal: detected dubious ownership .* --add safe\.directory"
    ) as own:
        check_repository()
    assert "\n" not in str(own.value)
    assert "git init" not in str(own.value)
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    monkeypatch.setenv("LANGUAGE", "de")
    (tmp_path / ".git" / "config").write_text("[core\n")
    with pytest.raises(InputError, match=r"git: fatal: bad config line 1 in file"):
        check_repository()
    (tmp_path / ".git" / "HEAD").write_text("nonsense")
    with pytest.raises(
        InputError, match="not a git repository, by which others learn of results: git init"
    ):
        check_repository()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="git: not installed"):
        check_repository()


def test_a_commit_that_git_does_not_tell_is_so_for_the_reason_that_git_has(tmp_path, monkeypatch):
    from threespo.provenance import records

    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    assert records.current_commit() == run("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert records.current_commit().startswith(
        "unknown (git: fatal: detected dubious ownership in repository at "
    )
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    (tmp_path / ".git").rename(tmp_path / "git")
    assert records.current_commit() == "unknown (not a git checkout)"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert records.current_commit() == "unknown (not a git checkout)"
