"""Confirmatory studies: frozen before they run, and marked as such only while nothing has changed since.

A study that was designed while looking at its own games confirms nothing. So a confirmatory one is evaluated on panels on
which nothing is chosen, and says at which commit, with which configuration and by which code it was frozen.
"""

import json
import re
from pathlib import Path

from threespo.errors import InputError
from threespo.files import write_text
from threespo.pipeline.stages import code_digest
from threespo.provenance.records import current_commit
from threespo.study.checks import confirmatory_problems, edge_problems
from threespo.study.confirmatory import RULE, Freeze
from threespo.study.load import load_study
from threespo.study.marks import configuration_digest
from threespo.study.reading import read_yaml

RESULTS = Path("results")
"""Where studies put their results unless somebody says otherwise."""

_SECTION = re.compile(r"^confirmatory:.*\n(?:[ \t]+.*\n|[ \t]*\n)*", re.MULTILINE)


def freeze(file: Path, *, again: bool = False) -> Freeze:
    """Mark the study in a YAML file as confirmatory.

    Args:
        file: the study's file.
        again: in place of an earlier mark, which is lost.

    Raises:
        InputError: if it has a mark already, is not evaluated on confirmation panels only, has too few seeds, or a
            grid of learning rates that is not extended, or the repository has uncommitted changes.
    """
    study = load_study(file)
    if study.confirmatory and not again:
        raise InputError(
            f"{file}: is frozen at commit {study.confirmatory.commit[:12]} already. A new mark would take the place of that "
            "one, and results that were made under it would no longer be confirmatory. If that is meant: --freeze --again"
        )
    if reasons := [*confirmatory_problems(study), *edge_problems(study)]:
        raise InputError(f"{file}: cannot be frozen as a confirmatory study: {reasons[0]}")
    if (RESULTS / study.name / "runs").exists():
        raise InputError(
            f"{file}: {RESULTS / study.name} has runs of this study already; a study is frozen before it runs. Remove them, "
            "or give the study another name"
        )
    now = current_commit()
    if re.fullmatch("[0-9a-f]{40}", now) is None:
        raise InputError(f"{file}: frozen is a commit, and this one is {now}; commit first")

    mark = Freeze(
        rule=RULE, commit=now, configuration=configuration_digest(study), code=code_digest(study)
    )
    fields = mark.model_dump()
    lines = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in fields.items())
    text = _SECTION.sub("", f"{file.read_text(encoding='utf-8').rstrip()}\n")
    marked = f"{text.rstrip()}\nconfirmatory:\n{lines}"
    try:
        whole = read_yaml(marked, str(file))["confirmatory"] == mark.model_dump()
    except (InputError, KeyError, TypeError):
        whole = False
    if not whole:
        raise InputError(
            f"{file}: the earlier mark cannot be replaced as it is written; remove its section by hand"
        )
    write_text(file, marked)
    return mark
