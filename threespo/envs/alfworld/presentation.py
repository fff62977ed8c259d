"""How results in ALFWorld are named and explained."""

from threespo.envs.alfworld.settings import AlfworldSettings
from threespo.envs.spec import Presentation


def _describe(games: AlfworldSettings) -> str:
    if games.source == "embedded":
        return (
            f"generated household games in ALFWorld's rules and texts, difficulty “{games.difficulty}”"
        )
    if games.source == "official":
        return "the real ALFWorld games"
    return "the real ALFWorld games, from a folder"


def _caveats(games: AlfworldSettings) -> list[str]:
    if games.source != "embedded":
        return []
    return [
        "The games are generated here. They follow ALFWorld's rules and texts, but are not its games; "
        "the same study runs on the real ones with --config alfworld=DIR."
    ]


def _floor(game: str) -> str:
    """Return the floor of TASK-OBJECT-…-FLOOR/TRIAL: games of one floor share rooms, furniture and most objects."""
    return game.split("/")[0].rpartition("-")[2]


PRESENTATION = Presentation(
    label="ALFWorld",
    # ALFWorld's score is 1 for a success and 0 otherwise.
    measures=("success",),
    labels={"valid_seen": "seen rooms", "valid_unseen": "unseen rooms"},
    task_types="ALFWorld's kinds are easy, medium and hard as the paper has them: Pick & Place, Examine in Light, "
    "Pick Two & Place.",
    shown_task_types={
        "pick_and_place_simple": "easy",
        "look_at_obj_in_light": "medium",
        "pick_two_obj_and_place": "hard",
    },
    describe=_describe,
    caveats=_caveats,
    cluster=_floor,
)
