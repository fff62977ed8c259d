"""The stage ``notebook``: one notebook, executed on the tables."""

from collections.abc import Sequence

from threespo.paths import PAPER_FOLDER, Paths
from threespo.pipeline.of_results import presentation_modules
from threespo.pipeline.stage import Files, Outputs, Stage
from threespo.provenance.code import notebook_imports
from threespo.results.settings import NotebookSettings
from threespo.study.catalogue import (
    TABLE_KINDS,
    figure_files_of,
    find_notebook,
    notebook_file,
    notebooks_of,
    tables_made_by,
)
from threespo.study.config import Study


def run(settings: NotebookSettings) -> None:
    """Execute the notebook."""
    from threespo.results.paper.notebooks import execute

    execute(settings)


def notebook_settings(_: Study, paths: Paths, name: str) -> NotebookSettings:
    """Return what executes the notebook ``name``."""
    shared = find_notebook(name).source is not None
    parameters = {"table": name, "inputs": list(find_notebook(name).tables)} if shared else {}
    return NotebookSettings(
        paths=paths, name=name, source=notebook_file(name).as_posix(), parameters=parameters
    )


def notebook_inputs(_: Study, paths: Paths, name: str) -> Files:
    """Return what executing the notebook ``name`` reads."""
    return {
        "notebook": [notebook_file(name)],
        "tables": [paths.table(table) for table in find_notebook(name).tables],
        "paper": [PAPER_FOLDER / file for file in find_notebook(name).paper],
    }


def notebook_outputs(paths: Paths, name: str) -> Outputs:
    """Return what executing the notebook ``name`` writes."""
    drawn = [paths.figure(item, kind) for item, kind in figure_files_of(name)]
    written = [paths.paper_table(table, kind) for table in tables_made_by(name) for kind in TABLE_KINDS]
    return Outputs({"figures": drawn, "paper_tables": written, "notebook": [paths.notebook(name)]})


def extra_modules(study: Study, name: str) -> Sequence[str]:
    """Return what the notebook's cells import of this package, and where the names of environments are, if it shows any."""
    shown = presentation_modules(study) if find_notebook(name).environments else ()
    return [*notebook_imports(notebook_file(name)), *shown]


STAGE = Stage(
    summary="execute a notebook on the tables",
    run=run,
    arguments=("name",),
    pattern="{name}",
    jobs=notebooks_of,
    settings=notebook_settings,
    inputs=notebook_inputs,
    outputs=notebook_outputs,
    extra_modules=extra_modules,
    reusable=False,
)
