"""The paper's claims, each with the rules that decide it (``config/paper/claims.yaml``)."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER
from threespo.results.claims.rules import Rule
from threespo.settings import ListOf, Settings


def _listed(found: Any) -> Any:
    """Return a claim's rules as a list; most have one."""
    return found if isinstance(found, list | tuple) else [found]


class Claim(Settings):
    """One claim with its rules."""

    id: Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9-]*$", max_length=64)]
    claim: str
    where: str
    rule: Annotated[ListOf[Rule], BeforeValidator(_listed), Field(min_length=1)]


def read_claims(folder: Path = PAPER_FOLDER) -> tuple[Claim, ...]:
    """Read ``claims.yaml``.

    Raises:
        InputError: if it is missing, a claim has no rule or a wrong one, or two have the same id.
    """
    path = folder / "claims.yaml"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(found)
    except ValidationError as error:
        # ``loc`` begins with the entry's number, in the place of which the message has the claim's id.
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:]))
        name = found[first["loc"][0]].get("id", first["loc"][0]) if first["loc"] else "?"
        raise InputError(
            f"{path}: claim {name}: {place + ': ' if place else ''}{first['msg']}; mend the entry: it needs "
            "an id, its words, where they stand, and a rule of threespo/results/claims/rules.py"
        ) from error
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not readable as a list of claims ({error!r}); restore it from the repository"
        ) from error

    ids = [claim.id for claim in claims]
    if doubled := sorted({name for name in ids if ids.count(name) > 1}):
        raise InputError(f"{path}: claim {doubled[0]} stands there twice; give one of them another id")
    return claims
