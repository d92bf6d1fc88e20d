"""The pipeline, in order. This tuple is the document."""

from hubtools.release.stages.base import Stage
from hubtools.release.stages.evaluate import Evaluate
from hubtools.release.stages.merge import Merge
from hubtools.release.stages.render import Render
from hubtools.release.stages.seal import Seal
from hubtools.release.stages.verify import Verify

LOCAL_STAGES: tuple[Stage, ...] = (
    Verify(),  # which model the teacher logs report: cheap, and it can stop everything
    Merge(),  # weights as published, digests known while writing, then they load and talk
    Evaluate(),  # the suites on base and members, every answer kept
    Render(),  # the card, from facts, templates and prose
    Seal(),  # the file list of the commit, scanned for secrets, and the release record
)
"""What happens on this machine. `check` comes before and is never remembered."""

STAGES = ("check", *(stage.name for stage in LOCAL_STAGES), "push", "attest")
"""All names, in order. `push` and `attest` decide by looking at the remote, not at a key."""
