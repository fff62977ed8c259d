"""A study's results move between clones in one command each, and DVC compares them between commits."""

import hashlib
import json
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import Checkout
from threespo.errors import InputError
from threespo.paths import Paths
from workflow import share

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PERSON = {
    f"GIT_{role}_{what}": "a@example.org"
    for role in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}
QUIET = {"DVC_NO_ANALYTICS": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
NO_REMOTE = "[core]\n    analytics = false\n"


def call(checkout: Checkout, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    tools = {
        "dvc": [sys.executable, "-m", "dvc"],
        "share": [sys.executable, "-m", "workflow.share"],
        # As a person calls it, with this interpreter instead of .venv's.
        "make": ["make", "--old-file=install", f"BIN={Path(sys.executable).parent}"],
    }
    return subprocess.run(
        [*tools.get(command[0], [command[0]]), *command[1:]],
        cwd=checkout.folder,
        env=checkout.environment(
            **{**QUIET, **PERSON, "DVC_SITE_CACHE_DIR": str(checkout.folder / ".dvc/tmp"), **extra}
        ),
        capture_output=True,
        text=True,
        timeout=300,
    )


def run(checkout: Checkout, *command: str, **extra: str) -> str:
    done = call(checkout, *command, **extra)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def refused(checkout: Checkout, *command: str) -> str:
    """Return the one line with which a command of `workflow.share` ends."""
    done = call(checkout, "share", *command)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), done.stdout + done.stderr
    return lines[0]


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file that collaborators need."""
    files = (path for path in folder.rglob("[!.]*") if path.is_file() and path.suffix != ".log")
    names = {
        path.relative_to(folder).as_posix(): path for path in files if "checkpoints" not in path.parts
    }
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in names.items()}


def copy_of(checkout: Checkout, folder: Path) -> Checkout:
    shutil.copytree(checkout.folder, folder, symlinks=True)
    return Checkout(folder)


def clone_of(checkout: Checkout, folder: Path) -> Checkout:
    subprocess.run(["git", "clone", "--quiet", checkout.folder, folder], check=True)
    return Checkout(folder)


@pytest.fixture(scope="module")
def unshared(finished, tmp_path_factory) -> Checkout:
    """Return a repository with a finished study that nobody has shared yet; tests must not change it."""
    made = copy_of(finished, tmp_path_factory.mktemp("unshared") / "repository")
    (made.folder / ".dvc" / "config").write_text(NO_REMOTE)
    run(made, "git", "init", "--quiet")
    run(made, "git", "add", "--all")
    run(made, "git", "commit", "--quiet", "--message", "code")
    return made


@pytest.fixture(scope="module")
def shared(unshared, tmp_path_factory) -> Checkout:
    """Return a repository that has pushed its study to ``../storage``; tests must not change it."""
    made = copy_of(unshared, tmp_path_factory.mktemp("shared") / "repository")
    (made.folder / "mine.txt").write_text("not finished")
    run(made, "git", "add", "mine.txt")
    said = run(made, "make", "push", "STUDY=ci", "REMOTE=../storage")
    assert f"in {made.folder.parent / 'storage'}" in said
    assert "What remains: git push" in said
    return made


@pytest.fixture(scope="module")
def pulled(shared, tmp_path_factory) -> Checkout:
    """Return a clone of the repository that has pulled the study; tests must not change it."""
    made = clone_of(shared, tmp_path_factory.mktemp("pulled") / "clone")
    assert not made.results().exists()
    said = run(made, "make", "pull", "STUDY=ci")
    assert "snakemake --cores all --config study=ci" in said
    return made


@pytest.fixture
def clone(pulled, tmp_path) -> Checkout:
    """Return a private copy of ``pulled``."""
    return copy_of(pulled, tmp_path / "clone")


def test_another_clone_pulls_the_same_bytes(shared, clone):
    assert digests(clone.results()) == digests(shared.results())
    assert "up to date" in run(clone, "dvc", "status", "ci")
    # Nothing has to be touched, and nothing runs.
    assert "Nothing to be done" in clone.snakemake().stderr


def test_a_push_commits_what_a_clone_needs_and_nothing_else(shared):
    changed = run(shared, "git", "show", "--name-only", "--format=%s", "HEAD").split("\n")
    assert [line for line in changed if line] == ["Results of ci", ".dvc/config", "dvc.lock", "dvc.yaml"]
    assert run(shared, "git", "diff", "--cached", "--name-only").split() == ["mine.txt"]
    assert not run(shared, "git", "ls-files", "results")


def test_a_study_is_added_beside_others(shared):
    before, after = (
        yaml.safe_load((folder / "dvc.yaml").read_text()) for folder in (ROOT, shared.folder)
    )
    smoke, ci = after["stages"]["smoke"], after["stages"]["ci"]
    assert smoke == before["stages"]["smoke"], "which was not shared, and stays"
    # What is added by the command is what stands there by hand.
    assert json.loads(json.dumps(ci).replace("ci", "smoke")) == smoke
    assert after["metrics"] == ["results/ci/tables/metrics.json"]
    assert [list(plot) for plot in after["plots"]] == [["results/ci/tables/learning_curves.csv"]]
    assert (
        (shared.folder / "dvc.yaml")
        .read_text()
        .startswith((ROOT / "dvc.yaml").read_text().split("\nstages")[0])
    )


def test_status_is_quiet_and_quick_until_something_changes(clone):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(clone, "dvc", "status", "ci").strip() == "Data and pipelines are up to date."
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 10
    assert "didn't change, skipping" in run(clone, "dvc", "repro", "ci")
    path = clone.folder / "threespo" / "methods" / "grpo.py"
    path.write_text(path.read_text() + "\nADDED = 1\n")
    assert run(clone, "dvc", "status", "ci").split() == [
        "ci:",
        "changed",
        "deps:",
        "modified:",
        "threespo",
    ]


@pytest.mark.long
def test_metrics_and_curves_are_compared_and_the_next_pull_brings_the_change(shared, clone, tmp_path):
    shutil.copytree(shared.folder.parent, tmp_path / "later", symlinks=True)
    later = Checkout(tmp_path / "later" / "repository")
    study = later.folder / "config" / "studies" / "ci.yaml"
    assert "seeds: [0, 1]" in study.read_text()
    study.write_text(study.read_text().replace("seeds: [0, 1]", "seeds: [1]", 1))
    done = later.snakemake()
    assert done.returncode == 0, done.stderr
    run(later, "make", "push", "STUDY=ci", "REMOTE=../storage")

    rows = json.loads(run(later, "dvc", "metrics", "diff", "HEAD~1", "--json"))[
        "results/ci/tables/metrics.json"
    ]
    success = {
        name: (row["old"], row["new"]) for name, row in rows.items() if name.startswith("success.")
    }
    # One seed won two of four games, the other three.
    splits = [f"success.alfworld.tiny-s.{split}" for split in ("valid_seen", "valid_unseen")]
    methods = ("grpo", "threespo-calibrated")
    assert success == {f"{split}.{method}": (62.5, 75.0) for split in splits for method in methods}

    run(later, "dvc", "plots", "diff", "HEAD~1", "--out", "drawn")
    plots = json.loads(run(later, "dvc", "plots", "diff", "HEAD~1", "--json"))["data"]
    (plot,) = plots["results/ci/tables/learning_curves.csv"]
    points = plot["content"]["data"]["values"]
    drawn = {(point["curve"], point["rev"]) for point in points}
    assert drawn == {
        (f"alfworld tiny-s {name}", rev) for name in methods for rev in ("HEAD~1", "workspace")
    }
    assert plot["content"]["facet"]["field"] == "curve"
    html = (later.folder / "drawn" / "index.html").read_text()
    assert all(f"alfworld tiny-s {name}" in html for name in methods)

    # What the clone has was shared, so it may go.
    run(clone, "git", "pull", "--quiet", str(later.folder))
    assert digests(clone.results()) != digests(later.results())
    run(clone, "make", "pull", "STUDY=ci")
    assert digests(clone.results()) == digests(later.results())


def test_what_was_never_shared_is_not_overwritten(clone):
    report = clone.results() / "report.html"
    shared = report.read_text()
    report.write_text("mine")
    assert "never shared" in refused(clone, "pull", "ci")
    assert report.read_text() == "mine"
    # A file that is missing is no loss, and comes back.
    report.unlink()
    run(clone, "share", "pull", "ci")
    assert report.read_text() == shared


def with_storage(checkout: Checkout, folder: Path) -> Checkout:
    """Return a copy of a repository and of the remote beside it, which may be damaged."""
    shutil.copytree(checkout.folder.parent, folder, symlinks=True)
    made = Checkout(folder / "repository")
    run(made, "dvc", "remote", "modify", "storage", "url", str(folder / "storage"))
    run(made, "git", "commit", "--quiet", "--all", "--message", "another remote")
    return made


def stored(folder: Path) -> dict[str, Path]:
    """Return the objects of a cache or remote by digest."""
    return {
        "".join(file.parts[-2:]): file
        for file in (folder / "files" / "md5").rglob("*")
        if file.is_file()
    }


def damage(files: list[Path]) -> list[str]:
    """Damage each of some files in another way, and return the digests that they are objects of."""
    ways = (
        lambda file: file.unlink(),
        lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes() + b"\0"),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
    )
    for number, file in enumerate(files):
        file.chmod(0o644)
        ways[number % len(ways)](file)
    return ["".join(file.parts[-2:]) for file in files]


def bytes_of(folder: Path) -> dict[str, str]:
    return {name: hashlib.md5(file.read_bytes()).hexdigest() for name, file in stored(folder).items()}


def test_a_push_mends_what_the_remote_has_lost_or_damaged(shared, tmp_path):
    made = with_storage(shared, tmp_path / "mine")
    storage, cache = tmp_path / "mine" / "storage", made.folder / ".dvc" / "cache"
    whole = bytes_of(storage)
    assert all(found == name.partition(".")[0] for name, found in whole.items())
    names = {
        hashlib.md5(file.read_bytes()).hexdigest(): str(file.relative_to(made.results()))
        for file in files_of(made)
    }
    objects = [file for name, file in sorted(stored(storage).items()) if name in names]
    assert len(objects) > 60

    lost = damage(objects[:6])
    said = run(made, "make", "push", "STUDY=ci")
    assert bytes_of(storage) == whole
    mended = next(line for line in said.splitlines() if line.startswith("mended at the remote"))
    assert {name for name in names.values() if name in mended} >= {names[digest] for digest in lost}
    assert "nothing to commit" in said

    # The list of the files, of which DVC asks; and this clone's own cache, from which things are stored.
    (listing,) = [file for name, file in stored(storage).items() if name.endswith(".dir")]
    damage([objects[1], listing])
    damage([file for name, file in sorted(stored(cache).items()) if name in names][:3])
    run(made, "share", "push", "ci")
    assert bytes_of(storage) == whole
    assert all(found == name.partition(".")[0] for name, found in bytes_of(cache).items())
    assert "mended" not in run(made, "share", "push", "ci")


def files_of(checkout: Checkout) -> list[Path]:
    return [file for file in checkout.results().rglob("*") if file.is_file()]


def test_a_pull_brings_nothing_that_is_damaged(shared, pulled, tmp_path):
    storage, made = tmp_path / "storage", copy_of(pulled, tmp_path / "clone")
    shutil.copytree(shared.folder.parent / "storage", storage)
    run(made, "dvc", "remote", "modify", "--local", "storage", "url", str(storage))
    expected, whole = digests(made.results()), bytes_of(storage)
    cache = made.folder / ".dvc" / "cache"
    plain = [name for name in sorted(whole) if not name.endswith(".dir")]
    (listing,) = set(whole) - set(plain)

    # What the cache alone has damaged comes anew.
    damage([stored(cache)[name] for name in plain[:4]])
    shutil.rmtree(made.results())
    assert "pulled results/ci" in run(made, "share", "pull", "ci")
    assert digests(made.results()) == expected

    for names in (plain[:3], [listing]):
        damage([stored(storage)[name] for name in names])
        shutil.rmtree(cache)
        said = refused(made, "pull", "ci")
        assert f"{storage}: lacks, or has damaged, {len(names)} of " in said
        assert "repeat `make push`, which mends it" in said
        assert digests(made.results()) == expected, "untouched"
        # Nothing damaged is left for a `dvc checkout` by hand.
        assert all(found == name.partition(".")[0] for name, found in bytes_of(cache).items())


def test_what_was_damaged_before_it_was_shared_is_told_when_it_comes(shared, tmp_path):
    """Somebody has shared by DVC's own commands, which look at no record."""
    made = with_storage(shared, tmp_path / "mine")
    report = Paths(made.results()).report
    report.write_text(report.read_text() + " ")
    run(made, "dvc", "commit", "--force", "ci")
    run(made, "dvc", "push", "ci")
    run(made, "git", "commit", "--quiet", "--all", "--message", "by hand")
    made = clone_of(made, tmp_path / "clone")
    assert "not as it was made: report.html: damaged or edited" in refused(made, "pull", "ci")


def test_two_people_who_have_each_shared_a_study_merge_their_descriptions(unshared, shared, tmp_path):
    made = copy_of(unshared, tmp_path / "repository")
    made.results().rename(made.results("ci-games"))
    run(made, "share", "push", "ci-games", "--remote", str(shared.folder.parent / "storage"))
    run(made, "git", "fetch", "--quiet", str(shared.folder), "HEAD")
    assert call(made, "git", "merge", "FETCH_HEAD").returncode
    said = run(made, "make", "pull", "STUDY=ci")
    assert "dvc.lock and dvc.yaml: merged, with the results that each side has shared" in said
    assert digests(made.results()) == digests(shared.results())
    assert "What remains: git commit --no-edit (" in run(made, "share", "push", "ci-games")
    run(made, "git", "commit", "--no-edit")
    assert set(yaml.safe_load((made.folder / "dvc.lock").read_text())["stages"]) == {"ci", "ci-games"}
    assert run(made, "git", "status", "--porcelain") == ""


def test_names_of_files_are_no_trouble_or_named(unshared, tmp_path):
    made = copy_of(unshared, tmp_path / "repository")
    for name in ("a\x1b[31mred.txt", "b\nnew", "c {x} %s [1]", "d\u202e"):
        (Paths(made.results()).figures / name).write_text(name)
    said = run(made, "share", "push", "ci", "--remote", "../storage")
    clone = clone_of(made, tmp_path / "clone")
    said += run(clone, "share", "pull", "ci")
    assert {file.name for file in Paths(clone.results()).figures.iterdir()} >= {
        "a\x1b[31mred.txt",
        "b\nnew",
        "d\u202e",
    }
    odd = Paths(made.results()).data("alfworld") / "\x1b[31mred\udcff"
    odd.write_text("mine")
    said += refused(made, "push", "ci")
    odd.unlink()
    assert said.endswith(" not written by this job. Run the workflow to its end, then push.")
    (Paths(made.results()).figures / "\udcff").write_text("mine")
    said += refused(made, "push", "ci")
    assert "\\udcff: a name that is not UTF-8, which DVC cannot store" in said
    assert "\x1b" not in said


def test_wrong_calls_end_with_one_line(unshared, shared, tmp_path):
    assert "not shared in this commit; shared are: ci." in refused(shared, "pull", "mini")
    assert "shared are: none" in refused(unshared, "pull", "ci")
    assert "studies with results: ci" in refused(unshared, "push", "mini")
    assert "name of a folder" in refused(unshared, "push", "../ci")
    assert "make push STUDY=ci REMOTE=" in refused(unshared, "push", "ci")
    for scheme in ("s3", "ssh"):
        assert f"-e '.[{scheme}]'" in refused(
            unshared, "push", "ci", "--remote", f"{scheme}://host/folder"
        )
    assert run(unshared, "git", "status", "--porcelain") == "", "nothing is changed"

    unfinished = copy_of(unshared, tmp_path / "unfinished")
    Paths(unfinished.results()).report.unlink()
    assert "not finished" in refused(unfinished, "push", "ci", "--remote", str(tmp_path / "storage"))
    shutil.rmtree(unfinished.folder / ".git")
    assert "not a git repository" in refused(unfinished, "pull", "ci")


def test_a_remote_that_fails_leaves_results_as_they_are(clone, tmp_path, monkeypatch):
    expected, state = digests(clone.results()), run(clone, "git", "status", "--porcelain")
    shutil.rmtree(clone.folder / ".dvc" / "cache")
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for url, said in ((tmp_path / "gone", "no such folder"), (tmp_path / "empty", "lacks")):
            run(clone, "dvc", "remote", "modify", "--local", "storage", "url", str(url))
            assert said in refused(clone, "pull", "ci")
        # A server that never answers.
        run(clone, "dvc", "remote", "modify", "--local", "storage", "url", f"http://127.0.0.1:{port}/")
        monkeypatch.chdir(clone.folder)
        monkeypatch.setattr(share, "PATIENCE", 3)
        # This process has other code than the clone.
        monkeypatch.setattr(share, "check", lambda study: None)
        for action in (share.pull, share.push):
            with pytest.raises(InputError, match="no answer in 3 seconds"):
                action("ci")
    assert digests(clone.results()) == expected
    assert run(clone, "git", "status", "--porcelain") == state


def test_without_an_identity_the_command_that_remains_is_named(unshared, tmp_path):
    made = copy_of(unshared, tmp_path / "repository")
    nobody = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.useConfigOnly",
        "GIT_CONFIG_VALUE_0": "true",
    }
    said = run(
        made, "share", "push", "ci", "--remote", "../storage", **nobody, **dict.fromkeys(PERSON, "")
    )
    command = next(line for line in said.splitlines() if "What remains" in line).partition(": ")[2]
    assert command.endswith(" && git push")
    run(made, "sh", "-c", command.removesuffix(" && git push"))
    assert run(made, "git", "log", "-1", "--format=%s").strip() == "Results of ci"


def test_a_study_that_no_name_stands_for_is_shared_without_a_command(unshared, tmp_path):
    """On real data, for example: `dvc repro` must not make another study in its place."""
    made = copy_of(unshared, tmp_path / "repository")
    made.results().rename(made.results("ci-games"))
    run(made, "share", "push", "ci-games", "--remote", "../storage")
    stage = yaml.safe_load((made.folder / "dvc.yaml").read_text())["stages"]["ci-games"]
    assert "run the snakemake command that made it" in stage["cmd"]
    assert "didn't change, skipping" in run(made, "dvc", "repro", "ci-games")
    assert "up to date" in run(made, "dvc", "status", "ci-games")


def test_dvc_keeps_results_and_leaves_the_order_of_work_to_snakemake():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert {stage["cmd"].split()[0] for stage in stages.values()} <= {"snakemake", "echo"}
    outs = [settings for stage in stages.values() for out in stage["outs"] for settings in out.values()]
    assert all(settings["persist"] for settings in outs)
    assert (ROOT / ".dvc" / "config").read_text().startswith(NO_REMOTE)
