"""Whole numbers of numpy, torch and others are places and seeds as Python's are, and nothing that is written has them."""

import json
from fractions import Fraction

import gymnasium
import numpy as np
import pytest
import torch

from threespo.adapters.verl_agent import build_alfworld_envs, build_webshop_envs
from threespo.errors import InputError
from threespo.gym import ALFWorldEnv, ALFWorldVectorEnv, WebShopEnv
from threespo.gym.numbers import to_python, to_whole_number


class Index:
    """A whole number of some other library."""

    def __index__(self) -> int:
        return 3

    def __repr__(self) -> str:
        return "Index()"


WHOLE = [
    np.int64(3),
    np.int32(3),
    np.uint8(3),
    np.array(3),
    torch.tensor(3),
    torch.tensor(3, dtype=torch.int16),
    Index(),
]
OTHER = [
    True,
    np.True_,
    np.bool_(False),
    torch.tensor(True),
    3.0,
    np.float64(3.0),
    torch.tensor(3.0),
    Fraction(3),
    b"3",
]


@pytest.mark.parametrize("number", WHOLE, ids=repr)
def test_a_place_and_a_seed_are_those_of_pythons_number(number):
    env, other = (ALFWorldEnv(split="valid_unseen") for _ in range(2))
    assert env.reset(options={"task": number})[1] == other.reset(options={"task": 3})[1]
    assert env.reset(seed=number) == other.reset(seed=3)
    assert env.reset() == other.reset()
    assert env.dump() == other.dump()
    assert env.tasks.content(number) == other.tasks.content(3)


@pytest.mark.parametrize("number", OTHER, ids=repr)
def test_what_is_no_whole_number_is_no_place_and_no_seed(number):
    env = ALFWorldEnv(split="valid_unseen")
    with pytest.raises(InputError, match=r"no task .*; expected an index from 0 to 133, or an id"):
        env.reset(options={"task": number})
    with pytest.raises(InputError, match="seed: expected a whole number of 0 or more, found"):
        env.reset(seed=number)
    with pytest.raises(InputError, match="expected a whole number of 1 or more"):
        ALFWorldVectorEnv(number)


@pytest.mark.parametrize("seed", [-1, np.int64(-1), torch.tensor(-3)])
def test_a_negative_seed_is_refused(seed):
    for env in (ALFWorldEnv(split="valid_unseen"), ALFWorldVectorEnv(2, split="valid_unseen")):
        with pytest.raises(InputError, match="seed: expected a whole number of 0 or more"):
            env.reset(seed=seed)


@pytest.mark.parametrize("place", [np.int64(134), np.int8(-1), torch.tensor(1000)])
def test_a_place_outside_is_refused(place):
    with pytest.raises(InputError, match="expected an index from 0 to 133"):
        ALFWorldEnv(split="valid_unseen").reset(options={"task": place})


def test_options_of_make_are_taken_and_written_as_pythons():
    made = gymnasium.make(
        "threespo/ALFWorld-v0", split=np.str_("valid_seen"), max_steps=np.int16(7)
    ).unwrapped
    assert made.tasks.setup.max_steps == 7
    made.reset(seed=np.uint32(11))
    assert json.loads(made.dump().partition(b"\n")[2])["seed"] == 11
    shop = WebShopEnv(
        split="test", max_steps=torch.tensor(4), history_length=np.int64(1), human_goals=np.False_
    )
    assert (shop.tasks.setup.max_steps, shop.tasks.setup.history_length) == (4, 1)
    with pytest.raises(InputError, match="max_steps"):
        ALFWorldEnv(max_steps=np.float64(7.5))


def test_the_vector_form_takes_arrays_of_places():
    many = ALFWorldVectorEnv(np.int64(3), split="valid_unseen")
    places = np.array([5, 1, 85])
    _, infos = many.reset(seed=np.int64(2), options={"tasks": places})
    assert list(infos["task"]) == [many.tasks.ids[place] for place in (5, 1, 85)]
    many.reset(options={"reset_mask": np.array([False, True, False]), "tasks": torch.tensor([7])})
    assert many.episodes[1].task.task_id == many.tasks.ids[7]
    assert [json.loads(point.partition(b"\n")[2])["seed"] for point in many.dump()] == [2, 2, 2]
    assert many.reset(seed=np.int64(2))[0] == ALFWorldVectorEnv(3, split="valid_unseen").reset(seed=2)[0]


@pytest.mark.parametrize("number", [np.int64, np.uint16, torch.tensor], ids=lambda kind: kind.__name__)
def test_verl_agents_environments_take_them(number):
    made = build_alfworld_envs(
        None, number(1), number(2), number(2), is_train=False, env_kwargs={"max_steps": number(9)}
    )
    plain_one = build_alfworld_envs(None, 1, 2, 2, is_train=False, env_kwargs={"max_steps": 9})
    assert made.reset() == plain_one.reset()
    infos = made.reset(np.array([4, 2]))[2]
    assert infos == plain_one.reset([4, 2])[2]
    assert json.loads(json.dumps(infos)) == infos
    assert (made.num_processes, made.env_num) == (4, 2)

    kwargs = {"tasks": "panel"}
    shop = build_webshop_envs(number(1), number(2), number(1), is_train=False, env_kwargs=kwargs)
    assert shop.reset() == build_webshop_envs(1, 2, 1, is_train=False, env_kwargs=kwargs).reset()
    assert json.dumps(shop.reset(np.array([3, 0]))[1])


@pytest.mark.parametrize(
    "change",
    [
        {"env_num": True},
        {"group_n": 1.5},
        {"env_num": np.int64(0)},
        {"seed": np.float32(1)},
        {"seed": -1},
    ],
)
def test_verl_agents_environments_say_what_they_do_not_take(change):
    for build in (build_alfworld_envs, build_webshop_envs):
        arguments = {"seed": 0, "env_num": 1, "group_n": 1, "env_kwargs": {"tasks": "panel"}, **change}
        if build is build_alfworld_envs:
            arguments["alf_config_path"] = None
        with pytest.raises(
            InputError, match=f"verl-agent: {next(iter(change))}: expected a whole number"
        ):
            build(**arguments)


def test_single_values_become_pythons_and_others_stay():
    values = (np.float32(0.5), np.True_, np.str_("a"), torch.tensor(2))
    assert [type(to_python(value)) for value in values] == [float, bool, str, int]
    several = np.array([1, 2])
    assert to_python(several) is several
    assert to_python("text") == "text"
    assert to_whole_number("3") is None
