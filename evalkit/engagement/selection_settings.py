"""Settings that change which positions are selected without being a schedule.

Two arms whose servers differ in one of them cannot be compared: the difference would not be the
schedule's. They are recorded with the server's report, and such an arm is not engaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalkit.dsa.config_fields import override_fields
from evalkit.dsa.json_types import JsonObject, JsonValue, as_object
from evalkit.engagement.evidence import CheckedArm
from evalkit.engagement.findings import Finding
from evalkit.engagement.server_info import ServerInfo

# SGLang's and vLLM's names: kernels of the top-k (they break ties differently), batches split in
# two, and drafts that read the target's selection.
REPORTED = (
    *("dsa_topk_backend", "enable_two_batch_overlap", "speculative_algorithm"),
    *("sparse_indexer_topk_backend", "enable_dbo", "speculative_method"),
)
# Configuration fields of the same kind, as overrides.
OVERRIDDEN = ("index_topk", "index_kpool", "index_share_for_mtp_iteration")


def selection_settings(settings: JsonObject, overrides: JsonObject) -> dict[str, JsonValue]:
    """Those of a server that are known."""
    reported = {name: settings[name] for name in REPORTED if name in settings}
    fields = override_fields(overrides)
    return reported | {name: fields[name] for name in OVERRIDDEN if name in fields}


def setting_findings(arm: str, info: ServerInfo, others: Sequence[CheckedArm]) -> Iterator[Finding]:
    """One finding against the arm for every setting in which it differs from an arm before it.

    Args:
        arm: name.
        info: about its server.
        others: arms checked before, with the reports of their servers.
    """
    ours = selection_settings(info.settings, info.overrides or {})
    for other in others:
        if other.name == arm:
            continue
        for server in other.servers:
            if server.get("kind") != info.kind:
                continue
            theirs = selection_settings(
                as_object(server.get("settings")), as_object(server.get("overrides"))
            )
            for name in _different(ours, theirs, told=info.overrides is not None):
                values = f"{ours.get(name)!r}, and {theirs.get(name)!r} on {other.name}"
                text = f"{name} = {values}: it changes selections without being a schedule"
                yield Finding("settings", False, text)


def _different(ours: JsonObject, theirs: JsonObject, *, told: bool) -> Iterator[str]:
    """Names of settings that both know and that differ; an override may be absent."""
    for name in (*REPORTED, *OVERRIDDEN):
        both = name in ours and name in theirs
        one = told and name in OVERRIDDEN and (name in ours) != (name in theirs)
        if one or (both and ours[name] != theirs[name]):
            yield name
