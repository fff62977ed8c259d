"""The paper's table of hyperparameters: every row is in the data file, and the study `paper` has what the document says."""

from pathlib import Path

import pytest

from threespo.errors import InputError
from threespo.study.load import load_study
from workflow import hyperparameters

ROOT = Path(__file__).resolve().parents[2]

PRINTED = """
Learning rate: 1e-6
Group size: 8
Max rollouts per state G_max: 8
Max prompt length (ALFWorld): 2048
Max prompt length (WebShop): 4096
Max response length: 512
Max steps per episode (ALFWorld): 50
Max steps per episode (WebShop): 30
KL coefficient β: 0.01
Invalid action penalty coef: 0.1
Discount factor γ: 0.95
vLLM GPU memory util.: 0.6
Temperature (eval): 0.4
Total epochs (GRPO/PPO/GiGPO/HGPO/3SPO): 400
HGPO: mode (ALFWorld): mean_std_norm
HGPO: mode (WebShop): mean_norm
HGPO: weight_type: length
HGPO: α_length: 1.0
HGPO: base_group: False
3SPO: α: 50
3SPO: ξ (failure threshold): 10
3SPO: ζ (success threshold): 0.1
3SPO: ω_k (weight decay rate): 0.1
"""
"""The table as the paper has it."""


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def number_or_text(value):
    try:
        return float(value)
    except ValueError:
        return value


def test_the_data_file_has_every_row_of_the_papers_table_as_printed():
    printed = dict(line.rpartition(": ")[::2] for line in PRINTED.strip().splitlines())
    rows = {row.name: row.printed for row in hyperparameters.read_hyperparameters().printed}
    assert {name: number_or_text(value) for name, value in rows.items()} == {
        name: number_or_text(value) for name, value in printed.items()
    }
    assert list(rows) == list(printed)


def test_the_document_is_current():
    text = hyperparameters.PAGE.read_text()
    generated = hyperparameters.table(
        load_study(hyperparameters.STUDY), hyperparameters.read_hyperparameters()
    )
    assert hyperparameters.page(text, generated) == text, "run make docs"
    assert "| Total epochs (GRPO/PPO/GiGPO/HGPO/3SPO) | 400 | 400 | `training.epochs` |" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"training": {"epochs": 300}},
            "Total epochs.*training.epochs is 300 in .*paper.yaml, expected 400",
        ),
        (
            {"methods": {"rloo": {"learning_rate": 2e-6}}},
            "Learning rate.*methods.rloo.learning_rate is 2e-06",
        ),
        (
            {"methods": {"hgpo": {"options": {"normalise": False}}}},
            r"mode \(ALFWorld\).*normalise is False.*expected True",
        ),
        (
            {"webshop": {"methods": {"hgpo": {"options": {"normalise": True}}}}},
            r"mode \(WebShop\).*is True.*expected False",
        ),
        ({"training": {"entropy_coef": 0.0}}, "entropy bonus.*training.entropy_coef is 0.0"),
        ({"webshop": {"goals_order": "fixed"}}, "test goals.*webshop.goals_order is 'fixed'"),
    ],
)
def test_a_study_with_another_value_than_printed_is_refused(change, says):
    with pytest.raises(InputError, match=says):
        hyperparameters.table(
            load_study(hyperparameters.STUDY, change), hyperparameters.read_hyperparameters()
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "printed: [{name: a, printed: 1, fields: [training.epoch]}]",
            "row 'a': .*has no field training.epoch",
        ),
        ("printed: [{name: a, printed: 1}]", "row 'a': neither 'fields' nor 'reason'"),
        ("printed: [{name: a, printed: 1, field: training.epochs}]", "printed.0.field"),
        ("printed: []", "printed: .*at least 1"),
        ("[]", "the whole file"),
        ("printed: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_in_the_data_file_is_named(text, says, tmp_path):
    file = tmp_path / "hyperparameters.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        hyperparameters.table(
            load_study(hyperparameters.STUDY), hyperparameters.read_hyperparameters(file)
        )


def test_the_three_studies_of_the_papers_scale_differ_in_their_terms_only():
    names = ("paper", "paper-core", "paper-fair")
    published, core, fair = (load_study(Path(f"config/studies/{name}.yaml")) for name in names)
    for one in (published, core):
        terms = (
            one.training.budget,
            one.training.budget_unit,
            one.training.terms,
            one.training.entropy_coef,
        )
        assert terms == (400, "epochs", "as_released", 0.001)
    assert core.webshop is None
    assert (published.webshop.fidelity, published.webshop.goals_order) == ("original", "original")
    terms = (
        fair.training.budget,
        fair.training.budget_unit,
        fair.training.terms,
        fair.training.entropy_coef,
    )
    assert terms == (450_000, "generations", "equalised", 0.0)
    assert (fair.webshop.fidelity, fair.webshop.goals_order) == ("repaired", "fixed")
    for env in ("alfworld", "webshop"):
        assert published.at(env).training.tasks_per_epoch * published.training.epochs == 6_400
        assert fair.at(env).training.generations == 450_000
    assert list(fair.methods) == list(published.methods)
