"""Rules about the code base, one test each: where imports point, what a bare GPU box needs, names that occur once."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "byrote"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

BASE = {"deferred", "types", "verdict", "errors", "files", "printable", "random_order", "normal_form"}
NUMBERS = BASE | {"policy", "distance"}
COMPUTING = NUMBERS | {"models", "search", "explore"}
SHARED = COMPUTING | {"options", "progress", "corpus", "store", "stats", "report"}
PRODUCTS = {"prior", "longform", "lab", "study"}
ALLOWED: dict[str, set[str]] = {
    "types": {"errors"},
    "verdict": {"types"},
    "errors": set(),
    "files": set(),
    "deferred": set(),
    "printable": set(),
    "normal_form": set(),
    "random_order": {"types"},
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
    "scan": SHARED,
    **dict.fromkeys(PRODUCTS, SHARED | {"scan"}),
    "study": SHARED | {"scan", "prior", "longform"},
    "testing": BASE | {"models"},
    "progress": BASE,
    "run_kinds": BASE | {"store", "report"},
    "api": SHARED | PRODUCTS | {"scan", "progress", "run_kinds"},
    "integrations": SHARED | PRODUCTS | {"scan", "api", "run_kinds"},
    "cli": SHARED | PRODUCTS | {"scan", "api", "run_kinds", "integrations"},
    "__init__": SHARED | PRODUCTS | {"scan", "testing", "api"},
    "__main__": {"cli"},
}
"""Which rooms a room may import from. Products may import scan, and a study what its cells are; nobody imports cli."""

BARE_ROOMS = {
    "types",
    "normal_form",
    "verdict",
    "errors",
    "files",
    "deferred",
    "printable",
    "options",
    "policy",
    "distance",
    "models",
    "search",
    "explore",
}
BARE_FILES = {
    "scan/pipeline.py",
    "scan/stages/decode.py",
    "scan/stages/search.py",
    "scan/stages/verify.py",
    "scan/stages/estimate.py",
    "scan/row.py",
}
BARE_PACKAGES = {"numpy", "torch", "transformers"}
BARE_EXCEPTIONS = {"models/served/client.py": {"httpx2"}}
"""The HTTP client never runs on the bare GPU box."""


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(nodes: Iterator[ast.AST] | list[ast.stmt]) -> set[str]:
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import; write it out"
            modules.add(node.module or "")
            if node.module == "byrote":
                modules |= {f"byrote.{alias.name}" for alias in node.names}
    return modules


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for path, tree in TREES.items():
        for module in imported(ast.walk(tree)):
            target = module.split(".")[1] if module.startswith("byrote.") else room_of(path)
            if target not in ALLOWED[room_of(path)] | {room_of(path), "__version__"}:
                wrong.append(f"{name_of(path)} imports {module}")
    assert not wrong


def test_computing_files_need_numpy_torch_and_transformers_alone() -> None:
    """Imports inside functions are made only when they are used."""
    wrong = []
    for path, tree in TREES.items():
        if room_of(path) in BARE_ROOMS or name_of(path) in BARE_FILES:
            packages = {module.split(".")[0] for module in imported(tree.body)} - set(sys.stdlib_module_names)
            foreign = packages - BARE_PACKAGES - {"byrote"} - BARE_EXCEPTIONS.get(name_of(path), set())
            wrong += [f"{name_of(path)} needs {package}" for package in foreign]
    assert not wrong


def test_no_class_name_occurs_twice() -> None:
    names = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]


def test_a_scan_imports_few_modules() -> None:
    """The import closure of a scan; a package's own docstring is no module to read."""
    code = (
        "import sys, byrote.scan.run; "
        "print(*[n for n, m in sys.modules.items() if n.startswith('byrote.') and not hasattr(m, '__path__')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(found) <= 95, sorted(found)


def test_a_scan_does_not_load_what_draws() -> None:
    """A user waits for every import before the first window."""
    code = "import sys, byrote.cli.scan; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
