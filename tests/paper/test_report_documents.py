"""Tables in documents cannot go stale, and nothing but them is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_examples import result, write_results

from pacefno.paper.bench import merge_results
from pacefno.paper.report.collect import collect
from pacefno.paper.report.documents import DocumentError, stale_documents
from pacefno.paper.report.tables import markdown_table

ROOT = Path(__file__).parents[2]
DOCUMENT = """# Results\r
Text before, with 0.1234 in it.
<!-- table:burgers2d -->
<!-- /table -->
between
<!-- table:kdv_easy -->
old
<!-- /table -->
<!-- table:summary -->
<!-- /table -->
after"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_bytes(DOCUMENT.encode())
    return path


@pytest.mark.parametrize(
    "name", ["README.md", "docs/results.md", "docs/symmetries.md", "docs/lpsda.md"]
)
def test_no_table_in_a_document_is_older_than_the_results(name: str) -> None:
    assert stale_documents([ROOT / name], [ROOT / "results"]) == {}, "run: make tables"


def test_documents_are_rewritten_between_markers_only(results: Path, document: Path) -> None:
    assert stale_documents([document], [results], write=True) == {
        document: ["burgers2d", "kdv_easy", "summary"]
    }
    text = document.read_bytes().decode()
    start = "# Results\r\nText before, with 0.1234 in it.\n<!-- table:burgers2d -->\n"
    assert text.startswith(start) and text.endswith("\nafter")
    tables = collect([results])
    assert all(markdown_table(table) in text for table in tables.values())
    assert "between" in text and "old" not in text
    assert stale_documents([document], [results], write=True) == {}
    assert document.read_bytes().decode() == text


def test_a_stale_document_is_detected(results: Path, document: Path) -> None:
    before = document.read_bytes()
    assert set(stale_documents([document], [results])) == {document}
    assert document.read_bytes() == before
    stale_documents([document], [results], write=True)
    assert stale_documents([document], [results]) == {}
    merge_results(results, "burgers2d", [result("pace", 42, 0.0191)])
    assert stale_documents([document], [results]) == {document: ["burgers2d", "summary"]}


def test_a_number_typed_by_hand_is_detected_and_replaced(results: Path, document: Path) -> None:
    stale_documents([document], [results], write=True)
    document.write_text(document.read_text().replace("0.6200", "0.6100"))
    assert stale_documents([document], [results]) == {document: ["burgers2d", "summary"]}
    stale_documents([document], [results], write=True)
    assert "0.6100" not in document.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:burgers2 -->\n<!-- /table -->", "Did you mean 'burgers2d'?"),
        ("<!-- table:navier_stokes -->\n<!-- /table -->", "pacefno bench navier_stokes"),
        (
            "<!-- table:burgers2d -->\n<!-- /table -->\n<!-- table:summary -->\n",
            "has no `<!-- /table -->`",
        ),
        ("no markers", "has no `<!-- table:BENCHMARK -->`"),
    ],
)
def test_markers_that_cannot_be_filled_are_refused_and_nothing_is_written(
    text: str, message: str, results: Path, document: Path
) -> None:
    broken = document.with_name("broken.md")
    broken.write_text(text)
    with pytest.raises(DocumentError, match=re.escape(message)):
        stale_documents([document, broken], [results], write=True)
    assert broken.read_text() == text and document.read_bytes() == DOCUMENT.encode()
