"""RULER's thirteen tasks, generated: haystacks that fill a token budget, wording as official."""

from evalkit.tasks.ruler.config import DESCRIPTIONS, RulerConfig
from evalkit.tasks.ruler.task import RulerTask, build

__all__ = ["DESCRIPTIONS", "RulerConfig", "RulerTask", "build"]
