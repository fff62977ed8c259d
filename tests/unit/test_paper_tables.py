"""The paper's tables with ours beside them: numbers worked out by hand, and what is written of them."""

import io
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from tests.jobs import write_tables
from tests.unit.test_results_environments import finish, study_with
from threespo.errors import InputError
from threespo.policy.endpoint import NOT_RUN
from threespo.results.paper import compute, limitations, result_tables
from threespo.results.paper.cells import compare_cells
from threespo.results.paper.hyperparameters import (
    compare_hyperparameters,
    hyperparameter_table,
    read_hyperparameters,
)
from threespo.results.paper.latex import escape_latex
from threespo.results.paper.reader_table import Cell, Column, PaperTable, Row, save_table, text_cell
from threespo.results.paper.registry import MAKERS
from threespo.results.paper_numbers import NO_VALUE, PAPER_COLUMNS, read_paper, read_tables_and_figures
from threespo.study.catalogue import read_catalogue
from threespo.study.load import load_study

ROOT = Path(__file__).resolve().parents[2]
SMALL = "qwen2.5-1.5b-instruct"
PAPER = ROOT / "config" / "studies" / "paper.yaml"
MEANS = {
    "threespo-literal": 60.0,
    "wo-novelty": 52.5,
    "alpha-35": 58.0,
    "xi-5": 57.0,
    "grpo": 40.0,
    "react": 20.0,
}
"""Success on seen games, one point more on unseen ones; in the shop two points less, and a score three points above that."""


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def study():
    return load_study(PAPER)


def main_rows(study, means=MEANS, note=""):
    def row(method, env, split, mean):
        entry = study.methods.get(method) or study.agents[method]
        trained = method in study.methods
        summary = {"mean": mean, "std": 1.5 if trained else math.nan, "low": mean - 4, "high": mean + 4}
        score = {
            f"score_{name}": value + 3 if name != "std" else value for name, value in summary.items()
        }
        return {
            **{
                "env": env,
                "policy": "qwen25-1b5",
                "method": method,
                "split": split,
                "stands_for": SMALL,
                "note": note,
            },
            **{
                "paper_row": entry.paper_row or "",
                "seeds": 3 if trained else 1,
                "episodes": 12,
                **summary,
                **score,
            },
        }

    places = (("alfworld", "valid_seen", 0), ("alfworld", "valid_unseen", 1), ("webshop", "test", -2))
    return pd.DataFrame(
        [
            row(name, env, split, mean + more)
            for name, mean in means.items()
            for env, split, more in places
        ]
    )


def costs(*rows):
    return pd.DataFrame(rows, columns=["env", "policy", "method", "generations", "states"])


COUNTED = costs(
    ("alfworld", "qwen25-1b5", "grpo", 2000.0, 30.0), ("webshop", "qwen25-1b5", "grpo", 7.0, 7.0)
)


def cells_of(study, main=None, counted=COUNTED):
    return compare_cells(
        study,
        main_rows(study) if main is None else main,
        counted,
        read_paper(),
        read_tables_and_figures(),
    )


@pytest.fixture
def cells(study):
    return cells_of(study)


def row_of(table, *beginning):
    """Return the texts of the shown row that begins so."""
    rows = [[cell.text for cell in row.cells] for _, group in table.sections() for row in group]
    (found,) = [row for row in rows if row[: len(beginning)] == list(beginning)]
    return found[len(beginning) :]


def test_the_main_table_has_ours_beside_each_printed_cell(cells):
    table = result_tables.main_table(cells)
    alfworld = ["72.8 ± 3.6", "40.0 ± 1.5", "70.1 ± 2.5", "41.0 ± 1.5"]
    webshop = ["75.8 ± 3.5", "41.0 ± 1.5", "56.8 ± 3.8", "38.0 ± 1.5"]
    assert row_of(table, "RL training", "GRPO") == ["GRPO", *alfworld, *webshop]
    # One policy has no spread, and the paper prints no seen-room value for it.
    assert row_of(table, "prompting", "ReAct") == [
        "ReAct",
        "12.8",
        "20.0",
        "–",
        "21.0",
        "40.1",
        "21.0",
        "11.3",
        "18.0",
    ]
    assert [section for section, _ in table.sections()] == ["Qwen2.5-1.5B-Instruct, ours: qwen25-1b5"]
    assert "3 training seeds" in table.notes[0]
    assert "closed models: all rows" in table.notes[-1]
    assert (
        "Qwen2.5-1.5B-Instruct: Qwen2.5, Reflexion, PPO (with critic), RLOO, GiGPO, HGPO"
        in table.notes[-1]
    )


def test_every_printed_number_of_the_papers_tables_is_a_cell_of_ours_and_csv_has_all_rows(cells):
    printed = {
        key: value.mean for key, value in read_paper().results.cells.items() if value.mean is not None
    }
    names = read_paper().results.names
    of_results = cells[cells["column"].isin(PAPER_COLUMNS.values())]
    there = {
        (row["paper_row"], row["base_model"], row["column"]): row["paper"]
        for row in of_results.to_dict("records")
    }
    assert {
        (row, names[model], column): mean for (row, model, column), mean in printed.items()
    }.items() <= there.items()
    frame = pd.read_csv(io.StringIO(result_tables.main_table(cells).to_csv()))
    assert len(frame) == 20
    assert frame.filter(regex="_paper$").notna().sum().sum() == 73
    assert frame.filter(regex="_ours$").notna().sum().sum() == 3 * 4
    assert frame.loc[frame["method"] == "GRPO", "alfworld_out_ours_std"].tolist()[0] == 1.5


def test_ablations_have_their_difference_from_3spo_ours_and_the_papers(cells):
    table = result_tables.ablation(cells)
    # The paper: 88.42 - 95.42; ours: 52.5 - 60.
    wanted = ["w/o R_novel", "88.42 ± 1.7 (\N{MINUS SIGN}7.0)", "52.5 ± 1.5 (\N{MINUS SIGN}7.5)"]
    assert row_of(table, "w/o R_novel")[:3] == wanted
    assert row_of(table, "3SPO")[:3] == ["3SPO as printed", "95.42 ± 0.58", "60.0 ± 1.5"]
    assert "w/o ΔS, w/o adaptive ω, w/o adaptive n, w/o backtracking" in table.notes[-1]


def test_thresholds_and_alpha_have_3spo_itself_in_the_middle(cells):
    assert row_of(result_tables.thresholds(cells), "5", "0.05")[1:] == ["90.1", "57.0 ± 1.5"]
    assert row_of(result_tables.thresholds(cells), "10", "0.1") == [
        "3SPO as printed",
        "95.4",
        "60.0 ± 1.5",
    ]
    assert row_of(result_tables.alpha(cells), "35")[1:] == ["93", "58.0 ± 1.5", "86.9", "59.0 ± 1.5"]
    assert row_of(result_tables.alpha(cells), "50") == [
        "3SPO as printed",
        "95.4",
        "60.0 ± 1.5",
        "93.2",
        "61.0 ± 1.5",
    ]
    assert "70" in result_tables.alpha(cells).notes[-1]


def test_a_change_is_compared_with_the_3spo_that_it_differs_least_from():
    study = load_study(ROOT / "config" / "studies" / "ablations.yaml")
    names = {
        "threespo-literal": 1,
        "threespo-narrow": 2,
        "threespo-improved": 3,
        "wo-novelty": 4,
        "improved-wo-novelty": 5,
    }
    main = main_rows(study, {name: 10.0 * place for name, place in names.items()}).replace(
        {"qwen25-1b5": "tiny-s"}
    )
    cells = cells_of(study, main)
    ours = cells[
        (cells["item"] == "ablation") & (cells["column"] == "alfworld_in") & (cells["method"] != "")
    ]
    assert ours.set_index("method")["difference"].dropna().to_dict() == {
        "wo-novelty": 20.0,
        "improved-wo-novelty": 20.0,
    }
    assert set(ours["method"]) == {
        "threespo-narrow",
        "threespo-improved",
        "wo-novelty",
        "improved-wo-novelty",
    }


def test_efficiency_has_states_per_thousand_rollouts(cells):
    # The paper: 4,020 states of 340,000 rollouts; ours: 30 of 2,000. The shop is not in the paper's table.
    assert row_of(result_tables.efficiency(cells), "GRPO") == [
        "GRPO",
        "340,000",
        "2,000",
        "4,020",
        "30",
        "11.8",
        "15.0",
    ]
    assert "HGPO, GiGPO, 3SPO, w/o adaptive n" in result_tables.efficiency(cells).notes[-1]


def test_a_study_without_the_rows_of_a_table_says_so_in_a_line_that_names_a_command(study):
    cells = cells_of(study, main_rows(study, {"grpo": 40.0, "threespo-literal": 50.0}), costs())
    for name in ("ablation", "thresholds", "alpha", "efficiency"):
        table = MAKERS[name]({"cells": cells})
        line = table.notes[0]
        assert "no rows of this table" in line
        assert "snakemake --cores all --config study=mini" in line
        assert table.to_markdown() == f"{line}\n"
        assert table.to_html() == f'<p class="note">{line}</p>\n'
        assert "tabular" not in table.to_latex()
        assert pd.read_csv(io.StringIO(table.to_csv())).filter(regex="paper$").notna().any().any()


def test_a_row_that_was_not_played_is_not_run_and_a_note_is_marked(study):
    closed = cells_of(study, main_rows(study, {"react": 20.0}, NOT_RUN))
    assert not any(row.in_study for row in result_tables.main_table(closed).rows)
    noted = result_tables.main_table(
        cells_of(study, main_rows(study, {"react": 20.0}, "checks the protocol"))
    )
    assert row_of(noted, "prompting", "ReAct")[0] == "ReAct†"
    assert "† checks the protocol." in noted.notes


@pytest.mark.parametrize("item", ["main_table", "ablation", "thresholds", "alpha"])
def test_a_changed_value_changes_its_cell_and_nothing_else(study, item):
    main = main_rows(study)
    method = {"main_table": "grpo", "ablation": "wo-novelty", "thresholds": "xi-5", "alpha": "alpha-35"}[
        item
    ]
    place = (main["method"] == method) & (main["split"] == "valid_seen")
    other = main.assign(mean=main["mean"].where(~place, 77.7))
    before, after = (MAKERS[item]({"cells": cells_of(study, one)}) for one in (main, other))
    assert before.notes == after.notes
    pairs = [
        (old.text, new.text, new.link)
        for rows in zip(before.rows, after.rows, strict=True)
        for old, new in zip(rows[0].cells, rows[1].cells, strict=True)
        # NaN is not equal to itself.
        if (old.text, str(old.values)) != (new.text, str(new.values))
    ]
    ((_, new, link),) = pairs
    assert new.startswith("77.7 ± 1.5")
    assert link == f"main-alfworld-qwen25-1b5-{method}"


def test_cells_name_the_row_of_the_main_table_that_they_are_from(cells, study):
    main = main_rows(study).set_index(["env", "policy", "method", "split"])
    ours = cells[(cells["method"] != "") & (cells["item"] != "efficiency")]
    assert len(ours) > 20
    for cell in ours.to_dict("records"):
        row = main.loc[cell["env"], cell["policy"], cell["method"], cell["split"]]
        assert cell["mean"] == row["score_mean" if cell["measure"] == "score" else "mean"]
        own = "3spo" if cell["method"] == "threespo-literal" else cell["paper_row"]
        assert row["paper_row"] == own
        printed = (
            read_paper().results.cells.get((cell["paper_row"], SMALL, cell["column"]), NO_VALUE).mean
        )
        assert (math.isnan(cell["paper"]) and printed is None) or cell["paper"] == printed


def test_hyperparameters_are_those_of_the_study(study):
    table = hyperparameter_table(compare_hyperparameters(study, read_hyperparameters()))
    # The printed settings of the study with the paper's setting are the printed ones, as far as it has fields for them.
    for row in table.sections()[0][1]:
        name, printed, here = (cell.text for cell in row.cells[:3])
        assert here in ("–", printed, "true", "false"), name
    assert row_of(table, "Learning rate")[:2] == ["1e-6", "1e-6"]
    smoke = load_study(ROOT / "config" / "studies" / "smoke.yaml")
    here = hyperparameter_table(compare_hyperparameters(smoke, read_hyperparameters()))
    rates = "0.0003 (grpo); 1e-5 (threespo-literal)"
    assert row_of(here, "Learning rate")[:2] == ["1e-6", rates]
    # A policy of this study has the field that the catalogue gives for those of the paper's.
    assert row_of(here, "Max response length")[:2] == ["512", "32"]
    assert row_of(here, "HGPO: α_length")[:2] == ["1", "–"]
    trials = {"learning_rates": [1e-4, 3e-4], "generations": 100}
    chosen = {
        "tuning": trials,
        "methods": {key: {"learning_rate": None} for key in ("grpo", "threespo-calibrated")},
    }
    tuned = load_study(ROOT / "config" / "studies" / "ci.yaml", chosen)
    assert (
        row_of(
            hyperparameter_table(compare_hyperparameters(tuned, read_hyperparameters())), "Learning rate"
        )[1]
        == "chosen by trials"
    )


def of_runs(**columns):
    """Two seeds of GRPO and one of 3SPO, two epochs each."""
    runs = [("grpo", 0, 1), ("grpo", 1, 3), ("threespo-literal", 0, 4)]
    return pd.DataFrame(
        [
            {
                **{
                    "env": "alfworld",
                    "policy": "p",
                    "method": method,
                    "training_seed": seed,
                    "epoch": epoch,
                },
                **{name: value(scale, epoch) for name, value in columns.items()},
            }
            for method, seed, scale in runs
            for epoch in (1, 2)
        ]
    )


def compute_of(**changes):
    def times(factor):
        return lambda scale, epoch: factor * scale * epoch

    metrics = of_runs(generations=times(100), epoch_tokens=times(10))
    timing = of_runs(
        seconds=lambda scale, _: 900 * scale, peak_memory_mb=lambda scale, epoch: 50 * scale + epoch
    )
    names = [f"alfworld/p/{run}" for run in ("grpo/seed-0", "grpo/seed-1", "threespo-literal/seed-0")]
    stages = pd.DataFrame(
        {"stage": "train", "name": names, "seconds": [3600.0] * 3, "energy_joules": [3.6e6, 7.2e6, 9e6]}
    )
    settings = json.dumps({"policies": {"p": {"stands_for": SMALL}}})
    machine = {"cores": "8", "processor": "P", "memory": "9 GiB", "GPUs": "none"}
    told = [*(("machine", *pair) for pair in machine.items()), ("study", "settings", settings)]
    provenance = pd.DataFrame(told, columns=["section", "name", "value"])
    given = {
        "metrics": metrics,
        "timing": timing.assign(stage="train"),
        "stages": stages,
        "provenance": provenance,
    }
    return compute.compute_table(**{**given, **changes}, paper=compute.read_compute())


def test_compute_sums_up_runs_beside_the_papers_days():
    table = compute_of()
    # GRPO: seeds of 2 * 900 and 2 * 2,700 seconds; 3SPO: 2 * 3,600.
    assert row_of(table, "hours of a run") == ["about 144 (6 days)", "1 (GRPO) to 2 (3SPO as printed)"]
    assert row_of(table, "epochs of a run") == ["400", "2"]
    assert row_of(table, "generations of a run") == ["–", "400 (GRPO) to 800 (3SPO as printed)"]
    assert row_of(table, "generated tokens of a run") == ["–", "60 (GRPO) to 120 (3SPO as printed)"]
    assert row_of(table, "memory of a run at its peak, MB") == [
        "–",
        "102 (GRPO) to 202 (3SPO as printed)",
    ]
    assert row_of(table, "energy of a run, kWh") == ["–", "1.5 (GRPO) to 2.5 (3SPO as printed)"]
    assert row_of(table, "runs")[1] == "4 h of 3 training runs; all jobs 3 h"
    assert row_of(table, "GPU") == ["4 × NVIDIA H200", "none"]


def test_compute_says_what_runs_have_not_recorded():
    stages = pd.DataFrame({"stage": ["train"], "name": ["x"], "seconds": [1.0]})
    table = compute_of(metrics=of_runs(generations=lambda scale, _: scale), stages=stages)
    for what in ("generated tokens of a run", "energy of a run, kWh"):
        assert row_of(table, what)[1] == "not recorded"
    assert "tokens were counted" in " ".join(table.notes)
    # One epoch without a count leaves the run's sum unknown.
    half = of_runs(
        generations=lambda scale, _: scale, epoch_tokens=lambda _, epoch: math.nan if epoch == 1 else 5.0
    )
    assert row_of(compute_of(metrics=half), "generated tokens of a run")[1] == "not recorded"


def test_limitations_have_the_verdict_and_what_the_runs_show():
    claims = pd.DataFrame([{"claim": "lim-exact-matching", "verdict": "holds", "detail": "why"}])
    metrics = of_runs(
        detail_state_met=lambda scale, epoch: 5 * scale * epoch,
        detail_state_visits=lambda scale, _: 25 * scale,
        env_steps=lambda _, epoch: 10 * epoch,
        inadmissible_rate=lambda scale, epoch: 0.1 * epoch if scale < 4 else 0.5,
    )
    table = limitations.limitations_table(claims, metrics, limitations.read_limitations())
    first, second = ([cell.text for cell in row.cells] for row in table.rows)
    # Of 50 visits (times the scale) 10 states were new. Of 10 responses an epoch 1 and 2 were inadmissible, 3SPO's 5 and 5.
    assert first[2:] == [
        "holds: why",
        "ALFWorld, p: at least 80.0 % of the visits were to a state already met in the run",
    ]
    assert second[2] == "not judged"
    assert "15.0 % (GRPO) to 50.0 % (3SPO as printed) of the responses" in second[3]
    unknown = limitations.limitations_table(
        claims, metrics[["env", "method"]], limitations.read_limitations()
    )
    assert unknown.rows[0].cells[3].text == "not recorded by the study's runs"


@pytest.mark.parametrize(
    ("file", "text", "read"),
    [
        (
            "limitations.yaml",
            "[{name: a, says: b, claim: c, measured: d}]",
            limitations.read_limitations,
        ),
        ("limitations.yaml", "[{name: a}]", limitations.read_limitations),
        ("limitations.yaml", "{", limitations.read_limitations),
        ("compute.yaml", "{gpu: x}", compute.read_compute),
        ("compute.yaml", "[", compute.read_compute),
        ("tables_and_figures.yaml", "[{}]", read_tables_and_figures),
        ("tables_and_figures.yaml", "3", read_tables_and_figures),
    ],
)
def test_a_broken_file_of_the_papers_numbers_is_named(file, text, read, tmp_path):
    with pytest.raises(InputError, match=re.escape(str(tmp_path / file))):
        read(tmp_path)
    (tmp_path / file).write_text(text)
    remedy = "([Rr]estore it|expected one of|not valid YAML)"
    with pytest.raises(InputError, match=rf"{re.escape(str(tmp_path / file))}.*{remedy}"):
        read(tmp_path)


def test_latex_has_nothing_that_latex_would_not_print():
    assert escape_latex("50 % & $x_1 {a} #~^\\ <b> [c] d*") == (
        r"50 \% \& \$x\_1 \{a\} \#\textasciitilde{}\textasciicircum{}\textbackslash{} "
        r"\textless{}b\textgreater{} {[}c{]} d{*}"
    )
    assert escape_latex("w/o ΔS: 3 ± 1 – “α”") == r"w/o $\Delta$S: 3 $\pm$ 1 -- ``$\alpha$''"


def test_latex_of_every_table_has_equal_rows_and_letters_that_every_font_has(cells, study):
    tables = [
        MAKERS[name]({"cells": cells})
        for name in ("main_table", "ablation", "thresholds", "alpha", "efficiency")
    ]
    for table in [
        *tables,
        hyperparameter_table(compare_hyperparameters(study, read_hyperparameters())),
        compute_of(),
    ]:
        written = table.to_latex()
        assert written.isascii(), [one for one in written if not one.isascii()]
        body = written[written.index("\\midrule") : written.index("\\bottomrule")]
        rows = [
            line
            for line in body.splitlines()
            if line.endswith("\\\\") and not line.startswith("\\multicolumn")
        ]
        assert len(rows) == sum(row.in_study for row in table.rows)
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == len(table.columns) - 1
        assert written.count("\\begin{") == written.count("\\end{")
        unescaped = re.sub(r"\\.", "", written)
        assert unescaped.count("{") == unescaped.count("}")
        assert unescaped.count("$") % 2 == 0


TABLE = PaperTable(
    (
        Column("who"),
        Column("paper", "a & b", ("p", "p_std"), "paper", "number"),
        Column("ours", "a & b", (), "ours", "number"),
    ),
    (
        Row((text_cell("=1+<b>|*"), Cell("1 ± 2", (1.0, 2.0)), Cell("3", (3.14159265,), "main-x")), "S"),
        Row(
            (text_cell("gone"), Cell("–", (4.0, math.nan)), Cell("–", (math.nan,))), "T", in_study=False
        ),
    ),
    ("n < 3",),
)


def test_a_table_is_written_whole_as_three_files_and_as_html(tmp_path):
    save_table(TABLE, tmp_path, "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.md", "t.tex"]
    # No spreadsheet may take text for a formula.
    assert (
        tmp_path / "t.csv"
    ).read_text() == "setting,who,p,p_std,ours\nS,'=1+<b>|*,1,2,3.14159\nT,gone,4,,\n"
    assert (tmp_path / "t.md").read_text() == (
        "**S**\n\n| who | a & b paper | a & b ours |\n| --- | ---: | ---: |\n| =1+\\<b>\\|\\* | 1 ± 2 | 3 |\n\nn \\< 3\n"
    )
    tex = (tmp_path / "t.tex").read_text()
    assert (
        "\\multicolumn{2}{c}{a \\& b} \\\\\n\\cmidrule(lr){2-3}\nwho & paper & ours \\\\\n\\midrule"
        in tex
    )
    assert "=1+\\textless{}b\\textgreater{}\\textbar{}{*} & 1 $\\pm$ 2 & 3 \\\\\n\\bottomrule" in tex
    html = TABLE.to_html()
    assert '<th class="group" colspan="2">a &amp; b</th>' in html
    assert '<td class="words">=1+&lt;b&gt;|*</td><td class="first paper">1 ± 2</td>' in html
    assert '<td class="ours"><a href="#main-x">3</a></td>' in html
    assert "href" not in TABLE._repr_html_()
    assert '<p class="note">n &lt; 3</p>' in html


def test_tables_of_a_study_come_from_its_runs_and_every_maker_reads_what_its_notebook_says(tmp_path):
    study = study_with("alfworld", "webshop")
    paths = finish(study, tmp_path)
    write_tables(study, paths)
    entries = read_catalogue().notebooks
    for name, make in MAKERS.items():
        table = make({table: pd.read_parquet(paths.table(table)) for table in entries[name].tables})
        assert table.rows
    cells = pd.read_parquet(paths.table("cells"))
    grpo = cells[(cells["item"] == "main_table") & (cells["method"] == "grpo")].set_index("column")
    # Two of four games won in ALFWorld, one of four goals in the shop, in every seed.
    assert grpo[["mean", "std"]].loc["alfworld_out"].tolist() == [50.0, 0.0]
    assert grpo.at["webshop_success", "mean"] == 25.0
    assert grpo.at["alfworld_out", "paper"] == 70.1
