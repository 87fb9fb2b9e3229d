"""Load weights from a file into a model: weights of a run of this project, published ones, or others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.store import weights


def load_into(model: Any, path: Path) -> None:
    """Load all weights of a model but its head from published weights, or from a run's weights or checkpoint.

    Raises:
        UserError: the file cannot be read, or belongs to another model.
    """
    from vit import checkpoints
    from vit import files as tensor_files

    own = _run_weights(path) if path.suffix == ".safetensors" else {}
    try:
        if own:
            result = model.load_state_dict({k: v for k, v in own.items() if not k.startswith("head.")}, strict=False)
            wrong = [k for k in (*result.missing_keys, *result.unexpected_keys) if not k.startswith("head.")]
            if wrong:
                raise UserError(f"{path} does not fit the model: {', '.join(wrong[:5])} …", "Is it another model's?")
        elif hasattr(model, "load_own"):
            model.load_own(tensor_files.read(path))
        elif hasattr(model, "checkpoint_entries"):
            checkpoints.load(model, path, head="fresh")
        else:
            model.load_state_dict(tensor_files.read(path))
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be loaded: {error}", "Check --model, --image-size and --channels.") from error


def _run_weights(path: Path) -> dict[str, Any]:
    """Return the model's tensors by name from the weights or a checkpoint that a run kept; empty for any other file."""
    from safetensors import SafetensorError, safe_open

    prefix = "" if weights.about(path) else "live/model."
    try:
        with safe_open(path, framework="pt") as file:
            names = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118 (not a dict: no iteration)
            return {key.removeprefix(prefix): file.get_tensor(key) for key in names}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}", "Get it again.") from error
