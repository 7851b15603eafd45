#!/usr/bin/env python3
"""Asks a model server by REST what pictures of Fashion-MNIST's test set show, and prints pictures, answers and chances.

  tools/classify.py http://localhost:8501/v1/models/NAME FOLDER_OF_IDX_FILES [HOW_MANY]

Nothing but Python's own library: what any client of TensorFlow Serving would do.
"""
import gzip
import json
import os
import sys
import urllib.error
import urllib.request

NAMES = ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
SIDE, SHADES = 28, " .:-=+*#%@"


def read(folder, name, header):
    try:
        with gzip.open(os.path.join(folder, name)) as f:
            return f.read()[header:]
    except OSError as e:
        sys.exit(f"classify.py: {e}")


def ask(url, body):
    try:
        with urllib.request.urlopen(urllib.request.Request(url + ":predict", body.encode()), timeout=60) as answer:
            return json.load(answer)["predictions"]
    except urllib.error.HTTPError as e:
        sys.exit(f"classify.py: {url}: {e.code}: {e.read().decode(errors='replace').strip()}")
    except (OSError, ValueError) as e:
        sys.exit(f"classify.py: {url}: {getattr(e, 'reason', e)}: is the server up, and is that the model's URL?")


def show(picture):
    """Two rows of pixels in a line of text, since characters are twice as high as wide."""
    for y in range(0, SIDE, 2):
        rows = picture[y * SIDE:(y + 1) * SIDE], picture[(y + 1) * SIDE:(y + 2) * SIDE]
        print("  " + "".join(SHADES[(a + b) * (len(SHADES) - 1) // 510] for a, b in zip(*rows)).rstrip())


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    url, folder = sys.argv[1], sys.argv[2]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    pixels, labels = read(folder, "t10k-images-idx3-ubyte.gz", 16), read(folder, "t10k-labels-idx1-ubyte.gz", 8)
    pictures = [pixels[i * SIDE * SIDE:(i + 1) * SIDE * SIDE] for i in range(n)]
    body = json.dumps({"instances": [{"images": [p / 255 for p in picture]} for picture in pictures]})
    answers = ask(url, body)
    right = 0
    for i, (picture, got) in enumerate(zip(pictures, answers)):
        show(picture)
        label, seen = labels[i], got["classes"]
        right += label == seen
        print(f"  {NAMES[seen]}, {100 * got['chances'][seen]:.1f} %" +
              ("" if label == seen else f"   (it is: {NAMES[label]})"))
    print(f"\n{right} of {n} are right")


if __name__ == "__main__":
    main()
