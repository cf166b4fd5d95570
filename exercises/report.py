"""What a check found, as HTML: a headline, a small table, notes."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

CELL = 'style="text-align: left; vertical-align: top; padding: 2px 10px"'


@dataclass(frozen=True)
class Row:
    """One line of a report: a mark and its colour, and a text for each column."""

    mark: str
    colour: str
    texts: tuple[str, ...]


def html_report(headline: str, columns: tuple[str, ...], rows: Iterable[Row], notes: Iterable[str]) -> str:
    """`columns` are the headings over the rows' texts. All texts are escaped."""
    body = "".join(
        f'<tr><td {CELL}><span style="color: {row.colour}">{_text(row.mark)}</span></td>'
        + "".join(f"<td {CELL}>{_text(text)}</td>" for text in row.texts)
        + "</tr>"
        for row in rows
    )
    heads = "".join(f"<th {CELL}>{_text(head)}</th>" for head in ("", *columns))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    under = "".join(f"<div>{_text(note)}</div>" for note in notes)
    return f"<div><div><b>{_text(headline)}</b></div>{table}{under}</div>"


def _text(value: str) -> str:
    return html.escape(value).replace("\n", "<br>")
