"""Entries of logs in the forms of several programs, put into one: our own names of fields.

A form is recognised by its fields. Forms that hold no episodes, or name no tasks, are each one error that names the form.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_files import Row

Fields = Mapping[str, Any]

TASK = ("task", "task_id", "game_id", "gamefile", "extra.gamefile", "game_file", "goal", "instruction")
SUCCESS = ("success", "won", "is_success")
_INNER = ("meta", "info", "infos")
"""Objects in an entry that hold the outcome of the episode."""
_TURNS = (
    "conversations",
    "trajectory",
    "memory",
    "log",
    "history",
    "messages",
    "steps",
    "actions",
    "commands",
)
"""Lists that belong to one episode."""
_HUMAN = ("human", "user", "env", "environment", "system")


def episodes_in(row: Row) -> Iterator[Row]:
    """Yield the episodes of an entry, each with its fields in our own names.

    Besides those, ``texts`` are the agent's input, and ``responses`` its output.

    Raises:
        InputError: if the entry is no object, or of a form that is not read.
    """
    value = row.value
    if not isinstance(value, dict):
        raise InputError(f"{row.where}: expected a JSON object, found {type(value).__name__}")
    _refuse(value, row.where)
    framed = False
    for name, one in _framed(value):
        framed = True
        yield from episodes_in(Row(row.number, f"{row.where}, {name!r}", one))
    if framed:
        return

    for name in _INNER:
        if isinstance(value.get(name), dict):
            # Fields of the entry itself win over equal ones inside.
            value = {**value[name], **value}
    for fits, translate in _FORMS:
        if fits <= value.keys():
            yield row._replace(value=translate(value, row.where))
            return
    for place, one in enumerate(_unbatched(value, row.where)):
        yield row._replace(
            value=_with_texts(one), where=row.where if not place else f"{row.where}, episode {place + 1}"
        )


def _refuse(value: Fields, where: str) -> None:
    """Refuse results that hold no episodes, or that name no task, by the name of their form."""
    keys = value.keys()
    says: str | None = None
    if {"name", "memory", "is_success"} <= keys and not any(value.get(name) for name in TASK):
        says = (
            f"a result of Reflexion (env_results_trial_N.json), which is not read: {value['name']!r} names no game; write "
            "info['extra.gamefile'] beside is_success, as the field 'gamefile'"
        )
    elif {"success_rate", "progress_rate"} <= keys:
        says = "a summary of AgentBoard (all_results.txt), which holds no episodes; give its logs/TASK.jsonl"
    elif {"total", "validation", "custom"} <= keys or (
        keys == {"overall"} and isinstance(value["overall"], dict)
    ):
        says = (
            "a summary of AgentBench (overall.json), which holds no episodes; give runs.jsonl beside it"
        )
    elif {"index", "error", "output"} <= keys and value["error"] is not None:
        says = (
            f"a run of AgentBench that has failed ({value['error']}); give runs.jsonl, not error.jsonl"
        )
    if says:
        raise InputError(f"{where}: {says}")


def _framed(value: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the episodes of an object that is nothing but their frame, each with what it is called there.

    Such are an object with one list of objects, and one of objects, or of outcomes, by the ids of tasks.
    """
    if any(name in value for name in (*TASK, *SUCCESS)) or {"input", "output"} <= value.keys():
        return
    lists = [
        name
        for name, one in value.items()
        if isinstance(one, list) and one and all(isinstance(x, dict) for x in one)
    ]
    # A list of turns is the content of one episode, not a list of episodes.
    if len(lists) == 1 and lists[0] not in _TURNS:
        name = lists[0]
        for number, one in enumerate(value[name], start=1):
            yield f"{name} {number}", one
    elif all(isinstance(one, bool) for one in value.values()):
        yield from ((name, {"task": name, "success": won}) for name, won in value.items())
    elif all(isinstance(one, dict) and any(field in one for field in SUCCESS) for one in value.values()):
        yield from ((name, {"task": name, **one}) for name, one in value.items())


def _unbatched(value: Fields, where: str) -> list[Fields]:
    """Return the episodes of an entry whose fields are lists with a value for each environment, as AlfredTWEnv has them."""
    named = next((name for name in (*TASK, *SUCCESS) if value.get(name)), None)
    # AlfredTWEnv steps a batch of games, and logs a list for each field, even with one game.
    count = len(value[named]) if named and isinstance(value[named], list) else 1
    outcome = next((name for name in SUCCESS if name in value), None)
    if count > 1 and outcome and not (isinstance(value[outcome], list) and len(value[outcome]) == count):
        raise InputError(
            f"{where}: field {named!r} has {count} values, and {outcome!r} is {value[outcome]!r}; one for each"
        )
    return [
        {name: _at(one, place, count, name) for name, one in value.items()} for place in range(count)
    ]


def _at(value: Any, place: int, count: int, name: str) -> Any:
    if not isinstance(value, list) or len(value) != count:
        return value
    # With one environment, its commands may be in a plain list.
    return value if name in _TURNS and isinstance(value[place], str | dict) else value[place]


def _with_texts(value: Fields) -> Fields:
    texts = [
        value[name] for name in ("input", "prompt", "observation") if isinstance(value.get(name), str)
    ]
    responses = [value[name] for name in ("output", "action") if isinstance(value.get(name), str)]
    for name in ("actions", "commands"):
        if isinstance(value.get(name), list):
            responses += [text for text in value[name] if isinstance(text, str)]
    for name in ("conversations", "messages"):
        observations, answers = _turns(_objects(value.get(name)))
        texts += observations
        responses += answers
    return {**value, "texts": texts, "responses": responses}


def _objects(value: Any) -> list[Fields]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _turns(turns: list[Fields]) -> tuple[list[str], list[str]]:
    """Return the messages to an agent in a conversation, and its answers."""
    spoken = [
        (str(turn.get("from", turn.get("role"))), str(turn.get("value", turn.get("content", ""))))
        for turn in turns
    ]
    observations = [text for role, text in spoken if role in _HUMAN]
    answers = [text for role, text in spoken if role not in _HUMAN]
    return observations, answers


def _agentboard(value: Fields, where: str) -> Fields:
    """An episode of AgentBoard's logs/TASK.jsonl: ALFWorld's are named by TASK and goal, WebShop's by their goal."""
    if not isinstance(value["trajectory"], dict):
        raise InputError(
            f"{where}: field 'trajectory': expected the turns of an AgentBoard log, by their names"
        )
    turns = [turn for turn in value["trajectory"].values() if isinstance(turn, dict)]
    # AgentBoard logs the reset of the environment as its first action.
    actions = [str(turn["Action"]) for turn in turns if turn.get("Action") not in (None, "reset[]")]
    name = str(value.get("task_name", ""))
    goal = str(value.get("goal", "")).removeprefix("Instruction:").strip()
    return {
        # In a shop, the name is that of the benchmark.
        "task": name if "-" in name else goal,
        "goal": goal,
        "texts": [],
        "success": value["is_done"],
        "ended": value["is_done"],
        "steps": len(actions),
        "responses": actions,
    }


def _agentbench(value: Fields, where: str) -> Fields:
    """A run of AgentBench's runs.jsonl: ALFWorld's are named by how they begin, WebShop's by their instruction."""
    output = value["output"]
    result = output.get("result") if isinstance(output, dict) else None
    if not isinstance(result, dict) or not ("result" in result or "reward" in result):
        raise InputError(
            f"{where}: a run of AgentBench without ALFWorld's result or WebShop's reward; leave it out"
        )
    observations, answers = _turns(_objects(output.get("history")))
    log = _objects(result.get("log"))
    steps = len(log) or None
    return {
        "task": f"sample {value['index']}",
        "texts": [result["init_prompt"]] if isinstance(result.get("init_prompt"), str) else observations,
        "responses": [str(turn.get("action", "")) for turn in log] or answers,
        "success": result["result"] if "result" in result else result["reward"] == 1,
        "score": result.get("reward"),
        "steps": steps,
        "ended": bool(log[-1].get("done")) if log else None,
    }


_FORMS: tuple[tuple[set[str], Callable[[Fields, str], Fields]], ...] = (
    ({"is_done", "trajectory"}, _agentboard),
    ({"index", "output", "time"}, _agentbench),
)
"""(fields that such an entry has, its reader)."""
