"""From a game's texts to a :class:`Game`."""

import copyreg
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from threespo.envs.alfworld.commands import CHANGES
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.goals import Scene, compile_goal, goal_reads
from threespo.envs.alfworld.grammar import PlainText, parse_text, split_task_sentence
from threespo.envs.alfworld.model import ActionRule, Entity, Game, WorldState
from threespo.envs.alfworld.pddl import Problem, parse_problem
from threespo.envs.alfworld.schemas import DYNAMIC, Filter
from threespo.envs.alfworld.wording import Wording, wording
from threespo.errors import InputError

FactSets = dict[str, set[tuple[str, ...]]]


def compile_game(record: GameRecord) -> Game:
    """Compile a game.

    Raises:
        InputError: if a text is broken, or uses something that this engine does not know; names the game.
    """
    try:
        return _compile(record)
    except InputError as error:
        raise InputError(f"{record.where}: {error}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            f"{record.where}: a fact or condition of the problem is malformed or of the wrong type ({error})"
        ) from error


# A game holds functions, which cannot be pickled: what travels between processes is its texts.
copyreg.pickle(Game, lambda game: (compile_game, (game.record,)))


def _compile(record: GameRecord) -> Game:
    template, sentence = split_task_sentence(record.grammar)
    words = wording(record.domain, template)
    problem = parse_problem(record.problem)
    facts: FactSets = {name: set(rows) for name, rows in problem.facts.items()}
    entities = _entities(problem)
    by_kind: dict[str, list[Entity]] = {}
    for entity in entities.values():
        by_kind.setdefault(entity.kind, []).append(entity)
    objects, receptacles, locations = (
        tuple(by_kind.get(kind, ())) for kind in ("object", "receptacle", "location")
    )
    agents = by_kind.get("agent", [])
    if len(agents) != 1:
        raise InputError(f"the problem has {len(agents)} agents that are somewhere; expected one")
    marks = {mark: index for index, mark in enumerate(words.domain.marks)}

    goal = goal_reads(problem.goal)
    scene = Scene(
        words.domain,
        problem.types,
        facts,
        _index(objects),
        _index(receptacles),
        _index(locations),
        marks,
    )
    start, place_of = _start(facts, scene)

    receptacles_at = _group(place_of, len(locations))
    openable = _bits(scene.receptacles, (row[0] for row in facts.get("openable", ())))

    rules = _rules(words, facts, scene, goal)
    return Game(
        record=record,
        objects_=objects,
        receptacles_=receptacles,
        locations_=locations,
        agent=agents[0],
        entities=((agents[0],) * len(rules), objects, receptacles, locations, objects),
        place_of=place_of,
        receptacles_at=receptacles_at,
        masks_at=tuple(sum(1 << receptacle for receptacle in here) for here in receptacles_at),
        openable=openable,
        accepts=_accepts(facts, scene),
        static=_static(facts, words, entities),
        mark_index=marks,
        task=_task(sentence),
        texts=words,
        rules=rules,
        rules_of={
            kind: tuple(rule for rule in rules if rule.kind == kind)
            for kind in {rule.kind for rule in rules}
        },
        start=start,
        is_won=compile_goal(problem.goal, scene),
        goal_reads=goal,
        cache={},
    )


def _task(sentence: str) -> str:
    parts = parse_text(sentence)
    if not all(isinstance(part, PlainText) for part in parts):
        raise InputError(f"the task sentence {sentence!r} is not plain text")
    return "".join(part.text for part in parts if isinstance(part, PlainText))


def _entities(problem: Problem) -> dict[str, Entity]:
    """Return every entity that occurs in a fact, sorted by id, with the names that ALFWorld's demangler gives.

    ``Mug_bar_…`` is called "mug N"; numbers fall as ids rise. Ids that mention a basin count apart (a sink and its
    basin share the first part of their ids). An id without ``_bar_`` is its own name, with a space behind.
    """
    used = sorted({argument for rows in problem.facts.values() for row in rows for argument in row})
    labels = {
        one: one.split("_bar_", 1)[0] + ("basin" if "basin" in one else "")
        for one in used
        if "_bar_" in one
    }

    remaining = Counter(labels.values())
    positions: Counter[str] = Counter()
    result = {}

    for one in used:
        if one in labels:
            label = labels[one]
            name = f"{label} {remaining[label]}"
            remaining[label] -= 1
        else:
            name = _unescape(one) + " "
        kind = problem.types[one]
        result[one] = Entity(sys.intern(one), sys.intern(kind), sys.intern(name), positions[kind])
        positions[kind] += 1
    return result


def _unescape(text: str) -> str:
    for code, sign in (("minus", "-"), ("plus", "+"), ("dot", "."), ("comma", ",")):
        text = text.replace(f"_{code}_", sign)
    return text


def _index(entities: Iterable[Entity]) -> dict[str, int]:
    return {entity.id: entity.index for entity in entities}


def _bits(index: Mapping[str, int], names: Iterable[str]) -> int:
    mask = 0
    for name in names:
        mask |= 1 << index[name]
    return mask


def _group(place_of: tuple[int, ...], places: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = [[] for _ in range(places)]
    for receptacle, place in enumerate(place_of):
        if place >= 0:
            groups[place].append(receptacle)
    return tuple(map(tuple, groups))


def _start(facts: FactSets, scene: Scene) -> tuple[WorldState, tuple[int, ...]]:
    """Return the first facts, and the location of each receptacle (-1: nowhere)."""
    where = [row for row in facts.get("atlocation", ()) if row[0] in scene.types]
    if len(where) != 1:
        raise InputError(f"the agent is at {len(where)} locations at the start; expected one")

    held = sorted(row[1] for row in facts.get("holds", ()))
    if len(held) > 1 or bool(held) != ("holdsany" in facts):
        raise InputError("the agent holds several objects at the start, or holds and holdsAny disagree")

    place_of = [-1] * len(scene.receptacles)
    for receptacle, location in facts.get("receptacleatlocation", ()):
        if place_of[scene.receptacles[receptacle]] >= 0:
            raise InputError(f"the receptacle {receptacle!r} is at two locations; use engine: textworld")
        place_of[scene.receptacles[receptacle]] = scene.locations[location]

    contents, lying = [0] * len(scene.receptacles), [0] * len(scene.locations)
    for item, receptacle in facts.get("inreceptacle", ()):
        contents[scene.receptacles[receptacle]] |= 1 << scene.objects[item]
    for item, location in facts.get("objectatlocation", ()):
        lying[scene.locations[location]] |= 1 << scene.objects[item]

    start = WorldState(
        place=scene.locations[where[0][1]],
        held=scene.objects[held[0]] if held else -1,
        opened=_bits(scene.receptacles, (row[0] for row in facts.get("opened", ()))),
        contents=tuple(contents),
        # The stock engine learns that an object is not there when it is taken away, not before.
        gone=(0,) * len(contents),
        lying=tuple(lying),
        marks=tuple(
            _bits(scene.objects, (row[0] for row in facts.get(mark, ()))) for mark in scene.mark_index
        ),
    )
    return start, tuple(place_of)


def _accepts(facts: FactSets, scene: Scene) -> tuple[int, ...]:
    """Return, for each receptacle, the objects that ``canContain`` lets it hold."""
    of_type: dict[str, int] = {}
    for item, kind in facts.get("objecttype", ()):
        if item in scene.objects:
            of_type[kind] = of_type.get(kind, 0) | 1 << scene.objects[item]

    held_by: dict[str, int] = {}
    for outer, inner in facts.get("cancontain", ()):
        held_by[outer] = held_by.get(outer, 0) | of_type.get(inner, 0)

    accepts = [0] * len(scene.receptacles)
    for receptacle, kind in facts.get("receptacletype", ()):
        accepts[scene.receptacles[receptacle]] |= held_by.get(kind, 0)
    return tuple(accepts)


def _static(
    facts: FactSets, words: Wording, entities: Mapping[str, Entity]
) -> dict[str, list[tuple[Entity, ...]]]:
    """Return the facts that texts refer to and that never change, sorted by id."""
    followed = {*DYNAMIC, *words.domain.marks}
    return {
        name: [tuple(entities[argument] for argument in row) for row in sorted(facts.get(name, ()))]
        for name in words.reads
        if name not in followed
    }


def _rules(
    words: Wording, facts: FactSets, scene: Scene, goal: frozenset[str]
) -> tuple[ActionRule, ...]:
    """Return the game's action rules, in the order of the domain."""
    rules = []
    for order, schema in enumerate(words.domain.schemas):
        rule = ActionRule(order, schema, words)
        for item in schema.filters:
            index = scene.receptacles if item.role == "?r" else scene.objects
            passing = _filtered(item, facts, index)
            if item.role == "?r":
                rule.receptacles &= passing
            elif item.role == "?o":
                rule.objects &= passing
            else:
                rule.tools &= passing

        # A mark that neither goal nor texts ask for is not followed: states that differ in nothing else are equal.
        read = scene.mark_index.keys() & (goal | words.reads)
        marks = [(mark, change) for mark, change in schema.marks if mark in read]
        rule.marks = tuple((scene.mark_index[mark], change) for mark, change in marks)
        rule.decides = bool(goal & {*CHANGES.get(schema.kind, ()), *(mark for mark, _ in marks)})
        rules.append(rule)
    return tuple(rules)


def _filtered(condition: Filter, facts: FactSets, index: Mapping[str, int]) -> int:
    mask = 0
    for predicate, *constants in condition.alternatives:
        rows = facts.get(predicate, ())
        mask |= _bits(index, (row[0] for row in rows if list(row[1:]) == constants and row[0] in index))
    return mask
