"""Which stored tensor an adapter's name means, by itself or by what transformers makes of it."""

from __future__ import annotations

from collections.abc import Mapping

from hubtools.checkpoint.adapter import Adapter
from hubtools.checkpoint.merging.drafts import Draft
from hubtools.checkpoint.merging.refusals import refuse
from hubtools.checkpoint.naming.names import NameMap, Part


class Places:
    """Finds drafts by the names adapters use.

    Args:
        drafts: by stored name.
        names: the base's own name map; None when every name is that of a stored tensor.
    """

    def __init__(self, drafts: Mapping[str, Draft], names: NameMap | None) -> None:
        self._drafts = drafts
        self._names = names
        parameters = names.parameters if names else {}
        self._in_memory = {part.disk: name for name, parts in parameters.items() for part in parts}

    def find(self, name: str, adapter: Adapter) -> str | None:
        """The stored tensor that is the parameter `name`; None when there is none.

        Raises:
            CheckError: HT143 when it is stored in pieces, or as part of another.
        """
        if name in self._drafts:
            return name
        if self._names is None:
            return None
        parameter = self.parameter(name)
        if parameter in self._drafts:
            return parameter
        parts = self._names.parameters.get(parameter)
        if parts is None:
            return None
        if len(parts) == 1 and name not in self._names.asked_parts and _whole(parts[0]):
            return parts[0].disk
        raise refuse(
            "HT143",
            f"{name} was trained as a whole, but this base stores it in {len(parts)} pieces",
            adapter.weights,
            "run the same command with --engine peft",
            f"the first piece is {parts[0].disk}",
        )

    def parameter(self, name: str) -> str:
        """What transformers calls the tensor of this name in memory."""
        return self._names.asked.get(name, name) if self._names else name

    def is_conv1d(self, draft: Draft) -> bool:
        """Whether a matrix is stored as [in, out]: its bias is as long as it is wide."""
        bias = self._drafts.get(f"{draft.name.removesuffix('.weight')}.bias")
        told = bias is not None and bias.shape == draft.shape[1:]
        return told or self.class_of(draft.name) == "Conv1D"

    def class_of(self, stored: str) -> str:
        """The class of the module that owns a stored tensor; empty when it is not known."""
        if self._names is None:
            return ""
        parameter = self._in_memory.get(stored, stored)
        return self._names.modules.get(parameter.rpartition(".")[0], "")


def _whole(part: Part) -> bool:
    return part.page is None and not part.transposed and part.disk_rows is None
