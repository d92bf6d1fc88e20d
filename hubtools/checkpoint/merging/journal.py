"""What became of the tensors in weight files that an unfinished merge has written whole."""

from __future__ import annotations

from pathlib import Path

from hubtools.checkpoint import journal
from hubtools.checkpoint.merging.written import Written


class Journal(journal.Journal):
    """The journal of a merge: of each file it remembers `Written`."""

    def finished(self, folder: Path, name: str) -> Written | None:
        """What is known of `folder/name`, when its bytes still have the digest they had."""
        known = self.kept(folder, name)
        try:
            return None if known is None else Written.from_json(known)
        except (ValueError, LookupError, TypeError):
            return None

    def record(self, name: str, written: Written) -> None:
        """Remember a file that is on the disk under its name."""
        self.add(name, written.to_json())
