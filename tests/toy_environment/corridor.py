"""Rooms in a row, a ball of one colour in each: take the ball that the goal names."""

from dataclasses import dataclass

from threespo.envs.base import TextInterface, Transition

COLOURS = ("red", "green", "blue", "black")


@dataclass(frozen=True, slots=True)
class CorridorTask:
    """The balls, from the first room to the last, and the colour that is wanted."""

    task_id: str
    balls: tuple[str, ...]
    wanted: str

    @property
    def task_type(self) -> str:
        return self.wanted

    @property
    def goal(self) -> str:
        return f"take the {self.wanted} ball."


@dataclass(frozen=True, slots=True)
class CorridorState:
    """Where the agent is, and what it has taken."""

    task: CorridorTask
    room: int = 0
    taken: str = ""

    @property
    def observation(self) -> str:
        return f"You are in room {self.room + 1} and see a {self.task.balls[self.room]} ball."


def prompt(
    goal, observation, admissible, history, history_length, *, lines=None, instruction=None, preface=""
):
    """Return the prompt (a ``PromptTemplate``); an observation says all, so no history is shown."""
    choices = ", ".join(f"'{action}'" for action in admissible)
    asked = (
        "Think within <think> </think>, then act within <action> </action>."
        if instruction is None
        else instruction
    )
    return f"Your task is to: {goal} {observation} Your admissible actions are: [{choices}]. {preface}{asked}\n"


class Corridor:
    """The environment. Any other action changes nothing."""

    name = "corridor"
    text = TextInterface(prompt=prompt, persona="an agent in a corridor", fallback_length=20)

    def initial(self, task: CorridorTask) -> CorridorState:
        return CorridorState(task)

    def step(self, state: CorridorState, action: str) -> Transition[CorridorState]:
        after = state
        if action in self.admissible(state):
            task, room = state.task, state.room
            moved = (room + (1 if action == "go on" else -1)) % len(task.balls)
            takes = action.startswith("take")
            after = CorridorState(task, room, task.balls[room]) if takes else CorridorState(task, moved)
        won = self.won(after)
        return Transition(after, after.observation, float(won), won, ended=bool(after.taken))

    def admissible(self, state: CorridorState) -> tuple[str, ...]:
        return ("go on", "go back", f"take {state.task.balls[state.room]} ball")

    def won(self, state: CorridorState) -> bool:
        return state.taken == state.task.wanted
