"""Use memory from a program that speaks the Model Context Protocol: any MCP host does what this one does.

Needs the extra `mcp`: pip install '.[mcp]' in the clone
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise SystemExit(f"{tool}: {result.content[0].text}")
    return result.structured_content


async def main(folder: str) -> None:
    # Hosts start this command from their configuration; several may do so on one folder.
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "memos", "mcp", "--data-dir", folder], env=dict(os.environ)
    )
    async with Client(command) as client:
        tools = await client.list_tools()
        print("tools:", ", ".join(tool.name for tool in tools.tools))
        await call(client, "add_memory", text="My sister Noor moved to Bergen in May.")
        await call(client, "add_memory", text="I'm allergic to peanuts.")
        found = await call(client, "search_memories", query="Where does Noor live?", top_k=1)
        print("found:", found["memories"][0]["memory"])
        context = await call(client, "get_user_context")
        print("profile:", context["profile"] or "nothing yet")
        status = await client.read_resource("memoryos://status")
        print("status:", status.contents[0].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
