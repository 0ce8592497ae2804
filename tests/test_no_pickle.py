"""The package never opens a file in a way that can run code: checked on its source, so it holds for every path."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pacefno

SOURCE = Path(pacefno.__file__).parent
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile"}
CALLS |= {"torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"}
CALLS |= {"torch.distributed.checkpoint.load", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"}
FABRIC = {"load", "load_raw", "save"}  # Fabric's checkpoint methods are torch.load and torch.save underneath


def names_of(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: ``np`` is ``numpy``, ``read`` may be ``torch.load``."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and dotted(node.func, {}).rpartition(".")[2] == "import_module":
        return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def dangers(source: str) -> list[str]:
    """Every import and call in a source text that can run code from a file."""
    tree = ast.parse(source)
    names = names_of(tree)
    found = []
    for node in ast.walk(tree):
        for module in imported(node):
            if MODULES & set(module.split(".")) or module in CALLS:
                found.append(f"imports {module}")
        if isinstance(node, ast.Attribute | ast.Name) and dotted(node, names) in CALLS:
            found.append(f"uses {dotted(node, names)}")
        if isinstance(node, ast.Call):
            found += dangerous_call(node, dotted(node.func, names))
    return found


def dangerous_call(call: ast.Call, name: str) -> list[str]:
    *owner, method = name.split(".")
    if method in FABRIC and owner and owner[-1].lower().strip("_") == "fabric":
        return [f"calls {name}"]
    if name == "numpy.load":
        safe = [k for k in call.keywords if k.arg == "allow_pickle" and ast.unparse(k.value) == "False"]
        return [] if safe else ["calls numpy.load without allow_pickle=False"]
    asks = [k for k in call.keywords if k.arg == "weights_only" or (k.arg, ast.unparse(k.value)) == ("allow_pickle", "True")]
    return [f"calls {name} with {k.arg}" for k in asks]


def test_the_package_has_no_way_to_run_code_from_a_file() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert SOURCE / "training" / "store.py" in files
    found = {str(path.relative_to(SOURCE)): dangers(path.read_text()) for path in files}
    assert not {name: what for name, what in found.items() if what}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import dill, json",
        "def f():\n    import joblib",
        "from os import path\nimport shelve",
        "import marshal",
        "from torch.utils import dill",
        "import importlib\nimportlib.import_module('pickle')",
        "import torch\ntorch.load('x', weights_only=True)",
        "import torch as t\nt.save({}, 'x')",
        "from torch import load",
        "from torch import load as read\nread('x')",
        "import torch\nreader = torch.load",
        "import torch.jit\ntorch.jit.load('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
        "from numpy import load\nload('x')",
        "eval('1')",
        "exec('1')",
        "run = eval",
        "import builtins\nbuiltins.exec('1')",
        "__import__('os')",
        "def f(fabric):\n    fabric.load('x')",
        "class A:\n    def f(self):\n        self._fabric.save('x', {})",
    ],
)
def test_a_dangerous_line_is_found(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel.eval()",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "from safetensors.torch import load, save\nload(b'')",
        "import json\njson.load(open('x'))",
        "import re\nre.compile('x')",
        "model.load_state_dict({})",
    ],
)
def test_a_harmless_line_is_left_alone(source: str) -> None:
    assert not dangers(source)
