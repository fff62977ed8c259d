"""The stage ``notebook``: one notebook, executed on the tables."""

from collections.abc import Sequence

from threespo.paths import NOTEBOOKS, PAPER, Paths
from threespo.pipeline.of_results import presentations
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.provenance.code import imported_by_notebook
from threespo.results.settings import NotebookSettings
from threespo.study.catalogue import TABLE_KINDS, files_of, notebook, notebooks, tables_of
from threespo.study.config import Study


def run(settings: NotebookSettings) -> None:
    """Execute the notebook."""
    from threespo.results.notebooks import execute

    execute(settings)


def notebook_settings(_: Study, paths: Paths, name: str) -> NotebookSettings:
    """Return what executes the notebook ``name``."""
    return NotebookSettings(paths=paths, name=name)


def notebook_inputs(_: Study, paths: Paths, name: str) -> Files:
    """Return what executing the notebook ``name`` reads."""
    return {
        "notebook": [NOTEBOOKS / f"{name}.ipynb"],
        "tables": [paths.table(table) for table in notebook(name).tables],
        "paper": [PAPER / file for file in notebook(name).paper],
    }


def notebook_outputs(paths: Paths, name: str) -> Outputs:
    """Return what executing the notebook ``name`` writes."""
    drawn = [paths.figure(item, kind) for item, kind in files_of(name)]
    written = [paths.paper_table(table, kind) for table in tables_of(name) for kind in TABLE_KINDS]
    return Outputs({"figures": drawn, "paper_tables": written, "notebook": [paths.notebook(name)]})


def looked_up(study: Study, name: str) -> Sequence[str]:
    """Return what the notebook's cells import of this package, and where the names of environments are, if it shows any."""
    shown = presentations(study) if notebook(name).environments else ()
    return [*imported_by_notebook(NOTEBOOKS / f"{name}.ipynb"), *shown]


STAGE = Stage(
    about="execute a notebook on the tables",
    run=run,
    arguments=("name",),
    pattern="{name}",
    jobs=notebooks,
    settings=notebook_settings,
    inputs=notebook_inputs,
    outputs=notebook_outputs,
    looked_up=looked_up,
    reusable=False,
)
