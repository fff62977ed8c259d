"""Commands of ``threespo`` about tasks and panels: ``audit``, and the form
``data ENVIRONMENT --to DIR`` of the stage ``data``."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from threespo.envs.registry import ENVIRONMENTS, environment, prepare
from threespo.errors import InputError, refuse_ignored
from threespo.panels.build import GENERATED_GAMES
from threespo.panels.panel import PRODUCTS
from threespo.panels.prepared import compare_prepared
from threespo.terminal import escape_controls

Command = Callable[[argparse.Namespace], int]

_GENERATED: dict[str, dict[str, Any]] = {
    "alfworld": {"difficulty": "full", "games": GENERATED_GAMES},
    "webshop": {"products": PRODUCTS},
}
"""What the generated panels are made with."""


def add_commands(commands: Any, run_stage: Command) -> None:
    """Add the commands to those of ``threespo``.

    Args:
        commands: the subparsers; the stage ``data`` is among them.
        run_stage: what ``data`` does with a study.
    """
    judge = commands.add_parser(
        "audit", help="say what a log of episodes is worth on a canonical panel (docs/panels.md)"
    )
    judge.add_argument(
        "log", type=Path, metavar="LOG", help="a .jsonl file, an episode a line: task, seed, success, …"
    )
    judge.add_argument("--panel", required=True, metavar="NAME", help="alfworld-official, webshop-1k, …")
    judge.add_argument(
        "--split",
        metavar="SPLIT",
        help="that the log is meant to be on (default: every tested one in it)",
    )
    judge.add_argument("--json", action="store_true", help="print JSON")
    judge.set_defaults(command=_audit)

    data = commands.choices["data"]
    data.add_argument(
        "--to",
        type=Path,
        metavar="DIR",
        help="with an environment's name as STUDY_JSON: prepare tasks there",
    )
    data.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="with --to: official games, or a shop's files",
    )
    data.add_argument(
        "--human-goals", action="store_true", help="with --to and webshop: what people asked for"
    )
    data.set_defaults(command=lambda parsed: _data(parsed, run_stage))


def _audit(parsed: argparse.Namespace) -> int:
    # Imported here, so that other commands start without the readers of logs.
    from threespo.panels.audit import audit
    from threespo.panels.logs import read_log
    from threespo.panels.panel import load_panel

    panel = load_panel(parsed.panel)
    found = audit(read_log(parsed.log, panel), panel, parsed.split)
    print(json.dumps(found.values()) if parsed.json else escape_controls("\n".join(found.lines())))
    return 1 if found.findings else 0


def _data(parsed: argparse.Namespace, run_stage: Command) -> int:
    if parsed.to is None:
        if parsed.env is None:
            raise InputError(
                "data: --env ENV is missing; or, without a study: threespo data ENVIRONMENT --to DIR"
            )
        where = f"data {parsed.study} --env {parsed.env}"
        refuse_ignored(where, **{"from": parsed.source, "human_goals": parsed.human_goals})
        return run_stage(parsed)

    name = str(parsed.study)
    refuse_ignored(f"data {name} --to {parsed.to}", env=parsed.env)
    if name not in ENVIRONMENTS:
        raise InputError(f"data --to: no environment {name!r}; there are: {', '.join(ENVIRONMENTS)}")
    spec = environment(name)
    if parsed.to.exists() and (not parsed.to.is_dir() or any(parsed.to.iterdir())):
        raise InputError(f"{parsed.to}: there is something already; give a folder that is empty or new")
    values: dict[str, Any] = (
        _GENERATED.get(name, {}) if parsed.source is None else {"source": "path", "path": parsed.source}
    )
    if parsed.source is not None and spec.real is not None:
        lacks = spec.real.explain_missing(parsed.source)
        if lacks:
            raise InputError(f"{parsed.source}: {lacks}; expected {spec.real.holds}")
    try:
        settings = spec.tasks.model_validate(
            values | ({"goal_kind": "human"} if parsed.human_goals else {})
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"data {name}: {field}: {first['msg']}") from error
    prepare(spec.name)(settings, parsed.to)
    compare_prepared(name, settings, parsed.to)
    return 0
