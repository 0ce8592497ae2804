"""The site: `make docs` runs Sphinx with this file. No page needs a network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

import pacefno

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402  (beside this file)

project, author = "pacefno", "the authors of pacefno"
copyright = "the authors of pacefno, MIT licence"
release = version = pacefno.__version__
root_doc = "index"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["models", "gallery/*.py", "gallery/*.ipynb", "gallery/GALLERY_HEADER.rst"]
myst_heading_anchors = 4  # the anchors that GitHub makes

# --- reference: from docstrings; reference.py writes one page a room from its public names
reference.write_pages(HERE / "api")
default_role = "code"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
python_maximum_signature_line_length = 80
add_module_names = False
napoleon_numpy_docstring = False
autosummary_generate = False

# --- gallery: scripts of examples/, run while the site is built; one that fails ends the build
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "matplotlib_animations": (True, "jshtml"),
    "show_signature": False,
    "write_computation_times": False,
}

# --- looks
html_theme = "furo"
html_title = f"pacefno {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

# --- the explorer: one page of its own, which `make explorer` writes; embedded where it is there
EXPLORER = HERE.parent / "build" / "explorer.html"
FRAME = """
```{{raw}} html
<p><a href="{path}">Open it in a page of its own</a></p>
<iframe class="explorer" src="{path}" title="Explorer" loading="lazy"></iframe>
```
"""
MISSING = """
```{note}
The explorer was not built with this copy of the site: `make explorer` makes it, and `make docs`
then puts it here.
```
"""


def embed_explorer(app: Sphinx, page: str, source: list[str]) -> None:
    text = FRAME.format(path="_static/explorer.html") if EXPLORER.exists() else MISSING
    source[0] = source[0].replace("<!-- explorer -->", text)


def copy_explorer(app: Sphinx, problem: Exception | None) -> None:
    if problem is None and app.builder.format == "html" and EXPLORER.exists():
        shutil.copy(EXPLORER, Path(app.outdir) / "_static")


def setup(app: Sphinx) -> None:
    app.connect("source-read", embed_explorer)
    app.connect("build-finished", copy_explorer)
