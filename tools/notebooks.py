"""The notebooks of bench/examples, run anew so that the outputs they show are those of this version.

    python -m tools.notebooks [NAME…]        minutes; needs `pip install nbclient ipykernel`

Each runs in an empty folder of its own. tests/e2e/test_notebooks.py runs their code without Jupyter.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "bench" / "examples"


def main(names: list[str]) -> int:
    import nbclient  # type: ignore[import-not-found]
    import nbformat  # type: ignore[import-not-found]

    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as empty:
            nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": empty}}).execute()
        for number, cell in enumerate(notebook.cells):
            cell.id, cell.metadata = f"cell-{number:02}", {}  # times and random names would differ each time
            if "outputs" in cell:  # warnings and progress bars, with paths of this machine
                cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        path.write_text(nbformat.writes(notebook, indent=1) + "\n")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
