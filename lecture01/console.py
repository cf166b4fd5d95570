"""Lecture 1: headings and tables whose columns line up in a terminal, Chinese text included."""

from __future__ import annotations

from wcwidth import wcswidth, wcwidth


def _columns(text: str) -> int:
    """Terminal columns that `text` takes; control characters take none."""
    width = wcswidth(text)
    return width if width >= 0 else sum(max(wcwidth(char), 0) for char in text)


def pad(value, width: int, align: str = "<") -> str:
    """`str(value)` padded with spaces to `width` terminal columns; a CJK or full-width character takes two.

    `align` is "<", ">" or "^" as in format strings; anything else is a `ValueError`. Longer text comes back whole.
    """
    text = str(value)
    missing = max(width - _columns(text), 0)
    if align == "<":
        return text + " " * missing
    if align == ">":
        return " " * missing + text
    if align == "^":
        return " " * (missing // 2) + text + " " * (missing - missing // 2)
    raise ValueError(f"align = {align!r} is unknown; choose one of <, >, ^")


def print_header(title) -> None:
    """A section heading with a rule under it."""
    print(f"\n{title}\n{'─' * max(_columns(str(title)), 60)}")


def print_table(headers: list, rows: list[list], align: str | None = None) -> None:
    """Rows under headers, in columns that line up. `align` has one of "<", ">", "^" a column (default "<>>…")."""
    align = align or "<" + ">" * (len(headers) - 1)
    widths = [max(_columns(str(cell)) for cell in column) for column in zip(headers, *rows)]
    for row in (headers, ["─" * width for width in widths], *rows):
        print("  ".join(pad(cell, width, side) for cell, width, side in zip(row, widths, align)).rstrip())
