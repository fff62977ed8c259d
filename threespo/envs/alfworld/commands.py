"""Which commands a state admits, and what each one changes."""

from collections.abc import Callable
from typing import NamedTuple

from threespo.envs.alfworld.model import Action, ActionRule, Environment, Game, WorldState
from threespo.envs.alfworld.relations import bits

Commands = dict[str, Action]
"""Command -> what it does. Where two actions are worded alike, the one that is found first has the command."""
_REMEMBERED = 256
"""Situations of a game whose commands are kept: some 150 kB."""


class Admitted(NamedTuple):
    """What a state admits."""

    actions: Commands
    """All but :func:`travels`."""
    listed: tuple[str, ...]
    """All commands, sorted."""


def admitted(game: Game, facts: WorldState) -> Admitted:
    """Return what a state admits.

    That depends on the agent's hand and on what is around it alone, to which episodes come back again and again.

    Args:
        game: the game.
        facts: what is the case in the state.
    """
    place, held, opened, contents, _, lying, _ = facts
    around = [contents[receptacle] for receptacle in game.receptacles_at[place]]
    situation = (place, held, opened & game.masks_at[place], lying[place], *around)
    remembered: dict[tuple[int, ...], Admitted] = game.cache.setdefault("admitted", {})
    found = remembered.get(situation)
    if found is None:
        # Not ``==``: threads that add at the same time may have gone past it.
        if len(remembered) >= _REMEMBERED:
            remembered.clear()
        actions = find_local_commands(game, facts)
        found = remembered[situation] = Admitted(
            actions, tuple(sorted((*goto_commands_from(game, place), *actions)))
        )
    return found


def travels(game: Game) -> Commands:
    """Return the commands that go to a receptacle; they are admissible wherever the receptacle is elsewhere.

    They do not depend on the state, so all states of a game share them.
    """
    found: Commands | None = game.cache.get("travels")
    if found is None:
        found = {}
        for rule in game.rules_of.get("goto", ()):
            for receptacle, place in enumerate(game.place_of):
                if place >= 0:
                    _add(found, game, rule, -1, receptacle, place)
        game.cache["travels"] = found
    return found


def goto_commands_from(game: Game, place: int) -> tuple[str, ...]:
    """Return those commands of :func:`travels` that are admissible at a location, sorted.

    Args:
        game: the game.
        place: index of the agent's location.
    """
    found: tuple[str, ...] | None = game.cache.get(("elsewhere", place))
    if found is None:
        found = tuple(
            sorted(command for command, (_, _, _, to, _) in travels(game).items() if to != place)
        )
        game.cache[("elsewhere", place)] = found
    return found


def find_local_commands(game: Game, facts: WorldState) -> Commands:
    """Return all admissible commands of a state but those of :func:`travels`.

    Args:
        game: the game.
        facts: what is the case in the state.
    """
    found: Commands = dict(_unconditional(game, facts.place))
    visible = _receptacles(game, facts, found)
    if facts.held >= 0:
        for rule in game.rules_of.get("examine held object", ()):
            _add(found, game, rule, facts.held, -1, facts.place)
        visible |= 1 << facts.held
        _with_held(game, facts, found)
    for rule in game.rules_of.get("examine object", ()):
        for item in bits(visible):
            _add(found, game, rule, item, -1, facts.place)
    return found


def _unconditional(game: Game, place: int) -> Commands:
    """Return what can always be done at a location."""
    found: Commands | None = game.cache.get(("always", place))
    if found is None:
        found = {}
        for rule in (*game.rules_of.get("look", ()), *game.rules_of.get("idle", ())):
            _add(found, game, rule, -1, -1, place)
        for rule in game.rules_of.get("examine receptacle", ()):
            for receptacle in game.receptacles_at[place]:
                _add(found, game, rule, -1, receptacle, place)
        game.cache[("always", place)] = found
    return found


def _receptacles(game: Game, facts: WorldState, found: Commands) -> int:
    """Add what the receptacles here and their contents admit; return the objects that are visible."""
    place, rules, visible = facts.place, game.rules_of, 0
    # Sets of receptacles and objects are bit masks, and so are a rule's filters: each test is one integer operation.
    for receptacle in game.receptacles_at[place]:
        here = 1 << receptacle
        opened = bool(facts.opened & here)
        accessible = opened or not game.openable & here
        if game.openable & here:
            for rule in rules.get("close" if opened else "open", ()):
                if rule.receptacles & here:
                    _add(found, game, rule, -1, receptacle, place)

        # The domain asks for no open door here: a lamp in a closed cabinet can be switched on, though not seen.
        contents = facts.contents[receptacle]
        for rule in rules.get("toggle", ()):
            if contents & rule.objects and rule.receptacles & here:
                for item in bits(contents & rule.objects):
                    _add(found, game, rule, item, receptacle, place)

        if accessible and contents:
            visible |= contents
            # The agent has one hand.
            if facts.held < 0:
                for rule in rules.get("take", ()):
                    if rule.receptacles & here:
                        for item in bits(contents & rule.objects):
                            _add(found, game, rule, item, receptacle, place)
    return visible


def _with_held(game: Game, facts: WorldState, found: Commands) -> None:
    """Add what can be done with the object in the agent's hand."""
    place, item, rules = facts.place, facts.held, game.rules_of
    mask = 1 << item
    for receptacle in game.receptacles_at[place]:
        here = 1 << receptacle
        if game.accepts[receptacle] & mask and (facts.opened & here or not game.openable & here):
            for rule in rules.get("put", ()):
                if rule.objects & mask and rule.receptacles & here:
                    _add(found, game, rule, item, receptacle, place)
        for rule in rules.get("treat", ()):
            if rule.objects & mask and rule.receptacles & here:
                _add(found, game, rule, item, receptacle, place)
    for rule in rules.get("slice", ()):
        if rule.tools & mask:
            for target in bits(facts.lying[place] & rule.objects):
                _add(found, game, rule, target, -1, place, item)


def _add(
    found: Commands, game: Game, rule: ActionRule, item: int, receptacle: int, place: int, tool: int = -1
) -> None:
    """Add an action unless its command is there already."""
    action = (rule.order, item, receptacle, place, tool)
    # Wording a command takes far longer than finding it, and a game's states admit the same ones again and again.
    command = game.cache.get(action)
    if command is None:
        command = game.cache[action] = rule.template(game, game.start, bindings(game, action))
    found.setdefault(command, action)


def bindings(game: Game, action: Action) -> Environment:
    """Return the entities that the variables of an action's texts stand for, all but where a trip starts."""
    entities = game.entities
    return {
        name: entities[position][action[position]]
        for name, position in game.rules[action[0]].schema.variables
    }


def effect(game: Game, facts: WorldState, action: Action) -> WorldState:
    """Return the facts after an action.

    Args:
        game: the game.
        facts: what is the case before.
        action: an admissible one; its conditions are not checked again.
    """
    rule = game.rules[action[0]]
    change = _EFFECTS.get(rule.kind)
    if change is not None:
        facts = change(game, facts, action)
    if not rule.marks:
        return facts
    marks, mask = list(facts.marks), 1 << action[1]
    for index, what in rule.marks:
        marks[index] = (
            marks[index] | mask
            if what == "set"
            else marks[index] & ~mask
            if what == "clear"
            else marks[index] ^ mask
        )
    return facts._replace(marks=tuple(marks))


def _go(game: Game, facts: WorldState, action: Action) -> WorldState:
    _, *rest = facts
    return WorldState(action[3], *rest)  # type: ignore[arg-type]


def _open(game: Game, facts: WorldState, action: Action) -> WorldState:
    place, held, opened, contents, gone, lying, marks = facts
    return WorldState(place, held, opened | 1 << action[2], contents, gone, lying, marks)


def _close(game: Game, facts: WorldState, action: Action) -> WorldState:
    place, held, opened, contents, gone, lying, marks = facts
    return WorldState(place, held, opened & ~(1 << action[2]), contents, gone, lying, marks)


def _take(game: Game, facts: WorldState, action: Action) -> WorldState:
    place, _, opened, contents, gone, lying, marks = facts
    _, taken, receptacle, _, _ = action
    item = 1 << taken
    contents = _with(contents, receptacle, contents[receptacle] & ~item)
    gone = _with(gone, receptacle, gone[receptacle] | item)
    lying = _with(lying, place, lying[place] & ~item)
    return WorldState(place, taken, opened, contents, gone, lying, marks)


def _put(game: Game, facts: WorldState, action: Action) -> WorldState:
    place, _, opened, contents, gone, lying, marks = facts
    item, receptacle = 1 << action[1], action[2]
    contents = _with(contents, receptacle, contents[receptacle] | item)
    gone = _with(gone, receptacle, gone[receptacle] & ~item)
    lying = _with(lying, place, lying[place] | item)
    return WorldState(place, -1, opened, contents, gone, lying, marks)


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


_EFFECTS: dict[str, Callable[[Game, WorldState, Action], WorldState]] = {
    "goto": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "put": _put,
}
CHANGES: dict[str, frozenset[str]] = {
    "goto": frozenset({"atlocation"}),
    "open": frozenset({"opened"}),
    "close": frozenset({"opened"}),
    "take": frozenset({"inreceptacle", "objectatlocation", "holds", "holdsany"}),
    "put": frozenset({"inreceptacle", "objectatlocation", "holds", "holdsany"}),
}
"""Predicates that each kind of action changes, marks apart."""
