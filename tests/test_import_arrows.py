"""The room map of docs/architecture.md, asserted: imports point only where the map draws an arrow."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "byrote"

BASE = {"types", "errors", "files", "printable", "progress"}
NUMBERS = BASE | {"policy", "distance"}
COMPUTING = NUMBERS | {"models", "search", "explore"}
PRODUCT = COMPUTING | {"options", "corpus", "store", "stats", "report"}
PRODUCTS = {"scan", "prior", "longform", "lab", "study"}
ALLOWED: dict[str, set[str]] = {
    "types": {"errors"},
    "errors": set(),
    "files": set(),
    "printable": set(),
    "progress": {"printable"},
    "options": BASE,
    "policy": BASE,
    "distance": BASE,
    "models": NUMBERS,
    "search": NUMBERS | {"models"},
    "explore": NUMBERS | {"models", "search"},
    "corpus": BASE,
    "store": BASE,
    "stats": BASE,
    "report": BASE | {"store", "stats"},
    "scan": PRODUCT,
    **dict.fromkeys(PRODUCTS - {"scan"}, PRODUCT | {"scan"}),
    "kinds": BASE | {"report", "store"},
    "cli": PRODUCT | PRODUCTS | {"kinds"},
    "testing": BASE | {"models"},
    "api": PRODUCT | PRODUCTS | {"kinds"},
    "__main__": {"cli"},
    "__init__": PRODUCT | PRODUCTS | {"testing", "api"},
}
"""Which rooms a room may import from: imports point from products to the core; products may import scan."""
BARE_ROOMS = ("types", "errors", "files", "printable", "options", "policy", "distance", "models", "search", "explore")
BARE_FILES = {
    "scan/pipeline.py",
    "scan/decode.py",
    "scan/search.py",
    "scan/self_check.py",
    "scan/estimate.py",
    "scan/measures.py",
}
"""Computing files of a product: they run where only numpy, torch and transformers are installed."""
BARE_PACKAGES = {"numpy", "torch", "transformers"}
STANDARD_OR_BARE_EXCEPTIONS = {
    # It talks to an endpoint and never runs on the bare GPU box.
    "models/served/client.py": {"httpx2"},
}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import; write it out"
            modules.add(node.module or "")
            if node.module == "byrote":
                modules |= {f"byrote.{alias.name}" for alias in node.names}
    return modules


def top_level_foreign_imports(path: Path) -> set[str]:
    """Packages imported when the module is imported (imports inside functions are asked for only when used)."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    room = room_of(path)
    for module in imported_modules(path):
        match = re.match(r"byrote\.(\w+)", module)
        if match is None or match.group(1) == room or match.group(1) == "__version__":
            continue
        assert match.group(1) in ALLOWED[room], f"{room} may not import {match.group(1)} ({path})"


BARE = [path for path in FILES if room_of(path) in BARE_ROOMS or str(path.relative_to(SOURCE)) in BARE_FILES]


@pytest.mark.parametrize("path", BARE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_core_rooms_import_only_numpy_torch_and_transformers(path: Path) -> None:
    import sys

    foreign = top_level_foreign_imports(path) - set(sys.stdlib_module_names) - {"byrote"}
    allowed = BARE_PACKAGES | STANDARD_OR_BARE_EXCEPTIONS.get(str(path.relative_to(SOURCE)), set())
    assert foreign <= allowed, f"{path} needs {foreign - allowed}, which a bare GPU box does not have"


def test_only_the_hugging_face_rooms_import_transformers() -> None:
    allowed_rooms = {"models", "lab"}
    for path in FILES:
        if any(module.split(".")[0] == "transformers" for module in imported_modules(path)):
            assert room_of(path) in allowed_rooms, f"{path} imports transformers"
