"""From a game's texts to a :class:`Game`."""

import copyreg
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from threespo.envs.alfworld.commands import CHANGED_PREDICATES
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.goals import ProblemIndex, compile_goal, find_goal_predicates
from threespo.envs.alfworld.grammar import PlainText, parse_text, split_task_sentence
from threespo.envs.alfworld.model import ActionRule, Entity, Game, WorldState
from threespo.envs.alfworld.pddl import Problem, parse_problem
from threespo.envs.alfworld.schemas import DYNAMIC_PREDICATES, Filter
from threespo.envs.alfworld.wording import CompiledTexts, compile_texts
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
        raise InputError(f"{record.label}: {error}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            f"{record.label}: a fact or condition of the problem is malformed or of the wrong type ({error})"
        ) from error


# A game holds functions, which cannot be pickled, so processes send each other its texts.
copyreg.pickle(Game, lambda game: (compile_game, (game.record,)))


def _compile(record: GameRecord) -> Game:
    template, sentence = split_task_sentence(record.grammar)
    texts = compile_texts(record.domain, template)
    problem = parse_problem(record.problem)
    # A fact that the problem lists twice counts once.
    facts: FactSets = {predicate: set(rows) for predicate, rows in problem.facts.items()}

    # Like the stock engine, the game has only the entities of which something is said.
    entities = _make_entities(problem)
    by_kind: dict[str, list[Entity]] = {}
    for entity in entities.values():
        by_kind.setdefault(entity.kind, []).append(entity)
    objects = tuple(by_kind.get("object", ()))
    receptacles = tuple(by_kind.get("receptacle", ()))
    locations = tuple(by_kind.get("location", ()))
    agents = by_kind.get("agent", [])
    if len(agents) != 1:
        raise InputError(f"the problem has {len(agents)} agents that are somewhere; expected one")

    goal_predicates = find_goal_predicates(problem.goal)
    index = ProblemIndex(
        domain=texts.domain,
        types=problem.types,
        facts=facts,
        objects=_index_by_id(objects),
        receptacles=_index_by_id(receptacles),
        locations=_index_by_id(locations),
        properties={name: position for position, name in enumerate(texts.domain.properties)},
    )
    receptacle_locations = _locate_receptacles(facts, index)
    receptacles_at = _group_by_location(receptacle_locations, len(locations))
    rules = _make_rules(texts, index, goal_predicates)
    rules_by_kind: dict[str, tuple[ActionRule, ...]] = {}
    for rule in rules:
        rules_by_kind[rule.kind] = (*rules_by_kind.get(rule.kind, ()), rule)

    return Game(
        record=record,
        object_entities=objects,
        receptacle_entities=receptacles,
        location_entities=locations,
        agent=agents[0],
        # Any rule's number has to find the agent.
        action_entities=((agents[0],) * len(rules), objects, receptacles, locations, objects),
        receptacle_locations=receptacle_locations,
        receptacles_at=receptacles_at,
        receptacle_masks_at=tuple(sum(1 << item for item in here) for here in receptacles_at),
        openable=_unary_mask(index.receptacles, facts, "openable"),
        accepted_objects=_find_accepted_objects(facts, index),
        static_facts=_collect_static_facts(facts, texts, entities),
        property_index=dict(index.properties),
        task=_check_plain(sentence),
        texts=texts,
        rules=rules,
        rules_by_kind=rules_by_kind,
        initial_world=_make_initial_world(facts, index),
        is_won=compile_goal(problem.goal, index),
        goal_predicates=goal_predicates,
        cache={},
    )


def _check_plain(sentence: str) -> str:
    """Return the task sentence as the grammar would print it, which must be plain text."""
    parts = parse_text(sentence)
    if not all(isinstance(part, PlainText) for part in parts):
        raise InputError(f"the task sentence {sentence!r} is not plain text")
    return "".join(part.text for part in parts if isinstance(part, PlainText))


def _make_entities(problem: Problem) -> dict[str, Entity]:
    """Return every entity that occurs in a fact, sorted by id, with the names that ALFWorld's demangler gives.

    ``Mug_bar_…`` is called "mug N"; numbers fall as ids rise. Ids that mention a basin are counted apart (a sink and its
    basin share the first part of their ids). An id without ``_bar_`` is its own name, followed by a space.
    """
    ids = sorted({argument for rows in problem.facts.values() for row in rows for argument in row})
    labels: dict[str, str] = {}
    for entity_id in ids:
        if "_bar_" in entity_id:
            label = entity_id.split("_bar_", 1)[0]
            labels[entity_id] = label + ("basin" if "basin" in entity_id else "")

    next_number = Counter(labels.values())
    next_index: Counter[str] = Counter()
    entities = {}
    for entity_id in ids:
        if entity_id in labels:
            label = labels[entity_id]
            name = f"{label} {next_number[label]}"
            next_number[label] -= 1
        else:
            name = _unescape(entity_id) + " "
        entity_type = problem.types[entity_id]
        # Thousands of games share these strings.
        entities[entity_id] = Entity(
            sys.intern(entity_id), sys.intern(entity_type), sys.intern(name), next_index[entity_type]
        )
        next_index[entity_type] += 1
    return entities


def _unescape(text: str) -> str:
    # ALFRED's codes for signs that PDDL symbols cannot hold.
    for code, sign in (("minus", "-"), ("plus", "+"), ("dot", "."), ("comma", ",")):
        text = text.replace(f"_{code}_", sign)
    return text


def _index_by_id(entities: Iterable[Entity]) -> dict[str, int]:
    return {entity.id: entity.index for entity in entities}


def _unary_mask(index: Mapping[str, int], facts: FactSets, predicate: str) -> int:
    """Return the mask of the entities for which a unary predicate holds at the start."""
    mask = 0
    for row in facts.get(predicate, ()):
        mask |= 1 << index[row[0]]
    return mask


def _locate_receptacles(facts: FactSets, index: ProblemIndex) -> tuple[int, ...]:
    """Return the location of each receptacle (-1: nowhere)."""
    locations = [-1] * len(index.receptacles)
    for receptacle, location in facts.get("receptacleatlocation", ()):
        position = index.receptacles[receptacle]
        if locations[position] >= 0:
            raise InputError(f"the receptacle {receptacle!r} is at two locations; use engine: textworld")
        locations[position] = index.locations[location]
    return tuple(locations)


def _group_by_location(
    receptacle_locations: tuple[int, ...], location_count: int
) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = [[] for _ in range(location_count)]
    for receptacle, location in enumerate(receptacle_locations):
        if location >= 0:
            groups[location].append(receptacle)
    return tuple(map(tuple, groups))


def _make_initial_world(facts: FactSets, index: ProblemIndex) -> WorldState:
    agent_rows = [row for row in facts.get("atlocation", ()) if row[0] in index.types]
    if len(agent_rows) != 1:
        raise InputError(f"the agent is at {len(agent_rows)} locations at the start; expected one")

    # The agent has one hand; the domain says in two predicates whether it is full.
    held_objects = sorted(row[1] for row in facts.get("holds", ()))
    if len(held_objects) > 1 or bool(held_objects) != ("holdsany" in facts):
        raise InputError("the agent holds several objects at the start, or holds and holdsAny disagree")

    contents = [0] * len(index.receptacles)
    for object_id, receptacle_id in facts.get("inreceptacle", ()):
        contents[index.receptacles[receptacle_id]] |= 1 << index.objects[object_id]
    objects_at = [0] * len(index.locations)
    for object_id, location in facts.get("objectatlocation", ()):
        objects_at[index.locations[location]] |= 1 << index.objects[object_id]

    return WorldState(
        agent_location=index.locations[agent_rows[0][1]],
        held_object=index.objects[held_objects[0]] if held_objects else -1,
        opened=_unary_mask(index.receptacles, facts, "opened"),
        contents=tuple(contents),
        # The stock engine learns that an object is not in a receptacle_id when it is taken out, not before.
        removed=(0,) * len(contents),
        objects_at=tuple(objects_at),
        properties=tuple(_unary_mask(index.objects, facts, predicate) for predicate in index.properties),
    )


def _find_accepted_objects(facts: FactSets, index: ProblemIndex) -> tuple[int, ...]:
    """Return, for each receptacle_id, the objects that ``canContain`` lets it hold."""
    # The domain relates types of receptacles to types of objects; the engine needs the instances.
    objects_of_type: dict[str, int] = {}
    for object_id, kind in facts.get("objecttype", ()):
        if object_id in index.objects:
            objects_of_type[kind] = objects_of_type.get(kind, 0) | 1 << index.objects[object_id]

    accepted_by_type: dict[str, int] = {}
    for outer, inner in facts.get("cancontain", ()):
        accepted_by_type[outer] = accepted_by_type.get(outer, 0) | objects_of_type.get(inner, 0)

    accepted = [0] * len(index.receptacles)
    for receptacle_id, kind in facts.get("receptacletype", ()):
        accepted[index.receptacles[receptacle_id]] |= accepted_by_type.get(kind, 0)
    return tuple(accepted)


def _collect_static_facts(
    facts: FactSets, texts: CompiledTexts, entities: Mapping[str, Entity]
) -> dict[str, list[tuple[Entity, ...]]]:
    """Return the facts that texts refer to and that never change, sorted by id."""
    dynamic = {*DYNAMIC_PREDICATES, *texts.domain.properties}
    return {
        predicate: [
            tuple(entities[argument] for argument in row) for row in sorted(facts.get(predicate, ()))
        ]
        for predicate in texts.predicates
        if predicate not in dynamic
    }


def _make_rules(
    texts: CompiledTexts, index: ProblemIndex, goal_predicates: frozenset[str]
) -> tuple[ActionRule, ...]:
    """Return the game's action rules, in the order of the domain."""
    rules = []
    for number, schema in enumerate(texts.domain.schemas):
        rule = ActionRule(number, schema, texts)
        for filter_ in schema.filters:
            if filter_.role == "?r":
                rule.receptacles &= _filter_mask(filter_, index.facts, index.receptacles)
            elif filter_.role == "?o":
                rule.objects &= _filter_mask(filter_, index.facts, index.objects)
            else:
                rule.tools &= _filter_mask(filter_, index.facts, index.objects)

        # A property that neither goal nor texts read is not tracked: states that differ in nothing else are equal.
        read = index.properties.keys() & (goal_predicates | texts.predicates)
        changes = [
            (predicate, change) for predicate, change in schema.property_changes if predicate in read
        ]
        rule.property_changes = tuple(
            (index.properties[predicate], change) for predicate, change in changes
        )
        changed = {*CHANGED_PREDICATES.get(schema.kind, ()), *(predicate for predicate, _ in changes)}
        # The engine tests the goal again only after such actions.
        rule.affects_goal = not goal_predicates.isdisjoint(changed)
        rules.append(rule)
    return tuple(rules)


def _filter_mask(
    condition: Filter, facts: Mapping[str, set[tuple[str, ...]]], index: Mapping[str, int]
) -> int:
    """Return the mask of the entities that a filter admits."""
    mask = 0
    for predicate, *constants in condition.alternatives:
        for row in facts.get(predicate, ()):
            if list(row[1:]) == constants and row[0] in index:
                mask |= 1 << index[row[0]]
    return mask
