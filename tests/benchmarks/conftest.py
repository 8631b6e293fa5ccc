"""A project's checkout to plug in, and the real command run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

MODEL = """\
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n = c.n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(c.n_embd), nn.LayerNorm(c.n_embd)
        attn = {"c_attn": nn.Linear(c.n_embd, 3 * c.n_embd), "c_proj": nn.Linear(c.n_embd, c.n_embd)}
        mlp = {"c_fc": nn.Linear(c.n_embd, 4 * c.n_embd), "c_proj": nn.Linear(4 * c.n_embd, c.n_embd)}
        self.attn, self.mlp = nn.ModuleDict(attn), nn.ModuleDict(mlp)

    def forward(self, x):
        B, T, C = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(C, 2)
        q, k, v = (part.view(B, T, self.n, C // self.n).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.block_size, c.n_embd)
        self.h, self.ln_f = nn.ModuleList(Block(c) for _ in range(c.n_layer)), nn.LayerNorm(c.n_embd)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


def build(config):
    return Model(config)


def optimizer(model, config):
    how = dict(lr=config.learning_rate, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)
    return torch.optim.AdamW(model.parameters(), foreach=False, **how)
"""


@dataclass(frozen=True)
class Ran:
    """What a run of the command left behind."""

    code: int
    out: Path
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out.read_text())

    @property
    def result(self) -> dict[str, Any]:
        return self.document["results"][0]

    def metric(self, name: str) -> dict[str, Any]:
        return next(m for m in self.result["measurements"] if m["metric"] == name)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small project, `loom`, whose model can be plugged in; it has a `benchmarks/` folder of its own, as many do."""
    package = tmp_path / "checkout" / "loom"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text(MODEL)
    (tmp_path / "checkout" / "benchmarks").mkdir()
    (tmp_path / "checkout" / "benchmarks" / "__init__.py").write_text("raise ImportError('not this one')\n")
    return tmp_path / "checkout"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Ran]:
    """Runs `python -m benchmarks …` as a worker would: in a checkout, with variables of its own."""

    def run(*arguments: str, cwd: Path | None = None, **variables: str) -> Ran:
        out = tmp_path / "out" / "run.json"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
        environment |= {"PYTHONPATH": str(ROOT), "TIDEMARK_RUN_JSON": str(out), **variables}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "benchmarks", *arguments],
            cwd=cwd or tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        return Ran(done.returncode, out, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def run_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs any command of the suite, where nothing of a checkout matters."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")} | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-P", "-m", "benchmarks", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)

    return run


@pytest.fixture(scope="session")
def gpt_source() -> str:
    """A model that can be plugged in, as text."""
    return MODEL


@pytest.fixture
def variation(checkout: Path) -> Callable[[str, str, str], str]:
    """Writes the checkout's model with one thing changed; returns what --implementation takes."""

    def write(name: str, old: str, new: str) -> str:
        assert old in MODEL
        (checkout / "loom" / f"{name}.py").write_text(MODEL.replace(old, new))
        return f"loom.{name}:build"

    return write
