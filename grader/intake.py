"""Whatever was handed in, turned into the student files of the manifest, or refused with a reason a student understands.

Nothing is ever unpacked to disk, no link is followed, and nothing of a submission is run or imported here. Reading
happens in a process of its own with limits (`take`): an archive or notebook can be made to break its reader.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import lzma
import os
import re
import resource
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from exercises.manifest import load_manifest, student_files
from exercises.paths import EXERCISES
from grader.forked import ChildEnded, in_child
from grader.student import Cell

FILE_BYTES = 256 << 10  # of one student file
NOTEBOOK_BYTES = 200_000_000  # outputs with pictures included
ARCHIVE_BYTES = 64 << 20  # as handed in
ENTRIES = 5_000
TOTAL_BYTES = 256 << 20  # of all that an archive unpacks to
DEPTH = 12  # folders above a student file
_READ_SECONDS = 30
_READ_MEMORY = 2 << 30


class Refused(Exception):
    """The submission, or a file of it, can't be graded.

    `reason` is a stable word; `text`, a dict by language ("en", "zh"), is for the student.
    """

    def __init__(self, reason: str, en: str, zh: str) -> None:
        self.reason = reason
        self.text = {"en": en, "zh": zh}
        super().__init__(reason, en, zh)

    def __str__(self) -> str:
        return self.text["en"]


_LINK = ("is a link; hand in the file itself", "是一个链接；请提交文件本身")
_PACKED_LINK = (
    "is a link or a device in the archive; put the file itself in it",
    "在压缩包中是链接或设备；请放入文件本身",
)
_FOLDER = ("is a folder; it must be a file", "是文件夹；它应该是文件")
_SPECIAL = ("is a device or a pipe; hand in a file", "是设备或管道；请提交文件")
_ENCRYPTED = ("is encrypted; hand in an archive without a password", "已加密；请提交没有密码的压缩包")
_DAMAGED = (
    "the archive is damaged or was not uploaded whole; make it again",
    "压缩包已损坏或没有完整上传；请重新打包",
)
_TOO_MANY = (
    f"it holds more than {ENTRIES:,} files; hand in yours only",
    f"其中的文件超过 {ENTRIES:,} 个；请只提交你自己的文件",
)


def _about(path: str, what: tuple[str, str]) -> tuple[str, str]:
    return f"{path} {what[0]}", f"{path} {what[1]}"


def _too_large(path: str, size: int, limit: int) -> tuple[str, str]:
    return (
        f"{path} has {size:,} bytes; at most {limit:,} are read",
        f"{path} 有 {size:,} 字节；最多读取 {limit:,} 字节",
    )


def _two_of(name: str, entries: list[_Entry]) -> tuple[str, str]:
    paths = sorted(entry.path for entry in entries)
    return (
        f"there are two versions of {name}: {' and '.join(paths)}; keep the one that counts",
        f"{name} 有两个版本：{'、'.join(paths)}；请只保留要评分的那个",
    )


@dataclass
class Submission:
    """What will be graded: the cells of each student file. Files that are missing are not started.

    `refused` are files that were handed in and can't be graded, and why; texts are dicts by language ("en", "zh").
    """

    sources: dict[str, list[Cell]] = field(default_factory=dict)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[dict[str, str]] = field(default_factory=list)

    def note(self, en: str, zh: str) -> None:
        self.notes.append({"en": en, "zh": zh})

    def digests(self) -> dict[str, str]:
        """SHA-256 of each file; of a notebook's, of its cells joined by newlines."""
        return {
            file: hashlib.sha256(b"\n".join(cell.source for cell in cells)).hexdigest()
            for file, cells in self.sources.items()
        }


@dataclass
class _Entry:
    """A file that was handed in: its path as it was given, its size, and how to read it."""

    path: str
    size: int
    read: Callable[[], bytes]

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


def take(path: Path) -> Submission:
    """`read_submission` in a process of its own, with limits on time and memory. Raises `Refused`."""
    try:
        taken = in_child(_read_confined, path, seconds=_READ_SECONDS)
    except ChildEnded as ended:
        raise Refused(
            "unreadable",
            f"{path.name} can't be read: doing so takes more time or memory than it may",
            f"无法读取 {path.name}：所需的时间或内存超过了限制",
        ) from ended
    if isinstance(taken, Refused):
        raise taken
    return taken


def _read_confined(path: Path) -> Submission | Refused:
    with open("/proc/self/statm") as file:
        space = int(file.read().split()[0]) * resource.getpagesize()
    for which, value in ((resource.RLIMIT_AS, space + _READ_MEMORY), (resource.RLIMIT_CPU, _READ_SECONDS)):
        resource.setrlimit(which, (value, value))
    try:
        return read_submission(path)
    except Refused as refusal:
        return refusal
    except (MemoryError, RecursionError):
        os._exit(1)


def read_submission(path: Path) -> Submission:
    """The student files in `path`: a folder, .zip, .tar, .tar.gz, .py or notebook. Raises `Refused`."""
    try:
        found = path.lstat()
    except (OSError, ValueError) as error:
        raise Refused("missing", f"there is nothing called {path.name}", f"找不到 {path.name}") from error
    if stat.S_ISLNK(found.st_mode):
        raise Refused("link", *_about(path.name, _LINK))
    if stat.S_ISDIR(found.st_mode):
        return _from_entries(_folder_entries(path))
    if not stat.S_ISREG(found.st_mode):
        raise Refused("special", *_about(path.name, _SPECIAL))
    suffix = path.name.lower()
    if suffix.endswith((".py", ".ipynb")):
        return _from_entries([_Entry(path.name, found.st_size, lambda: _read_file(path, NOTEBOOK_BYTES))])
    if found.st_size > ARCHIVE_BYTES:
        raise Refused("too large", *_too_large(path.name, found.st_size, ARCHIVE_BYTES))
    data = _read_file(path, ARCHIVE_BYTES)
    if data[:2] == b"\x1f\x8b" or data[257:262] == b"ustar" or suffix.endswith((".tar", ".tar.gz", ".tgz")):
        return _from_entries(_tar_entries(data))
    if data[:2] == b"PK" or suffix.endswith(".zip"):
        return _from_entries(_zip_entries(data))
    raise Refused(
        "unknown",
        f"{path.name} is none of what can be graded: a folder, .zip, .tar.gz, .py or .ipynb",
        f"{path.name} 不是可以评分的类型：文件夹、.zip、.tar.gz、.py 或 .ipynb",
    )


def _from_entries(entries: list[_Entry]) -> Submission:
    wanted = [entry for entry in entries if not _is_litter(entry.path)]
    submission = Submission()
    for file in student_files():
        try:
            entry = _choose(file, wanted)
            if entry is not None:
                submission.sources[file] = [Cell(f"<{file}>", _as_utf8(entry, submission))]
        except Refused as refusal:
            submission.refused[file] = refusal.text
    notebooks = [entry for entry in wanted if entry.name.lower().endswith(".ipynb")]
    for lecture in dict.fromkeys(exercise.lecture for exercise in load_manifest()):
        try:
            _add_notebook(lecture, notebooks, submission)
        except Refused as refusal:
            submission.refused |= {file: refusal.text for file in _without_code(lecture, submission)}
    if not submission.sources:
        names = ", ".join(PurePosixPath(file).name for file in student_files())
        nothing = {
            "en": f"nothing in it is graded: it needs {names}, or a lecture's notebook",
            "zh": f"其中没有可以评分的内容：需要 {names}，或某一讲的 notebook",
        }
        raise Refused("empty", **next(iter(submission.refused.values()), nothing))
    return submission


def _without_code(lecture: str, submission: Submission) -> list[str]:
    """The lecture's student files that are missing, or as they were given out."""
    files = [file for file in student_files() if file.startswith(f"{lecture}/")]
    return [file for file in files if file not in submission.refused and _is_untouched(file, submission)]


def _is_untouched(file: str, submission: Submission) -> bool:
    stub = (EXERCISES / file).read_bytes().split()
    return b"".join(cell.source for cell in submission.sources.get(file, [])).split() in ([], stub)


def _choose(file: str, entries: list[_Entry]) -> _Entry | None:
    """The entry that is meant by `file`: with its lecture's folder above it, or alone. Two of them: `Refused`."""
    lecture, name = file.split("/")
    candidates = [entry for entry in entries if entry.name.lower() == name]
    folders = {entry.path: PurePosixPath(entry.path.lower()).parts[:-1] for entry in candidates}
    candidates = [e for e in candidates if lecture in folders[e.path][-1:]] or candidates
    candidates = [e for e in candidates if not {"solutions", "tests"} & set(folders[e.path])] or candidates
    for entry in candidates:
        if entry.size > FILE_BYTES:
            raise Refused("too large", *_too_large(entry.path, entry.size, FILE_BYTES))
    if len({entry.read() for entry in candidates}) > 1:
        raise Refused("two candidates", *_two_of(name, candidates))
    return candidates[0] if candidates else None


def _is_litter(path: str) -> bool:
    """What operating systems, editors and Jupyter leave beside files."""
    parts = PurePosixPath(path).parts
    return any(part in _LITTER for part in parts[:-1]) or parts[-1].startswith(("._", ".#", "~$"))


_LITTER = ("__MACOSX", "__pycache__", ".ipynb_checkpoints", ".git", ".venv", "venv")


def _as_utf8(entry: _Entry, submission: Submission) -> bytes:
    """The text, still with its declared encoding. UTF-16 and UTF-32, which Python doesn't read, are converted."""
    data = entry.read()
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError as error:
                en, zh = (
                    f"{entry.path} begins like {encoding} and is none",
                    f"{entry.path} 的开头像 {encoding}，但并不是",
                )
                raise Refused("encoding", en, zh) from error
            submission.note(
                f"{entry.name} was read as {encoding}; save it as UTF-8",
                f"{entry.name} 按 {encoding} 读取；请保存为 UTF-8",
            )
            return text.encode()
    return data


# Notebooks


def _add_notebook(lecture: str, notebooks: list[_Entry], submission: Submission) -> None:
    """The code of the lecture's notebook becomes all of its modules, but for those that were handed in filled in."""
    missing = _without_code(lecture, submission)
    own = [entry for entry in notebooks if lecture in entry.path] or [
        entry for entry in notebooks if _speaks_of(lecture, entry)
    ]
    if not own or not missing:
        return
    exact = [entry for entry in own if entry.name == f"{lecture}.ipynb"] or own
    for entry in exact:
        if entry.size > NOTEBOOK_BYTES:
            en, zh = _too_large(entry.path, entry.size, NOTEBOOK_BYTES)
            raise Refused("too large", f"{en}; clear its outputs", f"{zh}；请清除输出")
    if len({entry.read() for entry in exact}) > 1:
        raise Refused("two candidates", *_two_of(f"{lecture}.ipynb", exact))
    cells = list(_code_of(exact[0].read(), exact[0].path, submission))
    submission.sources |= {file: cells for file in missing}


def _speaks_of(lecture: str, entry: _Entry) -> bool:
    """Whether a notebook under a name of its own defines something that the lecture asks for."""
    text = entry.read().decode("utf-8", "replace")
    names = [name for e in load_manifest() if e.lecture == lecture for name in e.names if len(name) > 1]
    return any(re.search(rf"(def|class) {name}\b", text) for name in names)


def _code_of(data: bytes, path: str, submission: Submission) -> Iterator[Cell]:
    """The student's code cells in order. Set-up and check cells are left out, magics dropped with a note."""
    exercises = {exercise.id for exercise in load_manifest()}
    seen: set[str] = set()
    size = 0
    for number, cell in enumerate(_cells(data, path), 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        metadata = cell.get("metadata")
        nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
        grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
        grade_id = grade_id if isinstance(grade_id, str) else ""
        if grade_id == "setup" or grade_id.endswith("-check"):
            continue
        source = cell.get("source", "")
        text = "".join(part for part in source if isinstance(part, str)) if isinstance(source, list) else source
        if not isinstance(text, str):
            submission.note(f"cell {number} holds no text and was left out", f"第 {number} 个单元格没有文本，已略过")
            continue
        text, dropped = _without_magics(text)
        if dropped:
            what = ", ".join(dropped[:3])
            submission.note(
                f"cell {number}: left out what only a notebook runs ({what})",
                f"第 {number} 个单元格：略过了只有 notebook 才能运行的内容（{what}）",
            )
        if grade_id in exercises and grade_id in seen:
            submission.note(
                f"cell {number} is a second {grade_id}; what it defines counts",
                f"第 {number} 个单元格是又一个 {grade_id}；以它的定义为准",
            )
        seen.add(grade_id)
        encoded = text.encode("utf-8", "replace")
        size += len(encoded)
        if size > FILE_BYTES:
            raise Refused("too large", *_too_large(path, size, FILE_BYTES))
        yield Cell(f"<{grade_id if grade_id in exercises else f'cell {number}'}>", encoded)


def _cells(data: bytes, path: str) -> list:
    """The cells of a notebook of format 3 or later."""
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        en, zh = f"{path} is no notebook: it is not UTF-8", f"{path} 不是 notebook：它不是 UTF-8 编码"
        raise Refused("notebook", en, zh) from error
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        raise Refused(
            "notebook",
            f"{path} is damaged: it is no JSON{f' (line {line})' if line else ''}; open and save it in Jupyter",
            f"{path} 已损坏：不是 JSON{f'（第 {line} 行）' if line else ''}；请在 Jupyter 中打开并保存",
        ) from error
    if not isinstance(notebook, dict):
        raise Refused("notebook", f"{path} is no notebook", f"{path} 不是 notebook")
    if isinstance(notebook.get("worksheets"), list):  # format 3
        sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
        old = [cell for sheet in sheets for cell in sheet.get("cells", []) if isinstance(cell, dict)]
        return [cell | {"source": cell.get("input", "")} if cell.get("cell_type") == "code" else cell for cell in old]
    if not isinstance(notebook.get("cells"), list):
        raise Refused("notebook", f"{path} has no cells", f"{path} 没有单元格")
    return notebook["cells"]


def _without_magics(text: str) -> tuple[str, list[str]]:
    """The cell's Python, with as many lines as before, and the magics and shell commands that were taken out of it.

    A cell magic takes its whole cell with it, unless it only measures what the cell does.
    """
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[first].startswith("%%"):
        word = lines[first].split()[0]
        if word not in ("%%time", "%%timeit", "%%capture"):
            return "\n" * (len(lines) - 1), [word]
        rest, dropped = _without_magics("\n".join(["", *lines[first + 1 :]]))
        return "\n" * first + rest, [word, *dropped]
    kept, dropped, quote = [], [], ""
    for line in lines:
        bare = line.strip()
        if not quote and (bare.startswith(("%", "!", "?")) or re.fullmatch(r"[\w.]+\?{1,2}", bare)):
            dropped.append(bare.split()[0])
            indent = line[: len(line) - len(line.lstrip())]
            kept.append(f"{indent}pass")
        else:
            kept.append(line)
        for mark in re.findall(r'"""|\'\'\'', line):
            quote = mark if not quote else ("" if quote == mark else quote)
    return "\n".join(kept), dropped


# Folders and archives


def _folder_entries(folder: Path) -> list[_Entry]:
    """Regular files below `folder`, without following a link."""
    entries: list[_Entry] = []
    waiting = [(folder, "", 0)]
    while waiting:
        current, prefix, depth = waiting.pop()
        try:
            found = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError:
            continue  # a folder without permission to read it
        for item in found:
            path = f"{prefix}{item.name}"
            if item.is_symlink():
                entries.append(_refused(path, "link", _LINK))
            elif item.is_dir(follow_symlinks=False):
                if item.name.endswith((".py", ".ipynb")):
                    entries.append(_refused(path, "special", _FOLDER))
                if depth < DEPTH and item.name not in _LITTER:
                    waiting.append((Path(item.path), f"{path}/", depth + 1))
            elif item.is_file(follow_symlinks=False):
                size = item.stat(follow_symlinks=False).st_size
                entries.append(_Entry(path, size, _reader_of(Path(item.path), path)))
            else:
                entries.append(_refused(path, "special", _SPECIAL))
            if len(entries) > ENTRIES:
                raise Refused("too many", *_TOO_MANY)
    return entries


def _reader_of(path: Path, shown: str) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            return _read_file(path, NOTEBOOK_BYTES)
        except OSError as error:
            en, zh = f"{shown} can't be read: {error.strerror}", f"无法读取 {shown}：{error.strerror}"
            raise Refused("unreadable", en, zh) from error

    return read


def _read_file(path: Path, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        return file.read(limit + 1)


def _refused(path: str, reason: str, what: tuple[str, str]) -> _Entry:
    """What stands where a file should: it is refused if anybody wants to read it."""

    def read() -> bytes:
        raise Refused(reason, *_about(path, what))

    return _Entry(path, 0, read)


def _checked_path(path: str) -> str:
    """An archive member's path with forward slashes. One that leaves the archive: `Refused`."""
    plain = path.replace("\\", "/")
    parts = plain.split("/")
    if plain.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", plain) or "\0" in plain:
        shown = ascii(path[:100])
        raise Refused("path", f"the archive holds a path that leaves it: {shown}", f"压缩包中有指向包外的路径：{shown}")
    return "/".join(part for part in parts if part not in ("", "."))


class _Budget:
    """Counts what an archive unpacks to."""

    def __init__(self, archive: int) -> None:
        self.entries = 0
        self.total = 0
        self.archive = archive

    def add(self, size: int) -> None:
        self.entries += 1
        self.total += max(0, size)
        if self.entries > ENTRIES:
            raise Refused("too many", *_TOO_MANY)
        if self.total > TOTAL_BYTES or (self.total > 32 << 20 and self.total > 200 * self.archive):
            raise Refused(
                "bomb",
                "the archive unpacks to far more than a submission can hold",
                "压缩包解压后远远超过一份作业的大小",
            )


def _zip_entries(data: bytes) -> list[_Entry]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
        raise Refused("damaged", *_DAMAGED) from error
    budget = _Budget(len(data))
    entries = []
    for info in archive.infolist():
        path = _checked_path(info.filename)
        budget.add(info.file_size)
        mode = info.external_attr >> 16
        if info.is_dir() or not path:
            continue
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            entries.append(_refused(path, "link", _PACKED_LINK))
        elif info.flag_bits & 1:
            entries.append(_refused(path, "encrypted", _ENCRYPTED))
        else:
            entries.append(_Entry(path, info.file_size, _zip_reader(archive, info, path)))
    return entries


def _zip_reader(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(info) as file:
                return file.read(NOTEBOOK_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            en, zh = f"{path} is damaged in the archive; make it again", f"压缩包中的 {path} 已损坏；请重新打包"
            raise Refused("damaged", en, zh) from error

    return read


def _tar_entries(data: bytes) -> list[_Entry]:
    entries = []
    budget = _Budget(len(data))
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            for member in archive:
                path = _checked_path(member.name)
                budget.add(member.size if member.isreg() else 0)
                if member.isreg():
                    kept = b""
                    if (
                        member.size <= NOTEBOOK_BYTES
                        and not _is_litter(path)
                        and path.lower().endswith((".py", ".ipynb"))
                    ):
                        file = archive.extractfile(member)
                        kept = file.read() if file else b""
                    entries.append(_Entry(path, member.size, partial(bytes, kept)))
                elif not member.isdir():
                    entries.append(_refused(path, "link", _PACKED_LINK))
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        raise Refused("damaged", *_DAMAGED) from error
    return entries
