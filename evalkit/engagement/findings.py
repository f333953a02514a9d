"""Findings about one arm's server, and the verdict that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from evalkit.dsa.json_types import JsonObject, JsonValue

ENGAGED, NOT_ENGAGED, UNKNOWN = "engaged", "not engaged", "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of evidence.

    Attributes:
        what: where it comes from (``model``, ``overrides``, ``log``, ``selections``, ``probe``).
        holds: True speaks for the arm, False against it, None for neither.
        text: one line.
        proof: whether, where it holds, it shows the schedule at work and not only asked for.
        did_nothing: whether the arm answers like one with another schedule: its verdicts are
            withheld where nothing else proves the schedule.
    """

    what: str
    holds: bool | None
    text: str
    proof: bool = False
    did_nothing: bool = False


@dataclass(frozen=True, slots=True)
class ArmCheck:
    """The check of an arm's servers before it answers.

    Attributes:
        arm: its name.
        findings: the evidence.
        servers: what each server reports of itself.
        probe: greedy continuations by probe prompt.
        deterministic: whether the probe gave the same twice; None without a probe.
        launch: how its server is to be started, as far as that is known; a comment (``# …``) says
            why it cannot be.
        positions: tokens of a prompt and its answer that its servers take at most; None where none
            tells.
    """

    arm: str
    findings: tuple[Finding, ...]
    servers: tuple[JsonObject, ...] = ()
    probe: Mapping[str, str] = field(default_factory=dict)
    deterministic: bool | None = None
    launch: str = ""
    positions: int | None = None

    @property
    def verdict(self) -> str:
        """``engaged``, ``not engaged`` or ``unknown``."""
        return verdict(self.findings)

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return reason(self.findings)

    @property
    def start_hint(self) -> str:
        """How to start the server instead, to go behind a refusal; "" where there is no way."""
        known = self.launch and not self.launch.startswith("#")
        return f"; start it as: {self.launch}" if known else ""

    def record(self) -> dict[str, JsonValue]:
        """For run.json."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "findings": [asdict(finding) for finding in self.findings],
            "servers": [dict(server) for server in self.servers],
            "probe": dict(self.probe),
            "deterministic": self.deterministic,
            "launch": self.launch,
        }


def verdict(findings: Sequence[Finding]) -> str:
    """One finding against the arm decides; without any, a proof is needed."""
    if any(finding.holds is False for finding in findings):
        return NOT_ENGAGED
    if any(finding.holds and finding.proof for finding in findings):
        return ENGAGED
    return UNKNOWN


def reason(findings: Sequence[Finding]) -> str:
    """The lines that decide."""
    outcome = verdict(findings)
    if outcome == NOT_ENGAGED:
        return "; ".join(f.text for f in findings if f.holds is False)
    if outcome == ENGAGED:
        return "; ".join(f.text for f in findings if f.holds and f.proof)
    requested = any(f.what == "overrides" and f.holds for f in findings)
    first = "asked for, not proved" if requested else "not proved"
    return "; ".join([first, *(f.text for f in findings if f.holds is None)])
