"""The scripted expert of the embedded base policies for ALFWorld.

It decides from text alone: the goal, the admissible actions and what it has done. Its search is a sweep: from each
receptacle it goes on to the next one of the admissible list, so what it does next follows from what a prompt shows, and
a policy with a short memory can learn it. Each decision comes with a short thought whose second word is the decision
("apple closed", "apple 1 at desk 1"), because that is what a small network can learn to attend to.
"""

import random
import re
from dataclasses import dataclass

from threespo.envs.alfworld.text import NOTHING_HAPPENS
from threespo.envs.episode import Episode
from threespo.errors import InputError
from threespo.imitation.curriculum import Decision

_GOALS: tuple[tuple[str, str], ...] = (
    ("two", r"put two (?P<object>\w+) in (?P<place>\w+)\."),
    ("two", r"find two (?P<object>\w+) and put them in (?P<place>\w+)\."),
    ("treat", r"(?P<verb>clean|heat|cool) some (?P<object>\w+) and put it in (?P<place>\w+)\."),
    ("treat", r"put a (?P<verb>clean|hot|cool) (?P<object>\w+) in (?P<place>\w+)\."),
    ("look", r"look at (?P<object>\w+) under the (?P<place>\w+)\."),
    ("look", r"examine the (?P<object>\w+) with the (?P<place>\w+)\."),
    ("place", r"put (?:some|a) (?P<object>\w+) (?:on|in) (?P<place>\w+)\."),
)
_STATIONS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_PUT = re.compile(r"(?:move|put) (?P<object>\w+ \d+) (?:to|in/on) (?P<place>\w+ \d+)")


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal sentence, read."""

    kind: str
    """place, two, treat or look."""
    object: str
    target: str
    """Receptacle type; the lamp for ``look``."""
    verb: str = ""
    """clean, heat or cool for ``treat``."""


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities of the expert's faults; all zero is the careful expert."""

    random_action: float = 0.0
    """A random admissible action instead of the right one."""
    failing_action: float = 0.0
    """A command that does nothing, so that demonstrations contain "Nothing happens."."""
    random_goto: float = 0.0
    """While searching: go anywhere instead of on to the next receptacle."""
    overlook: float = 0.0
    """The object is there, and not seen."""
    skip_treatment: float = 0.0
    """Clean, heat or cool is left out."""
    wrong_object: float = 0.0
    """Takes something else that is there."""


CAREFUL = ExpertNoise()


def parse_goal(goal: str) -> Goal:
    """Read a goal sentence.

    Raises:
        InputError: if it has none of ALFWorld's forms.
    """
    for kind, pattern in _GOALS:
        match = re.fullmatch(pattern, goal)
        if match:
            found = match.groupdict()
            verb = found.get("verb", "").replace("hot", "heat")
            return Goal(kind, found["object"], found["place"], verb)
    raise InputError(
        f"goal {goal!r}: not one of ALFWorld's goal sentences; the scripted expert cannot read it"
    )


def decide(episode: Episode, rng: random.Random, noise: ExpertNoise = CAREFUL) -> Decision:
    """Return the expert's next thought and action.

    Args:
        episode: where the agent is.
        rng: decides the faults only.
        noise: probabilities of the faults.

    Raises:
        InputError: if the goal has none of ALFWorld's forms.
    """
    return _Look(episode, rng, noise).decide()


class _Look:
    """One look at an episode: what is held, where the agent stands, what can be done."""

    def __init__(self, episode: Episode, rng: random.Random, noise: ExpertNoise) -> None:
        self.goal = parse_goal(episode.task.goal)
        self.rng, self.noise = rng, noise
        self.admissible = [a for a in episode.setup.env.admissible(episode.state) if a != "help"]
        self.allowed = frozenset(self.admissible)

        self.target, self.held, self.treated = "", "", False
        observations = [seen for seen, _ in episode.history[1:]] + [episode.observation]
        for (_, action), observation in zip(episode.history, observations, strict=False):
            if observation != NOTHING_HAPPENS:
                self._remember(action)

    def _remember(self, action: str) -> None:
        if action.startswith("go to "):
            self.target = action.removeprefix("go to ")
        elif action.startswith("take "):
            self.held, self.treated = " ".join(action.split()[1:3]), False
        elif _PUT.fullmatch(action):
            self.held = ""
        elif action.split(" ")[0] in _STATIONS:
            self.treated = True

    def decide(self) -> Decision:
        noise, rng = self.noise, self.rng
        if rng.random() < noise.random_action:
            action = rng.choice(self.admissible)
            return Decision(f"{self.goal.object} try {action}", action)
        if rng.random() < noise.failing_action:
            action = f"take {self.goal.object} {rng.randint(1, 3)} from {self.target or self._next()}"
            if action not in self.allowed:
                return Decision(f"{self.goal.object} try {action}", action)

        if not self.held:
            return self._search()
        if self.held.split()[0] != self.goal.object:
            return self._drop()
        return self._use()

    def _search(self) -> Decision:
        goal, rng, noise = self.goal, self.rng, self.noise
        takes = [a for a in self.admissible if a.startswith(f"take {goal.object} ")]
        others = [a for a in self.admissible if a.startswith("take ") and a not in takes]
        if others and rng.random() < noise.wrong_object:
            action = rng.choice(others)
            return Decision(f"{goal.object} try {action}", action)
        # What lies in its place already stays there; treated objects are the exception: they must be fetched first.
        settled = goal.kind in ("two", "place") and self._is_target(self.target)
        if takes and not settled and rng.random() >= noise.overlook:
            return Decision(f"{goal.object} {takes[0].split()[2]} at {self.target}", takes[0])
        if f"open {self.target}" in self.allowed and rng.random() >= noise.overlook / 2:
            return Decision(f"{goal.object} closed", f"open {self.target}")
        onward = self._next()
        return Decision(f"{goal.object} not here . next {onward}", f"go to {onward}")

    def _drop(self) -> Decision:
        put = self._put()
        if put:
            return Decision(f"{self.goal.object} wrong {self.held} .", put)
        if f"open {self.target}" in self.allowed:
            return Decision(f"{self.goal.object} wrong {self.held} . closed", f"open {self.target}")
        onward = self._next()
        return Decision(f"{self.goal.object} wrong {self.held} . next {onward}", f"go to {onward}")

    def _use(self) -> Decision:
        goal = self.goal
        if goal.kind == "look":
            return self._examine()
        if goal.kind == "treat" and not self.treated and self.rng.random() >= self.noise.skip_treatment:
            treat = f"{goal.verb} {self.held} with {self.target}"
            if treat in self.allowed:
                return Decision(f"{goal.object} have . {goal.verb}", treat)
            station = f"{_STATIONS[goal.verb]} 1"
            return Decision(f"{goal.object} have . need {station}", f"go to {station}")
        if self._is_target(self.target):
            put = self._put()
            if put:
                return Decision(f"{goal.object} have . put {self.target}", put)
            if f"open {self.target}" in self.allowed:
                return Decision(f"{goal.object} have . closed", f"open {self.target}")

        # The first receptacle of the kind is the one to go to; if the agent is there already, or it is not listed, the
        # sweep goes on.
        target = f"{goal.target} 1"
        if f"go to {target}" not in self.allowed:
            target = self._next()
        return Decision(f"{goal.object} have . to {target}", f"go to {target}")

    def _examine(self) -> Decision:
        goal = self.goal
        uses = [a for a in self.admissible if a.startswith(f"use {goal.target} ")]
        if uses:
            return Decision(f"{goal.object} have . use {goal.target}", uses[0])
        if f"open {self.target}" in self.allowed:
            return Decision(f"{goal.object} have . closed", f"open {self.target}")
        onward = self._next()
        return Decision(f"{goal.object} have . next {onward}", f"go to {onward}")

    def _is_target(self, place: str) -> bool:
        # Two objects must end in one receptacle: always the first, since a short memory cannot hold which.
        if self.goal.kind == "two":
            return place == f"{self.goal.target} 1"
        return place.split(" ")[0] == self.goal.target

    def _put(self) -> str:
        prefixes = (f"move {self.held} to ", f"put {self.held} in/on ")
        return next((a for a in self.admissible if a.startswith(prefixes)), "")

    def _next(self) -> str:
        """Return the receptacle after this one in the order of the admissible list, round and round."""
        gotos = [a.removeprefix("go to ") for a in self.admissible if a.startswith("go to ")]
        if self.held == "" and self.rng.random() < self.noise.random_goto:
            return self.rng.choice(gotos)
        later = [name for name in gotos if f"go to {name}" > f"go to {self.target}"]
        return later[0] if later and self.target else gotos[0]
