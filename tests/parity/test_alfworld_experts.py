"""Plans of ``threespo.envs.alfworld.experts`` beside those of ALFWorld's own wrapper, at every step of the same games."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from threespo.envs.alfworld import Game, GameRecord, compile_game, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.experts import derive_handcoded_seed, make_expert

textworld = pytest.importorskip("textworld", reason="the stock engine (extra: oracle) is not installed")
MOST_STEPS = 40


def spread(records: list[GameRecord], count: int) -> list[GameRecord]:
    """Return some games, of all task types where there are enough."""
    by_type: dict[str, list[GameRecord]] = {}
    for record in records:
        by_type.setdefault(record.task_type, []).append(record)
    turns = [record for turn in zip(*by_type.values(), strict=False) for record in turn]
    return turns[:count]


def real_games(shared: Path, count: int) -> list[GameRecord]:
    return spread(sources.load_games(shared / "data" / "alfworld", "valid_unseen"), count)


def embedded_games(count: int) -> list[GameRecord]:
    return spread(generate_games("valid_unseen", 12 * count, 3, "small"), count)


def original(record: GameRecord, folder: Path, kind: str) -> Any:
    """Return the game in ALFWorld's wrappers, read from an official layout whose ``traj_data.json`` is made from the id."""
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredExpert
    from textworld.envs.pddl import PddlEnv

    class SortedFacts(textworld.core.Wrapper):  # type: ignore[misc, name-defined]
        """The facts come out of sets, in the order of this process's string hashes."""

        def reset(self) -> Any:
            return self._sorted(super().reset())

        def step(self, command: str) -> Any:
            state, reward, done = super().step(command)
            return self._sorted(state), reward, done

        def _sorted(self, state: Any) -> Any:
            if state.facts is not None:
                state["facts"] = sorted(state.facts, key=lambda fact: (fact.name, fact.names))
            return state

    task, thing, movable, place, _ = record.game_id.split("/")[0].split("-")
    lamp = task == "look_at_obj_in_light"
    parameters = {
        "object_target": thing,
        "mrecep_target": movable.replace("None", ""),
        "parent_target": "" if lamp else place,
        "toggle_target": place if lamp else "",
        "object_sliced": False,
    }
    file = folder / record.split / record.game_id / "game.tw-pddl"
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "traj_data.json").write_text(
        json.dumps({"task_type": task, "pddl_params": parameters})
    )
    game = {"pddl_domain": record.domain, "grammar": record.grammar, "pddl_problem": record.problem}
    file.write_text(json.dumps({**game, "solvable": True, "walkthrough": list(record.walkthrough)}))

    engine = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    wrapped = AlfredExpert(SortedFacts(AlfredDemangler(engine)), expert_type=kind)
    wrapped.load(str(file))
    return wrapped


def other_commands(state: Any, plan: list[str], source: random.Random, share: float) -> str:
    """Return the plan's next command; in a share of the steps another one, admissible or not."""
    if plan and source.random() >= share:
        return plan[0]
    return "dance" if source.random() < 0.1 else str(source.choice(state["admissible_commands"]))


def played(
    record: GameRecord, folder: Path, kind: str, share: float, most: int = MOST_STEPS
) -> Iterator[tuple[Game, list[str], list[str]]]:
    """Yield the game, the commands so far and the original's plan (empty: it stopped with an error) at each point."""
    game, commands, source = compile_game(record), list[str](), random.Random(record.game_id)
    engine = original(record, folder, kind)
    random.seed(derive_handcoded_seed(game.task_id))
    state = engine.reset()
    for _ in range(most):
        plan = list(state["extra.expert_plan"])
        yield game, list(commands), plan
        commands.append(other_commands(state, plan, source, share))
        try:
            state, _, done = engine.step(commands[-1])
        except Exception as error:
            # The wrapper knows of the first only; the others end the original's process.
            if str(error) != "Timeout" and not isinstance(error, NameError | LookupError):
                raise
            yield game, list(commands), []
            return
        if done:
            yield game, list(commands), list(state["extra.expert_plan"])
            return


def assert_same_plans(
    records: list[GameRecord], folder: Path, kind: str, share: float, most: int = MOST_STEPS
) -> int:
    """Compare at every point; a second expert, asked at one late point only, must say what the first says there."""
    expert, points = make_expert(kind), 0
    assert expert is not None
    for record in records:
        before, plan = random.getstate(), list[str]()
        for game, commands, plan in played(record, folder, kind, share, most):
            outside = random.getstate()
            assert expert.plan(game, commands) == plan, (record.game_id, commands)
            assert random.getstate() == outside
            points += 1
        fresh = make_expert(kind)
        assert fresh is not None
        assert fresh.plan(game, commands) == plan, record.game_id
        random.setstate(before)
    return points


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_handcoded_expert_says_what_alfworlds_own_wrapper_says(
    share: float, shared: Path, tmp_path: Path
) -> None:
    games = [*real_games(shared, 2), *embedded_games(1)]
    assert assert_same_plans(games, tmp_path, "handcoded", share) > 15


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_planner_says_what_alfworlds_own_wrapper_says(
    share: float, shared: Path, tmp_path: Path
) -> None:
    assert assert_same_plans(real_games(shared, 1), tmp_path, "planner", share, most=5) >= 4


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize(
    ("kind", "real", "embedded", "most"), [("handcoded", 20, 10, 30), ("planner", 4, 2, 8)]
)
def test_more_games(
    kind: str, real: int, embedded: int, most: int, share: float, shared: Path, tmp_path: Path
) -> None:
    games = [*real_games(shared, real), *embedded_games(embedded)]
    assert len(games) == real + embedded
    assert assert_same_plans(games, tmp_path, kind, share, most) >= 3 * len(games)


@pytest.mark.long
def test_where_the_original_stops_with_an_error_there_is_no_plan(shared: Path, tmp_path: Path) -> None:
    """After 200 commands its time is over."""
    (record,) = real_games(shared, 1)
    points = list(played(record, tmp_path, "handcoded", share=1.0, most=250))
    expert = make_expert("handcoded")
    assert expert is not None
    for game, commands, plan in points:
        assert expert.plan(game, commands) == plan, commands
    assert points[-1][2] == []
    assert len(points) <= 202
