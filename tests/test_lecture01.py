"""The single-device world: console, text, tokenizer, model, and the base model's checkpoint."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
LECTURE = ROOT / "lecture01"
sys.path.insert(0, str(LECTURE))

import checkpoint
import tiny_gpt
import train_base_model
from console import pad, print_header, print_table, text_width
from fm_world import ALPHABET, build_world
from tiny_gpt import CharTokenizer, TinyGPT, bits_per_char, load_or_train_base_model


@pytest.fixture(autouse=True)
def one_thread():
    """A second thread gains nothing on models this small, and waits for the first when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Console


@pytest.mark.parametrize(
    ("value", "align", "padded"),
    [
        ("ab", "<", "ab    "),
        ("ab", ">", "    ab"),
        ("ab", "^", "  ab  "),
        ("abc", "^", " abc  "),
        ("张量", "<", "张量  "),
        ("张量", ">", "  张量"),
        ("张量", "^", " 张量 "),
        (3.5, ">", "   3.5"),
        ("longer than six", "<", "longer than six"),
        ("张量并行", "^", "张量并行"),
        ("a\x1bb", "<", "a\x1bb    "),
        ("e\u0301", ">", "     e\u0301"),
    ],
)
def test_pad(value, align, padded):
    assert pad(value, 6, align) == padded


def test_pad_refuses_other_alignments():
    with pytest.raises(ValueError, match="left"):
        pad("a", 3, "left")


def test_print_header(capsys):
    print_header("张量并行")
    blank, title, rule = capsys.readouterr().out.splitlines()
    assert (blank, title) == ("", "张量并行")
    assert text_width(rule) >= text_width(title)


def test_print_table_lines_up(capsys):
    print_table(["变体", "bits", "差"], [["基线", 1.25, 0], ["rotary 位置", 0.5, "+0.75"]])
    assert capsys.readouterr().out.splitlines() == [
        "变体         bits     差",
        "───────────  ────  ─────",
        "基线         1.25      0",
        "rotary 位置   0.5  +0.75",
    ]


def test_print_table_alignment_and_errors(capsys):
    print_table(["ab", "c"], [["1", "two"]], align="><")
    assert capsys.readouterr().out.splitlines() == ["ab  c", "──  ───", " 1  two"]
    print_table(["a"], [])
    assert capsys.readouterr().out.splitlines() == ["a", "─"]
    with pytest.raises(ValueError, match="2"):
        print_table(["a", "b"], [], align="<")
    with pytest.raises(ValueError, match="row 2 has 1"):
        print_table(["a", "b"], [[1, 2], [1]])


# World


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_world_of_seed_0_never_changes():
    world = build_world()
    assert sha256(world.train_text()) == "ba6d10e2bea09c29bf2f41f58c55d7f81ac98d86333761ee83b9a000a925a869"
    assert sha256(world.val_text()) == "1b49e5fd95520a5047dcb3f8b77ca7418eda73cd5da2547b5a1e28dc53669cae"


def test_world_does_not_depend_on_hash_order():
    program = "import fm_world; w = fm_world.build_world(3); print(w.train_text() + w.val_text(), end='')"
    world = build_world(3)
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(LECTURE)}
        out = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert out.stdout == world.train_text() + world.val_text()


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 1000, 2**70])
def test_world_of_any_seed(seed):
    world = build_world(seed)
    train, val = world.train_text(), world.val_text()
    assert set(train + val) <= set(ALPHABET)
    assert 200_000 <= len(train) < 200_200
    assert 10_000 <= len(val) < 10_200
    shared = set(val.splitlines()) & set(train.splitlines())
    assert len(shared) == 0, "val_text says that none of its lines stands in the training text"
    for entry in world.people + world.places:
        for fact in entry.facts.values():
            assert fact in train, "each fact can be learned"


def test_world_alphabet_and_seeds():
    assert len(set(ALPHABET)) == len(ALPHABET) == 78
    assert set(build_world().train_text()) == set(ALPHABET)
    assert len({build_world(seed).train_text() for seed in range(5)}) == 5
    for seed in (-1, 1.5, None, "0"):
        with pytest.raises(ValueError, match="seed"):
            build_world(seed)


def test_world_is_built_fast():
    assert min(seconds(build_world) for _ in range(5)) < 0.1


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# Tokenizer and model


def test_tokenizer():
    tok = CharTokenizer(ALPHABET)
    text = build_world().val_text()
    ids = tok.encode(text)
    assert tok.decode(ids) == text
    assert tok.decode(torch.tensor(ids)) == text
    assert tok.vocab_size == len(ALPHABET)
    assert [ALPHABET[i] for i in tok.encode("Ab1\n")] == list("Ab1\n")
    with pytest.raises(ValueError, match=r"'é' at position 3"):
        tok.encode("cafés")
    with pytest.raises(ValueError, match=r"id 78 at position 1"):
        tok.decode([0, 78])
    with pytest.raises(ValueError, match="twice"):
        CharTokenizer("abca")


def test_model_logits_and_context():
    model = TinyGPT(11)
    idx = torch.randint(11, (3, 128), generator=torch.Generator().manual_seed(0))
    logits = model(idx)
    assert logits.shape == (3, 128, 11)
    assert logits.is_contiguous()
    assert torch.allclose(model(idx[:, :50]), logits[:, :50], atol=1e-4), "causal"
    with pytest.raises(ValueError, match=r"129.*128"):
        model(torch.zeros(1, 129, dtype=torch.int64))


def test_bits_per_char_equals_a_naive_loop():
    model = TinyGPT(11, d_model=8, n_heads=2, n_layers=1, d_ff=8, context=16).double()
    data = torch.randint(11, (40 * 7 + 5,), generator=torch.Generator().manual_seed(0))
    bits = []
    with torch.no_grad():
        for start in range(0, 40 * 7, 7):
            probabilities = F.softmax(model(data[None, start : start + 7])[0], dim=-1)
            bits += [-float(probabilities[i, data[start + i + 1]].log2()) for i in range(7)]
    model.train()
    assert bits_per_char(model, data, T=7) == pytest.approx(sum(bits) / len(bits), rel=1e-12)
    assert model.training
    with pytest.raises(ValueError, match=r"7 characters .* T = 7 .* 8"):
        bits_per_char(model, data[:7], T=7)


# The shipped base model


def test_shipped_model(capsys):
    world, tok = build_world(), CharTokenizer(ALPHABET)
    state = torch.get_rng_state()
    model, info = load_or_train_base_model(world, tok)
    assert capsys.readouterr().err == "", "nothing to report"
    assert torch.equal(torch.get_rng_state(), state)
    assert info["source"] == "shipped"
    assert info["path"] == LECTURE / "base_model.safetensors"
    assert info["steps"] == train_base_model.STEPS
    assert info["fingerprint"] == checkpoint.fingerprint(world.train_text(), world.val_text(), ALPHABET, model)
    val = torch.tensor(tok.encode(world.val_text()))
    assert info["val_bits_per_char"] == pytest.approx(bits_per_char(model, val), abs=1e-4)
    assert not model.training
    assert all(p.requires_grad and p.grad is None and p.dtype == torch.float32 for p in model.parameters())


def test_shipped_model_loads_fast():
    tok = CharTokenizer(ALPHABET)
    assert min(seconds(lambda: load_or_train_base_model(build_world(), tok)) for _ in range(5)) < 0.1


def test_the_base_model_knows_its_world():
    world, tok = build_world(), CharTokenizer(ALPHABET)
    model, _ = load_or_train_base_model(world, tok)
    for person in world.people:
        beginning, answer = f"\n{person.full} ", person.facts["job"]
        ids = tok.encode(beginning + answer[: len("works as a ")])
        for _ in answer[len("works as a ") :]:
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        assert tok.decode(ids) == beginning + answer


# Checkpoints, with a world and a training that take no time

WORLD = SimpleNamespace(train_text=lambda: "abcd" * 100, val_text=lambda: "dcba" * 50)
TOK = CharTokenizer("abcd")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """A cache folder of the test's own, in which no temporary file may be left."""
    monkeypatch.setattr(tiny_gpt, "CACHE", tmp_path / "cache")
    yield
    assert not list(tmp_path.rglob("*.tmp")), "a temporary file is left"


@pytest.fixture
def base(monkeypatch, tmp_path):
    """Where the shipped checkpoint of WORLD stands, trained for two steps; and its model."""
    monkeypatch.setattr(train_base_model, "STEPS", 2)
    monkeypatch.setattr(train_base_model, "BATCH_SIZE", 2)
    monkeypatch.setattr(tiny_gpt, "SHIPPED", tmp_path / "base_model.safetensors")
    model, metadata = train_base_model.train_base_model(WORLD, TOK)
    checkpoint.save(tiny_gpt.SHIPPED, model.state_dict(), metadata)
    return SimpleNamespace(path=tiny_gpt.SHIPPED, model=model, state=model.state_dict(), metadata=metadata)


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_sources(base, capsys):
    model, info = load_or_train_base_model(WORLD, TOK)
    assert (info["source"], info["path"]) == ("shipped", base.path)
    assert same(model, base.model)

    base.path.unlink()
    capsys.readouterr()
    trained, info = load_or_train_base_model(WORLD, TOK)
    assert info["source"] == "trained"
    assert same(trained, base.model), "training depends on nothing but the world"
    assert not trained.training
    assert all(p.requires_grad and p.grad is None for p in trained.parameters())
    assert "Training the base model" in capsys.readouterr().err

    cached, cached_info = load_or_train_base_model(WORLD, TOK)
    assert cached_info == info | {"source": "cache"}
    assert same(cached, base.model)
    assert capsys.readouterr().err == ""
    val = torch.tensor(TOK.encode(WORLD.val_text()))
    assert info["val_bits_per_char"] == pytest.approx(bits_per_char(cached, val), abs=1e-6)


@pytest.mark.parametrize("what", ["world", "alphabet"])
def test_another_world_or_tokenizer(base, capsys, what):
    world, tok = WORLD, TOK
    if what == "world":
        world = SimpleNamespace(train_text=WORLD.train_text, val_text=lambda: "abca" * 50)
    else:
        tok = CharTokenizer("abdc")
    _, info = load_or_train_base_model(world, tok)
    assert info["source"] == "trained"
    assert info["fingerprint"] != base.metadata["fingerprint"]
    assert "another world, tokenizer or model, so this checkpoint is not used" in capsys.readouterr().err
    assert load_or_train_base_model(world, tok)[1]["source"] == "cache"


def flipped(raw: bytes, position: int) -> bytes:
    changed = bytearray(raw)
    changed[position] ^= 4
    return bytes(changed)


DAMAGES = {
    "empty": lambda raw: b"",
    "few bytes": lambda raw: raw[:5],
    "cut in the header": lambda raw: raw[:200],
    "cut in the tensors": lambda raw: raw[:-1000],
    "too long": lambda raw: raw + b"\0",
    "header length": lambda raw: flipped(raw, 1),
    "header": lambda raw: flipped(raw, 8),
    "metadata": lambda raw: raw.replace(b'"steps":"2"', b'"steps":"3"'),
    "tensor name": lambda raw: raw.replace(b"blocks.0.ln1.bias", b"blocks.0.ln3.bias"),
    "first weight": lambda raw: flipped(raw, 8 + int.from_bytes(raw[:8], "little")),
    "last weight": lambda raw: flipped(raw, -1),
    "text": lambda raw: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "list as header": lambda raw: (2).to_bytes(8, "little") + b"[]",
    "deep header": lambda raw: (100_000).to_bytes(8, "little") + b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_checkpoint(base, capsys, damage):
    raw = base.path.read_bytes()
    assert damage(raw) != raw
    base.path.write_bytes(damage(raw))
    with pytest.raises(checkpoint.DamagedCheckpoint):
        checkpoint.load(base.path, base.metadata["fingerprint"], base.state)
    capsys.readouterr()
    model, info = load_or_train_base_model(WORLD, TOK)
    assert info["source"] == "trained"
    assert same(model, base.model)
    error = capsys.readouterr().err
    assert error.count("so this checkpoint is not used") == 1
    assert f"{base.path} is damaged" in error

    cached = Path(info["path"])
    cached.write_bytes(damage(raw))
    assert load_or_train_base_model(WORLD, TOK)[1]["source"] == "trained"
    assert load_or_train_base_model(WORLD, TOK)[1]["source"] == "cache", "a damaged file in the cache is replaced"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda s: s.pop("ln_f.bias"), checkpoint.ForeignCheckpoint, "ln_f.bias"),
        (lambda s: s.update(extra=torch.zeros(1)), checkpoint.ForeignCheckpoint, "extra"),
        (lambda s: s.update({"ln_f.bias": torch.zeros(63)}), checkpoint.ForeignCheckpoint, r"\(63,\)"),
        (lambda s: s.update({"ln_f.bias": torch.zeros(64).double()}), checkpoint.ForeignCheckpoint, "float64"),
        (lambda s: s["ln_f.bias"][3:4].fill_(math.nan), checkpoint.DamagedCheckpoint, "not finite"),
        (lambda s: s["tok_emb.weight"][0].fill_(math.inf), checkpoint.DamagedCheckpoint, "not finite"),
    ],
)
def test_wrong_tensors_with_the_right_digest(base, capsys, change, error, words):
    state = {name: tensor.clone() for name, tensor in base.state.items()}
    change(state)
    checkpoint.save(base.path, state, base.metadata)
    with pytest.raises(error, match=words):
        checkpoint.load(base.path, base.metadata["fingerprint"], base.state)
    model, info = load_or_train_base_model(WORLD, TOK)
    assert info["source"] == "trained"
    assert same(model, base.model), "nothing of the refused file is in the model"


def test_safetensors_file_of_somebody_else(base):
    base.path.write_bytes(checkpoint.safetensors.save(base.state))
    with pytest.raises(checkpoint.ForeignCheckpoint):
        checkpoint.load(base.path, base.metadata["fingerprint"], base.state)


def test_checkpoint_without_its_figures(base, capsys):
    for metadata in ({}, {"val_bits_per_char": "few", "steps": "2"}):
        checkpoint.save(base.path, base.state, {"fingerprint": base.metadata["fingerprint"]} | metadata)
        assert load_or_train_base_model(WORLD, TOK)[1]["source"] != "shipped"
        assert f"{base.path} does not say how its model was trained" in capsys.readouterr().err


def test_unreadable_and_unwritable(base, capsys, monkeypatch, tmp_path):
    base.path.unlink()
    base.path.mkdir()  # a folder can't be read as a file
    (tmp_path / "file").touch()
    monkeypatch.setattr(tiny_gpt, "CACHE", tmp_path / "file" / "cache")
    model, info = load_or_train_base_model(WORLD, TOK)
    assert (info["source"], info["path"]) == ("trained", None)
    assert same(model, base.model)
    assert "can't be cached" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["write_bytes", "replace"])
def test_interrupted_save_leaves_the_old_file(base, monkeypatch, moment):
    before = base.path.read_bytes()

    def write_half(path, raw):
        path.open("wb").write(raw[:1000])
        raise KeyboardInterrupt

    def interrupt(*args):
        raise KeyboardInterrupt

    if moment == "replace":
        monkeypatch.setattr(os, "replace", interrupt)
    else:
        monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(base.path, base.state, base.metadata | {"steps": "99"})
    assert os.listdir(base.path.parent) == [base.path.name]
    assert base.path.read_bytes() == before


def test_interrupted_training_leaves_nothing(base, monkeypatch):
    base.path.unlink()
    torch.set_num_threads(2)
    state = torch.get_rng_state()

    def interrupt(step, steps):
        if step == 1:
            raise KeyboardInterrupt
        return 1e-3

    monkeypatch.setattr(train_base_model, "learning_rate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_or_train_base_model(WORLD, TOK)
    assert not tiny_gpt.CACHE.exists()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2


def test_target_held_open_by_another_process(base, monkeypatch):
    """As on Windows: fine if the other process has just written the same model, an error if not."""

    def refuse(source, target):
        raise PermissionError(13, "in use", str(target))

    monkeypatch.setattr(os, "replace", refuse)
    checkpoint.save(base.path, base.state, base.metadata)
    with pytest.raises(PermissionError):
        checkpoint.save(base.path.with_name("missing.safetensors"), base.state, base.metadata)
    base.path.write_bytes(base.path.read_bytes()[:-1])
    with pytest.raises(PermissionError):
        checkpoint.save(base.path, base.state, base.metadata)


TWO_AT_ONCE = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
import checkpoint, fm_world, tiny_gpt
tok = tiny_gpt.CharTokenizer(fm_world.ALPHABET)
assert tiny_gpt.load_or_train_base_model(fm_world.build_world(), tok)[1]["source"] == "shipped"
assert "rich" not in sys.modules, "loading is fast because it imports nothing that only training needs"
import train_base_model
folder = Path(sys.argv[1])
tiny_gpt.SHIPPED, tiny_gpt.CACHE, train_base_model.STEPS = folder / "none", folder / "cache", 2
train_base_model.BATCH_SIZE = 2
world = SimpleNamespace(train_text=lambda: "abcd" * 100, val_text=lambda: "dcba" * 50)
(folder / sys.argv[2]).touch()
while len(list(folder.glob("ready*"))) < 2:
    time.sleep(0.01)
model, info = tiny_gpt.load_or_train_base_model(world, tiny_gpt.CharTokenizer("abcd"))
for _ in range(50):
    metadata = {"fingerprint": info["fingerprint"], "val_bits_per_char": "1.0", "steps": sys.argv[2][-1]}
    checkpoint.save(info["path"], model.state_dict(), metadata)
    checkpoint.load(info["path"], info["fingerprint"], model.state_dict())
"""


def test_two_processes_at_once(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(LECTURE)}
    command = [sys.executable, "-c", TWO_AT_ONCE, str(tmp_path)]
    pair = [subprocess.Popen([*command, f"ready{i}"], env=environment, stderr=subprocess.PIPE) for i in (1, 2)]
    for process in pair:
        assert process.communicate(timeout=120)[1].count(b"Traceback") == 0
        assert process.returncode == 0
    (file,) = (tmp_path / "cache").iterdir()
    fresh = TinyGPT(TOK.vocab_size)
    fingerprint = checkpoint.fingerprint(WORLD.train_text(), WORLD.val_text(), "abcd", fresh)
    checkpoint.load(file, fingerprint, fresh.state_dict())
