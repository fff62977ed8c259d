"""An episode of a trained policy as text (the paper's appendix on reasoning behaviour)."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.html_templates import template_environment
from threespo.results.labels import label, titled
from threespo.results.paper.reader_table import PaperTable, table_of_texts
from threespo.runs.settings import EXAMPLE_COLUMNS
from threespo.study.matrix import shown_runs
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study


def reasoning_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return the table ``reasoning``: the example that the evaluation kept of each searching method's first seed.

    Returns:
        A row for each step: ``threespo.runs.settings.EXAMPLE_COLUMNS``.
    """
    examples = [read_table(paths.run(run).evaluation_example) for run in shown_runs(study)]
    # Columns of an empty frame have no type, and would change that of the others.
    examples = [example for example in examples if len(example)]
    if not examples:
        return pd.DataFrame(columns=list(EXAMPLE_COLUMNS))
    return pd.concat(examples, ignore_index=True)


def episode_sections(episodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the episodes of the table ``reasoning`` as its template shows them."""
    environments = list(dict.fromkeys(episodes["env"]))
    sections = []
    for (env, method), steps in episodes.groupby(["env", "method"], sort=False):
        # The table repeats the episode's own columns in the row of each step.
        first = steps.iloc[0]
        sections.append(
            {
                "name": titled(label(method), env, environments),
                "task_type": first["task_type"],
                "goal": first["goal"],
                "success": first["success"],
                "split": label(first["split"], env),
                "evaluation_seed": first["evaluation_seed"],
                "training_seed": first["training_seed"],
                "steps": steps[["step", "observation", "response", "action"]].to_dict("records"),
            }
        )
    return sections


def episodes_as_table(episodes: pd.DataFrame) -> PaperTable:
    """Return the episodes for Markdown and LaTeX: a section for each, a row for each step."""
    section_of_step = []
    for episode in episode_sections(episodes):
        outcome = "won" if episode["success"] else "not won"
        section = f"{episode['name']}, {outcome}. Task: {episode['goal']}"
        section_of_step += [section] * len(episode["steps"])
    # The columns of the table are readable as they are.
    headings = {name: name for name in ("step", "observation", "response", "action")}
    return table_of_texts(episodes, headings, section_of_step)


def episodes_as_html(episodes: pd.DataFrame) -> str:
    """Return the episodes as part of a page: each is a block that folds, the first is open.

    Policies and environments have written the texts: all of them are escaped.
    """
    template = template_environment().get_template("reasoning.html.j2")
    return template.render(episodes=episode_sections(episodes))
