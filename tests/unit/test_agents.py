"""Prompting agents: what they ask, what they remember, and how attempts are counted."""

from dataclasses import replace

import pytest

from tests.toy import ToyEnv, make_task
from threespo.agents.rollout import full_response_text, play_episodes
from threespo.agents.trials import Agent, direct_prompt, play_trials, react_prompt
from threespo.envs.episode import EpisodeSetup, respond, start_episode
from threespo.protocol import Sample

SETUP = EpisodeSetup(ToyEnv(), 2, 2)
MAZE = {"s1": {"left": "s2", "right": "s3"}, "s2": {"win": "goal"}, "s3": {"stay": "s3"}}


def tasks(count=1):
    return [make_task(MAZE, {"goal"}, "s1", f"task {number}") for number in range(count)]


class Scripted:
    """Driver from the prompt and remembers what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def sample(self, requests, *, seed, temperature):
        replies = []
        for request in requests:
            self.asked.append(request)
            replies.append([Sample((), (), self.answer(request), True)])
        return replies


def act(action, thought="hm"):
    return f"<think>{thought}</think><action>{action}</action>"


def play(agent, answer, count=1):
    sampler = Scripted(answer)
    records = play_trials(
        SETUP, tasks(count), sampler, agent, seed=5, temperature=0.4, key=("evaluate", "unseen")
    )
    return records, sampler.asked


def lost(request):
    return act("right") if "is: s1" in request.prompt else act("stay", "stuck here")


def test_react_is_the_papers_prompt_and_can_keep_thoughts_in_the_history():
    start = start_episode(SETUP, tasks()[0])
    assert react_prompt(start, []) == react_prompt(start) == start.prompt
    later = respond(start, act("left")).episode
    assert react_prompt(later) == later.prompt
    own, theirs = react_prompt(later, ["go left first"]), later.prompt
    assert own.replace("Thought 1: 'go left first', ", "") == theirs
    assert "[Observation 1: 's1', Thought 1: 'go left first', Action 1: 'left']" in own


def test_direct_asks_for_no_reasoning_and_a_response_without_it_is_well_formed():
    prompt = direct_prompt(start_episode(SETUP, tasks()[0]))
    assert "think" not in prompt
    assert prompt.endswith("Answer with nothing else.\n")
    (record,), _ = play(Agent("direct"), lambda request: "<action>left</action>")
    assert record.invalid_format == 0
    (record,), _ = play(Agent("direct"), lambda request: "left")
    assert record.invalid_format == 2
    (record,), _ = play(Agent("react"), lambda request: "<action>left</action>")
    assert record.invalid_format == 2


def test_only_lost_tasks_are_tried_again_and_the_first_attempt_is_remembered():
    """Task 0 is won at once, task 1 at the second attempt, task 2 never."""

    def answer(request):
        trial = request.key[3] if "trial" in request.key else 0
        number = int(request.key[-2].split()[1])
        if "is: s2" in request.prompt:
            return act("win")
        return act("left") if number == 0 or (number == 1 and trial == 1) else lost(request)

    records, asked = play(Agent("retry", trials=3), answer, count=3)
    assert [record.episode.won for record in records] == [True, True, False]
    assert [record.first_won for record in records] == [True, False, False]
    assert [record.trials for record in records] == [1, 2, 3]
    assert len(asked) == 2 * (3 + 2 + 1)
    assert len({request.key for request in asked}) == len(asked), "every draw has its own counters"


def test_reflexion_carries_its_notes_and_asks_after_failures_only():
    def answer(request):
        if "what went wrong" in request.prompt:
            return f"  Note {request.prompt.count('Note')}:\n go left.  "
        if (
            "Note 0: go left." in request.prompt
            and "1. Note 0" in request.prompt
            and "2. Note 1" in request.prompt
        ):
            return act("left") if "is: s1" in request.prompt else act("win")
        return lost(request)

    (record,), asked = play(Agent("reflexion", trials=3), answer)
    assert (record.episode.won, record.first_won, record.trials) == (True, False, 3)
    reflections = [request for request in asked if "what went wrong" in request.prompt]
    assert [request.key[2:4] for request in reflections] == [("reflection", 0), ("reflection", 1)]
    assert "[Observation 2: 's3', Action 2: 'stay']" in reflections[0].prompt
    assert "Note 0" in reflections[1].prompt
    (record,), asked = play(Agent("reflexion", trials=2), lost)
    assert sum("what went wrong" in request.prompt for request in asked) == 1, (
        "none after the last attempt"
    )


def test_a_long_attempt_is_shown_from_its_end():
    setup = EpisodeSetup(ToyEnv(), 5, 2)
    sampler = Scripted(lambda request: "x" if "what went wrong" in request.prompt else lost(request))
    agent = Agent("reflexion", trials=2, reflection_characters=100)
    (record,) = play_trials(setup, tasks(), sampler, agent, seed=0, temperature=0.4, key=("k",))
    assert record.steps == 10, "of both attempts"
    (reflection,) = [request.prompt for request in sampler.asked if "what went wrong" in request.prompt]
    assert "in 5 step(s)" in reflection
    assert "Observation 3" not in reflection
    assert (
        "[Observation 4: 's3', Action 4: 'stay']\n[Observation 5: 's3', Action 5: 'stay']" in reflection
    )


def test_notes_are_cut_to_their_length():
    agent = Agent("reflexion", trials=2, note_characters=6)
    _, asked = play(
        agent, lambda request: "go  left, then" if "what went wrong" in request.prompt else lost(request)
    )
    assert "1. go lef\n" in asked[-1].prompt


def test_thoughts_are_those_between_the_tags():
    agent = Agent("react", thoughts_in_history=True)
    _, asked = play(agent, lambda request: "well <think> go\n left </think><action>right</action>")
    assert "Thought 1: 'go left', Action 1: 'right'" in asked[1].prompt


def test_first_attempts_are_plain_rollouts_of_the_same_draws():
    first = {}
    for name in ("react", "retry", "reflexion"):
        _, asked = play(Agent(name, trials=1 if name == "react" else 2), lost)
        first[name] = [(request.key, request.prompt) for request in asked[:2]]
    sampler = Scripted(lost)
    play_episodes(SETUP, tasks(), sampler, seed=5, temperature=0.4, key=("evaluate", "unseen"))
    assert [(request.key, request.prompt) for request in sampler.asked] == first["react"]
    assert first["react"] == first["retry"] == first["reflexion"]


# A thought that a server splits off.


def split(text, thought):
    """Return a sampler whose server sends the thought apart from the text."""
    sampler = Scripted(lambda request: text)
    inner = sampler.sample
    sampler.sample = lambda *args, **more: [
        [replace(one, thought=thought) for one in row] for row in inner(*args, **more)
    ]
    return sampler


@pytest.mark.parametrize(
    ("text", "thought", "valid", "action"),
    [
        ("<action>left</action>", "I go left.", True, "left"),
        ("<action>left</action>", "", True, "left"),
        ("<action>left</action>", "Not <action>right</action>, but", True, "left"),
        ("<action>left</action>", "</think><ACTION>right</ACTION>", True, "left"),
        ("<action>left</action>", "<<action>action>right<</action>/action>", True, "left"),
        ("\n\n<action>left</action>", "so", True, "left"),
        ("</think><action>left</action>", "so", True, "left"),
        ("<think>left</think><action>left</action>", "right", True, "left"),
        ("<action>left</action>", None, False, "left"),
        ("left", "<action>right</action>", False, "left"),
        ("", "<action>right</action>", False, ""),
        (" \n", "<think>x</think><action>right</action>", False, " \n"),
        ("<action>left</action>", "我 go left.", False, "left"),
    ],
)
def test_a_thought_that_was_split_off_is_the_tag_and_no_action(text, thought, valid, action):
    (record,) = play_episodes(
        EpisodeSetup(ToyEnv(), 1, 2), tasks(), split(text, thought), seed=1, temperature=0.4, key=()
    )
    assert record.invalid_format == (not valid)
    assert [acted for _, acted in record.episode.history] == [action]


def test_a_response_is_whole_again_with_its_thought():
    sample = Sample((), (), "<action>left</action>", True, thought="first <think>, then </action>")
    assert full_response_text(sample) == "<think>first think, then /action</think><action>left</action>"
    own = replace(sample, text="<think>own</think><action>left</action>")
    assert full_response_text(own) == own.text
    assert full_response_text(replace(sample, text="")) == ""


def test_thoughts_in_the_history_are_those_that_were_split_off_and_notes_are_the_text_alone():
    sampler = split("<action>right</action>", "stuck here")
    play_trials(
        SETUP,
        tasks(),
        sampler,
        Agent("reflexion", 2, thoughts_in_history=True),
        seed=5,
        temperature=0.4,
        key=(),
    )
    shown = [request.prompt for request in sampler.asked]
    assert any("Thought 1: 'stuck here'" in prompt for prompt in shown)
    assert "1. <action>right</action>" in shown[-1]
