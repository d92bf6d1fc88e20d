"""`transformers serve` in a process that ends with the one that started it, however that ends."""

from __future__ import annotations

import os
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    from transformers.cli.transformers import main

    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = ["transformers", "serve", *sys.argv[1:]]
    main()
