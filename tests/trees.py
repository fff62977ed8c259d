"""Search trees made by rule, in the form in which training records them."""

import random
from typing import Any

import pandas as pd

ACTIONS = (
    "go to desk 1",
    "go to sidetable 2",
    "take mug 1 from desk 1",
    "open drawer 3",
    "look",
    "examine shelf 4",
)


def tree(
    nodes: int,
    epoch: int = 0,
    task: str = "pick/trial-1",
    goal: str = "put a mug in desk.",
    deep: int = 50,
    **same: Any,
) -> list[dict[str, Any]]:
    """Return the rows of one tree of that many nodes: depth first, eight samples a state, as a search takes them."""
    draw = random.Random(f"{nodes} {epoch} {task}")
    rows = [_row(epoch, task, goal, 0, -1, 1, "start", draw)]
    frontier, expansions = [0], 0
    while len(rows) < nodes:
        if not frontier:
            frontier = [
                row["node"]
                for row in rows
                if row["expanded"] < 0 and not row["end"] and not row["gated"]
            ]
            assert frontier, f"no tree of depth {deep} with {nodes} nodes comes of these draws"
            draw.shuffle(frontier)
        node = rows[frontier.pop()]
        if node["expanded"] >= 0 or node["end"] or node["gated"]:
            continue
        fan = min(nodes - len(rows), draw.choice((1, 2, 4, 8, 8)) if node["node"] else 8)
        node.update(expanded=expansions, rollouts=fan)
        expansions += 1
        places = [draw.randrange(20) for _ in range(fan)]
        children = []
        for place in places:
            row = _row(
                epoch, task, goal, len(rows), node["node"], node["depth"] + 1, f"place {place}", draw
            )
            row["end"] = "limit" if row["depth"] >= deep else "won" if draw.random() < 0.02 else ""
            row["success"] = 0.5 * (row["end"] == "won")
            row["reward"] = row["novelty"] + row["difference"] + row["success"]
            children.append(row["node"])
            rows.append(row)
        frontier += children[: draw.randint(1, len(children))]
    return [{**row, **same} for row in rows]


def frame(*trees: list[dict[str, Any]]) -> pd.DataFrame:
    """Return trees as the table that training writes."""
    return pd.DataFrame([row for rows in trees for row in rows])


def small() -> list[dict[str, Any]]:
    """Return a tree of four nodes: a root, two children, and the first one's winning child."""
    rows = tree(4, deep=9)
    for row, (parent, depth) in zip(rows, [(-1, 1), (0, 2), (0, 2), (1, 3)], strict=True):
        row.update(parent=parent, depth=depth, end="")
    rows[3]["end"] = "won"
    return rows


def _row(
    epoch: int, task: str, goal: str, node: int, parent: int, depth: int, state: str, draw: random.Random
) -> dict[str, Any]:
    visits = float(min(epoch * 3, 40) + draw.randint(0, 3)) / depth if draw.random() < 0.8 else 0.0
    successes = visits * draw.choice((0.0, 0.1, 0.5, 0.9))
    gated = bool(node) and draw.random() < 0.06
    step = 1.0 if node else float("nan")
    return {
        "epoch": epoch,
        "task_id": task,
        "task_type": task.split("/")[0],
        "goal": goal,
        "node": node,
        "parent": parent,
        "depth": depth,
        "state": state,
        "action": draw.choice(ACTIONS) if node else "",
        "response": f"<think>{state} may hold it.</think>\n<action>…</action>" if node else "",
        "observation": f"You arrive at {state}. On it, you see a mug {node % 5} and a pen 2.",
        "valid": draw.random() < 0.95,
        "admissible": draw.random() < 0.9,
        "end": "",
        "visits": visits,
        "successes": successes,
        "score": 0.0 if gated else 2.718281828 ** (-2 * successes / (visits or 1.0)),
        "gated": gated,
        "expanded": -1,
        "rollouts": 0,
        "reward": step * 0.0,
        "novelty": step * draw.choice((0.0, 0.5, 0.41)),
        "difference": step * draw.uniform(-0.1, 0.1),
        "success": step * 0.0,
        "advantage": step * draw.gauss(0, 1) if draw.random() < 0.7 else float("nan"),
    }
