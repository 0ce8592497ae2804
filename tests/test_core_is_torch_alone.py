"""The core needs torch and nothing else: shown by taking everything else away."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# What torch itself imports, then or later.
OF_TORCH = [
    "torch",
    "torchgen",
    "functorch",
    "numpy",
    "sympy",
    "mpmath",
    "filelock",
    "jinja2",
    "markupsafe",
    "networkx",
    "typing_extensions",
    "fsspec",
    "packaging",
    "setuptools",
    "optree",
]

HIDE = """
import importlib.metadata
import sys

THIRD_PARTY = set(importlib.metadata.packages_distributions()) - {"pacefno"}
ALLOWED = set(OF_TORCH)


class Hiding:
    # A finder that does not find what is hidden, as if it had never been installed.

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top == "fcntl" or (top in THIRD_PARTY and top not in ALLOWED):
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
sys.modules.pop("fcntl", None)
""".replace("OF_TORCH", repr(sorted(OF_TORCH)))

USE = """
import torch
import pacefno

torch.manual_seed(0)
group = pacefno.Galilean(2)
operator = pacefno.FNO(2, 3, 3, width=8, modes=4, positions="grid")
model = pacefno.PACE(
    operator, group, channels="u v: velocity, p: scalar", horizon=0.5, lengths=6.28
)
field = torch.randn(2, 3, 24, 24)
pacefno.testing.assert_equivariant(model.eval(), group, field)
assert float(pacefno.metrics.equivariance_error(operator, group, field, channels=model.input.text,
                                                horizon=0.5, lengths=6.28).max()) > 1e-4
pacefno.testing.group_laws(group, model.input)

from pacefno.losses import Weights, objective

model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
target = torch.roll(field, 3, dims=2)
true = group.identity(2)
losses = []
for _ in range(5):
    prediction = model.predict(field)
    loss, _ = objective(group, model.output, prediction.values, target, prediction.frame.xi, true,
                        Weights(h1=0.1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
assert losses[-1] < losses[0], losses
print("done")
"""


def run(script: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_model_is_wrapped_checked_and_trained_with_torch_alone() -> None:
    assert run(HIDE + USE).strip() == "done"


@pytest.mark.parametrize("name", ["pydantic", "safetensors.torch", "h5py", "rich", "fcntl"])
def test_the_test_itself_would_notice(name: str) -> None:
    """What is hidden cannot be imported, neither by us nor by what we import."""
    script = HIDE + textwrap.dedent(
        f"""
        try:
            import {name}
        except ImportError:
            print("refused")
        """
    )
    assert run(script).strip() == "refused"


LIST = """
import importlib.metadata, sys
known = set(importlib.metadata.packages_distributions())


def packages():
    return {name.partition(".")[0] for name in sys.modules} & known - {"pacefno"}
"""


def test_importing_the_package_imports_nothing_else() -> None:
    script = LIST + "before = packages()\nimport pacefno\nprint(packages() - before)\n"
    assert run(script).strip() == "set()"
    listed = run("import pacefno; print('PACE' in dir(pacefno), len(dir(pacefno)) > 10)")
    assert listed.split() == ["True", "True"]


def test_what_is_public_imports_no_more_than_torch_does() -> None:
    names = "PACE FNO GroupFNO Translation Galilean Euclidean PointGroup Field FieldType Box"
    touched = "; ".join(f"pacefno.{name}" for name in [*names.split(), "metrics", "testing"])
    script = f"""{LIST}
import torch, torch.fft, torch.nn, torch.optim
before = packages()
import pacefno
{touched}
print(*(packages() - before), "|", *(n for n in sys.modules if n.startswith("pacefno.")))
"""
    extra, _, modules = run(script).partition("|")
    assert extra.split() == []
    rooms = {name.split(".")[1] for name in modules.split()}
    assert {"pace", "metrics", "testing", "operators"} <= rooms
    core = {"errors", "fields", "frames", "grid", "groups", "metrics", "operators", "pace"}
    assert rooms <= core | {"losses", "registry", "testing"}


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    script = "import pacefno\ntry:\n    pacefno.Pace\nexcept AttributeError as e:\n    print(e)"
    assert "module 'pacefno' has no attribute 'Pace'" in run(script)
