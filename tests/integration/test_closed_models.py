"""A closed model's row: played over a real local server, rebuilt from its cassette, and absent without either."""

import lzma

import pandas as pd
import pytest

from tests.chat_server import ChatServer, answers, completion, says
from tests.jobs import evaluate, prepare
from threespo.errors import InputError
from threespo.paths import Paths
from threespo.policy.endpoint import NOT_RUN
from threespo.results import collect
from threespo.results.paper_numbers import read_results
from threespo.results.tables import COSTS, main_results_table
from threespo.study.config import Study
from threespo.study.load import parse_study
from threespo.study.matrix import find_run, prompted_runs
from threespo.tables import read_table, write_table

KEY = "sk-0123456789abcdef-not-a-real-key"
GPT = {"model": "gpt-4o", "input_price": 2.5, "output_price": 10.0}
VALUES = {
    "name": "closed",
    "description": "a test",
    "seeds": [0],
    "alfworld": {
        "max_steps": 4,
        "games": {"train": 2, "calibration": 2, "valid_seen": 2, "valid_unseen": 3},
    },
    "policies": {
        "tiny-s": {"stands_for": "qwen2.5-1.5b-instruct"},
        "gpt-4o": {"kind": "endpoint", "stands_for": "gpt-4o", "endpoint": GPT},
    },
    "methods": {"grpo": {"method": "grpo", "learning_rate": 1e-3}},
    "agents": {
        "closed": {"agent": "react", "policies": ["gpt-4o"], "paper_row": "gpt_4o"},
        "reflexion": {"agent": "reflexion", "policies": ["gpt-4o"], "trials": 2},
    },
    "training": {"generations": 100},
    "evaluation": {"seeds": [1]},
}


@pytest.fixture
def study() -> Study:
    return parse_study(VALUES, "test")


@pytest.fixture
def paths(study, tmp_path) -> Paths:
    made = Paths(tmp_path)
    prepare(study, "alfworld", made.data("alfworld"))
    return made


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer() as running:
        running.otherwise = says("<think>I look.</think><action>look</action>")
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def table(paths, run) -> pd.DataFrame:
    return read_table(paths.run(run).evaluation)


def test_replies_are_paid_once_and_anybody_rebuilds_the_row_from_the_cassette(
    study, paths, server, monkeypatch, capsys
):
    run = find_run(study, "alfworld/gpt-4o/reflexion/seed-0")
    evaluate(study, run, paths)
    # Five games lost twice in four steps each, and a reflection after each first attempt.
    assert len(server.asked) == 5 * (4 + 1 + 4)
    assert "at most 50 requests" in capsys.readouterr().err
    rows = table(paths, run)
    assert (len(rows), rows["success"].sum(), set(rows["trials"])) == (5, 0, {2})
    first = paths.run(run).evaluation.read_bytes()

    server.stop()
    monkeypatch.delenv("OPENAI_API_KEY")
    cassette = paths.cassette(run)
    cassette.with_name(cassette.name + ".xz").write_bytes(lzma.compress(cassette.read_bytes()))
    cassette.unlink()
    paths.run(run).evaluation.unlink()
    evaluate(study, run, paths)
    assert paths.run(run).evaluation.read_bytes() == first
    for file in (path for path in paths.root.rglob("*") if path.is_file()):
        assert KEY.encode() not in file.read_bytes(), file


def test_without_key_and_cassette_the_row_says_so_and_has_no_number(
    study, paths, server, monkeypatch, capsys
):
    monkeypatch.delenv("OPENAI_API_KEY")
    for run in prompted_runs(study):
        evaluate(study, run, paths)
    assert "not run (no API key)" in capsys.readouterr().err
    assert not server.asked
    assert collect.find_runs_without_episodes(study, paths) == prompted_runs(study)

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    played, absent = prompted_runs(study)
    evaluate(study, played, paths)
    base = table(paths, played).assign(policy="tiny-s", method="base", success=True, first_success=True)
    for name in ("base", "strong"):
        folder = paths.run(find_run(study, f"alfworld/tiny-s/{name}/seed-0"))
        write_table(folder.evaluation, base.assign(method=name))
    write_table(
        paths.run(find_run(study, "alfworld/tiny-s/grpo/seed-0")).evaluation, base.assign(method="grpo")
    )
    costs = pd.DataFrame(columns=["env", "policy", "method", "training_seed", *COSTS])
    main = main_results_table(
        study,
        collect.read_episodes(study, paths),
        costs,
        read_results(),
        collect.find_runs_without_episodes(study, paths),
    )
    rows = main[main["split"] == "valid_seen"].set_index(["policy", "method"])
    assert rows.loc[("gpt-4o", "closed"), ["mean", "paper_mean", "note", "kind"]].tolist() == [
        0.0,
        48.0,
        "",
        "prompted",
    ]
    missing = rows.loc[("gpt-4o", "reflexion")]
    assert missing["note"] == NOT_RUN
    assert pd.isna(missing[["mean", "low", "first_mean"]]).all()
    assert missing["episodes"] == 0
    assert absent.method == "reflexion"


def test_what_is_all_recorded_is_never_too_dear(study, paths, server):
    run = find_run(study, "alfworld/gpt-4o/closed/seed-0")
    evaluate(study, run, paths)
    asked, first = len(server.asked), paths.run(run).evaluation.read_bytes()
    free = parse_study(VALUES | {"policies": VALUES["policies"] | {"gpt-4o": limited_to(0.0)}}, "test")
    evaluate(free, run, paths)
    assert (len(server.asked), paths.run(run).evaluation.read_bytes()) == (asked, first)


def limited_to(dollars):
    return VALUES["policies"]["gpt-4o"] | {"endpoint": GPT | {"max_cost": dollars}}


def test_an_estimate_above_the_limit_is_refused_before_the_first_request(paths, server):
    """Five games, four steps, 2,048 prompt tokens at 2.5 and 512 of response at 10 dollars a million: 0.2048 dollars."""
    limited = parse_study(
        VALUES | {"policies": VALUES["policies"] | {"gpt-4o": limited_to(0.2)}}, "test"
    )
    with pytest.raises(InputError, match=r"may cost 0\.20 US dollars: 5 episodes of 4 steps"):
        evaluate(limited, find_run(limited, "alfworld/gpt-4o/closed/seed-0"), paths)
    assert not server.asked
    assert not paths.run("alfworld/gpt-4o/closed/seed-0").folder.exists()


# What is no answer is named.

FILTERED = answers({"error": {"message": "The prompt was filtered.", "code": "content_filter"}}, 400)
TOO_LONG = answers({"error": {"message": "This model's maximum context length is 900 tokens."}}, 400)


def played(study, paths, run):
    """Return the study's table ``main`` for one row that was played."""
    costs = pd.DataFrame(columns=["env", "policy", "method", "training_seed", *COSTS])
    main = main_results_table(study, read_table(paths.run(run).evaluation), costs, read_results())
    return collect.add_notes(main, study, paths)


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        (FILTERED, "prompt refused by the service's filter"),
        (TOO_LONG, "prompt longer than the service takes"),
        (answers({}, 413), "prompt longer than the service takes"),
        (says(None, "content_filter"), "withheld or ended by the service's filter"),
        (
            answers({"choices": [{"message": {"refusal": "no"}, "finish_reason": "stop"}]}),
            "declined by the model",
        ),
        (says(None), "without text"),
        (says("", "length"), "cut before any text"),
    ],
)
def test_a_row_goes_on_after_what_is_no_answer_and_its_note_counts_it(
    study, paths, server, capsys, fails, named
):
    """The second prompt of each of the five games gets no answer; that step is a malformed response."""
    run = find_run(study, "alfworld/gpt-4o/closed/seed-0")

    looks = says("<think>I look.</think><action>look</action>")

    def act(handler, asked):
        second = "Action 1: " in asked.prompt and "Action 2: " not in asked.prompt
        (fails if second else looks)(handler, asked)

    server.otherwise = act
    evaluate(study, run, paths)
    rows = table(paths, run)
    assert rows["steps"].tolist() == [4] * 5
    assert rows["invalid_format"].tolist() == [1] * 5
    note = f"5 of 20 replies count without a full answer: {named} (5)"
    assert set(played(study, paths, run)["note"]) == {note}
    assert f"In all, {note}." in capsys.readouterr().err

    asked, first = len(server.asked), paths.run(run).evaluation.read_bytes()
    evaluate(study, run, paths)
    assert (len(server.asked), paths.run(run).evaluation.read_bytes()) == (asked, first)


def test_a_model_whose_thought_the_server_splits_off_is_well_formed(study, paths, server):
    value = completion("<action>look</action>")
    value["choices"][0]["message"]["reasoning_content"] = "I could <action>go</action>, but I look."
    server.otherwise = answers(value)
    run = find_run(study, "alfworld/gpt-4o/closed/seed-0")
    evaluate(study, run, paths)
    assert table(paths, run)["invalid_format"].tolist() == [0] * 5
    assert set(played(study, paths, run)["note"]) == {""}
    example = read_table(paths.run(run).evaluation_example)
    assert set(example["action"][:-1]) == {"look"}
    assert (
        example["response"][0]
        == "<think>I could actiongo/action, but I look.</think><action>look</action>"
    )


def test_a_row_without_a_temperature_says_so(paths, server):
    endpoint = GPT | {"send_temperature": False, "limit_parameter": "max_completion_tokens"}
    closed = VALUES["policies"]["gpt-4o"] | {"endpoint": endpoint}
    own = parse_study(VALUES | {"policies": VALUES["policies"] | {"gpt-4o": closed}}, "test")
    run = find_run(own, "alfworld/gpt-4o/closed/seed-0")
    evaluate(own, run, paths)
    assert set(server.asked[0].body) == {"model", "messages", "max_completion_tokens"}
    assert table(paths, run)["temperature"].isna().all()
    assert set(played(own, paths, run)["note"]) == {"sampled at the service's own temperature"}
