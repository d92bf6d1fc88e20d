"""attest: the remote is listed again, every digest must be equal; then new repos become visible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubtools.family.manifest import Member
from hubtools.hub.receipt import attest as relist
from hubtools.hub.receipt import set_visibility
from hubtools.release.context import Release
from hubtools.release.stages.push import local_files, visibility_marker


def attest(release: Release, member: Member) -> Mapping[str, Any]:
    """The receipt of one repo: commit, url, files and their digests as the Hub lists them.

    Raises:
        CheckError: the remote tree is not what was pushed.
    """
    assert release.session is not None
    receipt = dict(relist(release.session, member.repo, local_files(release, member)))
    marker = visibility_marker(release, member)
    visibility = release.family.manifest.family.visibility
    if marker.is_file():
        set_visibility(release.session, member.repo, visibility)
        release.journal.write("visible", member.id, repo=member.repo, visibility=visibility)
        marker.unlink()
        receipt["visibility"] = visibility
    release.journal.write("attested", member.id, repo=member.repo)
    return receipt
