"""The code of the documents on the environments: blocks, what they import, and which of them can run."""

import ast
import importlib
import importlib.util
import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from threespo import __file__ as package

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(package).parent
PAGES = [
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("embedded_games", "exactness", "gym", "panels", "searching", "webshop")
    ),
    *sorted((ROOT / "docs" / "frameworks").glob("*.md")),
]
SERVER = "http://127.0.0.1:8000"
# Modules of ours that import what an extra brings.
_NEEDS = {
    "threespo.envs.alfworld.textworld": "textworld",
    "threespo.adapters.openenv": "openenv",
    "threespo.adapters.skyrl": "skyrl_gym",
    "threespo.adapters.verifiers": "verifiers",
}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tracked(*places: str) -> list[str]:
    """Return the files that git knows in these places of the repository, sorted; without git the test is skipped."""
    top = _git("rev-parse", "--show-toplevel").strip()
    # An unpacked archive may lie in a repository that is another.
    if Path(top).resolve() != ROOT.resolve():
        pytest.skip(
            f"no checkout of git, which alone knows what belongs here: its top is {top}, and not {ROOT}"
        )
    return sorted(_git("ls-files", *places).splitlines())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed, which alone knows what belongs here")
    if done.returncode:
        said = " ".join(done.stderr.partition("\n")[0].split())
        pytest.skip(f"no checkout of git, which alone knows what belongs here ({said})")
    return done.stdout


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}:{self.language or 'none'}"

    @property
    def python(self) -> str:
        """The program; of a diff, what it is afterwards."""
        if self.language != "diff":
            return self.text
        return textwrap.dedent(
            "".join(f"{line[1:]}\n" for line in self.text.splitlines() if line[:1] in ("+", " "))
        )

    @property
    def is_python(self) -> bool:
        """Whether it is a program; a diff may also be of settings or of a shell's call."""
        return self.language == "python" or (
            self.language == "diff" and bool(re.match(r"[-+ ](import|from) ", self.text))
        )

    @property
    def imports(self) -> set[tuple[str, str]]:
        """Modules, each with a name that is taken from it, or with none."""
        found = set()
        for node in ast.walk(ast.parse(self.python)):
            if isinstance(node, ast.Import):
                found |= {(alias.name, "") for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {(str(node.module), alias.name) for alias in node.names}
        return found

    @property
    def foreign(self) -> set[tuple[str, str]]:
        """Those imports that are of other packages than this one."""
        return {(module, name) for module, name in self.imports if module.split(".")[0] != "threespo"}

    @property
    def asks(self) -> bool:
        """Whether it is a client's program, which needs a server."""
        return SERVER in self.text

    @property
    def runs(self) -> bool:
        """Whether everything that it imports is installed."""
        needed = {module for module, _ in self.foreign}
        for module, name in self.imports:
            needed |= {_NEEDS[one] for one in (module, f"{module}.{name}") if one in _NEEDS}
        return all(importlib.util.find_spec(module.split(".")[0]) for module in needed)


def blocks(*languages: str, page: str | None = None) -> list[Block]:
    """Return the blocks of a page, or of all, that are in one of the languages; without one, all."""
    found = []
    for file in PAGES:
        for number, (language, text) in enumerate(
            _FENCE.findall(file.read_text(encoding="utf-8")), start=1
        ):
            found.append(Block(str(file.relative_to(ROOT)), number, language, text))
    return [
        one for one in found if (not languages or one.language in languages) and page in (None, one.page)
    ]


def defines(module: str, name: str) -> bool:
    """Return whether a module of this package is there and has a name, read without importing what it imports."""
    place = SOURCE.joinpath(*module.split(".")[1:])
    if name and (place / f"{name}.py").is_file():
        return True
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file.is_file() and (
        not name or name in set(_names(ast.parse(file.read_text(encoding="utf-8"))))
    )


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                target.id for one in targets for target in ast.walk(one) if isinstance(target, ast.Name)
            )


def missing(block: Block) -> list[str]:
    """Return what a block imports of other packages that are installed here, and is not in them."""
    lost = []
    for module, name in sorted(block.foreign):
        if importlib.util.find_spec(module.split(".")[0]) is None:
            continue
        found = importlib.import_module(module)
        if name and not hasattr(found, name) and importlib.util.find_spec(f"{module}.{name}") is None:
            lost.append(f"{module}.{name}")
    return lost
