"""A GGUF file as a plain safetensors base: transformers dequantizes it once, and the result is an ordinary model."""

from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from popu.artifacts import sha256, write_json
from popu.errors import ArtifactError


def file_of_package(name: str) -> Path:
    """The GGUF file that an installed package ships; the package is found, not imported.

    Raises ArtifactError where it is not installed or does not hold exactly one.
    """
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a name that no package can have, or of one within a package that is absent
        spec = None
    places = list(spec.submodule_search_locations or []) if spec else []
    files = [path for place in places for path in Path(place).glob("*.gguf")]
    if len(files) != 1:
        raise ArtifactError(
            f"--package: expected an installed package with one GGUF file, found {len(files)} files of {name}"
        )
    return files[0]


def convert(gguf: Path, out: Path) -> str:
    """Writes model, tokenizer and card.json to `out`; returns the sha256 of the weights.

    Raises ArtifactError where the file is missing or cannot be read as GGUF.
    """
    if not gguf.is_file():
        raise ArtifactError(f"--gguf: expected a GGUF file, found none at {gguf}")
    try:
        source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(**source)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ArtifactError(f"{gguf}: expected a GGUF file that transformers can read, found: {error}") from error
    config = type(model.config)(**{k: v for k, v in model.config.to_dict().items() if k != "quantization_config"})
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # as other files; safetensors writes for its owner alone
    digest = sha256(out / "model.safetensors")
    write_json(out / "card.json", {"name": out.name, "source": gguf.name, "sha256": digest})
    return digest
