"""Readers get whatever bytes there are: they succeed, or they say what is wrong. No other exception leaves them."""

import contextlib
import gzip
import hashlib
import json
import lzma
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import ArrowException

from tests import endpoint_behaviours, trees
from tests.webshop_mini import INSTRUCTIONS, ITEMS
from threespo import hub
from threespo.envs.alfworld import compile_game, official, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.webshop.data import load_goals
from threespo.envs.webshop.sources import read_products
from threespo.errors import InputError
from threespo.files import read_lock_holder
from threespo.methods.tree_table import read_trees
from threespo.panels.logs import read_log
from threespo.panels.panel import load_panel
from threespo.paths import Paths, Run
from threespo.pipeline import journal
from threespo.pipeline.stages import Job
from threespo.policy.cassette import Cassette, Reply
from threespo.policy.completions import parse_reply
from threespo.policy.failures import ServiceError, classify_error, parse_error_response
from threespo.provenance import records
from threespo.provenance.digests import DigestCache, semantic_digest
from threespo.results import provenance
from threespo.results.report.viewer import write_view
from threespo.runs.learning_rate import chosen_rate
from threespo.runs.setup import read_weights_source
from threespo.study.configuration import check_study_file
from threespo.study.load import dump_study, load_study, parse_study
from threespo.study.resolve import current_study
from threespo.tables import read_table, write_table
from threespo.watch.export import INDEX
from threespo.watch.export import _check_ours as check_ours
from threespo.watch.status import describe_study

ROOT = Path(__file__).resolve().parents[2]
WHOLE = yaml.safe_load((ROOT / "tests" / "bad_input" / "study.yaml").read_text())

fuzz = settings(
    max_examples=60, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
junk = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"[" * 20_000, b'{"a":' * 20_000, b"9" * 5000, b"[" + b"9" * 5000 + b"]"]),
    st.sampled_from([b"\xff\xfe", b"\xef\xbb\xbf{}", b'"\\ud800"', b"NaN", b"-Infinity", b"1e999"]),
)
"""Bytes, JSON of any form, and what breaks parsers: depth, digits, marks, halves of pairs."""


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Return whole bytes with a few of them replaced, removed or added, or cut off."""

    def damage(places: list[tuple[int, bytes]]) -> bytes:
        found = whole
        for place, new in places:
            at = place % (len(found) + 1)
            found = found[:at] + new + found[at + len(new) :]
        return found

    changes = st.lists(
        st.tuples(st.integers(0, len(whole)), st.binary(max_size=4)), min_size=1, max_size=4
    ).map(damage)
    return changes | st.integers(0, len(whole)).map(lambda end: whole[:end])


def places(found: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where all values of nested mappings and lists stand."""
    items = (
        found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    )
    return [place, *(deeper for key, inner in items for deeper in places(inner, (*place, key)))]


def replaced(whole: Any) -> st.SearchStrategy[Any]:
    """Return nested values in which one is any other."""

    def replace(found: Any, place: tuple[Any, ...], new: Any) -> Any:
        if not place:
            return new
        copied = dict(found) if isinstance(found, dict) else list(found)
        copied[place[0]] = replace(copied[place[0]], place[1:], new)
        return copied

    return st.builds(
        lambda place, new: replace(whole, place, new), st.sampled_from(places(whole)), values
    )


def survives(read: Any, *arguments: Any) -> None:
    with contextlib.suppress(InputError):
        read(*arguments)


@fuzz
@given(values)
def test_studies_of_any_form(found):
    survives(parse_study, found if isinstance(found, dict) else {"name": found}, "any")


@settings(fuzz, max_examples=300)
@given(replaced(WHOLE))
def test_studies_with_one_value_of_any_form(found):
    survives(parse_study, found if isinstance(found, dict) else {"name": found}, "any")


@settings(fuzz, max_examples=100)
@given(junk | damaged(yaml.safe_dump(WHOLE).encode()))
def test_study_files(tmp_path, content):
    file = tmp_path / "study.yaml"
    file.write_bytes(content)
    survives(load_study, file)


@fuzz
@given(junk | values.map(lambda kind: json.dumps({"kind": kind, "source": kind}).encode()))
def test_descriptions_of_policies(tmp_path, content):
    (tmp_path / "policy.json").write_bytes(content)
    survives(read_weights_source, tmp_path, "base")


@fuzz
@given(junk | values.map(lambda rate: json.dumps({"learning_rate": rate}).encode()))
def test_chosen_learning_rates(tmp_path, content):
    paths = Paths(tmp_path)
    file = paths.choice("alfworld", "tiny-s", "grpo")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    with contextlib.suppress(InputError):
        assert 0 < chosen_rate(paths, Run("alfworld", "tiny-s", "grpo", 0)) < 100


GAME = generate_games("train", 1, 0, "small")[0]


def _game_row() -> dict[str, Any]:
    return {
        "game_id": GAME.game_id,
        "task_type": GAME.task_type,
        "task": "put a mug in desk.",
        "pddl_problem": GAME.problem,
        "walkthrough": list(GAME.walkthrough),
    }


@fuzz
@given(junk | replaced(_game_row()).map(lambda row: json.dumps(row).encode()), st.booleans())
def test_compact_games(tmp_path, content, packed):
    sources.write_compact([GAME], tmp_path)
    whole = lzma.decompress((tmp_path / "train.jsonl.xz").read_bytes())
    (tmp_path / "train.jsonl").unlink(missing_ok=True)
    if packed:
        (tmp_path / "train.jsonl.xz").write_bytes(lzma.compress(whole + content))
    else:
        (tmp_path / "train.jsonl.xz").unlink()
        (tmp_path / "train.jsonl").write_bytes(whole + content)
    survives(lambda: [compile_game(record) for record in sources.load_games(tmp_path, "train")])


@fuzz
@given(damaged(GAME.problem.encode()), st.sampled_from(["problem", "domain", "grammar"]), st.data())
def test_games_with_damaged_texts(tmp_path, problem, part, data):
    texts = {"problem": GAME.problem, "domain": GAME.domain, "grammar": GAME.grammar}
    texts["problem"] = problem.decode(errors="replace")
    if part != "problem":
        texts |= {
            "problem": GAME.problem,
            part: data.draw(damaged(texts[part].encode())).decode(errors="replace"),
        }
    file = tmp_path / "train" / "task" / "trial" / "game.tw-pddl"
    file.parent.mkdir(parents=True, exist_ok=True)
    game = {
        "pddl_domain": texts["domain"],
        "grammar": texts["grammar"],
        "pddl_problem": texts["problem"],
        "solvable": True,
    }
    file.write_text(json.dumps(game))
    file.with_name("traj_data.json").write_text(json.dumps({"task_type": GAME.task_type}))
    survives(lambda: [compile_game(record) for record in sources.load_games(tmp_path, "train")])


@fuzz
@given(junk)
def test_packed_files_that_are_not(tmp_path, content):
    (tmp_path / "items.json.xz").write_bytes(content)
    survives(lambda: list(read_products(tmp_path)))
    (tmp_path / "train.jsonl.xz").write_bytes(content)
    survives(load_goals, tmp_path, "train")
    for name in (sources.DOMAIN_FILE, sources.GRAMMAR_FILE):
        (tmp_path / name).write_bytes(content)
    survives(sources.load_games, tmp_path, "train")


@settings(fuzz, max_examples=150)
@given(junk | replaced(ITEMS[:3]).map(lambda found: json.dumps(found).encode()), st.booleans())
def test_products(tmp_path, content, whole_instructions):
    (tmp_path / "items.json").write_bytes(content)
    (tmp_path / "instructions.json").write_text(json.dumps(INSTRUCTIONS if whole_instructions else {}))
    survives(lambda: list(read_products(tmp_path)))


@settings(fuzz, max_examples=100)
@given(
    junk | replaced(INSTRUCTIONS).map(lambda found: json.dumps(found).encode()),
    st.sampled_from(["instructions", "human_goals"]),
)
def test_what_is_said_of_products(tmp_path, content, kind):
    (tmp_path / "items.json").write_text(json.dumps(ITEMS[:3]))
    for name in ("instructions", "human_goals"):
        (tmp_path / f"{name}.json").unlink(missing_ok=True)
    (tmp_path / f"{kind}.json").write_bytes(content)
    survives(lambda: list(read_products(tmp_path)))


GOAL = {
    "task_id": "A/0", "asin": "A", "category": "garden", "query": "q", "name": "n", "product_category": "c", "goal": "g",
    "attributes": ["a"], "price_upper": 10.0, "options": [["size", "7"]],
}  # fmt: skip


@fuzz
@given(junk | replaced(GOAL).map(lambda row: json.dumps(row).encode()))
def test_goals(tmp_path, content):
    (tmp_path / "train.jsonl.xz").write_bytes(lzma.compress(json.dumps(GOAL).encode() + b"\n" + content))
    survives(load_goals, tmp_path, "train")


REPLY = {
    "digest": "0" * 32,
    "asked": "gpt",
    "served": "gpt-1",
    "text": "look",
    "finish": "stop",
    "tokens": [3, 4],
}


@fuzz
@given(
    junk | replaced(REPLY).map(lambda row: json.dumps(row).encode()),
    st.booleans(),
    st.sampled_from(["c.jsonl", "c.jsonl.xz"]),
)
def test_cassettes(tmp_path, content, packed, name):
    content = json.dumps(REPLY).encode() + b"\n" + content + b"\n"
    file = tmp_path / name
    file.write_bytes(
        lzma.compress(content)[: None if packed else -3] if name.endswith("xz") else content
    )
    survives(lambda: Cassette(file, append=False).close())
    file.write_bytes(content[len(json.dumps(REPLY)) :])
    survives(lambda: Cassette(file, append=False).close())


FORMS = [
    (form.status, form.body)
    for behaviours in (endpoint_behaviours.REPLIES, endpoint_behaviours.ERRORS)
    for forms in behaviours.values()
    for form in forms
]


@settings(fuzz, max_examples=500)
@given(st.data())
def test_what_chat_endpoints_send(data):
    """It is a reply with text or a reason why there is none, or it is no reply; and the key is in no message."""
    status, body = data.draw(st.sampled_from(FORMS))
    others = damaged(body) if isinstance(body, bytes) else replaced(body).map(json.dumps).map(str.encode)
    content = data.draw(junk | others)
    text, secret = content.decode(errors="replace"), "sk-0123456789abcdef"
    outcome = (
        parse_reply(text, "0" * 32, "gpt", (9, 9))
        if status == 200
        else parse_error_response(status, text)
    )
    if isinstance(outcome, ServiceError):
        refused = Reply(digest="0" * 32, asked="gpt", served="", text="", finish=None, tokens=(0, 0))
        outcome = classify_error(
            replace(outcome, message=f"{outcome.message} {secret}"), refused, (secret,), "A_KEY"
        )
        assert secret not in outcome.reason
        assert "\n" not in outcome.reason
    reply = outcome if isinstance(outcome, Reply) else outcome.counts_as
    if reply is not None:
        assert Reply.model_validate_json(reply.model_dump_json()) == reply
        assert reply.refusal or reply.text.strip()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("trees") / "trees.parquet"
    write_table(file, trees.frame(trees.small()))
    return file.read_bytes()


@settings(fuzz, max_examples=150)
@given(st.data())
def test_tables_of_damaged_bytes(tmp_path, table, data):
    file = tmp_path / "trees.parquet"
    file.write_bytes(data.draw(junk | damaged(table)))
    survives(read_trees, file)
    survives(read_table, file)


CELLS = [None, True, -1, 0, 3, 2**62, 0.5, float("nan"), float("inf"), "", "won", "\x00<script>"]


@settings(fuzz, max_examples=150)
@given(
    st.sampled_from(sorted(trees.small()[0])), st.integers(0, 3), st.sampled_from(CELLS), st.booleans()
)
def test_tables_with_one_cell_or_column_of_any_form(tmp_path, column, row, cell, whole_column):
    rows = trees.small()
    for number, one in enumerate(rows):
        if whole_column or number == row:
            one[column] = cell
    try:
        write_table(tmp_path / "trees.parquet", trees.frame(rows))
    except ArrowException:
        # A column of several types is none that a table can have.
        return
    survives(write_view, tmp_path / "trees.parquet", tmp_path / "trees.html", "title")


TASK = load_panel("alfworld-official").splits["valid_unseen"][0]
TURNS = [{"from": "human", "value": "Your task is to: look."}, {"from": "gpt", "value": "Action: look"}]
LOGGED = [
    {
        "task": TASK.task_id,
        "content": TASK.content,
        "goal": "look.",
        "success": True,
        "seed": 1,
        "steps": 5.0,
        "step": 1,
    },
    {
        "extra.gamefile": [f"/d/valid_unseen/{TASK.task_id}/game.tw-pddl"],
        "won": [True],
        "steps": [3],
        "actions": [["look"]],
    },
    {
        "input": "Your task is to: look.\n",
        "output": "</think><action>look</action>",
        "score": 9.9,
        "step": 3,
        "traj_uid": 1,
    },
    {"meta": {"success": True, "steps": 3, "reward": 1}, "conversations": TURNS},
    {
        "task_name": "a",
        "goal": "b c",
        "is_done": True,
        "trajectory": {"Interaction Turn 0": {"Action": "look"}},
    },
    {
        "index": 0,
        "error": None,
        "output": {"result": {"result": 1, "init_prompt": "", "log": [{"done": True}]}},
        "time": {},
    },
    {"name": "env_0", "memory": [], "is_success": True},
    {"episodes": [{"task": TASK.task_id, "success": True}]},
]


@settings(fuzz, max_examples=300)
@given(st.sampled_from(LOGGED).flatmap(replaced), st.sampled_from(LOGGED), st.booleans())
def test_logs_with_one_value_of_any_form(tmp_path, row, other, listed):
    file = tmp_path / "log.jsonl"
    rows = [row, other, row]
    file.write_text(json.dumps(rows) if listed else "".join(json.dumps(one) + "\n" for one in rows))
    survives(read_log, file, load_panel("alfworld-official"))


@settings(fuzz, max_examples=100)
@given(
    junk
    | damaged(json.dumps(LOGGED, indent=1).encode())
    | damaged(gzip.compress(json.dumps(LOGGED).encode()))
)
def test_files_of_logs(tmp_path, content):
    file = tmp_path / "log.jsonl"
    file.write_bytes(content)
    survives(read_log, file, load_panel("alfworld-official"))


RECORD = {
    "stage": "tables", "name": "", "code": {"a": "0"}, "field": {"seeds": "[0]"}, "input": {}, "output": {"b": "1"},
    "took": {"seconds": 1.5}, "made": {"commit": "c"},
}  # fmt: skip


@settings(fuzz, max_examples=100)
@given(junk | replaced(RECORD).map(lambda found: json.dumps(found).encode()))
def test_records(tmp_path, content):
    file = Paths(tmp_path).record("tables", "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    survives(records.read_record, Paths(tmp_path), Job("tables"))


CALL = {
    "config": {"study": "ci", "set": {"seeds": [0]}},
    "gpus": None,
    "file": "ci.yaml",
    "study_sha256": "0",
}
CI = load_study(ROOT / "config" / "studies" / "ci.yaml")


@settings(fuzz, max_examples=100)
@given(junk | replaced(CALL).map(lambda found: json.dumps(found).encode()))
def test_what_the_workflow_was_asked_for(tmp_path, content):
    paths = Paths(tmp_path / "ci")
    paths.root.mkdir(exist_ok=True)
    paths.study.write_text(dump_study(CI))
    paths.call.write_bytes(content)
    survives(current_study, paths)
    survives(check_study_file, paths)
    assert isinstance(provenance._changes_of_call(paths), dict)


EVENT = {
    "kind": "began", "stage": "tables", "name": "", "time": 1.7e9, "host": socket.gethostname(), "process": 1,
    "started": "1", "jobs": [["tables", ""]], "left": [],
}  # fmt: skip
CALLED = {**EVENT, "kind": "call"}


@fuzz
@given(
    junk | (replaced(EVENT) | replaced(CALLED)).map(lambda found: json.dumps(found).encode()),
    st.booleans(),
)
def test_journals(tmp_path, content, between):
    """One bad bit, times of no clock: what is whole is shown, the rest is left out."""
    paths = Paths(tmp_path / "ci")
    paths.root.mkdir(exist_ok=True)
    paths.study.write_text(dump_study(CI))
    lines = [json.dumps({**EVENT, "kind": "ended"}).encode()] if between else []
    paths.journal.write_bytes(b"\n".join([content, *lines, b""]))
    assert describe_study(paths)[0]
    if between:
        assert journal.read_journal(paths)[1][Job("tables")].kind == "ended"


@fuzz
@given(junk | replaced({"data/a": [[1, 2, 3, 4], "0"]}).map(lambda found: json.dumps(found).encode()))
def test_memories_of_digests(tmp_path, content):
    file = tmp_path / "memory.json"
    file.write_bytes(content)
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "a").write_text("1")
    assert DigestCache(file).digests_of(tmp_path / "data" / "a") == {
        "": hashlib.sha256(b"1").hexdigest()
    }


@fuzz
@given(junk)
def test_files_of_the_repository(tmp_path, content):
    for name in ("a.yaml", "a.ipynb", "a.csv"):
        (tmp_path / name).write_bytes(content)
        assert len(semantic_digest(tmp_path / name)) == 64


@fuzz
@given(
    junk | replaced({"study": "ci", "files": {"a": "0"}}).map(lambda found: json.dumps(found).encode())
)
def test_indices_of_exports(tmp_path, content):
    (tmp_path / INDEX).write_bytes(content)
    survives(check_ours, tmp_path)


@fuzz
@given(
    junk
    | replaced({"weight_map": {"a": "model.safetensors"}}).map(lambda found: json.dumps(found).encode())
)
def test_indices_of_weights(tmp_path, content):
    (tmp_path / "model.safetensors.index.json").write_bytes(content)
    assert hub._is_complete(tmp_path) is False


@fuzz
@given(
    junk
    | replaced({"games.zip": {"sha256": "0", "bytes": 1}}).map(lambda found: json.dumps(found).encode())
)
def test_checksums_of_downloads(tmp_path, content):
    (tmp_path / official.CHECKSUMS).write_bytes(content)
    survives(official._read_checksums, tmp_path / official.CHECKSUMS)


@fuzz
@given(st.binary(max_size=60))
def test_holders_of_locks(tmp_path, content):
    (tmp_path / "lock").write_bytes(content)
    assert read_lock_holder(tmp_path / "lock")
