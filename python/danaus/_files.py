"""Files that appear complete or not at all."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[Path]:
    """Gives the name of a file to make beside ``path``, renamed when all went well.

    After an exception the new file is gone and ``path`` is as it was.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
