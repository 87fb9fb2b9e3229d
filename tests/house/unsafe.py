"""Finds what could run code out of a file, or a shell, by what names mean, whatever they are called in a file."""

import ast
from collections.abc import Iterator

FORBIDDEN = {
    "pickle": {"load", "loads", "_load", "_loads", "Unpickler", "_Unpickler"},
    "_pickle": {"load", "loads", "Unpickler"},
    "marshal": {"load", "loads"},
    "shelve": {"open", "Shelf", "DbfilenameShelf", "BsdDbShelf"},
    "dill": {"load", "loads"},
    "cloudpickle": {"load", "loads"},
    "joblib": {"load"},
    "yaml": {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"},
    "os": {"system", "popen"},
    "subprocess": {"getoutput", "getstatusoutput"},
    "shutil": {"unpack_archive"},
    "pandas": {"read_pickle"},
    "torch.jit": {"load"},
    "torch.hub": {"load"},
    "builtins": {"eval", "exec", "compile", "__import__"},
}
IMPORTERS = ("importlib.import_module", "builtins.__import__")
SOME_MODULE = "?"
"""Stands for a module whose name is not written down."""
NAMES = {f"{place}.{name}" for module, names in FORBIDDEN.items() for name in names for place in (module, SOME_MODULE)}
LOADERS = {
    "numpy.load": "allow_pickle=False",
    "numpy.lib.format.read_array": "allow_pickle=False",
    "torch.load": "weights_only=True",
    "torch.serialization.load": "weights_only=True",
}
"""Calls that are safe with this argument, by keyword."""
JUDGED = {"shell", "allow_pickle", "weights_only", "filter"}


def unsafe(source: str) -> Iterator[tuple[int, str]]:
    """(line, what is there) of everything in a module that could run code out of data, or a shell."""
    tree = ast.parse(source)
    names = _imported(tree)

    def meaning(node: ast.AST) -> str:
        """The dotted name that an expression stands for; "" where it is no name."""
        match node:
            case ast.Name(id=name):
                return names.get(name, f"builtins.{name}")
            case ast.Attribute(value=value, attr=attribute):
                return f"{meaning(value)}.{attribute}".removeprefix(".")
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                if meaning(function) in IMPORTERS:
                    return module
            case ast.Call(func=function) if meaning(function) in IMPORTERS:
                return SOME_MODULE
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]):
                return f"{meaning(value)}.{attribute}"
        return ""

    zips = {target.id for target, value in _bound(tree) if meaning(getattr(value, "func", value)) == "zipfile.ZipFile"}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    allowed = {base for node in classes if _own_names(node) for base in node.bases}
    for node in ast.walk(tree):
        if meaning(node) in NAMES and node not in allowed:
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Call) and not _safe(node, meaning(node.func), zips):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Attribute | ast.Name) and meaning(node) in LOADERS and not _is_called(tree, node):
            yield node.lineno, ast.unparse(node)  # under another name, nobody sees how it is called


def _imported(tree: ast.AST) -> dict[str, str]:
    """Local name -> the dotted name that it was imported as, at any depth."""
    full_names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                full_names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            full_names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return full_names


def _bound(tree: ast.AST) -> Iterator[tuple[ast.Name, ast.AST]]:
    """(name, value) of `with value as name` and `name = value`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            yield node.optional_vars, node.context_expr
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0], node.value


def _own_names(node: ast.ClassDef) -> bool:
    """Whether a class says itself what names mean: an unpickler of such a class calls nothing else."""
    return any(isinstance(entry, ast.FunctionDef) and entry.name == "find_class" for entry in node.body)


def _is_called(tree: ast.AST, name: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and node.func is name for node in ast.walk(tree))


def _safe(call: ast.Call, name: str, zips: set[str]) -> bool:
    keywords = {f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in call.keywords if keyword.arg in JUDGED}
    if any(keyword.startswith("shell=") for keyword in keywords - {"shell=False"}):
        return False
    if any(keyword.startswith("allow_pickle=") for keyword in keywords - {"allow_pickle=False"}):
        return False
    if name in LOADERS:
        return LOADERS[name] in keywords
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("extract", "extractall"):
        from_zip = isinstance(call.func.value, ast.Name) and call.func.value.id in zips  # which keeps within its folder
        return from_zip or "filter='data'" in keywords
    return True
