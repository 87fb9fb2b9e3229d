"""Load weights from a file into a model: weights of a run of this project, published weights, or others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.store import weights


def load_into(model: Any, path: Path) -> None:
    """Load the weights in a file into a model, except those of the classifier head. The file holds published weights,
    or the final weights or the tensors of a checkpoint of a run.

    Raises:
        UserError: the file cannot be read, or its weights are those of another model.
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
    """Return name -> tensor of a model from the final weights, or a checkpoint's tensors, that a run of this project
    wrote; an empty dict for any other safetensors file.

    Raises:
        UserError: the file is not a readable safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    prefix = "" if weights.about(path) else "live/model."
    try:
        with safe_open(path, framework="pt") as file:
            names = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118 (not a dict: no iteration)
            return {key.removeprefix(prefix): file.get_tensor(key) for key in names}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}", "Get it again.") from error
