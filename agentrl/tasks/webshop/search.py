"""Full-text search over a catalogue: BM25 by tantivy, in memory or in a folder.

Invariants: a query is plain words - it is cut into terms here and never seen by a query parser, so it
has no operators, fields or filters; results are in one total order (score, then position), the same in
every process and however the index is cut into segments.

tantivy breaks ties by where a document happens to lie, and adds a document's term scores in single
precision in an order of its own. So scores are compared rounded, and where the last place falls into a
group of equal scores the whole group is fetched before it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import tantivy

MAX_TERMS = 50
"""Words of a query that count; bounds what one call can cost."""
_ANALYZER = "webshop"
_WRITER_BYTES = 512 * 2**20
"""Of the writer while it builds, at most: large, so that a million products are few segments."""
_DIGITS = 4
"""Decimals of a score that count: scores are below 100, single precision is good to 1e-5 there."""


def _analyzer() -> tantivy.TextAnalyzer:
    """Words of letters and digits, folded to lower-case ASCII, without stop words, stemmed."""
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(40))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stopword("english"))
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name=_ANALYZER, index_option="freq")
    builder.add_unsigned_field("position", fast=True)
    return builder.build()


class SearchIndex:
    """Open for reading. `search` gives positions of the catalogue."""

    def __init__(self, index: tantivy.Index) -> None:
        index.config_reader(reload_policy="manual")  # no thread that watches the folder
        index.reload()
        self._analyzer = _analyzer()
        self._schema = index.schema
        self._searcher = index.searcher()

    @classmethod
    def build(cls, texts: Iterable[tuple[int, str]], folder: Path | None = None) -> SearchIndex:
        """Index (position, text) pairs; `folder` must be empty, None builds in memory."""
        schema = _schema()
        index = tantivy.Index(schema, path=None if folder is None else str(folder), reuse=False)
        index.register_tokenizer(_ANALYZER, _analyzer())
        writer = index.writer(_WRITER_BYTES, num_threads=1)
        for position, text in texts:
            document = tantivy.Document()
            document.add_unsigned("position", position)
            document.add_text("text", text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        return cls(index)

    @classmethod
    def open(cls, folder: Path) -> SearchIndex:
        index = tantivy.Index.open(str(folder))
        index.register_tokenizer(_ANALYZER, _analyzer())
        return cls(index)

    def __len__(self) -> int:
        return self._searcher.num_docs

    def search(self, words: str, limit: int) -> tuple[int, ...]:
        """Positions of at most `limit` documents that share a term with `words`, best first."""
        terms = self._analyzer.analyze(words)[:MAX_TERMS]
        if not terms:
            return ()
        query = tantivy.Query.boolean_query(
            [
                (
                    tantivy.Occur.Should,
                    tantivy.Query.term_query(self._schema, "text", term, index_option="freq"),
                )
                for term in terms
            ]
        )
        wanted = 2 * limit
        while True:
            hits = self._searcher.search(query, wanted, count=False).hits
            scores = [round(score, _DIGITS) for score, _ in hits]
            if len(hits) < wanted or scores[-1] < scores[limit - 1]:
                break
            wanted *= 8
        places = [address for _, address in hits]
        positions = cast(list[int], self._searcher.fast_field_values("position", places))
        ranked = sorted(zip((-score for score in scores), positions, strict=True))
        return tuple(position for _, position in ranked[:limit])
