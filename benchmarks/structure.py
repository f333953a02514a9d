"""Count the structure of the code: modules at the roots, package arrows, cycles, sizes, `Any`.

    python benchmarks/structure.py [ROOT]

ROOT is a checkout, by default this one; `git worktree add DIR COMMIT` gives an older one.
Imports are read from the source by `grimp`, the graph behind import-linter. A *room* is a package
(a folder) or a module at the root of `evalkit` or `distill`; an arrow says that some module of one
room imports some module of another, a cycle is a set of rooms that import each other.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import grimp
import networkx

PACKAGES = ("evalkit", "distill")


def room_of(module: str) -> str:
    """The folder of a module, or the module itself where it lies at the root of a package."""
    parts = module.split(".")
    return ".".join(parts[:2])


def arrows(root: Path) -> tuple[networkx.DiGraph, set[str]]:
    """Rooms with the imports between them, and modules at the roots."""
    os.chdir(root)
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    rooms: networkx.DiGraph = networkx.DiGraph()
    for module in graph.modules:
        if module in PACKAGES:
            continue
        rooms.add_node(room_of(module))
        for imported in graph.find_modules_directly_imported_by(module):
            if imported not in PACKAGES and room_of(imported) != room_of(module):
                rooms.add_edge(room_of(module), room_of(imported))
    loose = {
        f"{package}.{path.stem}"
        for package in PACKAGES
        for path in (root / package).glob("*.py")
        if path.stem != "__init__"
    }
    return rooms, loose


def sizes(root: Path) -> dict[str, int]:
    """Lines, longest file, files above 400 lines, functions above 60, uses of `Any`."""
    lines = longest = long_files = long_functions = any_uses = files = 0
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            count = text.count("\n")
            files, lines, longest = files + 1, lines + count, max(longest, count)
            long_files += count > 400
            any_uses += len(re.findall(r"\bAny\b", text))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    long_functions += (node.end_lineno or 0) - node.lineno + 1 > 60
    return {
        "files": files,
        "lines": lines,
        "longest file": longest,
        "files above 400 lines": long_files,
        "functions above 60 lines": long_functions,
        "uses of Any": any_uses,
    }


def main() -> None:
    """Print the counts of one checkout."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    rooms, loose = arrows(root)
    cycles = [sorted(c) for c in networkx.strongly_connected_components(rooms) if len(c) > 1]
    for package in PACKAGES:
        print(f"modules at the root of {package}: {sum(m.startswith(package) for m in loose)}")
    print(f"rooms: {rooms.number_of_nodes()}")
    print(f"arrows between rooms: {rooms.number_of_edges()}")
    print(f"cycles among rooms: {len(cycles)} {'; '.join(', '.join(c) for c in cycles)}".rstrip())
    counted = sizes(root)
    for name, value in counted.items():
        print(f"{name}: {value:,}")
    print(f"uses of Any per 1,000 lines: {1000 * counted['uses of Any'] / counted['lines']:.1f}")


if __name__ == "__main__":
    main()
