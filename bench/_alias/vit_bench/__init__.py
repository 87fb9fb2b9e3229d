"""The package `bench` by a name that no other has: `vit_bench.x` is the module `bench.x` itself, not a copy.

It is installed as `vit_bench`, beside `bench`, `vit` and `baselines`, which it finds even where other packages of these
names come first on the path.
Type checkers read `api.pyi`.
"""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType

# The parents of `bench` in an installation and in a checkout.
HOMES = [str(folder) for folder in Path(__file__).resolve().parents[1:4:2]]


class SameModule(MetaPathFinder, Loader):
    """Finds `vit_bench.x` as `bench.x`."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        real = find_spec(fullname.removeprefix("vit_")) if fullname.startswith("vit_bench.") else None
        return real and ModuleSpec(fullname, self, origin=real.origin, is_package=bool(real.submodule_search_locations))

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(module.__name__.removeprefix("vit_"))

    def get_code(self, fullname: str) -> CodeType:
        """Return the code that `python -m vit_bench.x` runs."""
        return find_spec(name := fullname.removeprefix("vit_")).loader.get_code(name)  # type: ignore[union-attr]


sys.path[:0] = HOMES
packages = [importlib.import_module(name) for name in ("vit", "baselines", "bench")]
del sys.path[:2]
places = [Path(getattr(package, "__path__", [package.__file__])[0]).resolve() for package in packages]
if others := [place for place in places if str(place.parent) not in HOMES]:
    raise ImportError(f"{others[0]} has been imported as {others[0].stem}. Import vit_bench before it.")
sys.meta_path.insert(0, SameModule())
sys.modules[__name__] = packages[-1]
