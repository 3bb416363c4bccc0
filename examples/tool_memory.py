"""An agent's calls of tools are remembered with what came of them; what was done alike three times becomes a skill."""

import tempfile

from memos import MemOS

FLIGHTS = {
    "type": "function",
    "function": {
        "name": "search_flights",
        "description": "Finds flights between two cities.",
        "parameters": {
            "type": "object",
            "properties": {"from": {"type": "string"}, "to": {"type": "string"}},
            "required": ["from", "to"],
        },
    },
}


def called(number: int, name: str, arguments: dict[str, str], outcome: str) -> list[dict[str, object]]:
    """Return a call and its result, in OpenAI's shape."""
    call = {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": outcome, "duration_s": 0.8},
    ]


with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
    for start, end, outcome in (
        ("Paris", "Osaka", "3 flights found, the cheapest 812 EUR"),
        ("Rome", "Lima", "2 flights found"),
        ("Oslo", "Cairo", "5 flights found"),
    ):
        goal = {"role": "user", "content": f"Find me a flight from {start} to {end}."}
        memos.add(
            [
                goal,
                # The first try is a mistake that the next one learns from.
                *called(1, "search_flights", {"town": start}, "InvalidRequest error: give from and to"),
                *called(2, "search_flights", {"from": start, "to": end}, outcome),
            ],
            conversation=f"trip to {end}",
            tools=[FLIGHTS],
        )

    print("Before a call: was it made already?")
    before = memos.tools.called("search_flights", {"to": "Osaka", "from": "Paris"})
    print(" ", before.memory)
    print("  sources:", [source.passage for source in before.sources][-2:])

    print("Or asked in words:")
    hit = memos.search("Have we searched flights from Paris to Osaka before?")[0]
    print(" ", hit.item.type, "|", hit.item.memory.splitlines()[0])

    print("How good is the tool?")
    for use in memos.tools.list():
        print(f"  {use.tool}: {use.calls} calls, {use.success_rate:.0%} worked; {use.lesson}")

    memos.tasks.wait(timeout_s=60)
    print("What was learnt:")
    for item in memos.memories.list(filter={"type": "skill"}):
        if "skill" in item.info:
            print("  " + item.memory.replace("\n", "\n  "))
            print("  needs:", item.info["skill"]["preconditions"], "runs:", item.info["skill"]["runs"])
