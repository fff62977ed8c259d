"""The catalogue of tables and figures has all of the paper, and the studies of the whole paper have a run for every cell."""

import json
import re
from html import escape
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.jobs import do, write_report, write_tables
from tests.unit import test_results_environments as made
from threespo.envs.registry import presentation
from threespo.errors import InputError
from threespo.paths import Paths
from threespo.results.analysis.comparisons import SAME_ROW
from threespo.results.labels import looks_of_study
from threespo.results.paper.cells import PAPER_LABELS
from threespo.results.paper.registry import MAKERS
from threespo.results.paper_numbers import parse_column, read_results
from threespo.results.report.captions import caption
from threespo.results.tables import decision_tree_table
from threespo.study.catalogue import (
    TABLES,
    figures_of,
    missing_items,
    notebooks_of,
    read_catalogue,
    texts_of,
)
from threespo.study.load import load_study
from threespo.study.matrix import (
    evaluated_runs,
    learning_runs,
    runs_of_part,
    searching_runs,
    trained_runs,
)
from threespo.tables import read_table, write_table
from workflow import items

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "config" / "paper"
CATALOGUE = read_catalogue(PAPER)
ITEMS = {item.name: item for item in CATALOGUE.items}
SHOWN = {entry.label: entry for entry in items.read_shown(PAPER / "tables_and_figures.yaml")}
ROWS = yaml.safe_load((PAPER / "results.yaml").read_text())["rows"]
WHOLE = ("paper", "mini")

RUNS = {
    "evaluation": evaluated_runs,
    "learning": learning_runs,
    "metrics": trained_runs,
    "trees": searching_runs,
}
"""Which runs have the results that a table or figure is drawn from."""


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module", params=WHOLE)
def study(request):
    return load_study(ROOT / "config" / "studies" / f"{request.param}.yaml")


def rows_of(entry):
    """Return (row of the paper, base model) of a table or figure."""
    named = list(product(entry.rows, entry.models))
    return named + [(row["method"], row["base_model"]) for row in ROWS if row["kind"] in entry.kinds]


def cells():
    """Yield (label, row, base model, environment, column) of every number, curve and panel of the paper that a run gives."""
    printed = read_results(PAPER).cells
    for label, entry in SHOWN.items():
        for row, model in rows_of(entry):
            for column in entry.columns:
                if (row, model, column) in printed and printed[row, model, column].mean is not None:
                    yield label, row, model, parse_column(column)[0], column
            for env in entry.environments:
                yield label, row, model, env, None


def named(study, run):
    """Return the paper's row and base model that a run stands for."""
    entry = study.methods.get(run.method) or study.agents.get(run.method)
    return entry.paper_row if entry else "qwen2_5", study.policies[run.policy].stands_for


def test_the_list_of_the_paper_has_every_row_of_its_numbers():
    listed = {(row, model, column) for _, row, model, _, column in cells() if column}
    for (row, model, column), value in read_results(PAPER).cells.items():
        assert (row, model, column) in listed or value.mean is None, (row, model, column)
    # By hand: 20 rows of four cells of which seven are dashes; 6 x 4; 4; 3 x 2.
    counts = {
        label: sum(cell[0] == label and cell[4] is not None for cell in cells()) for label in SHOWN
    }
    tables = {"tab:main_results": 73, "tab:ablation": 24, "tab:thresholds": 4, "tab:alpha": 6}
    assert {label: count for label, count in counts.items() if count} == tables


def test_every_table_and_figure_of_the_paper_has_an_item_and_no_other_label_is_named():
    named = [label for item in CATALOGUE.items for label in item.paper]
    assert set(named) == set(SHOWN)


def test_every_cell_curve_and_panel_has_a_run_in_the_part_that_its_item_names(study):
    closed = {"gpt-4o", "gemini-2.5-pro"}
    parts = {label: {item.part for item in CATALOGUE.items if label in item.paper} for label in SHOWN}
    checked = 0
    for label, row, model, env, column in cells():
        # A closed model has no miniature.
        if model in closed and study.name == "mini":
            continue
        if column:
            _, split, measure = parse_column(column)
            assert split in study.at(env).evaluation.splits
            assert measure in presentation(env).measures
        wanted = (SAME_ROW.get(row, row), model)
        runs = [
            run
            for run in RUNS[SHOWN[label].source](study)
            if run.env == env and named(study, run) == wanted
        ]
        assert runs, (study.name, label, row, model, env)
        # Labels without a part are of settings, which need no run of their own.
        for part in parts[label] - {None}:
            assert set(runs) & set(runs_of_part(study, part)), (study.name, label, row, part)
        checked += 1
    assert checked > 100


def test_searches_of_the_whole_paper_are_recorded_for_the_task_types_of_the_figure(study):
    shown = SHOWN["fig:training_curves:c"].task_types
    assert set(shown) <= set(presentation("alfworld").shown_task_types)
    assert study.at("alfworld").training.recorded_tasks > 0


def test_rows_that_stand_in_several_tables_run_once(study):
    runs = trained_runs(study)
    assert len(set(runs)) == len(runs)
    policies = dict.fromkeys(run.policy for run in runs)
    first = next(iter(policies))
    sweeps = {run for run in runs if study.methods[run.method].parts == ("sensitivity",)}
    assert {(run.env, run.policy) for run in sweeps} == {("alfworld", first)}
    ablations = {run for run in runs if study.methods[run.method].parts == ("ablation",)}
    assert {(run.env, run.policy) for run in ablations} == {("alfworld", first), ("webshop", first)}
    # Nothing runs that no part asks for.
    assert set(runs) == {
        run for part in study.parts for run in runs_of_part(study, part) if run.method in study.methods
    }


def test_each_row_of_the_ablation_and_sensitivity_tables_changes_one_thing(study):
    """The full method with the options that the entry's own line gives, and no others."""
    for env in study.environments:
        entries = study.at(env).methods
        full = entries["threespo-literal"]
        for name, entry in entries.items():
            if set(entry.parts) & {"ablation", "sensitivity"} and entry.method == "threespo":
                changed = {
                    option
                    for option in entry.options
                    if entry.options[option] != full.options.get(option)
                }
                assert entry.learning_rate == full.learning_rate, name
                assert len(changed - {"max_generations_per_task"}) <= 2, (name, changed)


def test_items_are_drawn_by_notebooks_that_save_them_and_read_their_tables():
    for name, entry in CATALOGUE.notebooks.items():
        assert all((PAPER / file).is_file() for file in entry.paper)
        if entry.source is not None:
            # The shared notebook makes the table that it is told, from the tables that the entry names.
            assert [(item.name, item.kind) for item in CATALOGUE.made_by(name)] == [(name, "table")]
            continue
        cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        saved = set(re.findall(r'save_(?:figure|text)\(\w+, figures, "(\w+)"', code))
        assert saved == {item.name for item in CATALOGUE.made_by(name)}, name
        for table in entry.tables:
            assert re.search(rf'"{table}(\.parquet)?"', code), (name, table)
    sources = {entry.source or name for name, entry in CATALOGUE.notebooks.items()}
    assert sources == {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_every_table_of_the_paper_has_a_maker_and_a_label_of_the_paper():
    tables = {name: item for name, item in ITEMS.items() if item.kind == "table"}
    assert set(tables) == set(MAKERS)
    assert {name: (label,) for name, label in PAPER_LABELS.items()} == {
        name: tables[name].paper for name in PAPER_LABELS
    }


def test_every_table_is_one_that_the_study_writes():
    assert {table for entry in CATALOGUE.notebooks.values() for table in entry.tables} <= set(TABLES)


def test_a_study_has_the_figures_that_its_rows_can_fill():
    whole = {item.name for item in figures_of(load_study(ROOT / "config" / "studies" / "paper.yaml"))}
    assert whole == {name for name, item in ITEMS.items() if item.kind == "figure"} - {
        "score_reliability",
        "decision_trees",
        "dose_response",
    }
    core = {
        item.name for item in figures_of(load_study(ROOT / "config" / "studies" / "paper-core.yaml"))
    }
    assert whole - core == {"adaptive_curves", "adaptive_time"}


def test_a_caption_says_the_task_types_of_the_studys_environments():
    study = load_study(ROOT / "config" / "studies" / "paper.yaml")
    title, text = caption(study, ITEMS["scores_by_type"])
    assert title == "State scores by task type"
    assert text.endswith(f"{presentation('alfworld').task_types} {presentation('webshop').task_types}")


def test_a_caption_says_how_many_runs_and_tasks_its_numbers_are_means_of():
    study = load_study(ROOT / "config" / "studies" / "mini.yaml")
    assert caption(study, ITEMS["main_results"])[1].endswith("n = 5 training seeds a row.")
    curves = caption(study, ITEMS["learning_curves"])[1]
    assert curves.endswith("n = 5 training seeds a curve; tasks a point: ALFWorld: at most 32.")
    changes = {"seeds": [5], "probe": None, "evaluation": {"learning": {"games": 20}}}
    alone = load_study(ROOT / "config" / "studies" / "mini.yaml", changes)
    assert (
        "n = 1 training seed a curve; tasks a point: ALFWorld: 20."
        in caption(alone, ITEMS["learning_curves"])[1]
    )
    assert "n = " not in caption(study, ITEMS["lemmas"])[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda file: file["items"][0].pop("caption"),
            r"items\.main_results\.caption: this field is required",
        ),
        (
            lambda file: file["items"][0].update(caption=""),
            r"items\.main_results\.caption: .*at least 1",
        ),
        (lambda file: file["items"][0].update(notebook=None), r"items\.main_results\.notebook"),
        (
            lambda file: file["items"][0].update(notebook="mian"),
            r"items\.main_results\.notebook: no entry 'mian'",
        ),
        (lambda file: file["items"].append(file["items"][0]), "'main_results' is there twice"),
        (
            lambda file: file["notebooks"].update(idle={"tables": ["main"]}),
            r"notebooks\.idle: no item is made by it",
        ),
        (
            lambda file: file["notebooks"]["claims"].update(tables=["cliams"]),
            r"notebooks\.claims\.tables",
        ),
        (lambda file: file["items"][0].update(part="mian"), r"items\.main_results\.part"),
        (
            lambda file: file["items"][0].update(titel="x"),
            r"items\.main_results\.titel: no such field; there are",
        ),
        (lambda file: file.clear(), "notebooks: this field is required"),
    ],
)
def test_what_is_wrong_in_the_catalogue_is_told_with_the_item_and_the_field(change, says, tmp_path):
    file = yaml.safe_load((PAPER / "items.yaml").read_text())
    change(file)
    (tmp_path / "items.yaml").write_text(yaml.safe_dump(file))
    with pytest.raises(InputError, match=rf"{tmp_path}/items\.yaml: .*{says}"):
        read_catalogue(tmp_path)


def test_without_the_repository_there_is_no_catalogue_and_without_its_file_an_error(tmp_path):
    assert read_catalogue(tmp_path / "none").items == ()
    with pytest.raises(InputError, match=r"items\.yaml: cannot be read .*restore it"):
        read_catalogue(tmp_path)


def test_the_page_has_the_tables_and_figures_as_the_catalogue_says():
    generated = items.table(items.read_shown(), CATALOGUE)
    text = (ROOT / items.PAGE).read_text(encoding="utf-8")
    assert items.page(text, generated, items.BEGIN, items.END) == text, "run `make docs`"


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        ("[{label: tab:new, name: x, shows: x, from: nothing}]", "no item has the label 'tab:new'"),
        ("[{label: tab:new, name: x, shows: x}]", r"0\.from: Field required"),
        ("[{label: tab:new, name: x, shows: x, from: dreams}]", r"0\.from"),
    ],
)
def test_what_the_paper_shows_and_no_item_has_is_told(shown, says, tmp_path):
    file = tmp_path / "shown.yaml"
    file.write_text(shown)
    with pytest.raises(InputError, match=says):
        items.table(items.read_shown(file), CATALOGUE)


def test_what_a_study_cannot_draw_is_named_with_what_it_lacks():
    for name in ("smoke", "mini", "paper", "trees", "ablations", "ci"):
        study = load_study(ROOT / "config" / "studies" / f"{name}.yaml")
        left, there = (
            {item.name for item, _ in missing_items(study)},
            {item.name for item in (*figures_of(study), *texts_of(study))},
        )
        assert not left & there
        assert left | there == {item.name for item in CATALOGUE.items if item.kind != "table"}
        # The study that is named for it has it.
        for item, lack in missing_items(study):
            other = load_study(
                ROOT / "config" / "studies" / f"{lack.rpartition('; ')[2].split()[0]}.yaml"
            )
            assert item.notebook in notebooks_of(other)


def test_decision_trees_are_drawn_where_a_study_has_them(tmp_path):
    family = {
        "depth": 2,
        "branching": 2,
        "solutions": 1,
        "generations": 400,
        "trees": 2,
        "trees_per_epoch": 2,
    }
    settings = {
        "families": {"tiny": family, "late": family | {"depth": 3}},
        "methods": {name: {"method": name} for name in ("grpo", "rloo")},
        "learning_rates": [50.0], "seeds": 3, "tuning_seeds": 1,
    }  # fmt: skip
    study, paths = (
        load_study(ROOT / "config" / "studies" / "ci.yaml", {"laboratory": settings}),
        Paths(tmp_path),
    )
    assert "decision_trees" in notebooks_of(study)
    for family in settings["families"]:
        for method in settings["methods"]:
            do("decision_trees", study, f"{family}/{method}", paths)
    write_table(paths.table("laboratory"), decision_tree_table(study, paths))
    write_table(paths.table("rows"), looks_of_study(study))
    (figure,) = made.draw("decision_trees", paths)
    assert {file.suffix for file in paths.figures.glob("decision_trees.*")} == {
        ".svg",
        ".pdf",
        ".png",
        ".csv",
    }

    # Panels beside each other share the names.
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["GRPO", "RLOO"]
    for axis, (family, untrained) in zip(figure.axes, [("tiny", 25.0), ("late", 12.5)], strict=True):
        assert axis.get_title() == family
        for place, method in enumerate(settings["methods"]):
            points = [
                line
                for line in axis.lines
                if len(line.get_xdata()) == 1 and line.get_ydata()[0] == place
            ]
            ends = read_table(paths.decision_trees(family, method)).groupby("seed")["success"].last()
            # A uniform policy finds the one leaf among 2^depth that is won.
            assert [line.get_xdata()[0] for line in points] == pytest.approx(
                [untrained, 100 * ends.mean()], rel=1e-6
            )
    assert caption(study, ITEMS["decision_trees"])[1].endswith("n = 3 seeds a row.")


@pytest.mark.long
def test_every_item_of_the_whole_paper_is_drawn_from_what_its_runs_leave(tmp_path):
    """With the rows, holes and parts of `mini`, whose runs are made up."""
    study = load_study(
        ROOT / "config" / "studies" / "mini.yaml", {"laboratory": None, "probe": None, "seeds": [0]}
    )
    paths = made.finish(study, tmp_path)
    write_tables(study, paths)
    for notebook in notebooks_of(study):
        made.draw(notebook, paths)
    drawn = {item.name for item in figures_of(study)}
    wanted = {name for name, item in ITEMS.items() if item.kind == "figure"} - {
        "score_reliability",
        "decision_trees",
        "dose_response",
    }
    assert drawn == {path.stem for path in paths.figures.glob("*.svg")} == wanted
    write_report(study, paths)
    html = paths.report.read_text(encoding="utf-8")
    for name in drawn:
        assert escape(ITEMS[name].title).replace("&#x27;", "&#39;") in html

    # The cells that the paper prints have ours beside them, each once, and none where a row is not run.
    main = read_table(paths.table("main"))
    printed = main[main["paper_mean"].notna() & main["mean"].notna()]
    assert not printed.duplicated(["env", "policy", "method", "split"]).any()
    assert set(main.loc[main["method"] == "wo-novelty", "policy"]) == {"tiny-s"}
    assert set(main.loc[main["method"] == "alpha-35", "env"]) == {"alfworld"}
