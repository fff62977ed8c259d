"""A planner for embedded scenes: it knows where everything is and writes the walkthrough."""

from threespo.envs.alfworld.embedded_layouts import Receptacle
from threespo.envs.alfworld.embedded_scene import LAMP, LOOK, Item, Scene


def plan(scene: Scene) -> tuple[str, ...]:
    """Return commands that win the scene: take an object, treat it, bring it to its place; then the next one.

    Objects in sight are preferred to objects behind doors; of all goal receptacles the cheapest is used.
    """
    candidates = [item for item in scene.items if item.type == scene.goal.object_type]
    if scene.goal.task.name == LOOK:
        lamp = next(item for item in scene.items if item.type == LAMP)
        return min((_look(item, lamp) for item in candidates), key=len)
    candidates.sort(key=lambda item: item.place.openable)
    goals = [place for place in scene.layout.receptacles if place.type == scene.goal.place_type]
    tools = [place for place in scene.layout.receptacles if place.type == scene.goal.task.tool]
    return min(
        (_bring(scene, candidates[: scene.goal.objects], tools[:1], goal) for goal in goals), key=len
    )


class _Plan:
    """Commands so far, the agent's location and what has been opened."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self._location = -1
        self._opened: set[str] = set()

    def visit(self, place: Receptacle) -> None:
        """Go to the receptacle, unless the agent is there."""
        if place.location != self._location:
            self.commands.append(f"go to {place.name}")
            self._location = place.location

    def reach_into(self, place: Receptacle) -> None:
        """Go to the receptacle and open it, if it has a door that is still closed."""
        self.visit(place)
        if place.openable and place.name not in self._opened:
            self.commands.append(f"open {place.name}")
            self._opened.add(place.name)

    def take(self, item: Item) -> None:
        """Fetch the object from its place."""
        self.reach_into(item.place)
        self.commands.append(f"take {item.name} from {item.place.name}")


def _look(item: Item, lamp: Item) -> tuple[str, ...]:
    steps = _Plan()
    steps.take(item)
    steps.visit(lamp.place)
    steps.commands.append(f"use {lamp.name}")
    return tuple(steps.commands)


def _bring(
    scene: Scene, items: list[Item], tools: list[Receptacle], goal: Receptacle
) -> tuple[str, ...]:
    steps = _Plan()
    for item in items:
        steps.take(item)
        for tool in tools:
            steps.visit(tool)
            steps.commands.append(f"{scene.goal.task.verb} {item.name} with {tool.name}")
        steps.reach_into(goal)
        steps.commands.append(f"move {item.name} to {goal.name}")
    return tuple(steps.commands)
