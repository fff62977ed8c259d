"""Nothing that others wrote is run, leaves its folder, fills a disk, or controls a page or terminal; no key gets out."""

import ast
import base64
import csv
import html.parser
import io
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import unicodedata
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tests import webshop_mini
from tests.chat_server import ChatServer, answers, completion
from tests.jobs import write_report, write_tables
from tests.unit import test_results_environments as made
from threespo import cli, files
from threespo.envs.alfworld import official, sources
from threespo.envs.base import Transition
from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.envs.webshop.data import load_goals
from threespo.envs.webshop.sources import read_products
from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline.stages import STAGES, Job, check_job
from threespo.policy.cassette import read_replies
from threespo.results.labels import shown_task_types
from threespo.results.paper.csv_files import csv_text
from threespo.results.paper.figures import save_figure
from threespo.study import catalogue
from threespo.study.load import dump_study, parse_study
from threespo.study.resolve import resolve_study
from threespo.tables import read_table, write_table
from threespo.terminal import escape_controls
from threespo.verify import read_cases
from threespo.watch import play

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


# --- nothing is unpickled or evaluated

UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "yaml.full_load", "yaml.unsafe_load",
    "yaml.load_all", "pd.read_pickle", "pandas.read_pickle", "Markup", "markupsafe.Markup",
}  # fmt: skip
UNSAFE_OPTIONS = {"allow_pickle", "shell", "trust_remote_code"}


def unsafe(source: str) -> list[str]:
    """Return what in a module's source runs what others wrote."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            found += [f"import {name}" for name in names if name.split(".")[0] in UNSAFE_MODULES]
        if not isinstance(node, ast.Call):
            continue
        called, options = (
            ast.unparse(node.func),
            {option.arg: ast.unparse(option.value) for option in node.keywords},
        )
        found += [called] if called in UNSAFE_CALLS else []
        found += [
            f"{called}({name})" for name in UNSAFE_OPTIONS if options.get(name, "False") != "False"
        ]
        if called == "torch.load" and options.get("weights_only") != "True":
            found.append(called)
        loader = " ".join([*map(ast.unparse, node.args[1:]), options.get("Loader", "")])
        if called == "yaml.load" and not ("SafeLoader" in loader and "Unsafe" not in loader):
            found.append(called)
        if called.endswith("Environment") and options.get("autoescape", "True") != "True":
            found.append(called)
    return found


@pytest.mark.parametrize(
    "bad",
    [
        "import pickle", "from dill import loads", "eval(text)", "exec(text)", "torch.load(file)", "__import__(name)",
        "torch.load(file, weights_only=False)", "yaml.load(text, yaml.Loader)", "yaml.load(text)", "os.system(text)",
        "yaml.load(text, Loader=yaml.UnsafeLoader)", "np.load(file, allow_pickle=True)", "pd.read_pickle(file)",
        "subprocess.run(text, shell=True)", "AutoModel.from_pretrained(name, trust_remote_code=True)", "Markup(text)",
        "jinja2.Environment(autoescape=False)",
    ],
)  # fmt: skip
def test_the_check_for_unsafe_calls_sees_them(bad):
    assert unsafe(f"def work():\n    {bad}\n")


def code_of(path: Path) -> str:
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("folder", ["threespo", "workflow", "notebooks", "benchmarks"])
def test_nothing_is_unpickled_or_evaluated(folder):
    modules = [path for kind in ("py", "ipynb") for path in (ROOT / folder).rglob(f"*.{kind}")]
    assert modules
    assert not {str(path): found for path in modules if (found := unsafe(code_of(path)))}


def test_no_template_lets_text_through_unescaped():
    templates = list((ROOT / "threespo").rglob("templates/*"))
    assert templates
    for template in templates:
        assert not re.search(r"\|\s*safe\b|autoescape", template.read_text(encoding="utf-8")), template


class Evil:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['EVIL']}",)


@pytest.mark.parametrize("how", ["pickled weights", "code beside the model"])
def test_a_model_folder_runs_nothing(tmp_path, monkeypatch, how):
    import pickle

    import torch

    from threespo.policy.model import load_policy

    (shipped,) = sorted(
        (ROOT / "threespo" / "imitation" / "alfworld" / "shipped").glob("small-s*/base")
    )[:1]
    folder, mark = tmp_path / "model", tmp_path / "mark"
    shutil.copytree(shipped, folder)
    monkeypatch.setenv("EVIL", str(mark))
    if how == "pickled weights":
        for weights in folder.glob("*.safetensors"):
            weights.unlink()
        torch.save({"weight": Evil()}, folder / "pytorch_model.bin")
        pickle.loads(pickle.dumps(Evil()))
        assert mark.exists(), "it would"
        mark.unlink()
    else:
        config = json.loads((folder / "config.json").read_text())
        classes = {
            "AutoConfig": "evil.Config",
            "AutoModelForCausalLM": "evil.Model",
            "AutoTokenizer": ["evil.Words", None],
        }
        (folder / "config.json").write_text(
            json.dumps({**config, "model_type": "evil", "auto_map": classes})
        )
        (folder / "evil.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    with pytest.raises(InputError, match="the model cannot be loaded"):
        load_policy(folder)
    assert not mark.exists()


# --- names stay in their folder

OUTSIDE = (
    "..", ".", "../x", "a/../../x", "/etc", "a/b", "a\\b", "a\0b", "a\nb", "a\n", "-rf", "--help", "", " ", ".hidden", "A",
    "a b", "a;b", "$(id)", "`id`", "a'b", "é", "a\u202eb", "{env}", "*",
)  # fmt: skip
STUDY = {
    "name": "names",
    "description": "a test",
    "seeds": [0],
    "alfworld": {
        "max_steps": 4,
        "games": {"train": 2, "calibration": 2, "valid_seen": 2, "valid_unseen": 3},
    },
    "policies": {"tiny-s": {"stands_for": "qwen2.5-1.5b-instruct"}},
    "methods": {"grpo": {"method": "grpo", "learning_rate": 1e-3}},
    "training": {"generations": 100},
}
GROVE = {"trees": 1, "depth": 2, "branching": 2, "solutions": 1}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_of_a_study_can_leave_its_folder(name):
    parse_study(STUDY, "as it is")
    for changed in (
        {"name": name},
        {"policies": {name: STUDY["policies"]["tiny-s"]}},
        {"policies": {"tiny-s": {**STUDY["policies"]["tiny-s"], "size": name}}},
        {"methods": {name: STUDY["methods"]["grpo"]}},
        {"methods": {"grpo": {**STUDY["methods"]["grpo"], "method": name}}},
        {"agents": {name: {"agent": "react"}}},
        {"evaluation": {"splits": [name]}},
        {name: {"max_steps": 4}},
        {"laboratory": {"families": {name: GROVE}}},
    ):
        with pytest.raises(InputError, match="not a valid study"):
            parse_study({**STUDY, **changed}, "test")
    if name.strip():
        with pytest.raises(InputError, match="for a folder's name"):
            resolve_study({"study": "ci", "name": name}, None)


@pytest.mark.parametrize(
    "name", [*OUTSIDE, "alfworld/tiny-s/grpo/seed-0/../../../../x", "alfworld/tiny-s/grpo/seed-00"]
)
def test_no_job_outside_of_the_study_can_be_asked_for(name, tmp_path, capsys):
    study = parse_study(STUDY, "test")
    for stage in STAGES:
        if name or STAGES[stage].arguments:
            with pytest.raises(InputError, match="nothing to do for"):
                check_job(study, Job(stage, name))
    file = Paths(tmp_path / "results").study
    file.parent.mkdir()
    file.write_text(dump_study(study))
    assert cli.main(["train", str(file), f"--run={name}"]) == 2
    assert cli.main(["notebook", str(file), f"--name={name}"]) == 2
    assert "nothing to do for" in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == [file.parent, file]


# --- archives


def placed(
    folder: Path, *members: zipfile.ZipInfo, text: str = "{}", size: int | None = None
) -> official.Archive:
    """Put an archive where a download would end; ``size`` is what its first member claims to have."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "games.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            archive.writestr(member, text)
        if size is not None:
            archive.filelist[0].file_size = size
    return official.Archive("http://127.0.0.1:9/games.zip")


def link(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.create_system, member.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return member


GAME = "train/a/b/game.tw-pddl"


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (zipfile.ZipInfo("../escape"), "unsafe path"),
        (zipfile.ZipInfo("train/../../escape"), "unsafe path"),
        (zipfile.ZipInfo("/tmp/escape"), "unsafe path"),
        (zipfile.ZipInfo("train/a\nb"), "unsafe path"),
        (zipfile.ZipInfo("train/\x1b[2J"), "unsafe path"),
        (link("train/a"), "link"),
    ],
)
def test_archives_with_paths_or_links_that_lead_elsewhere_are_refused(tmp_path, member, said):
    archive = placed(tmp_path / "here", zipfile.ZipInfo(GAME), member, text="../../escape")
    with pytest.raises(InputError, match=f"{said} .*do not use this file") as refused:
        official.fetch_release(tmp_path / "here", [archive], progress=False)
    assert str(refused.value).isprintable()
    assert not (tmp_path / "here" / "games").exists()
    assert not (tmp_path / "escape").exists()


def test_archives_of_an_absurd_size_are_refused_before_they_are_unpacked(tmp_path):
    archive = placed(tmp_path, zipfile.ZipInfo(GAME), size=1 << 45)
    with pytest.raises(InputError, match="would unpack to 1 files of 35,184,372,088,832 bytes"):
        official.fetch_release(tmp_path, [archive], progress=False)
    assert not (tmp_path / "games").exists()


READERS = {
    "cassette": ("replies.jsonl.xz", read_replies),
    "games": ("train.jsonl.xz", lambda path: sources.load_games(path.parent, "train")),
    "catalogue": ("items.json.xz", lambda path: list(read_products(path.parent))),
    "instructions": ("instructions.json.xz", lambda path: list(read_products(path.parent))),
    "goals": ("train.jsonl.xz", lambda path: load_goals(path.parent, "train")),
    "reference": ("cases.jsonl.xz", lambda path: list(read_cases(path, ()))),
}


@pytest.mark.parametrize("kind", READERS)
def test_compressed_files_that_expand_beyond_measure_are_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(files, "_ALWAYS_ALLOWED_EXPANSION", 1 << 20)
    name, read = READERS[kind]
    webshop_mini.write_files(tmp_path)
    (tmp_path / "items.json").rename(tmp_path / "items_shuffle.json")
    for other in ("alfred.pddl", "grammar.twl2"):
        (tmp_path / other).write_text("@@TASK@@")
    if kind == "instructions":
        (tmp_path / "instructions.json").unlink()
    (tmp_path / name).write_bytes(lzma.compress(b" " * (1 << 23)))
    with pytest.raises(InputError, match="expands to more than any honest file"):
        read(tmp_path / name)


def test_honest_compressed_files_are_read_as_they_were_written(tmp_path):
    text = "".join(f"{number} wörter, {number**3}\n" for number in range(50_000))
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(text.encode()))
    with files.open_text(path) as lines:
        assert "".join(lines) == text
    assert files.read_bytes(path) == text.encode()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises((EOFError, lzma.LZMAError)):
        files.read_bytes(path)


# --- keys and passwords get out nowhere

KEY = "sk-0123456789abcdef-not-a-real-key"
PASSWORD = "not-a-real-password"
CLOSED = {
    **STUDY,
    "policies": {
        "tiny-s": {"stands_for": "qwen2.5-1.5b-instruct"},
        "gpt": {
            "kind": "endpoint", "stands_for": "gpt-4o",
            "endpoint": {"model": "gpt", "input_price": 1, "output_price": 1, "key_env": "A_KEY", "base_url_env": "AN_URL"},
        },
    },
    "agents": {"closed": {"agent": "direct", "policies": ["gpt"]}},
}  # fmt: skip
SENT = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
SECRETS = (KEY, KEY[3:15], PASSWORD, SENT)


@pytest.fixture
def closed(tmp_path):
    """Return the folder of a study with a closed model, whose data are prepared."""
    file = Paths(tmp_path / "results").study
    file.parent.mkdir()
    file.write_text(dump_study(parse_study(CLOSED, "test")))
    assert cli.main(["data", str(file), "--env", "alfworld"]) == 0
    return file.parent


def quotes_secrets(status):
    """Return an action of the server that repeats the key, and then one that repeats the password."""
    said = iter(
        (f"who is {KEY}?", f"no such place: http://me:{PASSWORD}@here", f"\x1b[31m{KEY[4:20]} {SENT}")
    )
    return lambda handler, asked: answers({"error": {"message": next(said, "busy")}}, status)(
        handler, asked
    )


@pytest.mark.parametrize(
    ("status", "user", "code"), [(503, "me:PASSWORD@", 0), (400, "", 2), (400, "me:PASSWORD@", 2)]
)
def test_no_byte_of_a_key_or_password_leaves_the_process_that_needs_it(closed, status, user, code):
    with ChatServer() as server:
        failing, fine = quotes_secrets(status), answers(completion("<action>look</action>"))
        server.otherwise = lambda handler, asked: (failing if len(server.asked) <= 3 else fine)(
            handler, asked
        )
        address = server.url.replace("http://", "http://" + user.replace("PASSWORD", PASSWORD))
        environment = {
            **os.environ,
            "NO_PROXY": "127.0.0.1",
            "A_KEY": KEY,
            "AN_URL": address,
            "OPENAI_LOG": "debug",
        }
        command = ["evaluate", str(closed / "study.json"), "--run", "alfworld/gpt/closed/seed-0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "threespo.cli", *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        arguments: set[bytes] = set()
        while process.poll() is None:
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    arguments.add(entry.read_bytes())
                except OSError:
                    continue
            time.sleep(0.1)
        said = process.stdout.read() + process.stderr.read()
    assert process.returncode == code, said.decode()
    sent = {asked.headers["authorization"] for asked in server.asked}
    assert sent == {f"Basic {SENT}" if user else f"Bearer {KEY}"}
    written = {str(file): file.read_bytes() for file in closed.rglob("*") if file.is_file()}
    assert any("cassettes" in name for name in written)
    assert any(b"threespo.cli" in line for line in arguments)
    assert b"\x1b" not in said
    for secret in SECRETS:
        for where, content in {"output": said, "arguments": b"".join(arguments), **written}.items():
            assert secret.encode() not in content, where


def test_a_reply_that_quotes_the_password_is_not_recorded(closed, monkeypatch, capsys):
    with ChatServer() as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("A_KEY", KEY)
        monkeypatch.setenv("AN_URL", server.url.replace("http://", f"http://me:{PASSWORD}@"))
        server.otherwise = answers(completion(f"<action>{PASSWORD}</action>"))
        command = ["evaluate", str(closed / "study.json"), "--run", "alfworld/gpt/closed/seed-0"]
        assert cli.main(command) == 2
    assert "it was not recorded" in capsys.readouterr().err
    assert not [
        file for file in closed.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()
    ]


# --- texts of products, games and models are inert

MARKUP = (
    "<script>owned=1</script>", "</script><script>owned=1</script>", "<img src=x onerror=owned=1>",
    "\" onmouseover=\"owned=1",
    "<a href='javascript:owned=1'>x</a>", "<svg onload=owned=1>", "![x](javascript:owned=1)", "<!--", "]]>", "{{ 7 * 7 }}",
    "$x^{$", "=HYPERLINK(1)",
)  # fmt: skip
CONTROLS = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f\u202egnp\u2066\u200f\u2028\ud800\0"


class Page(html.parser.HTMLParser):
    """Collects elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def is_inert(text: str, plain: str) -> None:
    """Make sure that a page has the elements and attributes of the plain one, and so have the pages in its frames."""
    page, expected = Page(text), Page(plain)
    assert page.tags == expected.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in expected.attributes]
    assert not [value for name, value in page.attributes if value.startswith("javascript:")]
    frames = [[value for name, value in one.attributes if name == "srcdoc"] for one in (page, expected)]
    assert all(frames)
    for inner, plain_inner in zip(*frames, strict=True):
        assert Page(inner).tags == Page(plain_inner).tags
        assert [name for name, _ in Page(inner).attributes] == [
            name for name, _ in Page(plain_inner).attributes
        ]


@pytest.fixture(scope="module")
def shop_results(tmp_path_factory):
    """Return a study's tables and report, before anybody wrote anything hostile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        study = made.study_with("webshop")
        paths = made.finish(study, tmp_path_factory.mktemp("shop"))
        write_tables(study, paths)
        paths.figures.mkdir()
        for item in catalogue.figures_of(study):
            paths.figure(item.name, "svg").write_text("<svg/>")
        for item in catalogue.texts_of(study):
            paths.figure(item.name, "csv").write_text("lemma,verdict\nx,holds\n")
        write_report(study, paths)
    return study, paths


HOSTILE_COLUMNS = {
    "main": ("note",),
    "episodes": ("task_type", "task_id"),
    "claims": ("text", "detail"),
    "provenance": ("section", "name", "value"),
}


def report_with(text, study, plain, paths):
    """Return the report on tables whose every text ends with ``text``: rows that were apart stay so."""
    for name, columns in HOSTILE_COLUMNS.items():
        rows = read_table(plain.table(name))
        # The study's settings are looked up by their name and read as JSON, so a text behind them is an error and no text.
        looked_up = rows["name"].eq("settings") if name == "provenance" else pd.Series(False, rows.index)
        assert not looked_up.all(), name
        hostile = {one: rows[one].where(looked_up, rows[one].astype(str) + text) for one in columns}
        write_table(paths.table(name), rows.assign(**hostile))
    for file in plain.root.rglob("trees.parquet"):
        rows = read_table(file)
        texts = ("task_id", "task_type", "goal", "state", "action", "response", "observation")
        write_table(
            paths.root / file.relative_to(plain.root),
            rows.assign(**{one: rows[one] + text for one in texts}),
        )
    write_report(study.model_copy(update={"description": study.description + text}), paths)
    return paths.report.read_text()


@pytest.mark.parametrize("text", MARKUP)
def test_the_report_is_inert(shop_results, tmp_path, text):
    study, plain = shop_results
    paths = Paths(tmp_path / "copy")
    shutil.copytree(plain.root, paths.root)
    (before, page) = (report_with(appended, study, plain, paths) for appended in ("plain", text))
    is_inert(page, before)
    assert html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page


def notebook(name: str) -> str:
    return code_of(ROOT / "notebooks" / f"{name}.ipynb")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_executed_notebooks_escape_what_they_show(path):
    """A styled table does not escape by itself; a plain one does."""
    source = code_of(path)
    assert source.count(".style.") == source.count('escape="html"')
    assert "HTML(" not in source
    assert "Markdown(" not in source


def test_tables_in_notebooks_are_inert():
    text = "".join(MARKUP)
    rows = pd.DataFrame([{"observation": text, "visits": 1.0}])
    (formatted,) = re.findall(r"summary\.style\.format\((.*)\)", notebook("case_study"))
    shown = eval(f"rows.style.format({formatted})", {"rows": rows}).to_html()
    plain = rows.assign(observation="x").style.format(escape="html").to_html()
    assert Page(shown).tags == Page(plain).tags
    assert Page(rows.style.to_html()).tags != Page(plain).tags, "without it they are not"


def test_figures_take_no_text_for_a_formula(tmp_path):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    text = r"under $5^{ or $6_"
    (shown,) = shown_task_types("webshop", [text]).values()
    figure, axis = plt.subplots(figsize=(3.3, 2))
    axis.set_title(shown)
    data = pd.DataFrame(
        {"action": ["=1+1", "@x", "-2", "+3", "\tx", "look", "a=b"], "number": [-1.5] * 7}
    )
    save_figure(figure, tmp_path, "x", data)
    plt.close(figure)
    cells = pd.read_csv(tmp_path / "x.csv")
    assert cells["action"].tolist() == ["'=1+1", "'@x", "'-2", "'+3", "'\tx", "look", "a=b"]
    assert cells["number"].tolist() == [-1.5] * 7


FORMULAS = [
    "\n=1+1", " =1+1", "\ufeff=1+1", "＝1+1", "\t\t@x", "\r\n-2", "\u200b＋3", "\xa0 ＠x",
    "\u2028=1", "\x00－1", "\nlook", " \ufeff -1",
]  # fmt: skip


def test_neither_do_they_after_what_a_spreadsheet_passes_over_nor_in_headings():
    plain = ["look", "", " look", "a=b", "1 - 2", "\ufeff", "–", "x\n=1", "'=1"]
    texts = [*FORMULAS, *plain]
    written = csv_text(
        pd.DataFrame({"=cmd|'/c calc'!A1": texts, " ＠SUM(1)": [-1.5] * len(texts), "kind": texts})
    )
    headings, *rows = list(csv.reader(io.StringIO(written, newline="")))
    assert headings == ["'=cmd|'/c calc'!A1", "' ＠SUM(1)", "kind"]
    assert rows == [[text, "-1.5", text] for text in (*(f"'{text}" for text in FORMULAS), *plain)]


# --- the terminal


def controls(text: str) -> list[str]:
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [one for one in text if one not in "\n\t" and unicodedata.category(one) in hidden]


def test_printable_text_is_left_alone_and_any_other_is_spelled_out():
    for plain in ("", "a\nb\tc", "–·“ü€ 日本 \U0001f600", "no-break\xa0space"):
        assert escape_controls(plain) == plain
    assert escape_controls("\x1b[31m\u202e\x9b\r\ud800") == r"\x1b[31m\u202e\x9b\r\ud800"
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert controls(everything)
    assert not controls(escape_controls(everything))


class Hostile:
    """An environment whose every text has control characters."""

    name = "hostile"
    text = SimpleNamespace(fallback_length=20, prompt=lambda *_, **__: "prompt")
    page = SimpleNamespace(observation=f"page {CONTROLS}")

    def initial(self, task):
        return self.page

    def step(self, state, action):
        return Transition(state, state.observation, 0.0, won=False)

    def admissible(self, state):
        return (f"click[{CONTROLS}]",)

    def won(self, state):
        return False


@pytest.mark.parametrize("player", ["a person", "a policy"])
def test_no_text_of_a_game_or_model_can_control_the_terminal(player):
    task, out = (
        SimpleNamespace(task_id=CONTROLS, task_type=CONTROLS, goal=f"a goal {CONTROLS}"),
        io.StringIO(),
    )
    response = SimpleNamespace(text=f"<think>{CONTROLS}</think><action>look {CONTROLS}</action>")
    sampler = SimpleNamespace(sample=lambda *_, **__: [[response]])
    chooses = (
        play.make_human_player(iter(["look", "quit"]), out)
        if player == "a person"
        else play.make_sampling_player(sampler, 0.0, out)
    )
    play.play_task(start_episode(EpisodeSetup(Hostile(), 2, 0), task), chooses, out)
    assert out.getvalue().count(r"\x1b[2J") >= 6
    assert not controls(out.getvalue())


def test_error_messages_and_reasons_cannot_control_the_terminal(tmp_path, monkeypatch, capsys):
    assert cli.main(["view", str(tmp_path / "\x1b[2Jtrees.parquet")]) == 2
    monkeypatch.setattr(
        "threespo.pipeline.plan.explain_changes", lambda _: [f"data: {CONTROLS}", "  more"]
    )
    assert cli.main(["why", "results"]) == 0
    shown = capsys.readouterr()
    assert "\\x1b[2Jtrees.parquet" in shown.err
    assert shown.out.endswith("\n  more\n")
    assert not controls(shown.out + shown.err)
