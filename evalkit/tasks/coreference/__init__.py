"""Multi-round co-reference: the i-th of several equal requests of a long conversation."""

from evalkit.tasks.coreference.config import CoreferenceConfig
from evalkit.tasks.coreference.task import CoreferenceTask, build

__all__ = ["CoreferenceConfig", "CoreferenceTask", "build"]
