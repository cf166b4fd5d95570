"""Text in columns for a terminal, where a Chinese, Japanese or Korean character is two columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wcwidth import wcswidth, wcwidth

RULE = "─"
HEADER_WIDTH = 60
GAP = "  "  # between the columns of a table


def text_width(text: str) -> int:
    """The terminal columns that `text` takes. Control characters, which have no width of their own, count as none."""
    width = wcswidth(text)
    return width if width >= 0 else sum(max(0, wcwidth(char)) for char in text)


def pad(value: object, width: int, align: str = "<") -> str:
    """`str(value)`, padded with spaces to `width` terminal columns; a longer text comes back whole.

    `align` is "<" (text on the left), ">" (on the right) or "^" (in the middle); anything else is a `ValueError`.
    """
    text = str(value)
    space = max(0, width - text_width(text))
    if align == "<":
        return text + " " * space
    if align == ">":
        return " " * space + text
    if align == "^":
        return " " * (space // 2) + text + " " * (space - space // 2)
    raise ValueError(f"align = {align!r} is unknown; choose '<', '>' or '^'")


def print_header(title: object) -> None:
    """Print `title` as the heading of a section, after an empty line and with a rule under it."""
    print(f"\n{title}\n{RULE * max(HEADER_WIDTH, text_width(str(title)))}")


def print_table(headers: Sequence[object], rows: Iterable[Sequence[object]], align: str | None = None) -> None:
    """Print a table: a line of `headers`, a rule, and one line for each row.

    `align` has "<", ">" or "^" for each column; without it the first column is on the left, the others on the right.
    A row or an `align` of another length than `headers` is a `ValueError`.
    """
    cells = [[str(cell) for cell in row] for row in (headers, *rows)]
    n = len(headers)
    align = "<" + ">" * (n - 1) if align is None else align
    if len(align) != n:
        raise ValueError(f"align = {align!r} is for {len(align)} columns, the table has {n}")
    for i, row in enumerate(cells[1:], start=1):
        if len(row) != n:
            raise ValueError(f"row {i} has {len(row)} cells, the table has {n} columns")
    widths = [max(map(text_width, column)) for column in zip(*cells)]
    for i, row in enumerate(cells):
        print(GAP.join(map(pad, row, widths, align)).rstrip())
        if i == 0:
            print(GAP.join(RULE * width for width in widths))
