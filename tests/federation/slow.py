"""A slow link, where the kernel has none: passes bytes on, so many in a second, and not at once.

`python -m tests.federation.slow HOST PORT TO_HOST TO_PORT BYTES_PER_SECOND DELAY`
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

_PART = 2**12


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter, rate: float, delay: float) -> None:
    await asyncio.sleep(delay)
    with suppress(OSError):
        while part := await source.read(_PART):
            await asyncio.sleep(len(part) / rate)
            sink.write(part)
            await sink.drain()
    with suppress(OSError, RuntimeError):
        sink.close()


async def serve(host: str, port: int, to: tuple[str, int], rate: float, delay: float) -> None:
    """Listen until the end of the process."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, far_writer, rate, delay), _pass(far_reader, writer, rate, delay))

    async with await asyncio.start_server(join, host, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(
        serve(sys.argv[1], int(sys.argv[2]), (sys.argv[3], int(sys.argv[4])), float(sys.argv[5]), float(sys.argv[6]))
    )
