"""Search by Lucene itself, called as the original calls it, to check :mod:`threespo.envs.webshop.bm25` against.

Optional: needs pyserini (the extra ``lucene``) and Java; nothing here is imported by a study. Of pyserini those Java classes
are used that its ``LuceneSearcher`` hands everything to: that module itself loads the libraries of dense retrieval as well.
"""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threespo.envs.webshop.bm25 import MAX_HITS
from threespo.envs.webshop.catalogue import Catalogue
from threespo.errors import InputError
from threespo.files import replace_folder, write_text

_SEARCHER = "io.anserini.search.SimpleSearcher"
_MADE_OF = "catalogue.sha256"
_REMEMBERED = 1 << 12
_SHOWN = 500


def build_index(catalogue: Catalogue, folder: Path) -> None:
    """Let pyserini index the products of a catalogue.

    Args:
        catalogue: the products.
        folder: where the index goes; written whole or not at all.

    Raises:
        InputError: if pyserini or Java is missing, or the indexing fails.
    """
    _java_class(_SEARCHER)
    with replace_folder(folder) as index:
        with tempfile.TemporaryDirectory(dir=index) as documents:
            write_documents(catalogue, Path(documents) / "documents.jsonl")
            _run(index_command(Path(documents), index))
        write_text(index / _MADE_OF, catalogue.facts["sha256"])


def write_documents(catalogue: Catalogue, path: Path) -> None:
    """Write a line of JSON per product: its asin, and the text that is searched."""
    products = (catalogue.product(number) for number in range(len(catalogue)))
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(
            json.dumps({"id": item.asin, "contents": item.searched_text}) + "\n" for item in products
        )


def index_command(documents: Path, index: Path) -> list[str]:
    """Return the command with which the original indexes documents.

    Args:
        documents: folder of the JSON lines.
        index: folder of the index.
    """
    # WebShop's run_indexing.sh, option for option.
    program = [sys.executable, "-m", "pyserini.index.lucene", "--collection", "JsonCollection"]
    folders = ["--input", str(documents), "--index", str(index)]
    generator = ["--generator", "DefaultLuceneDocumentGenerator"]
    storage = ["--threads", "1", "--storePositions", "--storeDocvectors", "--storeRaw"]
    return [*program, *folders, *generator, *storage]


def _run(command: Sequence[str]) -> None:
    # A process of its own, because the indexer writes a long log to standard output.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-_SHOWN:]
        raise InputError(
            f"indexing with Lucene failed (exit code {done.returncode}): {' '.join(command)}\n{said}"
        )


def _java_class(name: str) -> Any:
    """Return a Java class; the first call starts the JVM of this process."""
    try:
        from pyserini.pyclass import autoclass

        return autoclass(name)
    except Exception as error:
        # Without Java or with too old a one, pyjnius raises whatever it meets, plain Exception included.
        raise InputError(
            f"search by Lucene needs pyserini and Java 11 or later ({type(error).__name__}: {str(error)[:_SHOWN]}); "
            "pip install 'threespo[lucene]', and install a JDK (on PATH, or named by JAVA_HOME)"
        ) from error


class LuceneSearch:
    """Lucene's answers to queries, in the place of :class:`~threespo.envs.webshop.bm25.SearchIndex`.

    ``Catalogue(folder, functools.partial(LuceneSearch, index))`` searches with it. A JVM does not survive a fork: processes
    have to open their own.
    """

    def __init__(self, folder: Path, catalogue: Catalogue) -> None:
        """Open an index.

        Args:
            folder: one of :func:`build_index`, or the original's own.
            catalogue: the products, by whose numbers the answers are given.

        Raises:
            InputError: if pyserini or Java is missing, or there is no index of this catalogue.
        """
        made_of = folder / _MADE_OF
        another = InputError(
            f"{folder}: a Lucene index of other products than {catalogue.folder}; name another folder"
        )
        if made_of.is_file() and made_of.read_text(encoding="utf-8") != catalogue.facts["sha256"]:
            raise another

        searcher = _java_class(_SEARCHER)
        try:
            self._searcher = searcher(str(folder))
        except Exception as error:
            what = str(error)[:_SHOWN]
            raise InputError(
                f"{folder}: no Lucene index ({what}); name a folder that build_index made"
            ) from error

        # Products without a searchable text may or may not count as documents.
        if not catalogue.facts["indexed"] <= self._searcher.get_total_num_docs() <= len(catalogue):
            raise another
        self._catalogue = catalogue
        self._folder = folder
        self.search = functools.lru_cache(maxsize=_REMEMBERED)(self._search)

    def _search(self, query: str) -> tuple[int, ...]:
        """Return the numbers of at most 50 products, best first.

        Raises:
            InputError: if Lucene refuses the query (more than 1,024 different terms), or finds what is not in the catalogue.
        """
        try:
            # Half a surrogate pair has no encoding, and is part of no term.
            hits = self._searcher.search(query.encode("utf-8", "replace").decode("utf-8"), MAX_HITS)
        except Exception as error:
            raise InputError(
                f"Lucene refuses the query {query[:60]!r}: {str(error)[:_SHOWN]}"
            ) from error
        return tuple(self._number(hit.docid) for hit in hits)

    def _number(self, asin: str) -> int:
        number = self._catalogue.number_of(asin)
        if number is None:
            raise InputError(
                f"{self._folder}: finds the product {asin}, which is not in {self._catalogue.folder}"
            )
        return number
