"""How results in the corridor are named and explained."""

from threespo.envs.spec import Presentation

PRESENTATION = Presentation(
    label="Corridor",
    measures=("success",),
    labels={"test": "test corridors"},
    task_types="The corridor's are the colours of balls.",
    describe=lambda section: f"{section.corridors} corridors with a ball in each room",
)
