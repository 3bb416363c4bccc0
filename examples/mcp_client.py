"""Use memory from a program that speaks the Model Context Protocol: any MCP host does what this one does.

Needs the extra `server`: pip install '.[server]' in the clone
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
        await call(client, "add", text="My sister Noor moved to Bergen in May.", tags=["family"])
        await call(client, "add_memory", user_input="I'm allergic to peanuts.", agent_response="I'll remember that.")
        found = await call(client, "search", query="Where does Noor live?", top_k=1)
        print("found:", found["memories"][0]["memory"])
        recalled = await call(client, "retrieve_memory", query="What may I not eat?")
        print("last said:", recalled["short_term_memory"][-1]["user_input"])
        status = await client.read_resource("memoryos://status")
        print("status:", status.contents[0].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
