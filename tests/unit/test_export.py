"""`threespo export`: files for a paper, whole or not at all, and nothing of anybody else's lost."""

import json
import re
from pathlib import Path

import pytest

from tests.jobs import record
from threespo.cli import main
from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.pipeline.stages import Job
from threespo.provenance.digests import file_digest
from threespo.results.paper.registry import MAKERS
from threespo.study.catalogue import figures_of, notebooks_of
from threespo.study.load import dump_study, load_study
from threespo.tables import write_table
from threespo.watch.export import bibliography, export

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "config" / "studies"
COMMIT = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def paths(tmp_path):
    """A study whose notebooks have run: each file holds its own name."""
    study, made = load_study(ROOT / "config" / "studies" / "ci.yaml"), Paths(tmp_path / "ci")
    write_text(made.study, dump_study(study))
    for name in notebooks_of(study):
        for file in Job("notebook", name).outputs(made).paths():
            write_text(file, file.name)
        record("notebook", study, name, made)
    gather(study, made)
    return made


def gather(study, made):
    """Write the table of a study's provenance, and the record of its tables."""
    rows = [("code", "commit", COMMIT), ("time", "gathered", "2026-11-22 10:00 UTC")]
    rows.append(("study", "settings", dump_study(study)))
    write_table(
        made.table("provenance"),
        [dict(zip(("section", "name", "value"), row, strict=True)) for row in rows],
    )
    record("tables", study, "", made)


def edit(paths, **fields):
    paths.study.write_text(json.dumps({**json.loads(paths.study.read_text()), **fields}))


def call(paths, **fields):
    paths.call.write_text(json.dumps({"config": {}, "gpus": None, "file": "ci.yaml", **fields}))


def test_the_call_that_made_a_study_vouches_for_its_file(paths, tmp_path):
    call(paths, study_sha256=file_digest(paths.study))
    export(paths, tmp_path / "out")
    # An earlier version did not write it down; and how fast a study runs does not matter to its tables.
    call(paths)
    edit(paths, runs_per_gpu=2)
    export(paths, tmp_path / "out")


def files_in(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_all_tables_and_figures_are_there_under_their_items_names(paths, tmp_path, capsys):
    folder = tmp_path / "paper" / "files"
    assert main(["export", str(paths.root), "--to", str(folder)]) == 0
    there = files_in(folder)
    assert f"{folder}: {len(there)} files" in capsys.readouterr().out
    study = load_study(paths.study)
    drawn = {
        f"figures/{item.name}.{kind}" for item in figures_of(study) for kind in ("png", "svg", "csv")
    }
    written = {f"tables/{name}.{kind}" for name in MAKERS for kind in ("csv", "md", "tex")}
    assert drawn | written | {"study.bib", "README.md", "export.json"} <= set(there)
    assert all(there[name] == Path(name).name for name in drawn | written)
    for name in written:
        assert f"`{name}`" in there["README.md"]
    assert json.loads(there["export.json"])["commit"] == COMMIT


def test_the_bibliography_names_study_and_commit_and_balances_its_braces(paths, tmp_path):
    export(paths, tmp_path / "out")
    entry = (tmp_path / "out" / "study.bib").read_text()
    assert entry.startswith("@misc{threespo-ci-0123456,\n")
    assert "year = {2026}" in entry
    assert f"commit {COMMIT}" in entry
    study = load_study(paths.study).model_copy(update={"description": "100 % of {it} & more_"})
    odd = bibliography(study, "unknown (not a git checkout)", "2026")
    assert odd.startswith("@misc{threespo-ci,\n")
    assert r"100 \% of it \& more\_" in odd
    assert odd.count("{") == odd.count("}")


@pytest.mark.parametrize("odd", ["\x1b[31mred", "a\x07bell", "\u202egnp.exe", "\x9b2J", "\u2028line"])
def test_what_would_control_a_terminal_is_spelled_out(paths, tmp_path, odd):
    edit(paths, description=f"one {odd} more")
    study = load_study(paths.study)
    gather(study, paths)
    export(paths, tmp_path / "out")
    for name in ("study.bib", "README.md"):
        text = (tmp_path / "out" / name).read_text()
        assert odd not in text
        assert "".join(text.split("\n")).isprintable()
        assert re.search("[Oo]ne .* more", text)


def test_an_earlier_export_is_replaced_and_the_same_study_gives_the_same_bytes(paths, tmp_path):
    folder = tmp_path / "out"
    export(paths, folder)
    first = files_in(folder)
    export(paths, folder)
    assert files_in(folder) == first
    # Two equal studies differ in nothing, wherever they lie.
    export(paths, tmp_path / "other")
    assert files_in(tmp_path / "other") == first


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda folder: (folder / "notes.txt").write_text("mine"),
            "notes.txt is there, and no export has written it",
        ),
        (
            lambda folder: (folder / "tables" / "alpha.tex").write_text("mine"),
            "tables/alpha.tex was changed after",
        ),
        (lambda folder: (folder / "export.json").unlink(), "is there, and no export has written it"),
        (lambda folder: (folder / "export.json").write_text("{}"), "not the index of an export"),
        (lambda folder: (folder / "export.json").write_text("["), "not readable as JSON"),
    ],
)
def test_what_somebody_else_has_put_there_is_not_overwritten(paths, tmp_path, spoil, says):
    folder = tmp_path / "out"
    export(paths, folder)
    spoil(folder)
    before = files_in(folder)
    with pytest.raises(InputError, match=says) as refused:
        export(paths, folder)
    assert "\n" not in str(refused.value)
    assert files_in(folder) == before


def test_a_file_or_a_link_in_the_place_of_the_folder_is_refused_and_an_empty_folder_is_taken(
    paths, tmp_path
):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("file", "link"):
        with pytest.raises(InputError, match="is there and is no folder"):
            export(paths, tmp_path / name)
    assert "study.bib" in export(paths, tmp_path / "empty")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda paths: paths.paper_table("ablation", "tex").unlink(),
            r"ablation\.tex: is missing.*Run the workflow again",
        ),
        (
            lambda paths: paths.figure("claims", "svg").write_text("other"),
            r"claims\.svg: is damaged or was edited",
        ),
        (
            lambda paths: paths.record("notebook", "alpha").unlink(),
            r"alpha\.csv: no record of 'notebook alpha'",
        ),
        (
            lambda paths: paths.table("provenance").write_bytes(b"PAR1"),
            r"provenance\.parquet: is damaged or was edited",
        ),
        (
            lambda paths: edit(paths, seeds=list(range(10))),
            r"not the study that the tables are of: seeds is \[0, 1, 2",
        ),
        (lambda paths: edit(paths, description="mine"), r'description is "mine" here and "'),
        (lambda paths: edit(paths, gpus_per_rank=1), r"gpus_per_rank"),
        (
            lambda paths: paths.study.write_text(dump_study(load_study(STUDIES / "mini.yaml"))),
            r"study\.json: not the study",
        ),
        (
            lambda paths: paths.study.write_text(paths.study.read_text()[:-20]),
            r"study\.json: not valid YAML",
        ),
        (
            lambda paths: call(paths, study_sha256="0" * 64),
            r"study\.json: damaged or edited: it is not what the workflow",
        ),
    ],
)
def test_a_study_that_is_not_whole_exports_nothing(paths, tmp_path, spoil, says, capsys):
    spoil(paths)
    assert main(["export", str(paths.root), "--to", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(says, said)
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]
