"""Trains a classifier on scikit-learn's handwritten digits.

    dray submit examples/digits/train.py --epochs 30     as a run, with everything recorded
    python examples/digits/train.py                      by itself; needs scikit-learn and dray

Needs only scikit-learn: the picture is written with the standard library, so that the first run is ready soon.
"""

import argparse
import struct
import sys
import time
import zlib
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import dray

DIGITS = np.arange(10)
BATCH = 64


def main():
    words = argparse.ArgumentParser(description="Train a classifier on handwritten digits.")
    words.add_argument("--epochs", type=int, default=20)
    words.add_argument("--lr", type=float, default=0.003, help="learning rate")
    words.add_argument("--seed", type=int, default=0)
    args = words.parse_args()

    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        images / 16, labels, test_size=0.25, stratify=labels, random_state=args.seed
    )
    print(f"{len(x_train)} images to learn from, {len(x_test)} to test with")
    dray.log_params(vars(args), hidden=64, batch=BATCH)

    model = MLPClassifier(hidden_layer_sizes=(64,), learning_rate_init=args.lr, random_state=args.seed)
    order = np.random.default_rng(args.seed)
    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        shuffled = order.permutation(len(x_train))
        batches = range(0, len(shuffled), BATCH)
        for done, start in enumerate(batches, 1):
            batch = shuffled[start : start + BATCH]
            model.partial_fit(x_train[batch], y_train[batch], classes=DIGITS)
            progress(f"epoch {epoch}/{args.epochs}", done, len(batches))
        loss = log_loss(y_train, model.predict_proba(x_train), labels=DIGITS)
        accuracy = model.score(x_test, y_test)
        dray.log(loss=loss, accuracy=accuracy, step=epoch)
        print(f"epoch {epoch:3}   loss {loss:.4f}   accuracy {accuracy:.4f}")

    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    confusion = confusion_matrix(y_test, model.predict(x_test), labels=DIGITS)
    picture = outputs / "confusion.png"
    picture.write_bytes(heat_map(confusion))
    joblib.dump(model, outputs / "model.joblib")
    dray.log_table("confusion", confusion, columns=[f"read as {digit}" for digit in DIGITS])
    dray.log_image("confusion", picture)
    print(f"accuracy {accuracy:.4f}; the model and {picture.name} are in {outputs}/")


_drawn = 0.0


def progress(what, done, total):
    """A bar that redraws itself on a terminal, and is one line an epoch in a file."""
    global _drawn
    bar = "#" * (20 * done // total)
    if not sys.stderr.isatty():
        if done == total:
            print(f"{what} [{bar}]", file=sys.stderr, flush=True)
    elif done == total:
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # the line printed next takes its place
    elif time.monotonic() - _drawn > 0.05:
        _drawn = time.monotonic()
        print(f"\r{what} [{bar:20}]", end="", file=sys.stderr, flush=True)


def heat_map(table, cell=24):
    """A PNG of `table`, darker where its numbers are larger. Rows are the digits, columns what they were read as."""
    # The root makes the few mistakes visible beside the many hits.
    shade = 255 - np.sqrt(table / max(table.max(), 1)) * 255
    pixels = np.kron(shade, np.ones((cell, cell))).astype(np.uint8)
    pixels[::cell] = pixels[:, ::cell] = 200
    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row begins with its filter: none

    def chunk(kind, content):
        return (
            struct.pack("!I", len(content)) + kind + content + struct.pack("!I", zlib.crc32(kind + content))
        )

    head = struct.pack("!IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits a pixel, grey
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


if __name__ == "__main__":
    main()
