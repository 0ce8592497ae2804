"""Follow every link of the built site: `python docs/check_site.py build/docs`.

Links within the site must lead to a file and, behind a ``#``, to an element of that page; pictures,
styles and scripts must be there. Links to other sites are not followed, because the build has no
network: only their form is checked (https, a host, no space).
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The ids of a page, and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if name in ("href", "src") and value is not None:
                self.targets.append(value)


def faults(root: Path) -> tuple[list[str], int]:
    """What is wrong with the links below a folder, and how many there are.

    The explorer, which stands in ``_static`` as it was made, is not looked into.
    """
    paths = [p for p in root.rglob("*.html") if p.parent.name != "_static"]
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in paths}
    found, count = [], 0
    for path, page in pages.items():
        for target in page.targets:
            count += 1
            fault = _fault(target, path, page, pages)
            if fault:
                found.append(f"{path.relative_to(root.resolve())}: {target}: {fault}")
    return found, count


def _fault(target: str, path: Path, page: Page, pages: dict[Path, Page]) -> str:
    parts = urlsplit(target)
    if parts.scheme in ("data", "mailto"):
        return ""
    if parts.scheme or parts.netloc:
        good = parts.scheme == "https" and "." in parts.netloc and " " not in target
        return "" if good else "expected https, a host and no space"
    to = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if to.is_dir():
        to /= "index.html"
    if not to.exists():
        return "there is no such file"
    where = unquote(parts.fragment)
    if where and to in pages and where not in pages[to].ids:
        return "there is no such place on that page"
    return ""


def main() -> None:
    root = Path(sys.argv[1])
    if not (root / "index.html").exists():
        sys.exit(f"{root}: expected a built site with index.html: make docs")
    found, count = faults(root)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{count} links, {len(found)} broken")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
