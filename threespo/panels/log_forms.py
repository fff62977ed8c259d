"""Entries of logs in the forms of several programs, put into one: our own names of fields.

A form is recognised by its fields. Forms that hold no episodes, or name no tasks, are each one error that names the form.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from threespo.errors import InputError
from threespo.panels.log_files import LogEntry

Fields = Mapping[str, Any]

# In our own names, or those of other programs, the surest first.
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
_ROLES_OF_INPUT = ("human", "user", "env", "environment", "system")


def translate_entry(entry: LogEntry) -> Iterator[LogEntry]:
    """Yield the episodes of an entry, each with its fields in our own names.

    Besides those, ``texts`` are the agent's input, and ``responses`` its output.

    Raises:
        InputError: if the entry is no object, or of a form that is not read.
    """
    value = entry.value
    where = entry.where
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(value).__name__}")
    _refuse_other_forms(value, where)

    contained = list(_list_contained(value))
    for name, episode in contained:
        yield from translate_entry(LogEntry(entry.number, f"{where}, {name!r}", episode))
    if contained:
        return

    for name in _INNER:
        if isinstance(value.get(name), dict):
            # Fields of the entry itself win over equal ones inside.
            value = {**value[name], **value}
    for required_fields, translate in _FORMS:
        if required_fields <= value.keys():
            yield entry._replace(value=translate(value, where))
            return
    for index, episode in enumerate(_split_batch(value, where)):
        place = f"{where}, episode {index + 1}" if index else where
        yield entry._replace(value=_add_texts(episode), where=place)


def _refuse_other_forms(value: Fields, where: str) -> None:
    """Refuse results that hold no episodes, or that name no task, by the name of their form."""
    fields = value.keys()
    names_task = any(value.get(name) for name in TASK)
    is_overall = fields == {"overall"} and isinstance(value["overall"], dict)
    explanation: str | None = None
    if {"name", "memory", "is_success"} <= fields and not names_task:
        explanation = (
            f"a result of Reflexion (env_results_trial_N.json), which is not read: {value['name']!r} names no game; write "
            "info['extra.gamefile'] beside is_success, as the field 'gamefile'"
        )
    elif {"success_rate", "progress_rate"} <= fields:
        explanation = "a summary of AgentBoard (all_results.txt), which holds no episodes; give its logs/TASK.jsonl"
    elif {"total", "validation", "custom"} <= fields or is_overall:
        explanation = (
            "a summary of AgentBench (overall.json), which holds no episodes; give runs.jsonl beside it"
        )
    elif {"index", "error", "output"} <= fields and value["error"] is not None:
        explanation = (
            f"a run of AgentBench that has failed ({value['error']}); give runs.jsonl, not error.jsonl"
        )
    if explanation:
        raise InputError(f"{where}: {explanation}")


def _list_contained(value: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the episodes of an object that only contains them, each with what it is called there.

    Such are an object with one list of objects, and one of objects, or of outcomes, by the ids of tasks.
    """
    if any(name in value for name in (*TASK, *SUCCESS)) or {"input", "output"} <= value.keys():
        return
    # A list of turns is the content of one episode, not a list of episodes.
    lists = [name for name, content in value.items() if _is_list_of_objects(content)]
    if len(lists) == 1 and lists[0] not in _TURNS:
        name = lists[0]
        for number, episode in enumerate(value[name], start=1):
            yield f"{name} {number}", episode
    elif all(isinstance(content, bool) for content in value.values()):
        for task, success in value.items():
            yield task, {"task": task, "success": success}
    elif all(_has_outcome(content) for content in value.values()):
        for task, episode in value.items():
            yield task, {"task": task, **episode}


def _is_list_of_objects(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(element, dict) for element in value)


def _has_outcome(value: Any) -> bool:
    return isinstance(value, dict) and any(name in value for name in SUCCESS)


def _split_batch(value: Fields, where: str) -> list[Fields]:
    """Return the episodes of an entry whose fields are lists with a value for each environment, as AlfredTWEnv has them."""
    named = next((name for name in (*TASK, *SUCCESS) if value.get(name)), None)
    # AlfredTWEnv steps a batch of games, and logs a list for each field, even with one game.
    count = len(value[named]) if named and isinstance(value[named], list) else 1
    outcome = next((name for name in SUCCESS if name in value), None)
    if count > 1 and outcome:
        outcomes = value[outcome]
        if not isinstance(outcomes, list) or len(outcomes) != count:
            raise InputError(
                f"{where}: field {named!r} has {count} values, and {outcome!r} is {outcomes!r}; one for each"
            )
    return [
        {name: _select_from_batch(name, content, index, count) for name, content in value.items()}
        for index in range(count)
    ]


def _select_from_batch(name: str, value: Any, index: int, count: int) -> Any:
    """Return a field's value for one environment of a batch of ``count``."""
    if not isinstance(value, list) or len(value) != count:
        return value
    # With one environment, its commands may be in a plain list.
    is_list_of_turns = name in _TURNS and isinstance(value[index], str | dict)
    return value if is_list_of_turns else value[index]


def _add_texts(value: Fields) -> Fields:
    """Add the agent's input and output, from wherever the fields have them."""
    inputs = [value.get(name) for name in ("input", "prompt", "observation")]
    outputs = [value.get(name) for name in ("output", "action")]
    for name in ("actions", "commands"):
        if isinstance(value.get(name), list):
            outputs += value[name]
    texts = [text for text in inputs if isinstance(text, str)]
    responses = [text for text in outputs if isinstance(text, str)]
    for name in ("conversations", "messages"):
        observations, answers = _split_turns(_select_objects(value.get(name)))
        texts += observations
        responses += answers
    return {**value, "texts": texts, "responses": responses}


def _select_objects(value: Any) -> list[Fields]:
    """Return the objects of a list; none where there is no list."""
    if not isinstance(value, list):
        return []
    return [element for element in value if isinstance(element, dict)]


def _split_turns(turns: list[Fields]) -> tuple[list[str], list[str]]:
    """Return the messages to an agent in a conversation, and its answers."""
    observations: list[str] = []
    answers: list[str] = []
    for turn in turns:
        role = str(turn.get("from", turn.get("role")))
        text = str(turn.get("value", turn.get("content", "")))
        if role in _ROLES_OF_INPUT:
            observations.append(text)
        else:
            answers.append(text)
    return observations, answers


def _translate_agentboard(value: Fields, where: str) -> Fields:
    """Translate an episode of AgentBoard's logs/TASK.jsonl: ALFWorld's are named by TASK and goal, WebShop's by goal."""
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


def _translate_agentbench(value: Fields, where: str) -> Fields:
    """Translate a run of AgentBench's runs.jsonl: ALFWorld's are named by how they begin, WebShop's by their instruction."""
    output = value["output"]
    result = output.get("result") if isinstance(output, dict) else None
    if not isinstance(result, dict) or not ("result" in result or "reward" in result):
        raise InputError(
            f"{where}: a run of AgentBench without ALFWorld's result or WebShop's reward; leave it out"
        )
    observations, answers = _split_turns(_select_objects(output.get("history")))
    first_prompt = result.get("init_prompt")
    log = _select_objects(result.get("log"))
    actions = [str(turn.get("action", "")) for turn in log]
    return {
        "task": f"sample {value['index']}",
        "texts": [first_prompt] if isinstance(first_prompt, str) else observations,
        "responses": actions or answers,
        "success": result["result"] if "result" in result else result["reward"] == 1,
        "score": result.get("reward"),
        "steps": len(log) or None,
        "ended": bool(log[-1].get("done")) if log else None,
    }


_FORMS: tuple[tuple[set[str], Callable[[Fields, str], Fields]], ...] = (
    ({"is_done", "trajectory"}, _translate_agentboard),
    ({"index", "output", "time"}, _translate_agentbench),
)
"""(fields that such an entry has, its reader)."""
