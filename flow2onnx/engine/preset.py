"""Preset: what whoever starts a program asks of all its sessions."""

from dataclasses import dataclass

from flow2onnx.config import Settings

__all__ = ["Preset"]


@dataclass(frozen=True)
class Preset:
    """Wishes that outlive `flow.clear_default_session()`.

    `release`: the OneFlow release whose API the jobs speak where their text cannot tell. `device`:
    the tag of the provider of every job, whatever its placement. `seed` and `stop_on_non_finite`
    hold unless the program sets them itself.
    """

    release: str | None = None
    device: str | None = None
    seed: int = 0
    stop_on_non_finite: bool = False

    def settings(self) -> Settings:
        """The settings that a session begins with."""
        settings = Settings()
        if self.seed:
            settings.set("random_seed", self.seed)
        if self.stop_on_non_finite:
            settings.set("stop_on_non_finite", True)
        return settings
