"""The notebook stage: it works wherever the repository and the results lie."""

import nbformat

from threespo.paths import Paths
from threespo.results.paper.notebooks import execute
from threespo.results.settings import NotebookSettings

CELLS = (
    ("tables = figures = ''", ["parameters"]),
    (
        "from pathlib import Path; Path(figures).mkdir(); (Path(figures) / 'x.csv').write_text(tables)",
        [],
    ),
)


def test_names_of_folders_are_names_and_no_patterns(tmp_path, monkeypatch):
    """Braces are filled in by some tools, blanks part arguments, and a percent sign formats."""
    place = tmp_path / "a {} {tables} {0} {b%s 100%" / "it's [c]"
    kernel = {"name": "python3", "language": "python", "display_name": "Python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(code, metadata={"tags": tags}) for code, tags in CELLS]
    (place / "notebooks").mkdir(parents=True)
    nbformat.write(notebook, place / "notebooks" / "x.ipynb")
    monkeypatch.chdir(place)
    paths = Paths(place / "results" / "{ci}")
    execute(NotebookSettings(paths=paths, name="x", source="notebooks/x.ipynb"))
    assert (paths.figures / "x.csv").read_text() == str(paths.tables)
    assert nbformat.read(paths.notebook("x"), as_version=4).cells[-1].execution_count == 3
