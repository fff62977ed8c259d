"""The scripted expert of the embedded base policies for ALFWorld.

It decides from text alone: the goal, the admissible actions and its earlier actions. Its search is a sweep: after each
receptacle comes the next one of the admissible list, so each decision follows from what a prompt shows, and a policy with a
short memory can learn it. Each decision comes with a short thought whose second word is the decision ("apple closed",
"apple 1 at desk 1"), because a small network can learn to attend to the word after the goal's noun.
"""

import random
import re
from dataclasses import dataclass

from threespo.envs.alfworld.text import NOTHING_HAPPENS
from threespo.envs.episode import Episode
from threespo.errors import InputError
from threespo.imitation.curriculum import Decision

# Each task type has two forms of sentences; clean, heat and cool share theirs.
_GOAL_PATTERNS: tuple[tuple[str, str], ...] = (
    ("two", r"put two (?P<object>\w+) in (?P<target>\w+)\."),
    ("two", r"find two (?P<object>\w+) and put them in (?P<target>\w+)\."),
    ("treat", r"(?P<verb>clean|heat|cool) some (?P<object>\w+) and put it in (?P<target>\w+)\."),
    ("treat", r"put a (?P<verb>clean|hot|cool) (?P<object>\w+) in (?P<target>\w+)\."),
    ("look", r"look at (?P<object>\w+) under the (?P<target>\w+)\."),
    ("look", r"examine the (?P<object>\w+) with the (?P<target>\w+)\."),
    ("place", r"put (?:some|a) (?P<object>\w+) (?:on|in) (?P<target>\w+)\."),
)
_APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_PUT = re.compile(r"(?:move|put) (?P<object>\w+ \d+) (?:to|in/on) (?P<place>\w+ \d+)")


@dataclass(frozen=True, slots=True)
class Goal:
    """A parsed goal sentence."""

    kind: str  # place, two, treat or look.
    object: str
    target: str  # Receptacle type; the lamp for ``look``.
    verb: str = ""  # clean, heat or cool for ``treat``.


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities of the expert's faults; all zero is the careful expert."""

    random_action: float = 0.0  # A random admissible action instead of the right one.
    # A command that does nothing, so that demonstrations contain "Nothing happens.".
    failing_action: float = 0.0
    random_goto: float = 0.0  # While searching: go to a random receptacle instead of the next one.
    overlook: float = 0.0  # Does not see an object that is there.
    skip_treatment: float = 0.0  # Does not clean, heat or cool the object.
    wrong_object: float = 0.0  # Takes another object that is there.


CAREFUL = ExpertNoise()


def parse_goal(sentence: str) -> Goal:
    """Read a goal sentence.

    Raises:
        InputError: if it has none of ALFWorld's forms.
    """
    for kind, pattern in _GOAL_PATTERNS:
        match = re.fullmatch(pattern, sentence)
        if match:
            parts = match.groupdict()
            verb = parts.get("verb", "").replace("hot", "heat")
            return Goal(kind, parts["object"], parts["target"], verb)
    raise InputError(
        f"goal {sentence!r}: not one of ALFWorld's goal sentences; the scripted expert cannot read it"
    )


def decide(episode: Episode, rng: random.Random, noise: ExpertNoise = CAREFUL) -> Decision:
    """Return the expert's next thought and action.

    Args:
        episode: the episode so far.
        rng: decides the faults only.
        noise: probabilities of the faults.

    Raises:
        InputError: if the goal has none of ALFWorld's forms.
    """
    return _Situation(episode, rng, noise).decide()


class _Situation:
    """The point of an episode as the expert sees it: what it holds, where it is, what it can do."""

    def __init__(self, episode: Episode, rng: random.Random, noise: ExpertNoise) -> None:
        self.goal = parse_goal(episode.task.goal)
        self.rng = rng
        self.noise = noise
        admissible = episode.setup.env.admissible(episode.state)
        self.admissible = [action for action in admissible if action != "help"]
        self.allowed = frozenset(self.admissible)

        self.location = ""
        self.held_object = ""
        self.is_treated = False
        # The observation after each action: those of the later pairs, and the current one.
        results = [observation for observation, _ in episode.history[1:]] + [episode.observation]
        for (_, action), result in zip(episode.history, results, strict=False):
            if result != NOTHING_HAPPENS:
                self._replay(action)

    def _replay(self, action: str) -> None:
        if action.startswith("go to "):
            self.location = action.removeprefix("go to ")
        elif action.startswith("take "):
            self.held_object = " ".join(action.split()[1:3])
            self.is_treated = False
        elif _PUT.fullmatch(action):
            self.held_object = ""
        elif action.split(" ")[0] in _APPLIANCES:
            self.is_treated = True

    def decide(self) -> Decision:
        """Return the decision; the order of the draws is part of the demonstrations."""
        rng = self.rng
        wanted = self.goal.object
        if rng.random() < self.noise.random_action:
            action = rng.choice(self.admissible)
            return Decision(f"{wanted} try {action}", action)
        if rng.random() < self.noise.failing_action:
            number = rng.randint(1, 3)
            action = f"take {wanted} {number} from {self.location or self._next_receptacle()}"
            if action not in self.allowed:
                return Decision(f"{wanted} try {action}", action)

        if not self.held_object:
            return self._search()
        if self.held_object.split()[0] != wanted:
            return self._put_down_wrong_object()
        return self._use_held_object()

    def _search(self) -> Decision:
        goal = self.goal
        rng = self.rng
        wanted = f"take {goal.object} "
        takes = [action for action in self.admissible if action.startswith(wanted)]
        others = [
            action
            for action in self.admissible
            if action.startswith("take ") and not action.startswith(wanted)
        ]
        if others and rng.random() < self.noise.wrong_object:
            action = rng.choice(others)
            return Decision(f"{goal.object} try {action}", action)

        # Objects that are at their target stay there; to be treated they must be taken nevertheless.
        is_settled = goal.kind in ("two", "place") and self._is_target(self.location)
        if takes and not is_settled and rng.random() >= self.noise.overlook:
            number = takes[0].split()[2]
            return Decision(f"{goal.object} {number} at {self.location}", takes[0])
        if self._can_open() and rng.random() >= self.noise.overlook / 2:
            return Decision(f"{goal.object} closed", f"open {self.location}")
        receptacle = self._next_receptacle()
        return Decision(f"{goal.object} not here . next {receptacle}", f"go to {receptacle}")

    def _put_down_wrong_object(self) -> Decision:
        thought = f"{self.goal.object} wrong {self.held_object} ."
        put = self._find_put()
        if put:
            return Decision(thought, put)
        return self._open_or_move_on(thought)

    def _use_held_object(self) -> Decision:
        goal = self.goal
        thought = f"{goal.object} have ."
        if goal.kind == "look":
            return self._examine()
        must_treat = goal.kind == "treat" and not self.is_treated
        if must_treat and self.rng.random() >= self.noise.skip_treatment:
            treat = f"{goal.verb} {self.held_object} with {self.location}"
            if treat in self.allowed:
                return Decision(f"{thought} {goal.verb}", treat)
            appliance = f"{_APPLIANCES[goal.verb]} 1"
            return Decision(f"{thought} need {appliance}", f"go to {appliance}")
        if self._is_target(self.location):
            put = self._find_put()
            if put:
                return Decision(f"{thought} put {self.location}", put)
            if self._can_open():
                return Decision(f"{thought} closed", f"open {self.location}")

        # Go to the first receptacle of the kind; if the agent is there already, or it is not listed, the sweep goes on.
        target = f"{goal.target} 1"
        if f"go to {target}" not in self.allowed:
            target = self._next_receptacle()
        return Decision(f"{thought} to {target}", f"go to {target}")

    def _examine(self) -> Decision:
        thought = f"{self.goal.object} have ."
        lamp = self.goal.target
        uses = [action for action in self.admissible if action.startswith(f"use {lamp} ")]
        if uses:
            return Decision(f"{thought} use {lamp}", uses[0])
        return self._open_or_move_on(thought)

    def _can_open(self) -> bool:
        return f"open {self.location}" in self.allowed

    def _open_or_move_on(self, thought: str) -> Decision:
        if self._can_open():
            return Decision(f"{thought} closed", f"open {self.location}")
        receptacle = self._next_receptacle()
        return Decision(f"{thought} next {receptacle}", f"go to {receptacle}")

    def _is_target(self, place: str) -> bool:
        # Two objects must end in one receptacle: always the first, since a short memory cannot hold which.
        if self.goal.kind == "two":
            return place == f"{self.goal.target} 1"
        return place.split(" ")[0] == self.goal.target

    def _find_put(self) -> str:
        prefixes = (f"move {self.held_object} to ", f"put {self.held_object} in/on ")
        return next((action for action in self.admissible if action.startswith(prefixes)), "")

    def _next_receptacle(self) -> str:
        """Return the receptacle after this one in the order of the admissible list; after the last comes the first."""
        trips = [action for action in self.admissible if action.startswith("go to ")]
        receptacles = [action.removeprefix("go to ") for action in trips]
        if not self.held_object and self.rng.random() < self.noise.random_goto:
            return self.rng.choice(receptacles)
        if self.location:
            for trip, receptacle in zip(trips, receptacles, strict=True):
                if trip > f"go to {self.location}":
                    return receptacle
        return receptacles[0]
