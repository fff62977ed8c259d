"""A key has the code that a job may run, by what it means: nothing is missing, and a rename is no change."""

# Pairs of short modules are easiest to compare on one line.
# ruff: noqa: E501

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from threespo.errors import InputError
from threespo.pipeline.stages import Job, list_jobs
from threespo.provenance import code as module
from threespo.provenance import modules, syntax
from threespo.study.load import load_study

# --- what one unit means


def digest(text: str) -> tuple[str, list[int]]:
    """Return the digest of the unit ``f``, with its parameters by number."""
    unit = syntax.parse_module(text, "threespo").units["f"]
    return unit.digest, [number for _, _, number in unit.parameters]


SAME = [
    ("a comment", "def f(x):\n    return x + 1\n", "def f(x):\n    # why\n    return x + 1  # what\n"),
    ("a docstring", "def f(x):\n    return x\n", 'def f(x):\n    """Do."""\n    return x\n'),
    ("a docstring of a field", "class f:\n    a: int = 1\n", 'class f:\n    a: int = 1\n    """What a is."""\n'),
    ("layout", "def f(x):\n    return (x,\n        1)\n", "def f(x): return x, 1\n"),
    ("a local variable", "def f(x):\n    y = x + 1\n    return y * y\n", "def f(x):\n    squared = x + 1\n    return squared * squared\n"),
    ("a parameter", "def f(x, y):\n    return x - y\n", "def f(minuend, subtrahend):\n    return minuend - subtrahend\n"),
    ("names of a loop", "def f(x):\n    return [a for a in x if a]\n", "def f(x):\n    return [one for one in x if one]\n"),
    ("a nested function", "def f(x):\n    def g(y): return y\n    return g(x)\n", "def f(x):\n    def helper(z): return z\n    return helper(x)\n"),
    ("a lambda's", "def f(x):\n    return sorted(x, key=lambda a: a.b)\n", "def f(x):\n    return sorted(x, key=lambda row: row.b)\n"),
    ("an exception's", "def f():\n    try: g()\n    except E as e: return e\n", "def f():\n    try: g()\n    except E as error: return error\n"),
    ("a with's", "def f(x):\n    with x as a: return a\n", "def f(x):\n    with x as stream: return stream\n"),
    ("a pattern's", "def f(x):\n    match x:\n        case [a, *b]: return a, b\n", "def f(x):\n    match x:\n        case [first, *rest]: return first, rest\n"),
    ("a walrus's", "def f(x):\n    return [y for a in x if (y := a)]\n", "def f(x):\n    return [kept for a in x if (kept := a)]\n"),
    ("how something is imported", "from threespo.a import g\ndef f(): return g()\n", "import threespo.a as m\ndef f(): return m.g()\n"),
    ("the name of an import", "import numpy as np\ndef f(): return np.zeros(1)\n", "import numpy\ndef f(): return numpy.zeros(1)\n"),
    ("an import for type checkers", "def f(x): return x\n", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\ndef f(x): return x\n"),
    ("what stands before and behind", "def g(): pass\ndef f(x): return x\n", "def f(x): return x\nA = 1\ndef g(): return 2\n"),
    ("a property's", "class f:\n    @property\n    def a(self):\n        b = self.c\n        return b\n", "class f:\n    @property\n    def a(self):\n        d = self.c\n        return d\n"),
    ("nested loops", "def f(x):\n    for i in x:\n        for j in i: print(i, j)\n", "def f(rows):\n    for row in rows:\n        for cell in row: print(row, cell)\n"),
]  # fmt: skip

OTHER = [
    ("a number", "def f(x):\n    return x + 1\n", "def f(x):\n    return x + 2\n"),
    ("a type of number", "def f(x):\n    return x + 1\n", "def f(x):\n    return x + 1.0\n"),
    ("true for one", "def f(x):\n    return x == 1\n", "def f(x):\n    return x == True\n"),
    ("a comparison", "def f(x):\n    return x < 1\n", "def f(x):\n    return x <= 1\n"),
    ("branches", "def f(x):\n    return 1 if x else 2\n", "def f(x):\n    return 2 if x else 1\n"),
    ("two variables swapped", "def f(x, y):\n    return x - y\n", "def f(x, y):\n    return y - x\n"),
    ("the order of parameters", "def f(x, y):\n    return x - y\n", "def f(y, x):\n    return x - y\n"),
    ("a default", "def f(x=1):\n    return x\n", "def f(x=2):\n    return x\n"),
    ("keyword only", "def f(x, y):\n    return x\n", "def f(x, *, y):\n    return x\n"),
    ("a keyword of a call", "def f(x):\n    return g(a=x)\n", "def f(x):\n    return g(b=x)\n"),
    ("an attribute", "def f(x):\n    return x.a\n", "def f(x):\n    return x.b\n"),
    ("what is called", "def f(x):\n    return g(x)\n", "def f(x):\n    return h(x)\n"),
    ("a decorator", "def f(x):\n    return x\n", "import functools\n@functools.cache\ndef f(x):\n    return x\n"),
    ("what a name is imported from", "from math import floor as g\ndef f(x): return g(x)\n", "from math import ceil as g\ndef f(x): return g(x)\n"),
    ("a local in the place of a global", "A = 1\ndef f():\n    return A\n", "A = 1\ndef f(A):\n    return A\n"),
    ("one variable for two", "def f(x):\n    a = x\n    b = 1\n    return a\n", "def f(x):\n    a = x\n    a = 1\n    return a\n"),
    ("shadowing", "def f(x):\n    return [x for y in x]\n", "def f(x):\n    return [y for y in x]\n"),
    ("a field's name", "class f:\n    a: int = 1\n", "class f:\n    b: int = 1\n"),
    ("a field's default", "class f:\n    a: int = 1\n", "class f:\n    a: int = 2\n"),
    ("a base", "class f(A): pass\n", "class f(B): pass\n"),
    ("the order of statements", "def f(x):\n    g(x)\n    h(x)\n", "def f(x):\n    h(x)\n    g(x)\n"),
    ("global", "def f():\n    A = 1\n", "def f():\n    global A\n    A = 1\n"),
    ("nonlocal", "def f():\n    a = 1\n    def g():\n        a = 2\n    g()\n    return a\n", "def f():\n    a = 1\n    def g():\n        nonlocal a\n        a = 2\n    g()\n    return a\n"),
    ("a text", "def f():\n    return 'a b'\n", "def f():\n    return 'a c'\n"),
    ("names that locals() shows", "def f():\n    a = 1\n    return locals()\n", "def f():\n    b = 1\n    return locals()\n"),
    ("a parameter of a decorated function", "@d\ndef f(a, b): return a - b\n", "@d\ndef f(b, a): return b - a\n"),
    ("what a name was before", "def f(): return 1\nf = cache(f)\n", "def f(): return 2\nf = cache(f)\n"),
    ("another definition after it", "def f(): return 1\n", "def f(): return 1\nfrom math import hypot as f\n"),
    ("a class that extends its own name", "class f: a = 1\nclass f(f): b = 1\n", "class f: a = 2\nclass f(f): b = 1\n"),
    ("the else of what is for type checkers", "def f():\n    if TYPE_CHECKING: pass\n    else: return 1\n", "def f():\n    if TYPE_CHECKING: pass\n    else: return 2\n"),
    ("a global in a nested function", "def f():\n    A = 1\n    def g():\n        global A\n        A = 2\n    g(); return A\n", "def f():\n    A = 1\n    def g():\n        nonlocal A\n        A = 2\n    g(); return A\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"), [pair[1:] for pair in SAME], ids=[pair[0] for pair in SAME]
)
def test_what_means_the_same_has_the_same_digest(before, after):
    assert digest(before) == digest(after)


@pytest.mark.parametrize(
    ("before", "after"), [pair[1:] for pair in OTHER], ids=[pair[0] for pair in OTHER]
)
def test_what_means_something_else_has_another(before, after):
    assert digest(before) != digest(after)


# --- what a job's code is

FILES = {
    "__init__.py": "",
    "a.py": (
        '"""A."""\nfrom threespo.b import g\nfrom threespo.other import unused\n\n\n'
        'def f(x):\n    """Doc."""\n    # comment\n    return g(x) + 1\n\n\ndef idle(x):\n    return x\n'
    ),
    "b.py": "def g(x):\n    import threespo.tools.deep as deep\n    return deep.h(x)\n\n\ndef idle(x):\n    return 1\n",
    "tools/__init__.py": "",
    "tools/deep.py": "from . import beside\n\n\ndef h(x):\n    return k(x)\n\n\ndef k(x):\n    return LIMIT * x\n\n\nLIMIT = 3\n",
    "tools/beside.py": "FOLDER = 'shipped'\n",
    "tools/shipped/weights.bin": "1",
    "tools/table.json": "{}",
    "other.py": "def unused():\n    return 1\n\n\ndef register(x):\n    return x\n\n\nMADE = register(2)\n",
    "weights/unnamed.bin": "1",
    "looked_up.py": "def made(y):\n    return y\n\n\nOTHER = 1\n",
    "begin.py": "import threespo.schema\n\n\ndef run(x):\n    from threespo.a import f\n    f(x)\n\n\ndef jobs():\n    return 2\n",
    "schema.py": "VALUE = 1\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    yield tmp_path
    module.clear_caches()


def code(*looked_up: str, begin: str = "threespo.begin:run") -> dict[str, str]:
    module.clear_caches()
    return module.digest_reachable_code(begin, looked_up)


def edit(package: Path, name: str, *pairs: tuple[str, str]) -> None:
    text = (package / name).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (package / name).write_text(text)


def test_the_code_is_what_the_function_can_reach_and_what_imports_run(package):
    assert code().keys() == {
        "threespo.begin:run", "threespo.a:f", "threespo.b:g", "threespo.tools.deep:h", "threespo.tools.deep:k",
        "threespo.tools.deep:LIMIT", "threespo.other:MADE", "threespo.other:register",
        "tools/shipped/weights.bin", "tools/table.json",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("a.py", "+ 1", "+ 2", {"threespo.a:f"}),
        ("b.py", "deep.h(x)", "deep.h(x, y=1)", {"threespo.b:g"}),
        ("tools/deep.py", "* x", "/ x", {"threespo.tools.deep:k"}),
        ("tools/deep.py", "LIMIT = 3", "LIMIT = 4", {"threespo.tools.deep:LIMIT"}),
        ("tools/deep.py", "LIMIT = 3\n", "LIMIT = 3\nprint(LIMIT)\n", {"threespo.tools.deep:<import>"}),
        ("other.py", "register(2)", "register(3)", {"threespo.other:MADE"}),
        ("other.py", "return x", "return -x", {"threespo.other:register"}),
        ("tools/table.json", "{}", "{1}", {"tools/table.json"}),
        ("tools/shipped/weights.bin", "1", "2", {"tools/shipped/weights.bin"}),
        ("begin.py", "f(x)", "f(-x)", {"threespo.begin:run"}),
    ],
)
def test_a_change_is_named_where_it_is(package, name, old, new, named):
    before = code()
    edit(package, name, (old, new))
    now = code()
    assert {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)} == named


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a.py", "return g(x) + 1", "return (g(x)   + 1)  # other"),
        ("a.py", '"""Doc."""', '"""Other."""'),
        ("a.py", '"""A."""', '"""weights"""'),
        ("a.py", "def f(x):", "def f(value):"),
        ("a.py", "def idle(x):\n    return x", "def idle(x):\n    return 2"),
        ("b.py", "return 1", "return 2"),
        ("other.py", "return 1", "return 2"),
        ("begin.py", "return 2", "return 3"),
        ("schema.py", "VALUE = 1", "VALUE = 2"),
        ("looked_up.py", "OTHER = 1", "OTHER = 2"),
        ("weights/unnamed.bin", "1", "2"),
    ],
)
def test_what_cannot_be_reached_or_means_nothing_reruns_nothing(package, name, old, new):
    before = code()
    edit(package, name, (old, new))
    if "def f(value)" in new:
        edit(package, name, ("g(x)", "g(value)"))
    assert code() == before


def test_what_a_job_looks_up_is_one_entry(package):
    before = code("threespo.looked_up")
    assert {"threespo.looked_up:made", "threespo.looked_up:OTHER"} <= before.keys()
    assert "threespo.looked_up:OTHER" not in code("threespo.looked_up:made")
    edit(package, "looked_up.py", ("OTHER = 1", "OTHER = 2"))
    assert code("threespo.looked_up") != before


def test_a_parameters_name_counts_where_somebody_in_the_same_code_uses_it(package):
    (package / "b.py").write_text(
        "def g(x):\n    return h(a=x, b=1)\n\n\ndef h(a, b):\n    return a - b\n"
    )
    before = code()
    # Callers name them: with the names swapped, g computes 1 - x.
    edit(package, "b.py", ("def h(a, b):\n    return a - b", "def h(b, a):\n    return b - a"))
    assert code() != before

    for use in ("h(*[x, 1])", "h(**dict(a=x, b=1))", "apply(h, x)", "table['a'](x)"):
        (package / "b.py").write_text(
            f"def g(x):\n    return {use}\n\n\ndef h(a, b):\n    return a - b\n\n\n"
            "def apply(function, x):\n    return function(**{'b': x, 'a': 1})\n\n\ntable = {'a': h}\n"
        )
        before = code()
        edit(package, "b.py", ("def h(a, b):\n    return a - b", "def h(b, a):\n    return b - a"))
        # Only where it is called by place alone the names are free.
        assert (code() == before) == (use == "h(*[x, 1])"), use


def test_a_module_that_is_handed_on_counts_whole(package):
    (package / "b.py").write_text(
        "from threespo import other\n\n\ndef g(x):\n    return getattr(other, x)()\n"
    )
    assert "threespo.other:unused" in code()


@pytest.mark.parametrize(
    "added",
    [
        "import threespo.patch\n",
        "import threespo.patch as p\n",
        "try:\n    from threespo import patch\nexcept ImportError:\n    pass\n",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from threespo import patch\n",
        "_x = setattr(tools, 'h', None)\n",
        "_x = globals().update(h=1)\n",
        "def _idle(x=setattr(tools, 'h', None)):\n    pass\n",
        "_x = list(map(print, [1]))\n",
        "_x = {'a': print}['a'](3)\n",
        "class _Idle:\n    x = np.seterr(all='ignore')\n",
        "@register\ndef _idle(x):\n    pass\n",
        "_x = [print(y) for y in (1, 2)]\n",
    ],
)
def test_what_runs_at_import_counts_though_nothing_refers_to_it(package, added):
    (package / "patch.py").write_text("import threespo.tools.deep\n\nthreespo.tools.deep.LIMIT = 4\n")
    before = code()
    (package / "b.py").write_text(FILES["b.py"] + added)
    assert code() != before


def test_all_names_of_a_module_at_once_cannot_be_followed_and_are_refused(package):
    edit(package, "b.py", ("def idle", "from threespo.other import *\n\n\ndef idle"))
    with pytest.raises(
        InputError, match=r"b\.py: line \d+: from threespo\.other import \*: name what is imported"
    ):
        code()


def test_what_editors_and_patches_leave_behind_is_no_data(package):
    before = code()
    for name in ("deep.py~", "deep.py.orig", "deep.py.rej", ".deep.swp"):
        (package / "tools" / name).write_text("1")
    assert code() == before


def test_a_class_may_read_a_name_of_the_module_before_it_has_its_own(package):
    (package / "b.py").write_text(
        "def g(x):\n    return A.h\n\n\nclass A:\n    h = h()\n\n\ndef h():\n    return 1\n"
    )
    assert "threespo.b:h" in code()


def test_a_missing_or_broken_module_is_named(package):
    with pytest.raises(InputError, match=r"threespo\.nowhere does not exist"):
        code("threespo.nowhere")
    with pytest.raises(InputError, match="has no 'nothing'"):
        code("threespo.a:nothing")
    (package / "b.py").write_text("def (")
    with pytest.raises(InputError, match=r"b\.py: line 1"):
        code()


def test_the_imports_of_a_notebook_are_read_from_its_cells(package):
    cells = [
        {"cell_type": "markdown", "source": ["from threespo.b import idle"]},
        {
            "cell_type": "code",
            "source": ["from threespo.a import f\n", "import threespo.b as b\n", "import pandas"],
        },
    ]
    (package / "one.ipynb").write_text(json.dumps({"cells": cells}))
    assert module.notebook_imports(package / "one.ipynb") == ["threespo.a:f", "threespo.b"]
    (package / "one.ipynb").write_text("{}")
    with pytest.raises(InputError, match="not a notebook that can be read"):
        module.notebook_imports(package / "one.ipynb")


# --- what has been parsed is kept


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return where what was parsed is kept, and a function that does what a new process does."""
    path = tmp_path / "kept" / "code.cache"
    monkeypatch.setattr(modules, "_cache_file", lambda: path)
    monkeypatch.setattr(modules.sys, "dont_write_bytecode", False)

    def new_process():
        modules._read_cache.cache_clear()
        modules._written_keys.clear()
        return code()

    yield path, new_process
    modules._read_cache.cache_clear()
    modules._written_keys.clear()


@pytest.fixture
def parsed(monkeypatch):
    """Return the list of what is parsed from now on."""
    parse, asked = syntax.parse_module, []
    monkeypatch.setattr(
        syntax, "parse_module", lambda content, package: asked.append(content) or parse(content, package)
    )
    return asked


def test_what_was_parsed_once_is_not_parsed_again_before_it_changes(package, cache, parsed):
    path, new_process = cache
    before = new_process()
    assert path.is_file()
    parsed.clear()
    assert new_process() == before
    assert parsed == []

    # Also a change that leaves size and times as they are.
    times = (package / "b.py").stat()
    edit(package, "b.py", ("deep.h", "deep.k"))
    os.utime(package / "b.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert new_process() != before
    assert len(parsed) == 1
    edit(package, "b.py", ("deep.k", "deep.h"))
    assert new_process() == before
    assert len(parsed) == 1


def test_a_module_that_appears_is_seen_though_nothing_that_was_parsed_changes(package, cache):
    _, new_process = cache
    edit(package, "a.py", ("import g", "import g, late"), ("g(x)", "g(x, late)"))
    before = new_process()
    (package / "b").mkdir()
    (package / "b.py").rename(package / "b" / "__init__.py")
    assert new_process() == before, "the same module as a package"
    (package / "b" / "late.py").write_text("VALUE = 1\n")
    assert new_process() != before


MADE_BY = f'"made_by": "{modules._PARSER_DIGEST}"'


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 200_000,
        '{"made_by": 1}',
        '{"made_by": "x", "modules": {"a": ["b", [], []]}}',
        f"{{{MADE_BY}}}",
        f'{{{MADE_BY}, "modules": []}}',
        f'{{{MADE_BY}, "modules": {{"KEY": ["x"]}}}}',
        f'{{{MADE_BY}, "modules": {{"KEY": 1}}}}',
        f'{{{MADE_BY}, "modules": {{"KEY": {{"units": {{"f": {{}}}}, "no": 1}}}}}}',
    ],
)
def test_what_is_kept_and_cannot_be_used_is_parsed_anew(package, cache, damage):
    path, new_process = cache
    before = new_process()
    # A key that is asked for, so that its entry would be taken.
    path.write_text(damage.replace("KEY", next(iter(modules._read_cache()))))
    assert new_process() == before
    assert json.loads(path.read_text())["made_by"] == modules._PARSER_DIGEST


def test_the_oldest_of_what_was_parsed_go(package, cache, parsed, monkeypatch):
    path, new_process = cache
    monkeypatch.setattr(modules, "MAX_CACHED_MODULES", 3)
    before = new_process()
    assert len(json.loads(path.read_text())["modules"]) == 3
    parsed.clear()
    assert new_process() == before
    assert parsed


def test_where_nothing_can_be_kept_nothing_is(package, cache):
    path, new_process = cache
    path.parent.write_text("a file where the folder should be")
    before = new_process()
    assert new_process() == before


def test_what_is_kept_is_no_part_of_the_package_and_no_data_of_a_module():
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "*"
    ]
    assert not [pattern for pattern in patterns if modules._cache_file().match(pattern)]
    assert not [
        name
        for name in module.digest_reachable_code("threespo.provenance.code:digest_reachable_code")
        if "__pycache__" in name
    ]


def test_a_call_of_the_workflow_waits_for_neither_pandas_nor_scipy():
    files = [Path("workflow/Snakefile"), *sorted(Path("workflow/rules").glob("*.smk"))]
    # Statements at the top of a file; what stands deeper is imported where it is needed.
    lines = [
        line
        for file in files
        for line in file.read_text().splitlines()
        if line.startswith("from threespo")
    ]
    assert len(lines) > 3
    program = "\n".join([*lines, "import sys", "print({'pandas', 'scipy'} & set(sys.modules))"])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


# --- the real stages

STUDY = load_study(Path(__file__).resolve().parents[2] / "config" / "studies" / "smoke.yaml")


def modules_of(stage: str, name: str = "") -> set[str]:
    """Return the modules and data files that a job's code is from."""
    return {key.partition(":")[0] for key in Job(stage, name).code(STUDY)}


def test_real_stages_depend_on_what_they_call_and_not_on_other_methods():
    grpo = modules_of("train", "alfworld/tiny-s/grpo/seed-0")
    assert {
        "threespo.runs.train",
        "threespo.methods.grpo",
        "threespo.envs.episode",
        "threespo.methods.registry",
    } <= grpo
    assert not {"threespo.methods.threespo", "threespo.methods.scorer", "threespo.cli"} & grpo
    # What a study file may say is no part of a run; its values are.
    assert not [name for name in grpo if name.startswith(("threespo.study", "threespo.results"))]
    assert [name for name in grpo if name.startswith("threespo.pipeline")] == ["threespo.pipeline.train"]
    assert "threespo.methods.scorer" in modules_of("train", "alfworld/tiny-s/threespo-literal/seed-0")
    assert all((modules.ROOT / name).is_file() for name in grpo if not name.startswith("threespo"))


def test_code_that_once_was_in_no_key_is_in_those_that_run_it():
    """Three edits that an earlier rule did not see: the budget, how methods are made, the games of the curves."""
    train = Job("train", "alfworld/tiny-s/grpo/seed-0").code(STUDY)
    assert {
        "threespo.runs.training_settings:TrainingSettings",
        "threespo.methods.registry:make_method",
    } <= train.keys()
    assert "threespo.runs.settings:DEFAULT_CURVE_GAMES" in Job(
        "learning", "alfworld/tiny-s/grpo/seed-0"
    ).code(STUDY)


def test_another_method_or_environment_in_the_lists_changes_no_job(tmp_path, monkeypatch):
    before = {
        str(job): job.code(STUDY)
        for job in list_jobs(STUDY)
        if job.stage not in ("tables", "notebook", "report")
    }
    root = tmp_path / "threespo"
    shutil.copytree(modules.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in (
        ("methods/registry.py", "METHODS = (", 'METHODS = ("mine",'),
        ("envs/registry.py", 'ENVIRONMENTS = ("alfworld", ', 'ENVIRONMENTS = ("mine", "alfworld", '),
    ):
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new))
    monkeypatch.setattr(modules, "ROOT", root)
    module.clear_caches()
    after = {
        str(job): job.code(STUDY)
        for job in list_jobs(STUDY)
        if job.stage not in ("tables", "notebook", "report")
    }
    monkeypatch.undo()
    module.clear_caches()
    assert after == before


@pytest.mark.parametrize("stage", ["data", "policy", "train", "evaluate"])
def test_a_stage_of_one_environment_does_not_depend_on_the_other(stage):
    run = {"data": "", "policy": "/tiny-s"}.get(stage, "/tiny-s/grpo/seed-0")
    games, shop = (modules_of(stage, env + run) for env in ("alfworld", "webshop"))
    assert {"threespo.envs.alfworld.spec", "threespo.envs.alfworld.engine"} <= games - shop
    assert {"threespo.envs.webshop.spec", "threespo.envs.webshop.shop"} <= shop - games
    # Prepared tasks are compared with the panels, which lie in one folder.
    assert not [name for name in games if "webshop" in name and not name.startswith("panels/")]
    assert not [name for name in shop if "alfworld" in name and not name.startswith("panels/")]
    # How results are shown reruns nothing but tables, notebooks and report.
    assert not [name for name in games | shop if "presentation" in name]


def test_a_base_policy_depends_on_its_own_curriculum_and_shipped_weights_alone():
    games, shop = modules_of("policy", "alfworld/tiny-s"), modules_of("policy", "webshop/tiny-s")
    assert {"threespo.imitation.alfworld.curriculum", "threespo.imitation.alfworld.expert"} <= games
    assert [name for name in games if name.endswith("small-s/base/model.safetensors")]
    assert [name for name in shop if name.endswith("500-s/base/model.safetensors")]


def test_results_depend_on_how_their_environments_are_shown():
    shown = {"threespo.envs.alfworld.presentation", "threespo.envs.webshop.presentation"}
    for stage, name in (("tables", ""), ("notebook", "main_results"), ("report", "")):
        assert shown <= modules_of(stage, name)


def test_every_stage_has_code_of_its_own():
    first = {job.stage: job for job in reversed(list_jobs(STUDY))}
    prints = {
        str(sorted(job.code(STUDY).items())) for stage, job in first.items() if stage != "notebook"
    }
    assert len(prints) == len(first) - 1
    assert Path(module.__file__).parents[1] == modules.ROOT


def test_a_notebook_depends_on_no_more_than_it_shows():
    """The theory is the same in every study: neither another figure, nor another row, nor a label draws it anew."""
    of_study = {"threespo.study.matrix", "threespo.study.catalogue"}
    theory, results, curves = (
        modules_of("notebook", name) for name in ("theory", "main_results", "learning_curves")
    )
    assert "threespo.results.paper.figures" in theory
    assert not [name for name in theory if name in of_study or name.endswith("presentation")]
    assert not of_study & results
    assert "threespo.envs.alfworld.presentation" in results
    assert "threespo.study.catalogue" in curves


def test_no_module_names_one_above_it_by_text():
    """The contracts on imports see imports alone: a text with the name of a module would pass by them."""
    tools = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        set(layer.replace(":", "|").replace(" ", "").split("|"))
        for layer in tools["contracts"][0]["layers"]
    ]
    height = {name: len(layers) - number for number, layer in enumerate(layers) for name in layer}
    found = []
    for file in modules.ROOT.rglob("*.py"):
        own = file.relative_to(modules.ROOT).with_suffix("").parts[0]
        for text in syntax.parse_module(file.read_bytes(), "threespo").strings:
            parts = text.partition(":")[0].split(".")
            if len(parts) > 1 and parts[0] == "threespo" and parts[1] in height and own != "__init__":
                found.append((file.name, text))
                assert height[own] >= height[parts[1]], (file, text)
    # There are some, such as modules that are run by their names.
    assert found
