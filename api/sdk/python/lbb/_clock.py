"""The one clock of a client: time, waiting and chance, so that tests can move
all three."""
from __future__ import annotations

import asyncio
import random
import time


class Clock:
    """The real one.  A subclass may answer otherwise; times are in seconds."""

    def unix(self) -> float:
        """Now, since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Only differences of it mean something."""
        return time.monotonic()

    def uniform(self, upper: float) -> float:
        """A number from 0 to `upper`, by chance."""
        return random.uniform(0.0, upper)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
