"""The templates of pages: what they show is escaped, and a name that they lack is an error."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).parent / "templates"


def template_environment(folders: Sequence[Path] = (TEMPLATES,)) -> jinja2.Environment:
    """Return the environment of the templates in ``folders``; the first folder that has a template counts."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        # Policies, environments and authors of studies have written texts that pages show.
        autoescape=True,
        # By default a missing name is rendered as nothing, and a gap in a report is easily overlooked.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
