"""The tree of commands: which words there are, where each is defined, and its help. It imports no command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

SETTINGS = {"help_option_names": ["-h", "--help"]}


class Command(NamedTuple):
    """A command: `module:function` below `memos.cli`, one line of help, and what its own help says besides."""

    target: str
    help: str
    more: str = ""
    example: str = ""


class Group(NamedTuple):
    """A group of commands; `own` is what it does without a further word."""

    help: str
    commands: Mapping[str, Command | Group]
    own: Command | None = None


Panels: TypeAlias = Mapping[str, Mapping[str, Command | Group]]

PROFILE = Group(
    "What is known about people, and how to change it.",
    {
        "show": Command("profile:show_profile", "Show a profile with its evidence, or its text for a prompt."),
        "subjects": Command("profile:list_subjects", "List the people a cube has a profile of."),
        "history": Command("profile:show_history", "Show every entry of one dimension, oldest first."),
        "diff": Command("profile:show_diff", "Show what was added, changed and ended between two times."),
        "rollback": Command("profile:roll_back", "Restore a trait from an entry of its history."),
        "set": Command("profile:set_trait", "Set a trait by hand; messages never change it."),
        "unset": Command("profile:unset_trait", "Remove a trait that was set by hand."),
        "templates": Command("profile:show_template", "Show the template of a cube's profiles, with every dimension."),
        "use": Command("profile:use_template", "Set a cube's own template, or the standard one again."),
    },
)
REVIEW = Group(
    "Memories that wait for approval, and corrections in doubt.",
    {
        "list": Command("review:list_pending", "List pending memories with sources and reason, oldest first."),
        "approve": Command("review:approve", "Approve a memory, so that searches find it."),
        "edit": Command("review:edit", "Approve a memory with another text."),
        "reject": Command("review:reject", "Delete a memory; `memos memory rollback` makes it pending again."),
        "relations": Command("review:relations", "List corrections in doubt: what may replace what, oldest first."),
        "decide": Command(
            "review:decide",
            "Decide whether a newer memory replaces an older one, or take a relation back.",
            example="memos memory review decide NEWER OLDER --holds",
            more="Both stay; a search puts the newer one first if it does. `--does-not-hold` takes back a relation "
            "of any kind (docs/concepts/truth.md).",
        ),
    },
)
TOOLS = Group(
    "The tools that were called, and with what result.",
    {
        "list": Command(
            "review:list_tools",
            "List tools: calls, success rate, last use and the last lesson.",
            more=(
                "`calls` counts answered calls; `worked` is the share that did not fail, or ? if unknown; the last "
                "lesson comes from the latest failure, or from what fixed it."
            ),
        ),
        "show": Command("review:show_tool", "Show the calls of a tool, the newest first, or one call."),
    },
)
MEMORY = Group(
    "Versions, facts, topics and review of memories, and calls of tools.",
    {
        "history": Command("memory:history", "Show every version of a memory."),
        "relations": Command("memory:relations", "List the relations of a memory to older and newer ones."),
        "rollback": Command("memory:rollback", "Restore an earlier version of a memory, or a deleted memory."),
        "erase": Command("memory:erase", "Permanently erase memories and all copies of them, and print the receipt."),
        "extract": Command(
            "memory:extract",
            "Extract facts from messages that were added without it.",
            more="Messages that were extracted before are skipped. Exit code 1 if a task failed.",
        ),
        "extractions": Command(
            "memory:extractions", "Show how facts were extracted from a message, or how a fact was extracted."
        ),
        "analyse": Command(
            "topics:analyse",
            "Extract facts, preferences, instructions and traits from older exchanges.",
            more="Without --everything, the 10 newest exchanges of a conversation are skipped.",
        ),
        "consolidate": Command("topics:consolidate", "Keep one current value per key, and merge duplicates."),
        "reflect": Command("topics:reflect", "Let the chat model draw conclusions from several facts."),
        "topics": Command("topics:topics", "List the topics of older exchanges, hottest first."),
        "context": Command("topics:context", "Show the working memory that a prompt begins with."),
        "pin": Command("topics:pin", "Keep a memory in the working memory, or keep a topic out of the archive."),
        "unpin": Command("topics:unpin", "Remove a pin."),
        "move": Command("topics:move", "Move a topic to another tier."),
        "review": REVIEW,
        "tools": TOOLS,
    },
)
RETENTION = Group(
    "Rules that archive, delete or erase old memories.",
    {
        "list": Command("cube:list_rules", "List a cube's rules in the order they are applied."),
        "add": Command("cube:add_rule", "Add a rule to archive, delete or erase old memories; applied every hour."),
        "remove": Command("cube:remove_rule", "Remove a rule; what it did is not undone."),
        "run": Command("cube:run_rules", "Apply a cube's rules now, or show what they would do."),
    },
)
CUBE = Group(
    "Cubes, their access, rules and events.",
    {
        "list": Command("cube:list_", "List the cubes."),
        "create": Command("cube:create", "Create an empty cube."),
        "edit": Command("cube:edit", "Change a cube's description, or whether personal data is masked in it."),
        "drop": Command("cube:drop", "Permanently erase a cube with everything in it."),
        "load": Command("cube:load", "Load a cube file as a new cube or into an existing one, entirely or not at all."),
        "inspect": Command("cube:inspect", "Check a cube file and show what is in it; load nothing."),
        "share": Command(
            "cube:share",
            "Grant a role on a cube, replacing an earlier one.",
            example="memos cube share alice team --role editor",
        ),
        "unshare": Command("cube:unshare", "Revoke a role on a cube."),
        "shares": Command("cube:shares", "List the roles granted on a cube."),
        "transfer": Command("cube:transfer", "Make somebody else the owner of a cube; other roles on it stay."),
        "events": Command(
            "watch:events",
            "Show the events of a cube: who did what and when, without memory text.",
            example="memos cube events --cube alice --follow --json",
        ),
        "retention": RETENTION,
    },
)
TASK = Group(
    "Background tasks, and a live view of the work.",
    {
        "list": Command("task:list_", "List tasks, newest first.", example="memos task list --state failed"),
        "show": Command("task:show", "Show one task."),
        "retry": Command("task:retry", "Run a failed, dead or cancelled task again."),
        "cancel": Command("task:cancel", "Cancel a task; nothing of its work is kept."),
        "wait": Command(
            "task:wait",
            "Run background tasks here until one task, or all, have ended.",
            more="Exit code 1 if that task did not succeed.",
        ),
        "work": Command("server:work", "Run background tasks until interrupted, beside servers on one PostgreSQL."),
        "top": Command("watch:top", "Show tiers, tasks and rates live, busiest cubes first, until interrupted."),
    },
)
KEY = Group(
    "API keys for the server.",
    {
        "create": Command("user:create_key", "Create a key and print its secret, which is shown only once."),
        "list": Command("user:list_keys", "List keys without their secrets, oldest first."),
        "rotate": Command(
            "user:rotate_key", "Create a key in place of another, which goes on working for some hours, and print it."
        ),
        "revoke": Command("user:revoke_key", "Revoke a key."),
    },
)
USER = Group(
    "Users, agents, groups and their API keys.",
    {
        "create": Command("user:create_user", "Create a user, agent or group."),
        "list": Command("user:list_users", "List users, agents and groups by id."),
        "show": Command("user:show_user", "Show a user, agent or group."),
        "enable": Command("user:enable_user", "Enable a user, agent or group again."),
        "disable": Command("user:disable_user", "Disable a user, agent or group; their data is kept."),
        "offboard": Command(
            "user:offboard",
            "End all access of a user or agent who leaves: keys, sessions, roles and memberships.",
            example="memos user offboard alice --transfer-to bob",
        ),
        "join": Command("user:join_group", "Make a user or agent a member of a group."),
        "leave": Command("user:leave_group", "Remove a member from a group."),
        "members": Command("user:list_members", "List a group's members by id."),
        "key": KEY,
        "audit": Command("user:audit", "Show who did what when, newest first, or have reads recorded too, or not."),
    },
)
ERASURE = Group(
    "Receipts of erasures, and proofs that what was erased is gone.",
    {
        "show": Command(
            "erasures:show_receipt",
            "Print the receipt of an erasure, signed, with what there was of each form before and after.",
            example="memos data erasure show ID --json > receipt.json",
        ),
        "verify": Command(
            "erasures:verify_receipt",
            "Check a receipt, and look for what was erased in every file and row.",
            example="memos data erasure verify receipt.json --text erased.txt",
            more="Exit code 1 if something contradicts the receipt.",
        ),
    },
)
SUBJECT = Group(
    "What is held about a person: show it, export it, or forget it.",
    {
        "preview": Command("erasures:preview_subject", "Show what is held about a person, and what would go."),
        "export": Command(
            "erasures:export_subject",
            "Write what is held about a person to a ZIP file: JSON, pages to read, and original files.",
            example="memos data subject export alice alice.zip",
        ),
        "forget": Command(
            "erasures:forget_subject",
            "Permanently erase what is held about a person.",
            example="memos data subject forget 'Alice Miller' --person",
            more="A user's cubes go with everything in them.",
        ),
    },
)
DATA = Group(
    "Checks, backups and moves of the whole installation, and requests of persons.",
    {
        "preview": Command(
            "data:preview",
            "Show what an import of a file would store; store nothing.",
            example="memos data preview conversations.json --mode fine",
            more="It shows the memories, the facts, and what is masked.",
        ),
        "verify": Command(
            "data:verify", "Compare the ledger with itself and the indexes.", more="Exit code 1 if something differs."
        ),
        "reindex": Command("data:reindex", "Rebuild the indexes from the ledger."),
        "reembed": Command(
            "data:reembed",
            "Embed every cube again with the configured embedder.",
            more="The embedder is MEMOS_EMBED__MODEL.",
        ),
        "backup": Command(
            "data:backup",
            "Write a consistent backup; test it by restoring it elsewhere.",
            example="memos data backup /srv/backups/monday",
        ),
        "backups": Command("data:backups", "List backups, or forget one whose folder was removed."),
        "restore": Command("data:restore", "Restore a backup; memories erased since stay erased."),
        "encrypt": Command(
            "data:encrypt",
            "Encrypt an installation at rest, with the master key of MEMOS_ENCRYPTION_KEY.",
            more="Needs the extra `encryption`. Nobody may have the installation open. What was cut off is run again.",
        ),
        "decrypt": Command("data:decrypt", "Turn encryption at rest off."),
        "rotate-key": Command(
            "data:rotate_key",
            "Change the master key, also while a server runs.",
            example="memos data rotate-key --to file:/etc/hippocube-2027.key",
        ),
        "migrate": Command(
            "data:migrate",
            "Copy an installation with its history to servers, or back.",
            example="memos data migrate --from ./data --to servers.toml",
            more="The source is not changed.",
        ),
        "erasure": ERASURE,
        "subject": SUBJECT,
    },
)
DOCS = Group(
    "Knowledge bases: documents to search, alone or with cubes.",
    {
        "add": Command(
            "docs:add",
            "Add files to a knowledge base.",
            example="memos docs add manuals *.pdf",
            more="Exit code 1 if a file could not be added or read; the others are added anyway.",
        ),
        "files": Command(
            "docs:files",
            "List the files of a knowledge base, newest first.",
            more="Deleted files are listed only with --state deleted.",
        ),
        "delete": Command(
            "docs:delete",
            "Delete a file with everything made from it.",
            more="Searches no longer find it; it is erased after the retention period.",
        ),
        "create": Command("docs:create", "Create an empty knowledge base."),
        "list": Command("docs:list_", "List the knowledge bases."),
        "show": Command("docs:show", "Show a knowledge base and the state of its files."),
        "drop": Command("docs:drop", "Permanently erase a knowledge base with all its files."),
    },
)
KV = Group(
    "Activation memory: the beginning of prompts, kept as a model's KV (docs/concepts/activation.md).",
    {
        "list": Command("model:list_kv", "List the memories that prompts of a cube begin with."),
        "stat": Command("model:show_tiers", "Show how full the tiers are."),
        "warm": Command("model:warm_kv", "Compute the KV of a cube's prompt prefix now, so that answers begin sooner."),
        "pin": Command(
            "model:pin_kv", "Make prompts of a cube begin with a memory; undo it with `memos memory unpin`."
        ),
        "drop": Command("model:drop_kv", "Remove the KV kept for a cube's prompts; it is computed again when needed."),
        "verify": Command("model:verify_kv", "Check every block on disk, and remove damaged ones."),
    },
)
ADAPTER = Group(
    "Parametric memory: stable memories of a cube, trained into an adapter (docs/concepts/parametric.md).",
    {
        "allow": Command("model:allow", "Allow training on memories of a cube."),
        "disallow": Command("model:disallow", "Disallow training, and remove the cube's adapters."),
        "preview": Command(
            "model:preview", "Show what the next adapter would be trained on, and why the rest is left out."
        ),
        "train": Command("model:train", "Train an adapter, evaluate it, and activate it if it passes."),
        "forget": Command("model:forget", "Permanently remove adapters trained on memories; the memories are kept."),
        "list": Command("model:list_adapters", "List the adapters of a cube, newest first."),
        "show": Command("model:show", "Show an adapter and its evaluation."),
        "export": Command("model:export", "Export an adapter's files for peft and other tools."),
        "activate": Command("model:activate", "Activate an adapter, in place of the active one."),
        "remove": Command("model:remove", "Remove an adapter and its files."),
    },
)
MCP = Group(
    "Serve memory to one MCP host over standard input and output, or enter it in a host's configuration.",
    {
        "install": Command(
            "hosts.mcp_commands:install",
            "Enter memory in the configuration of an MCP host; show the change first.",
            example="memos mcp install cursor --rules --in-project",
            more="Hosts: claude-code, claude-desktop, cursor, codex, gemini, cline, zed, vscode, windsurf.",
        ),
        "uninstall": Command(
            "hosts.mcp_commands:uninstall",
            "Take memory out of the configuration of an MCP host; leave the rest as it is.",
            example="memos mcp uninstall cursor",
        ),
    },
    own=Command(
        "server:mcp",
        "Serve memory to one MCP host over standard input and output, or enter it in a host's configuration.",
    ),
)
CLAUDE = Group(
    "Memory for Claude Code: a plugin with hooks, tools and a skill (docs/how-to/integrations/claude-code.md).",
    {
        "install": Command(
            "hosts.claude_commands:install",
            "Write the plugin, which the next session of Claude Code loads.",
            example="memos claude install --scope project",
        ),
        "uninstall": Command("hosts.claude_commands:uninstall", "Remove the plugin, and every trace of it."),
        "status": Command(
            "hosts.claude_commands:status",
            "Show whether the plugin is installed, reaches memory, and has stored what was said.",
            more="Exit code 1 if something is wrong.",
        ),
    },
)
TREE: Panels = {
    "Every day": {
        "add": Command("memory:add", "Store one message.", example='memos add "I live in Lyon." --name Alice'),
        "search": Command(
            "memory:search", "Find memories.", example='memos search "Where does Alice live?" --cube alice --explain'
        ),
        "list": Command(
            "memory:list_", "List a cube's memories, oldest first.", example='memos list --filter \'{"tags": "work"}\''
        ),
        "show": Command("memory:show", "Show one memory with its sources."),
        "edit": Command("memory:edit", "Change a memory; earlier versions are kept."),
        "feedback": Command(
            "memory:feedback",
            "Correct memories in plain words.",
            example='memos feedback "No, I moved to Lyon in May." --speaker Alice',
        ),
        "forget": Command(
            "memory:forget",
            "Delete memories; `memos memory rollback` restores them.",
            more="To remove them permanently: memos memory erase",
        ),
        "chat": Command(
            "chat:chat",
            "Ask the chat model, with memories in the prompt.",
            example='memos chat "Where does Alice live?" --cube alice',
            more="The question and the answer are stored too.",
        ),
    },
    "In and out": {
        "import": Command(
            "data:import_",
            "Import what another program exported; running it again adds only what is missing.",
            example="memos import ChatGPT-export.zip --preview",
            more="To load a cube file written by `memos export`, use `memos cube load`.",
        ),
        "export": Command(
            "cube:export",
            "Export a cube with its history to one file.",
            example="memos export default life.memcube --seal",
        ),
    },
    "Programs": {
        "serve": Command(
            "server:serve",
            "Serve memory over HTTP until interrupted.",
            example="memos serve --host 0.0.0.0 --port 8765",
            more="The first start prints an admin's key, once.",
        ),
        "console": Command(
            "server:console",
            "Open the console in a browser; start a server if none runs.",
            example="memos console --no-browser",
            more="The address signs in once. On another machine sign in with an API key at /console.",
        ),
        "mcp": MCP,
        "claude": CLAUDE,
        "doctor": Command(
            "doctor:doctor",
            "Check the installation, and say what to fix.",
            more="Exit code 1 if there is a problem.",
        ),
        "evaluate": Command(
            "evaluate:evaluate",
            "Ask questions made from a cube's own memories, and report what is found, and how fast.",
            example="memos evaluate --cube alice --embedder e5",
            more="Nothing is sent anywhere, but with --with-model to the reader model; no memory becomes hotter.",
        ),
        "demo": Command("demo.run:demo", "Run a demonstration on a bundled conversation, in a temporary folder."),
        "version": Command("app:version", "Print the version."),
    },
    "More": {
        "profile": PROFILE,
        "docs": DOCS,
        "memory": MEMORY,
        "cube": CUBE,
        "task": TASK,
        "user": USER,
        "data": DATA,
        "model": Group(
            "Language models: what one is trusted with, KV caches of prompts, and adapters.",
            {
                "test": Command("model:test", "Examine the reader's model, and say what it is trusted with."),
                "kv": KV,
                "adapter": ADAPTER,
            },
        ),
    },
}

REMOVED = {
    "adapters diff": "`memos model adapter export ID FOLDER` writes a `manifest.json` with the memories it saw",
    "adapters estimate": "`memos model adapter train` reports its progress",
    "adapters rollback": "activate the earlier adapter with `memos model adapter activate ID`",
}
"""Commands of version 0.1 without a successor of the same arguments, and what does the same."""


_MEMORY = (
    "erase",
    "history",
    "rollback",
    "extractions",
    "analyse",
    "consolidate",
    "reflect",
    "pin",
    "unpin",
    "move",
    "review",
    "tools",
)
_DATA = ("verify", "reindex", "reembed", "backup", "backups", "restore", "migrate")
FORMER = {
    **{word: f"memory {word}" for word in _MEMORY},
    **{word: f"data {word}" for word in _DATA},
    "get": "show",
    "update": "edit",
    "delete": "forget",
    "read-finely": "memory extract",
    "segments": "memory topics",
    "working": "memory context",
    "cubes": "cube",
    "cubes change": "cube edit",
    "cubes dump": "export",
    "cube dump": "export",
    "share": "cube",
    "share grant": "cube share",
    "share revoke": "cube unshare",
    "share list": "cube shares",
    "events": "cube events",
    "retention": "cube retention",
    "tasks": "task",
    "work": "task work",
    "top": "task top",
    "users": "user",
    "keys": "user key",
    "read": "data preview",
    "kb": "docs",
    "kv": "model kv",
    "kv ls": "model kv list",
    "adapters": "model adapter",
    "adapters learn-again": "model adapter allow",
    "adapters ls": "model adapter list",
    "adapters retrain": "model adapter train",
    "adapters rm": "model adapter remove",
}
"""Words of version 0.1, and what they are now. They answer until version 0.3."""


class Commands(TyperGroup):
    """A group that imports a command only to run it or to show its own help."""

    panels: Panels = TREE
    path: tuple[str, ...] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_entries(self.panels))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _entries(self.panels).get(cmd_name)
        if isinstance(entry, Group):
            own = None if entry.own is None else _command(cmd_name, entry.own)
            group = Commands(
                name=cmd_name,
                help=entry.help,
                epilog=own and own.epilog,
                params=own and own.params,
                callback=own and own.callback,
                invoke_without_command=own is not None,
                no_args_is_help=own is None,
                rich_markup_mode=None,
                context_settings=SETTINGS,
            )
            group.panels = {"Commands": entry.commands}
            group.path = (*self.path, cmd_name)
            return group
        return None if entry is None else _command(cmd_name, entry)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of a word, or without one what the group itself does."""
        if self.path and (ctx.args or ctx._protected_args):
            self.callback = None
        return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that arguments begin with; a former name prints a notice and runs the present command."""
        words = [*self.path, *args]
        if args[0] not in _entries(self.panels):
            for count in (2, 1):
                former = " ".join(words[:count])
                if former in REMOVED:
                    ctx.fail(f"`memos {former}` was removed: {REMOVED[former]}")
                if former in FORMER and count > len(self.path):
                    return self._moved(ctx, former, words[count:])
            everyday = FORMER.get(args[0], args[0])
            if self.path == ("memory",) and everyday in _entries(TREE) and not ctx.resilient_parsing:
                ctx.fail(f"No such command {args[0]!r}. Did you mean `memos {everyday}`?")
            if not self.path and not ctx.resilient_parsing and (whole := _further_down(args)) is not None:
                ctx.fail(f"No such command {args[0]!r}. Did you mean `memos {whole}`?")
            close = get_close_matches(args[0], [*self.list_commands(ctx), *(() if self.path else FORMER)], 1)
            if close and not ctx.resilient_parsing:
                meant = " ".join((*self.path, close[0]))
                ctx.fail(f"No such command {args[0]!r}. Did you mean `memos {FORMER.get(meant, meant)}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, entries in self.panels.items():
            with formatter.section(title):
                formatter.write_dl([(word, entry.help) for word, entry in entries.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete an option, or a word of the group without importing its command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        stubs: Any = {word: TyperCommand(word, help=entry.help) for word, entry in _entries(self.panels).items()}
        shallow = TyperGroup(name=self.name, commands=stubs)
        return shallow.shell_complete(shallow.make_context(self.name, [], resilient_parsing=True), incomplete)

    def _moved(self, ctx: Any, former: str, rest: list[str]) -> Any:
        now = FORMER[former]
        command: Any = Commands(name="memos")
        for word in now.split():
            command = command.get_command(ctx, word)
        if not ctx.resilient_parsing:
            known = isinstance(command, Commands) and rest and rest[0] in command.list_commands(ctx)
            below = f" {rest[0]}" if known else ""
            sys.stderr.write(f"`memos {former}{below}` is now `memos {now}{below}`.\n")
        return now, command, rest


def _further_down(args: Sequence[str]) -> str | None:
    """Return the full name of the command or group in the tree that ends with the first of these arguments."""
    for count in range(min(len(args), 3), 0, -1):
        asked = f" {' '.join(args[:count])} "
        for path, _ in walk():
            before, found, _ = f" {path} ".partition(asked)
            if found:
                return f"{before}{asked}".strip()
    return None


def _command(word: str, entry: Command) -> Any:
    module, _, function = entry.target.partition(":")
    callback = getattr(import_module(f"memos.cli.{module}"), function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    example = f"Example: {entry.example}" if entry.example else None
    alone.command(word, help=f"{entry.help} {entry.more}", epilog=example, context_settings=SETTINGS)(callback)
    return get_command(alone)


def _entries(panels: Panels) -> dict[str, Command | Group]:
    return {word: entry for entries in panels.values() for word, entry in entries.items()}


def walk(panels: Panels = TREE) -> Iterator[tuple[str, Command]]:
    for word, entry in _entries(panels).items():
        if isinstance(entry, Command):
            yield word, entry
        else:
            if entry.own is not None:
                yield word, entry.own
            yield from ((f"{word} {below}", command) for below, command in walk({"": entry.commands}))
