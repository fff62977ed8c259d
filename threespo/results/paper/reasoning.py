"""An episode of a trained policy as text (the paper's appendix on reasoning behaviour)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from threespo.results.labels import label, titled
from threespo.results.paper.reader_table import PaperTable, table_of_texts
from threespo.runs.settings import EXAMPLE_COLUMNS
from threespo.study.matrix import shown_runs
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

TEMPLATES = Path(__file__).parent / "templates"


def reasoning_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return the example that the evaluation kept of each searching method's first seed, by environment.

    Returns:
        A row for each step: ``threespo.runs.settings.EXAMPLE_COLUMNS``.
    """
    frames = [read_table(paths.run(run).evaluation_example) for run in shown_runs(study)]
    frames = [frame for frame in frames if len(frame)]
    return (
        pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(EXAMPLE_COLUMNS))
    )


def episode_sections(episodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the episodes of the table ``reasoning_table`` as its template shows them."""
    environments = list(dict.fromkeys(episodes["env"]))
    return [
        {
            **rows.iloc[0][
                ["task_type", "goal", "success", "split", "evaluation_seed", "training_seed"]
            ].to_dict(),
            "name": titled(label(method), env, environments),
            "split": label(rows["split"].iloc[0], env),
            "steps": rows[["step", "observation", "response", "action"]].to_dict("records"),
        }
        for (env, method), rows in episodes.groupby(["env", "method"], sort=False)
    ]


def episodes_as_table(episodes: pd.DataFrame) -> PaperTable:
    """Return the episodes of the table ``reasoning_table`` for Markdown and LaTeX: a section for each, a row for each step."""
    sections = [
        f"{one['name']}, {'won' if one['success'] else 'not won'}. Task: {one['goal']}"
        for one in episode_sections(episodes)
        for _ in one["steps"]
    ]
    names = {name: name for name in ("step", "observation", "response", "action")}
    return table_of_texts(episodes, names, sections)


def episodes_as_html(episodes: pd.DataFrame) -> str:
    """Return the episodes of the table ``reasoning_table`` as part of a page, a block that folds for each; the first is open.

    Policies and environments have written the texts: all of them are escaped.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("reasoning.html.j2").render(episodes=episode_sections(episodes))
