"""Files for a paper: a study's tables and figures, with an entry for a bibliography, in a folder of their own."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.errors import InputError
from threespo.files import read_json, replace_folder, write_json, write_text
from threespo.pipeline import integrity
from threespo.pipeline.stages import Job
from threespo.provenance import records
from threespo.results.paper.latex import escape_latex
from threespo.results.report.captions import caption
from threespo.settings import Execution, select_key_fields
from threespo.study.catalogue import Item, items_of
from threespo.study.configuration import check_study_file
from threespo.study.load import load_study, parse_study
from threespo.tables import read_table
from threespo.terminal import escape_controls

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

INDEX = "export.json"
"""In an exported folder: the study, its commit, and the digest of every file. A folder with it may be replaced."""

BIBLIOGRAPHY = "study.bib"

CONTENTS = "README.md"


def export(paths: "Paths", folder: Path) -> list[str]:
    """Write the tables, figures and bibliography of a finished study into ``folder``, whole or not at all.

    Args:
        paths: of the study.
        folder: is made, or replaced if it is an earlier export in which no file was changed or added.

    Returns:
        Names of the files in it: ``tables/NAME.{csv,md,tex}``, ``figures/NAME.KIND`` of all kinds that notebooks write,
        ``study.bib``, ``README.md`` and ``export.json``. ``NAME`` is the item's in the catalogue, in every study the same.

    Raises:
        InputError: if a table or figure is missing or damaged, or the folder has a file that no export wrote.
    """
    check_study_file(paths)
    study = load_study(paths.study)
    # Before the results are read: a folder that may not be replaced is the cheaper check.
    _check_ours(folder)
    gathered = paths.table("provenance")
    integrity.check_results(study, paths, [gathered])
    origin = read_table(gathered).set_index(["section", "name"])["value"]
    _check_study(study, paths, str(origin["study", "settings"]))

    items = {item: item_files(paths, item) for item in items_of(study)}
    item_paths = [file for files in items.values() for file in files]
    integrity.check_results(study, paths, item_paths)
    commit = str(origin["code", "commit"])
    year = str(origin["time", "gathered"])[:4]
    with replace_folder(folder.absolute()) as out:
        for file in item_paths:
            target = out / file.parent.name
            target.mkdir(exist_ok=True)
            shutil.copyfile(file, target / file.name)
        write_text(out / BIBLIOGRAPHY, bibliography(study, commit, year))
        write_text(out / CONTENTS, _contents(study, commit, items))
        # Of every file but the index itself, which is written last.
        digests = {name: _digest(out / name) for name in _names(out)}
        write_json(out / INDEX, {"study": study.name, "commit": commit, "files": digests})
    return [*digests, INDEX]


def item_files(paths: "Paths", item: Item) -> list[Path]:
    """Return the files that an item's notebook has to write of it, in ``tables`` or ``figures``."""
    written = Job("notebook", item.notebook).outputs(paths).paths()
    return [
        file
        for file in written
        if file.stem == item.name and file.parent in (paths.tables, paths.figures)
    ]


def bibliography(study: "Study", commit: str, year: str) -> str:
    """Return a BibTeX entry of a study's results, with the commit that they were gathered at."""
    short = re.match("[0-9a-f]{7}", commit)
    key = f"threespo-{study.name}-{short[0]}" if short else f"threespo-{study.name}"
    fields = {
        "title": f"3SPO reproduced: results of the study {{{study.name}}}",
        "author": "{threespo contributors}",
        "year": year,
        "howpublished": "threespo, results of one study",
        "note": f"{_in_bibtex(study.description)}; {len(study.seeds)} training seeds; commit {_in_bibtex(commit)}",
    }
    # Descriptions are people's, and both files are looked at in terminals.
    return escape_controls(
        f"@misc{{{key},\n"
        + "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
        + "}\n"
    )


def _check_ours(folder: Path) -> None:
    """Make sure that nothing is lost where ``folder`` is replaced.

    Raises:
        InputError: naming the first file that is not as an export wrote it.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    remedy = "choose a folder that does not exist, or remove it"
    if not folder.is_dir() or folder.is_symlink():
        raise InputError(f"{folder}: is there and is no folder; {remedy}")
    present = _names(folder)
    if not present:
        return
    if INDEX not in present:
        raise InputError(f"{folder}: {present[0]} is there, and no export has written it; {remedy}")

    exported = _index(folder / INDEX)
    for name in present:
        if name == INDEX:
            continue
        if name not in exported:
            raise InputError(
                f"{folder}: {name} is there, and no export has written it; move it, or {remedy}"
            )
        # An edited table is somebody's work and would be lost.
        if _digest(folder / name) != exported[name]:
            raise InputError(f"{folder}: {name} was changed after it was exported; move it, or {remedy}")


def _index(file: Path) -> dict[str, str]:
    remedy = "Remove the folder, or choose another one."
    values: Any = read_json(file, remedy)
    files = values.get("files") if isinstance(values, dict) else None
    if not isinstance(files, dict):
        raise InputError(f"{file}: not the index of an export. {remedy}")
    return files


def _names(folder: Path) -> list[str]:
    """Return what is in a folder, all but folders, in a fixed order."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _check_study(study: "Study", paths: "Paths", gathered: str) -> None:
    """Make sure that the study's file is that of its tables, which have their records; ``gathered`` is the study in them.

    Raises:
        InputError: naming the first field that differs.
    """
    gathered_study = parse_study(json.loads(gathered), str(paths.table("provenance")))
    # Without settings of execution (cores, devices), which change no result.
    before = dict(records.flatten_fields(select_key_fields(gathered_study, (Execution,))))
    present = dict(records.flatten_fields(select_key_fields(study, (Execution,))))
    for name in sorted(before.keys() | present.keys()):
        if before.get(name) != present.get(name):
            raise InputError(
                f"{paths.study}: not the study that the tables are of: {name} is {present.get(name, 'not there')} here and "
                f"{before.get(name, 'not there')} there. Run the workflow, which brings them together."
            )


def _contents(study: "Study", commit: str, items: dict[Item, list[Path]]) -> str:
    """Return what is in the folder, with the captions."""
    lines = [
        f"# Tables and figures of the study {study.name}",
        "",
        f"{study.description[0].upper()}{study.description[1:]}. Gathered at commit {commit}.",
        "Tables need the LaTeX package `booktabs`; `\\input` them into a `table`.",
        "Texts need `longtable` besides, and no `table` around them.",
    ]
    for item, files in items.items():
        title, text = caption(study, item)
        where = ", ".join(f"`{file.parent.name}/{file.name}`" for file in files)
        lines += ["", f"## {title}", "", where, "", text]
    return escape_controls("\n".join([*lines, ""]))


def _in_bibtex(text: str) -> str:
    """Return text that BibTeX and LaTeX take as it is; braces, which would have to balance, are left out."""
    # LaTeX's escapes of these three contain braces, and are needed in tables only.
    return (
        escape_latex(re.sub("[{}]", "", text))
        .replace("{[}", "[")
        .replace("{]}", "]")
        .replace("{*}", "*")
    )
