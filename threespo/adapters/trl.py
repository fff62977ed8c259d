"""TRL's ``environment_factory``: a class for each environment whose documented methods are the tools that a model calls.

Give ``GRPOTrainer(environment_factory=functools.partial(ALFWorldTools, split="train"), ...)`` and a dataset with a column
``task`` (:func:`rows`). Whatever is no tool is private, since TRL takes every public method for one.
"""

from typing import Any

from threespo.adapters.tools import Player
from threespo.gym.snapshots import Snapshot, from_bytes, to_bytes
from threespo.gym.tasks import ALFWORLD, WEBSHOP, open_tasks

SYSTEM_PROMPT = "You act in a text environment by calling tools, one at a time, until the task is done."


def make_dataset_rows(environment: str, **options: Any) -> list[dict[str, Any]]:
    """Return a row for each task of a split, for ``datasets.Dataset.from_list``: ``prompt`` (messages) and ``task`` (its
    id).

    Args:
        environment: ``alfworld`` or ``webshop``.
        options: arguments of ``threespo.gym.tasks``, the same as those of the environments.
    """
    tasks = open_tasks(environment, **options)
    # The text of the task is what ``reset`` adds to the last message.
    prompt = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": ""}]
    return [{"prompt": prompt, "task": task_id} for task_id in tasks.ids]


class _Tools:
    """An episode; a copy of it, or the same one in another process, goes on where this one is."""

    def __init__(self, environment: str, **options: Any) -> None:
        self._player = Player(environment, **options)

    # TRL copies environments and may send them to other processes. Games and shops are large and already open there,
    # so only the state of the episode travels.
    def __getstate__(self) -> dict[str, Any]:
        point = to_bytes(Snapshot(self._player.episode, 0, 0), self._player.tasks)
        return {"options": self._player.options, "point": point}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._player = Player(**state["options"])
        self._player.episode = from_bytes(state["point"], self._player.tasks).episode

    def reset(self, task: int | str = 0, **row: Any) -> str:
        """Begin an episode and return what it shows at first.

        Args:
            task: id or index of the task; the further columns of the dataset's row are not read.
        """
        episode = self._player.begin(task)
        return f"Your task is to: {episode.task.goal}\n\n{self._player.render_page()}"

    def get_reward(self) -> float:
        """Return the score: 1 for success; in a shop, the reward of the purchase."""
        return float(self._player.current.score)

    def _act(self, command: str) -> str:
        # A call after the end is no error: the page says that the episode is over.
        if not self._player.current.done:
            self._player.act(command)
        return self._player.render_page()


class WebShopTools(_Tools):
    """WebShop: searching and clicking."""

    def __init__(self, **options: Any) -> None:
        super().__init__(WEBSHOP, **options)

    def search(self, query: str) -> str:
        """
        Search the shop for products.

        Args:
            query: The words to search for.

        Returns:
            The page of results and what can be clicked on it.
        """
        return self._act(f"search[{query}]")

    def click(self, element: str) -> str:
        """
        Click on something that the page lists: a product, an option, a button such as "buy now" or "next >".

        Args:
            element: Its text, as the admissible actions have it between the brackets.

        Returns:
            The page that follows and what can be clicked on it.
        """
        return self._act(f"click[{element}]")


class ALFWorldTools(_Tools):
    """ALFWorld: a tool for each kind of command. Objects and receptacles are named with their numbers, such as ``apple
    1``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(ALFWORLD, **options)

    def go_to(self, receptacle: str) -> str:
        """
        Go to a receptacle.

        Args:
            receptacle: Where to go, such as "fridge 1".

        Returns:
            What can be seen there and what can be done.
        """
        return self._act(f"go to {receptacle}")

    def open(self, receptacle: str) -> str:
        """
        Open the receptacle that you are at.

        Args:
            receptacle: What to open, such as "fridge 1".

        Returns:
            What can be seen in it and what can be done.
        """
        return self._act(f"open {receptacle}")

    def close(self, receptacle: str) -> str:
        """
        Close the receptacle that you are at.

        Args:
            receptacle: What to close, such as "fridge 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"close {receptacle}")

    def take(self, object: str, receptacle: str) -> str:
        """
        Take an object. Only one can be held at a time.

        Args:
            object: What to take, such as "apple 1".
            receptacle: Where it lies, such as "countertop 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"take {object} from {receptacle}")

    def put(self, object: str, receptacle: str) -> str:
        """
        Put the object that you hold into or onto the receptacle that you are at.

        Args:
            object: What you hold, such as "apple 1".
            receptacle: Where to put it, such as "fridge 1".

        Returns:
            What happened and what can be done.
        """
        # Versions of the games before 2.1.3 have another command for it.
        older = f"put {object} in/on {receptacle}"
        return self._act(older if older in self._player.admissible else f"move {object} to {receptacle}")

    def use(self, object: str) -> str:
        """
        Turn on a lamp that is where you are.

        Args:
            object: The lamp, such as "desklamp 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"use {object}")

    def heat(self, object: str, receptacle: str) -> str:
        """
        Heat the object that you hold with the microwave that you are at.

        Args:
            object: What you hold, such as "apple 1".
            receptacle: The microwave, such as "microwave 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"heat {object} with {receptacle}")

    def cool(self, object: str, receptacle: str) -> str:
        """
        Cool the object that you hold with the fridge that you are at.

        Args:
            object: What you hold, such as "apple 1".
            receptacle: The fridge, such as "fridge 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"cool {object} with {receptacle}")

    def clean(self, object: str, receptacle: str) -> str:
        """
        Clean the object that you hold with the basin that you are at.

        Args:
            object: What you hold, such as "apple 1".
            receptacle: The basin, such as "sinkbasin 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"clean {object} with {receptacle}")

    def slice(self, object: str, tool: str) -> str:
        """
        Slice an object that is where you are.

        Args:
            object: What to slice, such as "bread 1".
            tool: The knife that you hold, such as "knife 1".

        Returns:
            What happened and what can be done.
        """
        return self._act(f"slice {object} with {tool}")

    def examine(self, thing: str) -> str:
        """
        Look closely at an object that you hold or at the receptacle that you are at.

        Args:
            thing: What to look at, such as "apple 1".

        Returns:
            What can be seen and what can be done.
        """
        return self._act(f"examine {thing}")

    def look(self) -> str:
        """
        Look around.

        Returns:
            What can be seen and what can be done.
        """
        return self._act("look")

    def inventory(self) -> str:
        """
        Look at what you hold.

        Returns:
            What you hold and what can be done.
        """
        return self._act("inventory")
