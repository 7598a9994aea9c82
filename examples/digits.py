"""Write the handwritten digits of scikit-learn as jsonl, and convert them to records for regroup.

python examples/digits.py examples/digits
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SIDE, DARKEST = 8, 16


def images(batch: dict[str, Any]) -> dict[str, Any]:
    """Convert rows of the files to records of the built-in trainer. `data.prepare` calls this function."""
    pixels = np.stack([np.asarray(row, np.float32) for row in batch["pixels"]]) / DARKEST
    return {"image": pixels.reshape(-1, 1, SIDE, SIDE), "label": np.asarray(batch["label"], np.int64)}


def main(folder: Path) -> None:
    """Write every fifth digit to held-out.jsonl and the others to train.jsonl."""
    from sklearn.datasets import load_digits  # imported here because the nodes do not need it

    found = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.jsonl").open("w") as train, (folder / "held-out.jsonl").open("w") as held_out:
        for number, (pixels, label) in enumerate(zip(found.data, found.target, strict=True)):
            row = {"pixels": [int(value) for value in pixels], "label": int(label)}
            (train if number % 5 else held_out).write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
