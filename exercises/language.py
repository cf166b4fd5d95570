"""English or Chinese: which one a person reads, and the words for both."""

from __future__ import annotations

import contextlib
import locale
import os

LANGUAGES = ("en", "zh")


def default_language() -> str:
    """ "zh" where the environment's locale is Chinese, else "en"."""
    names = [os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    with contextlib.suppress(ValueError):  # a locale that Python can't parse names no language
        names.append(locale.getlocale()[0] or "")
    first = next((name for name in names if name), "")
    return "zh" if first.lower().startswith(("zh", "chinese")) else "en"
