"""The pure engine: a hand-made game played by hand, variants of domain and grammar, properties of states."""

import dataclasses
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alfworld_mini import (
    DOMAIN,
    GRAMMAR,
    OLD_DOMAIN,
    OLD_GRAMMAR,
    SEEN_DOMAIN,
    TASK,
    TWO_MUGS,
    mini,
    replaced,
)
from threespo.envs.alfworld import Alfworld, Game, GameState, commands, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.errors import InputError

ENV = Alfworld()
EVERYWHERE = ["help", "inventory", "look"]


def run(game: Game, *commands: str) -> GameState:
    state = ENV.initial(game)
    for command in commands:
        state = ENV.step(state, command).state
    return state


def texts(game: Game, *commands: str) -> list[str]:
    return [run(game, *commands[: count + 1]).observation for count in range(len(commands))]


def test_reset_lists_receptacles_by_id_with_falling_numbers() -> None:
    state = run(compile_game(mini()))
    assert state.observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        f"a drawer 1, a shelf 2, a shelf 1, and a sinkbasin 1.\n\n{TASK}"
    )
    trips = ["go to drawer 1", "go to shelf 1", "go to shelf 2", "go to sinkbasin 1"]
    assert list(ENV.admissible(state)) == sorted(EVERYWHERE + trips)
    assert (ENV.won(state), ENV.score(state)) == (False, 0)


def test_receptacles_at_one_location_are_reached_together() -> None:
    state = run(compile_game(mini()), "go to shelf 2")
    # Shelf_bar_1, the first id, is shelf 2; the mug is on both shelves at once.
    assert (
        state.observation == "You arrive at shelf 2. On the shelf 2, you see a desklamp 1, and a mug 2."
    )
    here = ["examine shelf 1", "examine shelf 2", "take mug 2 from shelf 1", "take mug 2 from shelf 2"]
    here += ["take knife 1 from shelf 1", "use desklamp 1"]
    trips = ["go to drawer 1", "go to sinkbasin 1"]
    assert list(ENV.admissible(state)) == sorted(EVERYWHERE + here + trips)
    seeing = run(compile_game(mini(domain=SEEN_DOMAIN)), "go to shelf 2")
    seen = ["examine desklamp 1", "examine knife 1", "examine mug 2"]
    assert list(ENV.admissible(seeing)) == sorted(EVERYWHERE + here + trips + seen)


def test_look_shows_what_was_moved_within_a_location() -> None:
    story = ["go to shelf 2", "look", "take mug 2 from shelf 2", "look", "move mug 2 to shelf 1", "look"]
    facing = "You are facing the shelf 2, and shelf 1. Next to it, you see"
    told = texts(compile_game(mini()), *story)
    assert told[1] == told[3] == f"{facing} nothing."
    assert told[5] == f"{facing} a mug 2."
    back = texts(
        compile_game(mini()), *story, "take mug 2 from shelf 1", "move mug 2 to shelf 2", "look"
    )
    assert back[-1] == f"{facing} a mug 2."


def test_drawer_carrying_cleaning_and_slicing() -> None:
    game = compile_game(mini())
    told = texts(
        game,
        "go to drawer 1",
        "examine drawer 1",
        "open drawer 1",
        "take mug 1 from drawer 1",
        "inventory",
        "close drawer 1",
        "move mug 1 to drawer 1",
        "go to sinkbasin 1",
        "move mug 1 to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
        "examine mug 1",
    )
    assert told == [
        "You arrive at drawer 1. The drawer 1 is closed.",
        "The drawer 1 is closed.",
        "You open the drawer 1. The drawer 1 is open. In it, you see a mug 1.",
        "You pick up the mug 1 from the drawer 1.",
        "You are carrying: a mug 1.",
        "You close the drawer 1.",
        "Nothing happens.",
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see a apple 1.",
        "Nothing happens.",
        "You clean the mug 1 using the sinkbasin 1.",
        "This is a clean mug 1.",
    ]
    sliced = texts(
        compile_game(mini(domain=SEEN_DOMAIN)),
        "go to shelf 1",
        "take knife 1 from shelf 1",
        "go to sinkbasin 1",
        "slice apple 1 with knife 1",
        "examine apple 1",
    )
    assert sliced[-2:] == ["You sliced the apple 1 with the knife 1.", "This is a sliced apple 1."]


def test_a_win_can_be_lost_and_games_go_on() -> None:
    story = ["go to drawer 1", "open drawer 1", "take mug 1 from drawer 1", "go to shelf 1"]
    game = compile_game(mini(walkthrough=[*story, "move mug 1 to shelf 1"]))
    won = run(game, *game.walkthrough)
    assert ENV.won(won)
    lost = ENV.step(won, "take mug 2 from shelf 1")
    assert (lost.won, lost.score, ENV.won(lost.state)) == (False, 0, False)
    still = ENV.step(won, "nonsense")
    assert (still.won, still.score, still.observation) == (True, 1, "Nothing happens.")


@pytest.mark.parametrize("command", [" look", "look\n", "\tlook \u00a0"])
def test_outer_white_space_is_ignored(command: str) -> None:
    assert run(compile_game(mini()), command).observation != "Nothing happens."


@pytest.mark.parametrize(
    "command",
    ["Look", "LOOK", "look.", "", "go  to shelf 1", "go to shelf", "go to shelf 3", "take mug 1"],
)
def test_anything_else_does_nothing(command: str) -> None:
    start = run(compile_game(mini()))
    after = ENV.step(start, command).state
    assert after.observation == "Nothing happens."
    assert after.world == start.world
    assert ENV.admissible(after) == ENV.admissible(start)


def test_wording_of_the_older_games() -> None:
    game = compile_game(mini(grammar=OLD_GRAMMAR, domain=OLD_DOMAIN))
    told = texts(
        game,
        "go to shelf 2",
        "take knife 1 from shelf 1",
        "clean knife 1 with shelf 2",
        "put knife 1 in/on shelf 2",
    )
    assert told == [
        # Locations are numbered like everything else, falling: loc_bar_1 is the last of four.
        "You arrive at loc 4. On the shelf 2, you see a desklamp 1, and a mug 2.",
        "You pick up the knife 1 from the shelf 1.",
        "You clean the knife 1 using the shelf 2.",
        "You put the knife 1 in/on the shelf 2.",
    ]
    # With the original's stray comma, only what is held can be examined.
    assert not {"examine mug 2", "examine knife 1"} & set(ENV.admissible(run(game, "go to shelf 2")))
    assert "examine knife 1" in ENV.admissible(run(game, "go to shelf 2", "take knife 1 from shelf 1"))


@pytest.mark.parametrize(
    ("goal", "commands"),
    [
        ("(forall (?r - receptacle) (or (not (openable ?r)) (opened ?r)))", ["go to drawer 1", "open drawer 1"]),
        (
            "(exists (?a - agent ?o - object) (and (holds ?a ?o) (objectType ?o KnifeType)))",
            ["go to shelf 1", "take knife 1 from shelf 1"],
        ),
        ("(exists (?o - object) (and (toggleable ?o) (isToggled ?o)))", ["go to shelf 1", "use desklamp 1"]),
        ("(not (exists (?o - object) (inReceptacle ?o Shelf_bar_1)))", None),
        ("(atLocation agent1 loc_bar_3)", ["go to sinkbasin 1"]),
        ("(exists (?o - object) (objectAtLocation ?o loc_bar_9))", None),
    ],
)  # fmt: skip
def test_goals_of_any_form(goal: str, commands: list[str] | None) -> None:
    game = compile_game(mini(goal))
    if commands is None:
        everything = [
            "go to shelf 1",
            "take mug 2 from shelf 2",
            "use desklamp 1",
            "go to drawer 1",
            "open drawer 1",
        ]
        assert not any(ENV.won(run(game, *everything[:count])) for count in range(len(everything) + 1))
    else:
        assert [ENV.won(run(game, *commands[:count])) for count in range(len(commands) + 1)] == [
            False
        ] * len(commands) + [True]


MIXED = "checked(o:object) & not_atlocation(a:agent, l:location) & ishot"


def domain_with(old: str, new: str) -> dict[str, str]:
    return {"domain": replaced(DOMAIN, (old, new))}


def grammar_with(old: str, new: str) -> dict[str, str]:
    return {"grammar": replaced(GRAMMAR, (old, new))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (domain_with("(not (holdsAny ?a)) (or", "(or"), "'pickupobject' of the domain is of no kind"),
        (
            domain_with(":effect (and (opened ?r)", ":effect (and (not (openable ?r))"),
            "'openobject' of the domain is of no",
        ),
        (
            domain_with("(cleanable ?o)", "(isHot ?o)"),
            "'cleanobject' depends on 'ishot', which changes in play",
        ),
        (domain_with("receptacle object", "receptacle - location object"), "hierarchy of types"),
        ({"domain": DOMAIN[:-20]}, "truncated"),
        ({"domain": "(define (problem x))"}, r"begin with \(define \(domain"),
        (grammar_with("#contents#", "#missing#"), "no rule for the symbol #missing#"),
        (grammar_with("{r.name}", "{x.name}"), "'x', which is not bound"),
        (grammar_with("{r.name}", "{open('f')}"), "not one that this engine knows"),
        (grammar_with("isclean(o:object) & ishot", MIXED), "does not follow"),
        (
            grammar_with("action OpenObject", "action OpenObjects"),
            "does not word the action 'openobject'",
        ),
        ({"grammar": GRAMMAR[: len(GRAMMAR) // 2]}, "malformed or truncated|not JSON"),
        (
            {"goal": "(and (inReceptacle Nothing_bar_1 Shelf_bar_1))"},
            "'nothing_bar_1' in 'inreceptacle'",
        ),
        (
            {"goal": "(exists (?l - location) (checked ?l))"},
            "'checked', which this engine does not follow",
        ),
        ({"goal": "shelf"}, "not a condition"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        compile_game(mini(**change))
    assert "train/pick_two_obj_and_place-Mug-None-Shelf-1/trial_1" in str(caught.value)


def test_states_are_immutable_values() -> None:
    state = run(compile_game(mini()), "go to shelf 1")
    with pytest.raises(AttributeError, match="immutable"):
        state.observation = ""  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        del state.world
    twin = run(compile_game(mini()), "go to shelf 1")
    assert twin == state
    assert hash(twin) == hash(state)
    assert len({twin, state, run(compile_game(mini()))}) == 2
    assert state != run(compile_game(mini(goal=TWO_MUGS.replace("Shelf", "Drawer"))), "go to shelf 1")


def test_states_survive_pickling() -> None:
    state = run(compile_game(mini()), "go to shelf 1", "take mug 2 from shelf 1")
    copy = pickle.loads(pickle.dumps(state))
    assert copy == state
    assert hash(copy) == hash(state)
    assert ENV.step(copy, "move mug 2 to shelf 2") == ENV.step(state, "move mug 2 to shelf 2")


_GAMES = [compile_game(record) for record in generate_games("train", 6, 1, "medium")]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_GAMES), st.lists(st.integers(0, 10**6), max_size=40), st.data())
def test_forks_do_not_disturb_each_other(game: Game, choices: list[int], data: st.DataObject) -> None:
    states, commands = [ENV.initial(game)], []
    for choice in choices:
        admissible = ENV.admissible(states[-1])
        commands.append(admissible[choice % len(admissible)])
        states.append(ENV.step(states[-1], commands[-1]).state)
    fork = data.draw(st.integers(0, len(commands)))
    for other in ENV.admissible(states[fork]):
        ENV.step(states[fork], other)
    again = states[fork]
    for index, command in enumerate(commands[fork:], start=fork + 1):
        again = ENV.step(again, command).state
        assert again == states[index]
        assert ENV.admissible(again) == ENV.admissible(states[index])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(_GAMES), st.lists(st.integers(0, 10**6), max_size=25))
def test_every_admissible_command_does_something(game: Game, choices: list[int]) -> None:
    state = ENV.initial(game)
    for choice in choices:
        admissible = ENV.admissible(state)
        assert list(admissible) == sorted(set(admissible))
        transition = ENV.step(state, admissible[choice % len(admissible)])
        assert transition.observation != "Nothing happens."
        assert transition.won == ENV.won(transition.state) == game.is_won(transition.state.world)
        state = transition.state


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(_GAMES), st.lists(st.integers(0, 10**6), min_size=10, max_size=60))
def test_what_is_remembered_of_a_situation_is_what_it_admits(game: Game, choices: list[int]) -> None:
    # Two games of the same texts: one remembers what it always does, the other two situations at most.
    forgetful, state = compile_game(game.record), ENV.initial(game)
    other = ENV.initial(forgetful)
    for choice in choices:
        expected = sorted(
            (
                *commands.goto_commands_from(game, state.world.agent_location),
                *commands.find_local_commands(game, state.world),
            )
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commands, "_MAX_SITUATIONS", 2)
            assert list(ENV.admissible(other)) == expected
        assert list(ENV.admissible(state)) == expected
        # More changes than trips and looks, else nothing is ever found as it was left.
        changes = [one for one in expected if one.split()[0] in ("take", "move", "put", "open", "close")]
        pool = changes if changes and choice % 3 else expected
        command = pool[choice % len(pool)]
        state, other = ENV.step(state, command).state, ENV.step(other, command).state
        assert state == other
        assert len(forgetful.cache["admissible"]) <= 2


def test_where_an_object_was_put_down_counts_where_all_else_is_alike() -> None:
    # The apple lies in the sink, and is recorded at the drawer: what cannot be reached cannot be sliced.
    record = mini()
    odd = replaced(
        record.problem,
        ("(objectAtLocation Apple_bar_1 loc_bar_3)", "(objectAtLocation Apple_bar_1 loc_bar_2)"),
    )
    game = compile_game(dataclasses.replace(record, problem=odd))
    with_knife = ["go to shelf 1", "take knife 1 from shelf 1", "go to sinkbasin 1"]
    moved = ["go to sinkbasin 1", "take apple 1 from sinkbasin 1", "move apple 1 to sinkbasin 1"]
    cut = "slice apple 1 with knife 1"
    assert cut not in ENV.admissible(run(game, *with_knife))
    assert cut in ENV.admissible(run(game, *moved, *with_knife))
    assert cut not in ENV.admissible(run(game, *with_knife))


@pytest.mark.parametrize(
    ("listed", "told"), [("[{r.name}]", "drawer 1"), ("[{'100 % ' + r.name}]", "100 % drawer 1")]
)
def test_a_list_that_asks_for_nothing_says_its_element_once(listed: str, told: str) -> None:
    grammar = replaced(GRAMMAR, ("You open the {r.name}. ", f"List: {listed}. "))
    assert texts(compile_game(mini(grammar=grammar)), "go to drawer 1", "open drawer 1")[1].startswith(
        f"List: {told}. "
    )


def test_texts_may_hold_signs_of_formats_and_joined_attributes() -> None:
    grammar = replaced(
        GRAMMAR,
        ("You open the {r.name}. ", "100 % %s: {'the %d ' + r.name} ({r.indefinite or r.name}, {r}). "),
    )
    told = texts(compile_game(mini(grammar=grammar)), "go to drawer 1", "open drawer 1")
    assert told[1].startswith("100 % %s: the %d drawer 1 (a, drawer 1). ")


def test_what_a_game_tells_about_itself() -> None:
    game = compile_game(mini())
    assert game.task_id == "pick_two_obj_and_place-Mug-None-Shelf-1/trial_1"
    assert game.goal == "put a mug on a shelf."
    assert game.receptacles == ("drawer 1", "shelf 2", "shelf 1", "sinkbasin 1")
    assert game.objects == ("apple 1", "desklamp 1", "knife 1", "mug 2", "mug 1")
