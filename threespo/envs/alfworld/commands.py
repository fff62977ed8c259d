"""The commands that a state admits, and what each one changes."""

from collections.abc import Callable
from typing import NamedTuple

from threespo.envs.alfworld.model import Action, ActionRule, Bindings, Game, WorldState
from threespo.envs.alfworld.relations import iterate_bits

# Command -> action. Where two actions are worded alike, the one that is found first has the command.
CommandActions = dict[str, Action]

# Situations of a game whose commands are cached: some 150 kB.
_MAX_SITUATIONS = 256


class AdmissibleCommands(NamedTuple):
    """The admissible commands of a state."""

    actions: CommandActions  # All but :func:`goto_commands`.
    listed: tuple[str, ...]  # All commands, sorted.


def find_admissible(game: Game, world: WorldState) -> AdmissibleCommands:
    """Return the admissible commands of a state.

    They depend on what the agent holds, and on what is open and lies at its location. Episodes return to such situations
    again and again, so the commands of each are kept.
    """
    location, held, opened, contents, _, objects_at, _ = world
    # All contents, not the visible ones alone: a lamp in a closed receptacle can be switched on.
    contents_here = [contents[receptacle] for receptacle in game.receptacles_at[location]]
    opened_here = opened & game.receptacle_masks_at[location]
    situation = (location, held, opened_here, objects_at[location], *contents_here)

    cached: dict[tuple[int, ...], AdmissibleCommands] = game.cache.setdefault("admissible", {})
    found = cached.get(situation)
    if found is None:
        # Not ``==``: threads that add at the same time may have gone past it.
        if len(cached) >= _MAX_SITUATIONS:
            cached.clear()
        actions = find_local_commands(game, world)
        listed = tuple(sorted((*goto_commands_from(game, location), *actions)))
        found = AdmissibleCommands(actions, listed)
        cached[situation] = found
    return found


def goto_commands(game: Game) -> CommandActions:
    """Return the commands that go to a receptacle; each is admissible unless the agent is at that location already.

    They do not depend on the state, so all states of a game share them.
    """
    commands: CommandActions | None = game.cache.get("goto commands")
    if commands is None:
        commands = {}
        for rule in game.rules_by_kind.get("goto", ()):
            for receptacle, location in enumerate(game.receptacle_locations):
                if location >= 0:
                    _add_command(commands, game, rule, -1, receptacle, location)
        game.cache["goto commands"] = commands
    return commands


def goto_commands_from(game: Game, location: int) -> tuple[str, ...]:
    """Return those of :func:`goto_commands` that are admissible at a location, sorted."""
    key = ("goto commands from", location)
    commands: tuple[str, ...] | None = game.cache.get(key)
    if commands is None:
        trips = goto_commands(game).items()
        commands = tuple(sorted(command for command, action in trips if action[3] != location))
        game.cache[key] = commands
    return commands


def find_local_commands(game: Game, world: WorldState) -> CommandActions:
    """Return all admissible commands of a state but those of :func:`goto_commands`."""
    location = world.agent_location
    held_object = world.held_object
    commands: CommandActions = dict(_unconditional_commands(game, location))
    # Where two actions have the same command, the first one wins, so the order of these calls matters.
    visible = _add_receptacle_commands(game, world, commands)
    if held_object >= 0:
        for rule in game.rules_by_kind.get("examine held object", ()):
            _add_command(commands, game, rule, held_object, -1, location)
        visible |= 1 << held_object
        _add_held_object_commands(game, world, commands)

    for rule in game.rules_by_kind.get("examine object", ()):
        for object_index in iterate_bits(visible):
            _add_command(commands, game, rule, object_index, -1, location)
    return commands


def _unconditional_commands(game: Game, location: int) -> CommandActions:
    """Return the commands that are always admissible at a location."""
    key = ("unconditional commands", location)
    commands: CommandActions | None = game.cache.get(key)
    if commands is None:
        commands = {}
        rules = game.rules_by_kind
        for rule in (*rules.get("look", ()), *rules.get("idle", ())):
            _add_command(commands, game, rule, -1, -1, location)
        for rule in rules.get("examine receptacle", ()):
            for receptacle in game.receptacles_at[location]:
                _add_command(commands, game, rule, -1, receptacle, location)
        game.cache[key] = commands
    return commands


def _add_receptacle_commands(game: Game, world: WorldState, commands: CommandActions) -> int:
    """Add the commands for the receptacles at the agent's location and for their contents; return the visible objects."""
    location = world.agent_location
    rules = game.rules_by_kind
    visible = 0
    for receptacle in game.receptacles_at[location]:
        receptacle_bit = 1 << receptacle
        has_door = game.openable & receptacle_bit
        is_open = bool(world.opened & receptacle_bit)
        if has_door:
            for rule in rules.get("close" if is_open else "open", ()):
                if rule.receptacles & receptacle_bit:
                    _add_command(commands, game, rule, -1, receptacle, location)

        # The domain asks for no open door here: a lamp in a closed cabinet can be switched on, though not seen.
        contents = world.contents[receptacle]
        for rule in rules.get("toggle", ()):
            if contents & rule.objects and rule.receptacles & receptacle_bit:
                for object_index in iterate_bits(contents & rule.objects):
                    _add_command(commands, game, rule, object_index, receptacle, location)

        if contents and (is_open or not has_door):
            visible |= contents
            # The agent has one hand.
            if world.held_object < 0:
                for rule in rules.get("take", ()):
                    if rule.receptacles & receptacle_bit:
                        for object_index in iterate_bits(contents & rule.objects):
                            _add_command(commands, game, rule, object_index, receptacle, location)
    return visible


def _add_held_object_commands(game: Game, world: WorldState, commands: CommandActions) -> None:
    """Add the commands that use the object in the agent's hand."""
    location = world.agent_location
    held_object = world.held_object
    held_bit = 1 << held_object
    rules = game.rules_by_kind
    for receptacle in game.receptacles_at[location]:
        receptacle_bit = 1 << receptacle
        is_accessible = world.opened & receptacle_bit or not game.openable & receptacle_bit
        if game.accepted_objects[receptacle] & held_bit and is_accessible:
            for rule in rules.get("put", ()):
                if rule.objects & held_bit and rule.receptacles & receptacle_bit:
                    _add_command(commands, game, rule, held_object, receptacle, location)
        # No open door is needed to clean, heat or cool an object, as in the official domain.
        for rule in rules.get("treat", ()):
            if rule.objects & held_bit and rule.receptacles & receptacle_bit:
                _add_command(commands, game, rule, held_object, receptacle, location)

    for rule in rules.get("slice", ()):
        if rule.tools & held_bit:
            for target in iterate_bits(world.objects_at[location] & rule.objects):
                _add_command(commands, game, rule, target, -1, location, held_object)


def _add_command(
    commands: CommandActions,
    game: Game,
    rule: ActionRule,
    object_index: int,
    receptacle: int,
    location: int,
    tool: int = -1,
) -> None:
    """Add an action unless its command is there already."""
    action = (rule.number, object_index, receptacle, location, tool)
    # Writing a command takes far longer than finding it, and a game's states admit the same ones again and again.
    command = game.cache.get(action)
    if command is None:
        command = rule.command_writer(game, game.initial_world, bind_variables(game, action))
        game.cache[action] = command
    commands.setdefault(command, action)


def bind_variables(game: Game, action: Action) -> Bindings:
    """Return the entities for the variables of an action's texts.

    The location where a trip starts is left out: it is no part of an action.
    """
    entities = game.action_entities
    return {
        variable: entities[position][action[position]]
        for variable, position in game.rules[action[0]].schema.variables
    }


def apply_action(game: Game, world: WorldState, action: Action) -> WorldState:
    """Return the world after an action, which must be admissible: its precondition is not checked again."""
    rule = game.rules[action[0]]
    apply_effect = _EFFECTS.get(rule.kind)
    if apply_effect is not None:
        world = apply_effect(world, action)
    if not rule.property_changes:
        return world

    properties = list(world.properties)
    object_bit = 1 << action[1]
    for index, change in rule.property_changes:
        # A flip is a lamp's switch.
        if change == "set":
            properties[index] |= object_bit
        elif change == "clear":
            properties[index] &= ~object_bit
        else:
            properties[index] ^= object_bit
    return world._replace(properties=tuple(properties))


# The effects build new tuples by position: ``_replace`` takes more than twice as long.


def _go(world: WorldState, action: Action) -> WorldState:
    _, *rest = world
    return WorldState(action[3], *rest)  # type: ignore[arg-type]


def _open(world: WorldState, action: Action) -> WorldState:
    location, held, opened, contents, removed, objects_at, properties = world
    opened |= 1 << action[2]
    return WorldState(location, held, opened, contents, removed, objects_at, properties)


def _close(world: WorldState, action: Action) -> WorldState:
    location, held, opened, contents, removed, objects_at, properties = world
    opened &= ~(1 << action[2])
    return WorldState(location, held, opened, contents, removed, objects_at, properties)


def _take(world: WorldState, action: Action) -> WorldState:
    location, _, opened, contents, removed, objects_at, properties = world
    _, object_index, receptacle, _, _ = action
    object_bit = 1 << object_index
    # An object that the problem puts in two receptacles stays in the other one, as in the stock engine.
    contents = _replaced(contents, receptacle, contents[receptacle] & ~object_bit)
    removed = _replaced(removed, receptacle, removed[receptacle] | object_bit)
    objects_at = _replaced(objects_at, location, objects_at[location] & ~object_bit)
    return WorldState(location, object_index, opened, contents, removed, objects_at, properties)


def _put(world: WorldState, action: Action) -> WorldState:
    location, _, opened, contents, removed, objects_at, properties = world
    _, object_index, receptacle, _, _ = action
    object_bit = 1 << object_index
    contents = _replaced(contents, receptacle, contents[receptacle] | object_bit)
    removed = _replaced(removed, receptacle, removed[receptacle] & ~object_bit)
    objects_at = _replaced(objects_at, location, objects_at[location] | object_bit)
    return WorldState(location, -1, opened, contents, removed, objects_at, properties)


def _replaced(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    """Return the values with another one at an index."""
    return (*values[:index], value, *values[index + 1 :])


_EFFECTS: dict[str, Callable[[WorldState, Action], WorldState]] = {
    "goto": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "put": _put,
}
_MOVED = frozenset({"inreceptacle", "objectatlocation", "holds", "holdsany"})
# Predicates that each kind of action changes, object properties apart.
CHANGED_PREDICATES: dict[str, frozenset[str]] = {
    "goto": frozenset({"atlocation"}),
    "open": frozenset({"opened"}),
    "close": frozenset({"opened"}),
    "take": _MOVED,
    "put": _MOVED,
}
