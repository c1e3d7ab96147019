"""A model that waits 20 ms for something else, on the event loop."""

import asyncio


class SleepAsync:
    async def predict(self, X, names, meta=None):
        await asyncio.sleep(0.02)
        return X
